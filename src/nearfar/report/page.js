"use strict";
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)");
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(name).trim();
  const hidden = new Set(); // the groups, runs and classes, that are switched off
  let figures = JSON.parse(document.getElementById("figures").textContent);

  // Figures

  function coloured(part) {
    if (Array.isArray(part)) return part.map((one) => (one && typeof one === "object" ? coloured(one) : one));
    return Object.fromEntries(Object.entries(part).map(([key, one]) => {
      if (one && typeof one === "object") return [key, coloured(one)];
      return [key, /^(fill)?color$/.test(key) && String(one).startsWith("--") ? value(one) : one];
    }));
  }

  function axisLook(axis) {
    const lines = { gridcolor: value("--grid"), linecolor: value("--rule"), zerolinecolor: value("--rule") };
    const title = { ...axis.title, standoff: 8 };
    return { automargin: true, ...lines, ...axis, title };
  }

  function layoutOf({ data, layout }) {
    const text = { family: value("--font"), color: value("--text"), size: 13 };
    return {
      height: 340,
      margin: { l: 48, r: 8, t: 8, b: 40 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: text,
      hoverlabel: { bgcolor: value("--page"), bordercolor: value("--soft"), font: text },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
      modebar: { bgcolor: value("--panel"), color: value("--soft"), activecolor: value("--link") },
      showlegend: data.length > 1,
      uirevision: "kept", // what the reader zoomed to, or switched off, stays when new numbers come
      dragmode: touch.matches ? false : "zoom", // on a phone a finger scrolls the page
      ...coloured(layout),
      xaxis: axisLook(coloured(layout.xaxis)),
      yaxis: axisLook(coloured(layout.yaxis)),
    };
  }

  const config = {
    displaylogo: false,
    responsive: true,
    displayModeBar: touch.matches ? false : "hover",
    modeBarButtons: [["toImage"], ["zoom2d", "pan2d"], ["resetScale2d"]], // none that sends the figure anywhere
    plotlyServerURL: "",
  };

  function draw(name) {
    const plot = document.getElementById(`plot-${name}`);
    const data = coloured(figures[name].data);
    for (const trace of data) if (hidden.has(trace.meta?.group)) trace.visible = false;
    return Plotly.react(plot, data, layoutOf(figures[name]), config);
  }

  async function drawAll(names) {
    for (const name of names) {
      await draw(name);
      await new Promise((resume) => setTimeout(resume)); // the page stays alive between two figures
    }
    document.body.dataset.drawn = Object.keys(figures).length;
  }

  // Runs and classes to show

  function showGroups() {
    for (const part of document.querySelectorAll("[data-group]")) part.hidden = hidden.has(part.dataset.group);
    for (const button of document.querySelectorAll("[data-switch]")) {
      button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.switch)));
    }
  }

  document.addEventListener("click", (event) => {
    const group = event.target.closest("[data-switch]")?.dataset.switch;
    if (!group) return;
    if (!hidden.delete(group)) hidden.add(group);
    showGroups();
    const holds = (name) => figures[name].data.some((trace) => trace.meta?.group === group);
    drawAll(Object.keys(figures).filter(holds));
  });

  // Live

  const body = document.body;
  const status = document.getElementById("status");

  const taken = new Map(); // what was last put where

  function put(id, html) {
    const old = document.getElementById(id);
    if (old && (taken.get(id) ?? old.innerHTML) !== html) old.innerHTML = html;
    taken.set(id, html);
  }

  /** Take over what is new, and leave what is there as it is: figures keep their zoom, tables stay open. */
  function merge(known, fresh) {
    for (const part of fresh.querySelectorAll("[data-text]")) put(part.id, part.innerHTML);
    for (const grid of fresh.querySelectorAll(".grid")) {
      const old = document.getElementById(grid.parentElement.id)?.querySelector(".grid");
      for (const figure of old ? [...grid.children] : []) {
        if (!document.getElementById(figure.id)) old.append(figure);
      }
    }
    let before = null;
    for (const section of [...fresh.children].reverse()) {
      const old = document.getElementById(section.id);
      if (!old) known.insertBefore(section, before);
      before = old || section;
    }
  }

  function take(page) {
    for (const id of ["status", "notes", "links"]) put(id, page[id]);
    const fresh = document.createElement("div");
    fresh.innerHTML = page.sections;
    merge(document.getElementById("sections"), fresh);
    figures = page.figures;
    body.dataset.version = page.version;
    showGroups();
    return drawAll(Object.keys(figures));
  }

  let failures = 0;
  async function poll() {
    try {
      const answer = await fetch(`page.json?known=${encodeURIComponent(body.dataset.version)}`, { cache: "no-store" });
      failures = 0;
      if (answer.status === 200) await take(await answer.json());
    } catch {
      failures += 1;
    }
    if (failures < 3) setTimeout(poll, 1000);
    else status.textContent += " · nearfar watch has ended; the page stays as it is";
  }

  dark.addEventListener("change", () => drawAll(Object.keys(figures)));
  drawAll(Object.keys(figures)).then(() => { if (body.dataset.version) poll(); });
})();
