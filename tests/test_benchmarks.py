"""Every benchmark runs, in its small form, and prints what it promises."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks import __main__ as command
from benchmarks import baselines, environments, metric_learn, text_step, workers
from benchmarks.chase import Chase
from benchmarks.problems import labelled, paired
from benchmarks.processes import anonymous_bytes, watched
from benchmarks.results import record
from benchmarks.serial import Watcher, prepared_job
from benchmarks.survival import PeerFailed, doubling, fit_peer

import nearfar as nf
from nearfar.engine.serial import SerialEngine
from nearfar.model.preparation import prepare

REPO_PYTHON = Path(sys.executable)


def make_environment(name: str) -> None:
    """Make the environment that a benchmark needs, if it needs one; skipped only where that cannot be, as offline."""
    if (environments.REQUIREMENTS / f"{name}.txt").exists():
        try:
            environments.layer(name)
        except environments.NoEnvironment as error:
            pytest.skip(str(error))


@pytest.mark.parametrize("name", command.BENCHMARKS)
def test_the_small_form_runs(name):
    make_environment(name)
    lines = [json.loads(json.dumps(figures)) for figures in command.BENCHMARKS[name](small=True)]
    assert lines
    for figures in lines:
        assert figures["ratio"] >= 0  # 0 where a goal was not reached, as may be in so short a run


def test_an_environment_that_several_processes_want_at_once_is_made_once(tmp_path):
    (tmp_path / "peer.txt").write_text("# nothing but what is below\n")
    wish = (
        "import subprocess, sys; from pathlib import Path; from benchmarks import environments;"
        "environments.REQUIREMENTS = environments.LAYERS = Path(sys.argv[1]);"
        "python = environments.layer('peer');"
        "subprocess.run([python, '-c', 'import numpy'], check=True);"
        "print((python.parents[1] / 'made').stat().st_mtime_ns)"
    )
    wishes = [
        subprocess.Popen(
            [sys.executable, "-c", wish, str(tmp_path)],
            stdout=subprocess.PIPE, text=True, env=environments.surroundings(),
        )
        for _ in range(3)
    ]  # fmt: skip
    made = [process.communicate()[0] for process in wishes]
    assert [process.returncode for process in wishes] == [0, 0, 0]
    assert len(set(made)) == 1


def fakes(monkeypatch, tmp_path):
    """Benchmarks of no work, and of them some that fail, each in its way; and a page for their results."""

    def absent(*, small):
        raise environments.NoEnvironment("no network")

    def failing(*, small):
        yield {"ratio": 1.0}
        raise subprocess.CalledProcessError(2, ["peer"])

    def survived(*, small):
        raise PeerFailed("ITML failed: singular")

    def wrong(*, small):
        raise ZeroDivisionError("of nothing")

    benchmarks = {
        "failing": failing, "wrong": wrong, "survived": survived, "speed": lambda *, small: [{"ratio": 2.0}],
        "absent": absent,
    }  # fmt: skip
    monkeypatch.setattr(command, "BENCHMARKS", benchmarks)
    monkeypatch.setattr(command, "RESULTS", tmp_path / "RESULTS.md")
    return tmp_path / "RESULTS.md"


def test_a_benchmark_in_full_writes_its_section_of_the_page_of_results(monkeypatch, tmp_path, capsys):
    page = fakes(monkeypatch, tmp_path)
    for part in (["--small"], ["speed", "--small"]):
        with pytest.raises(SystemExit):
            command.main(part)
        assert not page.exists()
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        command.main([])
    printed = capsys.readouterr()
    figures = [json.loads(line) for line in printed.out.splitlines()]
    assert [(line["benchmark"], line["ratio"]) for line in figures] == [("failing", 1.0), ("speed", 2.0)]
    assert figures[1]["load"] >= 0
    assert "| 2.0 |" in page.read_text()
    assert "failing" not in page.read_text()
    told = [line for line in printed.err.splitlines() if " is left out: " in line]
    assert told == [
        "failing is left out: Command '['peer']' returned non-zero exit status 2.", "wrong is left out: of nothing",
        "survived is left out: ITML failed: singular", "absent is left out: no network",
    ]  # fmt: skip
    assert printed.err.count("Traceback") == 1  # of the one that nobody foresaw
    assert ended.value.code == 1


def test_a_section_of_results_takes_the_place_of_its_last_one(tmp_path):
    page, order = tmp_path / "RESULTS.md", ["speed", "size"]
    record(page, "size", [{"ratio": "old"}], order)
    record(page, "speed", [{"ratio": 2.2}], order)
    record(page, "size", [{"ratio": 3.3}, {"ratio": 4.4}], order)
    text = page.read_text()
    places = [text.index(part) for part in ("## speed", "| 2.2 |", "## size", "| 3.3 |\n| 4.4 |")]
    assert places == sorted(places)
    assert "old" not in text


def test_results_are_tables_of_what_the_lines_say(tmp_path):
    page = tmp_path / "RESULTS.md"
    runs = [
        {"case": name, "steps": steps, "curve": [[0, 0.5], [9, 0.75]], "best": [1.5, 2.5], "of": {"a_b": 1}, "to": None}
        for name, steps in (("one", 12), ("a|b", 34567))
    ]
    record(page, "scale", [*runs, {"ratio": 1.5}], ["scale"])
    *_, table, last = page.read_text().rstrip().split("\n\n")
    assert table.splitlines() == [
        "| case | one | a\\|b |",
        "| --- | --- | --- |",
        "| steps | 12 | 34,567 |",
        "| curve | 0: 0.5, 9: 0.75 | 0: 0.5, 9: 0.75 |",
        "| best | 1.5, 2.5 | 1.5, 2.5 |",
        "| of | a b: 1 | a b: 1 |",
        "| to | – | – |",
    ]
    assert last.splitlines() == ["| ratio |", "| --- |", "| 1.5 |"]


def test_an_unknown_name_is_refused(monkeypatch, tmp_path, capsys):
    fakes(monkeypatch, tmp_path)
    with pytest.raises(SystemExit) as ended:
        command.main(["velocity"])
    assert ended.value.code == 2
    assert (
        "unknown benchmark velocity; expected any of failing, wrong, survived, speed, absent" in capsys.readouterr().err
    )


def test_the_timed_loop_takes_the_steps_of_training():
    data = labelled(small=True)
    settings = nf.TrainingSettings(rank=8, steps=6, schedule="constant", block_size=100)
    prepared = prepare(data.X, nf.Labels(data.y), settings, labels=None, loss=None, start=None)

    class SixSteps(Watcher):
        left = 6

        def attend(self, applied):
            self.left -= len(applied)
            return self.left == 0

    SerialEngine().run(prepared_job(prepared), SixSteps())
    trained = nf.train(data.X, data.y, settings).metric
    np.testing.assert_array_equal(prepared.Lt.T / prepared.scale.astype(np.float32), trained.components)


def test_a_chase_keeps_the_first_time_at_each_goal():
    precisions = iter([0.5, 0.8, 0.7, 0.9])
    chase = Chase((0.75, 0.85), lambda L: next(precisions), limit=60.0)
    chase.begin()
    after = []
    while not chase.step_taken(lambda: np.eye(1)):
        after.append(chase.seconds)
    assert chase.steps == 4
    assert chase.best == 0.9
    assert after[0] < chase.to(0.75) == after[1] < chase.to(0.85) == chase.seconds
    assert chase.to(0.95) == float("inf")


def test_a_chase_gives_up_at_its_limit():
    chase = Chase((0.9,), lambda L: 0.0, limit=0.0)
    chase.begin()
    assert chase.step_taken(lambda: np.eye(1))
    assert not chase.reached


def test_a_peer_that_fails_is_not_taken_for_a_slow_one():
    with pytest.raises(PeerFailed, match="NCA failed"):
        fit_peer(REPO_PYTHON, "NCA", {"X": np.full((4, 2), np.nan), "y": np.arange(4) % 2}, limit=200.0)


def test_a_peer_that_takes_too_long_is_stopped():
    rng = np.random.default_rng(0)
    assert fit_peer(REPO_PYTHON, "NCA", {"X": rng.random((50, 3)), "y": np.arange(50) % 2}, limit=0.01) is None


def test_a_table_replaces_the_one_before(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"above\n{metric_learn.BEGIN}\nold\n{metric_learn.END}\nbelow\n")
    line = {"pairs": 2000, "data": "mnist"}
    for side, seconds, precision in (("ours", 1.04, 0.8812), ("theirs", 4.6, 0.7551)):
        line |= {f"{side}_seconds": seconds, f"{side}_average_precision": precision}
    for _ in range(2):
        metric_learn.write_table(page, metric_learn.table(line), metric_learn.BEGIN, metric_learn.END)
    text = page.read_text()
    assert text.startswith("above\n")
    assert text.endswith("\nbelow\n")
    assert "old" not in text
    assert text.count("| `PairLearner()` | 1.0 s | 0.881 |") == 1
    assert text.count("| `ITML(max_iter=1)`, metric-learn 0.7.0 | 4.6 s | 0.755 |") == 1


@pytest.mark.parametrize("benchmark", [metric_learn, baselines])
def test_the_guide_has_a_place_for_the_table(benchmark):
    text = benchmark.GUIDE.read_text()
    assert text.index(benchmark.BEGIN) < text.index(benchmark.END)


def test_memory_is_that_of_the_process():
    """Of a new process, since this one may give memory back meanwhile."""
    work = "held = b'x' * (200 << 20); print('held', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "held\n"
        assert 200 << 20 <= anonymous_bytes(process.pid) < 300 << 20
        process.communicate("\n")
    assert anonymous_bytes(process.pid) == 0


def test_a_watched_process_may_print_more_than_a_pipe_holds():
    printed, peak = watched([sys.executable, "-c", "print('x' * 1_000_000)"])
    assert len(printed) == 1_000_001
    assert peak > 0
    with pytest.raises(subprocess.CalledProcessError):
        watched([sys.executable, "-c", "raise SystemExit(3)"])


@pytest.mark.filterwarnings("ignore:Sparse")  # PyTorch's own, of CSR
def test_all_forms_of_a_step_in_pytorch_give_what_numpy_gives():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    left, right = (sp.random(20, 50, 0.2, "csr", np.float32, rng) for _ in range(2))
    L = torch.nn.Parameter(torch.from_numpy(rng.normal(size=(50, 3)).astype(np.float32)))
    expected, slopes = (left - right) @ L.detach().numpy(), rng.normal(size=(20, 3)).astype(np.float32)
    forms = text_step._torch_forms()
    assert len(forms) == 4
    for form in forms.values():
        Z = form.project(L, *form.batch(left, right))
        np.testing.assert_allclose(Z.detach().numpy(), expected, rtol=1e-4, atol=1e-5)
        L.grad = None
        Z.backward(torch.from_numpy(slopes))
        assert L.grad.is_sparse
        np.testing.assert_allclose(L.grad.to_dense().numpy(), (left - right).T @ slopes, rtol=1e-4, atol=1e-5)


def test_the_race_of_workers_says_how_many_steps_it_took():
    line = workers._time_to_objective(paired(small=True), steps=40, rounds=1)
    for side in ("one_worker", "two_workers"):
        reached = zip(line[side], line[f"steps_of_{side}"], strict=True)
        assert all((seconds is None) == (steps is None) for seconds, steps in reached)
    assert line["steps_of_one_worker"][0] > 0


def test_sizes_double_up_to_the_last():
    assert doubling(500, 3000) == [500, 1000, 2000, 3000]
    assert doubling(500, 2000) == [500, 1000, 2000]
