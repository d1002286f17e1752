"""The command line end to end, on digits: the commands a user types, and what they leave and print."""

import io
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import nearfar as nf
from nearfar.data.dataset import Dataset
from nearfar.display import CopyingDisplay
from nearfar.evaluation import clustering
from nearfar.model.metric import Metric, load_metric
from nearfar.model.run import RunFolder
from nearfar.settings import TrainingSettings
from tests.commands import ended, nearfar, running, wait_until

QUICK = ("--rank", "8", "--block-size", "200", "--batch-size", "200")
HISTORY_KEYS = {
    "step", "seconds", "pairs", "points", "objective", "ap", "pairs_per_second", "staleness_mean", "staleness_max",
    "queue_depth", "bytes", "workers",
}  # fmt: skip
FIGURES = {
    "average_precision", "roc_auc", "accuracy", "threshold", "equal_error_rate", "n_similar", "n_dissimilar",
    "3nn_error", "recall_at_1", "recall_at_5", "recall_at_10",
}  # fmt: skip
ESCAPE = "\x1b"


def history(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, digits: tuple[np.ndarray, np.ndarray]) -> Path:
    """Datasets ``labelled``, ``paired``, ``compared`` and ``test``, with the .npz files they are made of."""
    folder = tmp_path_factory.mktemp("data")
    X, y = digits
    np.savez(folder / "train.npz", X=X[:1200], y=y[:1200])
    np.savez(folder / "test.npz", X=X[1200:], y=y[1200:])
    for name in ("labelled", "paired", "compared"):
        printed = nearfar("ingest", folder / "train.npz", "--out", folder / name)
        assert printed == f"{folder / name}: 1200 points of 64 features, dense\n"
    nearfar("ingest", folder / "test.npz", "--out", folder / "test")
    nearfar("sample", folder / "paired", "--similar", "2000", "--dissimilar", "1500")
    nearfar("sample", folder / "compared", "--triplets", "3000")
    return folder


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that learned from pairs."""
    out = tmp_path_factory.mktemp("runs") / "run"
    nearfar("train", data / "paired", "--out", out, *QUICK, "--steps", "150")
    return out


def test_sampled_constraints_agree_with_the_labels(data: Path) -> None:
    paired, compared = Dataset.open(data / "paired"), Dataset.open(data / "compared")
    assert paired.labels is not None
    left, right = paired.labels[paired.constraints.similar].T
    assert len(left) == 2000
    assert (left == right).all()
    left, right = paired.labels[paired.constraints.dissimilar].T
    assert len(left) == 1500
    assert (left != right).all()
    anchor, near, far = paired.labels[compared.constraints.indices].T
    assert len(anchor) == 3000
    assert (anchor == near).all()
    assert (anchor != far).all()


def test_synthetic_data_trains_and_is_judged(tmp_path: Path) -> None:
    made = nearfar("synthesize", "text-1m", "--points", "2000", "--features", "20000", "--out", tmp_path / "d")
    assert made.splitlines() == [
        f"{tmp_path / 'd'}: 2000 points of 20000 features, sparse",
        f"{tmp_path / 'd-test'}: 200 points of 20000 features, sparse",
    ]
    nearfar("train", tmp_path / "d", "--out", tmp_path / "run", *QUICK, "--steps", "5")
    nearfar("evaluate", tmp_path / "run", tmp_path / "d-test", "--pairs", "100", "--json")
    for wrong in (("--seed", "-1"), ("--points", "3"), ("--out", tmp_path / "d"), ("--features", "9")):
        code, _, err = ended("synthesize", "text-1m", "--out", tmp_path / "new", *wrong)
        assert code == 2, wrong
        assert err.splitlines()[-1].startswith("error: ")
    code, _, err = ended("synthesize", "mnist", "--out", tmp_path / "new")
    assert code == 2
    assert "imnet-63k" in err
    assert {path.name for path in tmp_path.iterdir()} == {"d", "d-test", "run"}


def test_sampling_again_replaces_what_was_stored(data: Path, tmp_path: Path) -> None:
    nearfar("ingest", data / "train.npz", "--out", tmp_path / "d")
    assert "10 similar, 20 dissimilar pairs" in nearfar(
        "sample", tmp_path / "d", "--similar", "10", "--dissimilar", "20"
    )
    assert "30 triplets" in nearfar("sample", tmp_path / "d", "--triplets", "30")
    assert {path.name for path in (tmp_path / "d").iterdir()} == {
        "dataset.json", "points.npy", "labels.npy", "triplets.npy",
    }  # fmt: skip
    assert "30 triplets" in nearfar("sample", tmp_path / "d", "--triplets", "30", "--among-neighbours")
    assert "10 similar" in nearfar("sample", tmp_path / "d", "--similar", "10", "--dissimilar", "20")


def test_ingested_constraints_are_replaced_only_when_asked(data: Path, tmp_path: Path) -> None:
    similar = tmp_path / "similar.txt"
    similar.write_text("0 1\n2 3\n")
    nearfar("ingest", data / "train.npz", "--similar", similar, "--out", tmp_path / "d")
    drawing = ("sample", tmp_path / "d", "--triplets", "30")
    code, _, err = ended(*drawing)
    assert code == 2
    assert "2 similar, 0 dissimilar" in err
    assert "30 triplets" in nearfar(*drawing, "--replace")
    assert "30 triplets" in nearfar(*drawing)


@pytest.mark.parametrize(
    ("dataset", "options", "learns_from"),
    [
        ("labelled", (), "labels"),
        ("paired", (), "pairs"),
        ("paired", ("--from-labels",), "labels"),
        ("paired", ("--loss", "hinge", "--workers", "2"), "pairs"),
        ("labelled", ("--loss", "neighbour"), "labels"),
        ("labelled", ("--loss", "comparison"), "labels"),
        ("compared", (), "comparisons"),
    ],
)
def test_every_kind_of_constraint_trains_a_metric_better_than_none(
    data: Path, tmp_path: Path, dataset: str, options: tuple[str, ...], learns_from: str
) -> None:
    out = tmp_path / "run"
    nearfar("train", data / dataset, "--out", out, *QUICK, "--steps", "120", *options)
    settings, source = RunFolder(out).read()
    assert source["learns_from"] == learns_from
    assert settings.steps == 120
    judged = json.loads(nearfar("evaluate", out, data / "test", "--pairs", "2000", "--json"))
    assert judged["learned"]["average_precision"] > judged["euclidean"]["average_precision"]


def test_a_run_folder_holds_these_files_and_no_others(run: Path) -> None:
    assert {path.name for path in run.iterdir()} == {"run.toml", "history.jsonl", "checkpoints", "metric.safetensors"}
    assert all(re.fullmatch(r"step-\d{10}\.safetensors", path.name) for path in (run / "checkpoints").iterdir())


def test_history_has_a_line_a_report_with_everything_in_it(run: Path) -> None:
    reports = history(run)
    assert all(report.keys() >= HISTORY_KEYS for report in reports)
    assert [report["step"] for report in reports] == sorted({report["step"] for report in reports})
    assert reports[0]["step"] == 0
    assert reports[-1]["step"] == 150
    assert reports[-1]["objective"] < reports[0]["objective"]
    assert 0 < reports[-1]["ap"] <= 1
    # Pairs that touch a held-out point are passed over: about one in five of the 200 in a batch.
    assert 0.7 * 150 * 200 < reports[-1]["pairs"] < 150 * 200
    assert reports[-1]["workers"][0]["steps"] == 150


def test_run_toml_is_the_settings_it_ran_with(run: Path) -> None:
    settings, _ = RunFolder(run).read()
    assert settings == TrainingSettings(rank=8, block_size=200, batch_size=200, steps=150)


def test_evaluate_prints_the_figures_of_the_json_as_a_table(run: Path, data: Path) -> None:
    judged = json.loads(nearfar("evaluate", run, data / "test", "--json"))
    assert judged.keys() == {"learned", "euclidean"}
    assert judged["learned"].keys() == judged["euclidean"].keys() >= FIGURES
    table = nearfar("evaluate", run, data / "test")
    for figures in judged.values():
        for name in ("average_precision", "roc_auc", "accuracy", "equal_error_rate", "recall_at_1"):
            assert f"{figures[name]:.4f}" in table
        assert f"{100 * figures['3nn_error']:.2f}" in table
    assert table.splitlines()[0].strip()


def test_evaluate_writes_curves_that_belong_to_its_figures(run: Path, data: Path, tmp_path: Path) -> None:
    quick = ("--neighbours", "0", "--clusters", "0", "--resamples", "20")
    judged = json.loads(nearfar("evaluate", run, data / "test", *quick, "--curves", tmp_path / "c.json", "--json"))
    curves = json.loads((tmp_path / "c.json").read_text())
    assert curves.keys() == judged.keys()
    for name, figures in judged.items():
        assert figures["resamples"] == 20
        assert "map_at_r" not in figures
        roc = curves[name]["roc"]
        assert len(roc["threshold"]) == len(roc["true_positive_rate"]) <= 500
        area = np.trapezoid(roc["true_positive_rate"], roc["false_positive_rate"])
        assert area == pytest.approx(figures["roc_auc"], abs=2 * roc["error"])
        recall, precision = curves[name]["precision_recall"]["recall"], curves[name]["precision_recall"]["precision"]
        for at in ("0.3", "0.7"):
            found = figures["precision_at_recall"][at]
            assert np.interp(float(at), recall, precision) == pytest.approx(found, abs=0.02)


def test_evaluate_notes_what_only_one_distance_is_not_judged_by(run: Path, data: Path, monkeypatch) -> None:
    monkeypatch.setattr(clustering, "_MOST_WORK", 10 * 20 * 30)  # enough for 30 points of rank 8, not of 64 features
    code, table, notes = ended("evaluate", run, data / "test", "--neighbours", "0")
    assert code == 0
    assert notes.startswith("note: euclidean: clusters are left out: k-means takes too long with 10 clusters")
    assert re.search(r"k-means NMI +│ +0\.\d+ +│ +– ", table)


def test_evaluate_takes_a_metric_file_and_other_neighbours(run: Path, data: Path) -> None:
    judged = json.loads(
        nearfar("evaluate", run / "metric.safetensors", data / "test", "--neighbours", "5", "--pairs", "50", "--json")
    )
    assert judged["learned"]["n_similar"] == 50
    assert 0 <= judged["learned"]["5nn_error"] <= 1


@pytest.mark.parametrize("source", ["test.npz", "test"])
def test_transform_writes_what_the_metric_gives(run: Path, data: Path, tmp_path: Path, source: str) -> None:
    printed = nearfar("transform", run, data / source, "--out", tmp_path / "projected.npy")
    assert printed == f"{tmp_path / 'projected.npy'}: 597 points of 8 features\n"
    expected = load_metric(run / "metric.safetensors").transform(np.load(data / "test.npz")["X"])
    assert np.array_equal(np.load(tmp_path / "projected.npy"), expected)


def test_every_setting_is_an_option_with_its_explanation_unspoiled() -> None:
    shown = " ".join(nearfar("train", "--help").split())
    for setting in fields(TrainingSettings):
        assert f"--{setting.name.replace('_', '-')} " in shown
        explanation = setting.metadata["help"]
        assert explanation[1:] in shown
        first = explanation.split()[0]
        assert first in shown or first.capitalize() in shown
    assert "C: the squared" not in shown
    assert "Λ" not in shown


def test_the_version_is_that_of_the_package() -> None:
    assert nearfar("--version") == f"nearfar {nf.__version__}\n"
    assert "--version" in nearfar("--help")


def test_help_names_every_command_in_a_whole_sentence() -> None:
    shown = nearfar("--help")
    assert shown == nearfar()
    for command in ("demo", "ingest", "sample", "train", "evaluate", "transform"):
        assert re.search(rf"^  {command} +[A-Z].*[^.]\.$", shown, re.MULTILINE)


@pytest.mark.parametrize(
    "options", [(), ("--workers", "3"), ("--workers", "2", "--threads-per-worker", "2"), ("--consistency", "bsp")]
)
def test_steps_are_counted_over_all_workers_exactly(data: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    out = tmp_path / "run"
    printed = nearfar("train", data / "labelled", "--out", out, *QUICK, *options, "--steps", "61")
    assert ": 61 steps, " in printed
    last = history(out)[-1]
    assert last["step"] == sum(worker["steps"] for worker in last["workers"]) == 61


def test_epochs_are_passes_over_the_constraints(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = ("--held-out", "0", "--epochs", "1.5")
    nearfar("train", data / "paired", "--out", out, *QUICK, *options)
    assert history(out)[-1]["step"] == 30  # 2000 similar pairs, 100 of them a step


def test_minutes_end_the_training(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    began = time.monotonic()
    printed = nearfar("train", data / "labelled", "--out", out, *QUICK, "--minutes", "0.02", "--report-every", "1")
    assert time.monotonic() - began >= 1.2
    assert "the budget is used up" in printed
    assert history(out)[-2]["seconds"] <= 1.2  # every step is reported, and the first one after that was the last


def test_patience_ends_the_training_before_its_budget(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = ("--steps", "100000", "--patience", "2", "--report-every", "5", "--schedule", "constant")
    printed = nearfar("train", data / "labelled", "--out", out, *QUICK, *options)
    assert "no better in 2 reports" in printed
    assert history(out)[-1]["step"] < 100_000


def test_without_a_budget_training_ends_by_itself(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    printed = nearfar("train", data / "labelled", "--out", out, *QUICK, "--report-every", "20")
    assert "no better in" in printed
    reports = history(out)
    assert min(report["objective"] for report in reports) < 0.8 * reports[0]["objective"]


def test_with_nothing_held_out_the_objective_is_that_of_batches_and_the_start_has_none(
    data: Path, tmp_path: Path
) -> None:
    options = (*QUICK, "--report-every", "10", "--schedule", "constant", "--held-out", "0")
    code, out, err = ended("train", data / "labelled", "--out", tmp_path / "run", *options, "--patience", "2")
    assert code == 0
    assert re.search(r"objective of the last batches \d.*; the objective of the last batches was no better in", out)
    assert "held-out objective" not in out + err
    assert "note: " not in err
    assert re.search(r"step 0  objective –  ", err)
    reports = list(RunFolder(tmp_path / "run").reports())
    assert not any(report.judged for report in reports)
    assert min(report.objective for report in reports[1:]) == pytest.approx(
        float(re.findall(r"batches (\d\S*);", out)[0]), abs=1e-3
    )

    page = nearfar("report", tmp_path / "run", "--out", tmp_path / "report.html", "--dataset", data / "test")
    assert "1 run" in page
    assert "held nothing out" in (tmp_path / "report.html").read_text()
    assert f"objective {reports[-1].objective:.4f}" in nearfar("watch", tmp_path / "run", "--terminal", "--until-done")


def test_it_is_noted_where_too_little_is_given_to_hold_any_out(tmp_path: Path) -> None:
    np.savez(tmp_path / "few.npz", X=np.random.default_rng(0).normal(size=(9, 4)), y=np.arange(9) % 3)
    nearfar("ingest", tmp_path / "few.npz", "--out", tmp_path / "few")
    code, out, err = ended("train", tmp_path / "few", "--out", tmp_path / "run", "--steps", "5")
    assert code == 0
    assert "note: too little is given to hold any of it out" in err
    assert "5 steps, objective of the last batches" in out


def test_resume_goes_on_where_the_run_ended(data: Path, tmp_path: Path) -> None:
    at_once, in_two = tmp_path / "at-once", tmp_path / "in-two"
    options = (*QUICK, "--schedule", "constant", "--report-every", "20")
    nearfar("train", data / "paired", "--out", at_once, *options, "--steps", "80")
    nearfar("train", data / "paired", "--out", in_two, *options, "--steps", "40")
    nearfar("train", data / "paired", "--out", in_two, *options, "--steps", "80", "--resume")
    assert [report["step"] for report in history(in_two)] == [0, 20, 40, 60, 80]
    seconds = [report["seconds"] for report in history(in_two)]
    assert seconds == sorted(seconds)
    components = [load_metric(run / "metric.safetensors").components for run in (at_once, in_two)]
    assert np.array_equal(*components)


def test_a_run_killed_before_its_first_checkpoint_begins_again(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = ("train", data / "paired", "--out", out, *QUICK, "--report-every", "20", "--steps", "40")
    nearfar(*command)
    (out / "metric.safetensors").unlink()
    for checkpoint in (out / "checkpoints").iterdir():
        checkpoint.unlink()
    nearfar(*command, "--resume")
    assert [report["step"] for report in history(out)] == [0, 20, 40]
    assert (out / "metric.safetensors").exists()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_training_that_diverges_ends_in_one_line_too(data: Path, tmp_path: Path, workers: str) -> None:
    options = ("--update-rule", "sgd", "--step-size", "1e30", "--steps", "50", "--workers", workers)
    code, _, shown = ended("train", data / "paired", "--out", tmp_path / "run", *QUICK, *options)
    assert code == 2
    assert "step_size" in shown.splitlines()[-1]
    assert shown.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in shown


def test_without_ray_the_engine_ray_is_an_error_before_work_starts(data: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    code, out, err = ended("train", data / "paired", "--out", tmp_path / "run", *QUICK, "--engine", "ray")
    assert (code, out, err) == (2, "", "error: engine ray needs Ray; install it with: pip install 'nearfar[ray]'\n")
    assert not list(tmp_path.iterdir())


def test_a_metric_is_of_use_when_the_data_of_its_run_is_gone(data: Path, tmp_path: Path) -> None:
    nearfar("ingest", data / "train.npz", "--out", tmp_path / "d")
    nearfar("train", tmp_path / "d", "--out", tmp_path / "run", *QUICK, "--steps", "5")
    shutil.rmtree(tmp_path / "d")
    code, _, shown = ended("transform", tmp_path / "run", data / "test", "--out", tmp_path / "projected.npy")
    assert (code, shown) == (0, "")
    code, _, shown = ended("evaluate", tmp_path / "run", data / "test", "--pairs", "100")
    assert code == 0
    assert shown.startswith("note: the dataset of the run is not there any more")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_the_run_and_resume_finishes_it(data: Path, tmp_path: Path, number: int) -> None:
    out = tmp_path / "run"
    options = (*QUICK, "--workers", "2", "--report-every", "5")
    command = ("train", data / "labelled", "--out", out, *options, "--steps", "1000000")
    with running(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as training:
        wait_until(lambda: (out / "history.jsonl").exists() and _lines(out / "history.jsonl") > 2, training)
        training.send_signal(number)
        printed, shown = training.communicate(timeout=120)
    assert training.returncode == 130, shown
    stopped = re.fullmatch(r"stopped at step (\d+), saved; go on with the same command and --resume\n", printed)
    assert stopped, printed
    assert "Traceback" not in shown
    assert ESCAPE not in printed + shown
    assert all(re.match(r" *\d+\.\d s  step \d+  objective ", line) for line in shown.splitlines())
    assert {path.name for path in out.iterdir()} == {"run.toml", "history.jsonl", "checkpoints"}
    assert history(out)[-1]["step"] == int(stopped[1])
    assert int(max((out / "checkpoints").iterdir()).stem.removeprefix("step-")) == int(stopped[1])
    steps = int(stopped[1]) + 25
    nearfar("train", data / "labelled", "--out", out, *options, "--steps", str(steps), "--resume")
    reached = [report["step"] for report in history(out)]
    assert reached == sorted(set(reached))
    assert reached[-1] == steps
    assert load_metric(out / "metric.safetensors").rank == 8


def test_tables_with_text_are_transformed_and_searched_for_by_the_columns_of_numbers(
    data: Path, run: Path, tmp_path: Path
) -> None:
    X = np.load(data / "test.npz")["X"][:5]
    np.save(tmp_path / "plain.npy", X)
    rows = [",".join([f"digit-{i}", "some", *map(repr, row.tolist())]) for i, row in enumerate(X)]
    (tmp_path / "table.txt").write_text("\n".join(rows) + "\n")
    options = ("--format", "csv", "--id-column", "0", "--label-column", "1")
    nearfar("transform", run, tmp_path / "table.txt", *options, "--out", tmp_path / "a.npy")
    nearfar("transform", run, tmp_path / "plain.npy", "--out", tmp_path / "b.npy")
    np.testing.assert_allclose(np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy"), rtol=1e-5)
    searching = ("search", run, data / "test", "-k", "3", "--json", "--query")
    table, plain = (
        [[near["index"] for near in each["neighbours"]] for each in json.loads(nearfar(*searching, *query))]
        for query in ((tmp_path / "table.txt", *options), (tmp_path / "plain.npy",))
    )
    assert table == plain


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", ["ingest", "sample", "transform"])
def test_a_signal_ends_a_command_in_one_line_and_leaves_nothing(
    data: Path, tmp_path: Path, command: str, number: int
) -> None:
    arguments = _long_taking(command, data, tmp_path)
    before = {path.relative_to(tmp_path) for path in tmp_path.rglob("*")}
    with running(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as begun:
        wait_until(lambda: any(tmp_path.rglob(".*.partial")), begun)
        begun.send_signal(number)
        printed, shown = begun.communicate(timeout=120)
    assert (begun.returncode, printed) == (128 + number, ""), shown
    assert shown.splitlines()[-1] == "stopped; nothing is left half-written"
    assert "Traceback" not in shown
    assert {path.relative_to(tmp_path) for path in tmp_path.rglob("*")} == before


def _long_taking(command: str, data: Path, place: Path) -> list[str | Path]:
    """A command that would write for minutes."""
    if command == "ingest":
        return ["ingest", *[data / "train.npz"] * 3000, "--out", place / "new"]
    if command == "sample":
        shutil.copytree(data / "labelled", place / "d")
        return ["sample", place / "d", "--similar", "100000000", "--dissimilar", "100000000"]
    np.lib.format.open_memmap(place / "many.npy", "w+", np.uint8, (10**9, 64))  # zeros that take no room on disk
    Metric(np.eye(1, 64)).save(place / "m.safetensors")
    return ["transform", place / "m.safetensors", place / "many.npy", "--out", place / "new.npy"]


def test_a_terminal_shows_a_live_bar(data: Path, tmp_path: Path) -> None:
    reader, terminal = pty.openpty()
    command = ("train", data / "labelled", "--out", tmp_path / "run", *QUICK, "--minutes", "0.02")
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "120"}
    with running(*command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment) as training:
        os.close(terminal)
        shown = _all_of(reader)
        assert training.wait(timeout=120) == 0, shown
    assert f"{ESCAPE}[" in shown
    assert "━" in shown
    assert "\r" in shown
    assert re.search(r"step \d+  objective", shown)
    assert "left" in shown


def test_the_demo_learns_and_prints_its_table_and_leaves_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = ended("demo")
    assert code == 0, err
    assert ESCAPE not in out + err
    assert out.startswith("1,397 unseen digits")
    before, pairs, neighbours = (
        [float(cell.strip(" %")) for cell in re.search(rf"│ {name} +│(.*)│", out)[1].split("│")]  # type: ignore[index]
        for name in ("before", "after, for telling pairs apart", "after, for finding neighbours")
    )
    assert before[0] < 0.92 < pairs[0]
    assert before[1] + 0.05 < neighbours[1] < pairs[1]
    assert neighbours[2] < before[2] < pairs[2]  # that neighbours want a metric of their own is what the demo shows
    assert "2 workers" in err
    assert out.splitlines()[-1].startswith("nearfar-demo.html: ")
    assert [path.name for path in tmp_path.iterdir()] == ["nearfar-demo.html"]
    page = (tmp_path / "nearfar-demo.html").read_text()
    assert "for telling pairs apart" in page
    assert "1,397 points of unseen digits" in page


def _lines(path: Path) -> int:
    """How many lines of a file are whole."""
    return path.read_text().count("\n")


def _all_of(reader: int) -> str:
    """All that a pseudo-terminal shows until its process ends."""
    shown = b""
    while True:
        try:
            piece = os.read(reader, 65536)
        except OSError:  # how Linux says that the other side is closed
            break
        if not piece:
            break
        shown += piece
    os.close(reader)
    return shown.decode()


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_on_a_terminal_and_silent_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        with CopyingDisplay("reading", "bytes", stream) as display:
            display(500, 2000)
            display(2000, 2000)
        assert ("2.0k of 2.0k bytes" in stream.getvalue()) == shown
        assert bool(stream.getvalue()) == shown


def test_a_table_becomes_a_dataset_whose_pairs_name_ids(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,x,y,kind\n" + "".join(f"p{i},{i},{i / 4},{'uv'[i % 2]}\n" for i in range(20)))
    (tmp_path / "similar.tsv").write_text("p0\tp2\np1\tp3\n")
    (tmp_path / "dissimilar.tsv").write_text("p0\tp1\n")
    nearfar(
        "ingest", tmp_path / "a.csv", "--label-column", "kind", "--id-column", "name", "--dtype", "float16",
        "--similar", tmp_path / "similar.tsv", "--dissimilar", tmp_path / "dissimilar.tsv", "--out", tmp_path / "d",
    )  # fmt: skip
    dataset = Dataset.open(tmp_path / "d")
    assert dataset.ids is not None
    assert dataset.labels is not None
    assert (dataset.ids[3], dataset.labels[3]) == ("p3", "v")
    assert dataset.constraints.similar.tolist() == [[0, 2], [1, 3]]
    assert json.loads((tmp_path / "d" / "dataset.json").read_text())["arrays"]["points"]["dtype"] == "<f2"


def test_a_missing_parquet_reader_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    code, _, err = ended("ingest", tmp_path / "a.parquet", "--out", tmp_path / "d")
    assert code == 2
    assert "nearfar[parquet]" in err
