"""Takes the pictures of the guide to reports: ``python docs/screenshots.py REPORT.html``; needs Chromium."""

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parent / "images"
SIZES = {"desktop": (1280, 1000), "phone": (390, 844)}
SECTIONS = {
    ("desktop", "light"): "runs",
    ("desktop", "dark"): "pairs",
    ("phone", "light"): "map",
    ("phone", "dark"): "neighbours",
}


def take(report: Path) -> None:
    """One picture for each kind of screen and each colour scheme."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for (device, scheme), section in SECTIONS.items():
            width, height = SIZES[device]
            page = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme=scheme, is_mobile=device == "phone"
            )
            page.goto(report.resolve().as_uri())
            page.wait_for_selector("body[data-drawn]")
            if section != "runs":
                page.evaluate(f"document.documentElement.style.scrollBehavior = 'auto'; location.hash = '{section}'")
            out = IMAGES / f"report-{device}-{scheme}.png"
            picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            picture.quantize(255).save(out, optimize=True)
            print(f"wrote {out}, {out.stat().st_size // 1000} kB")
        browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]))
