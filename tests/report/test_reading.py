"""What is read of run folders: all that is whole, and a note for what is not."""

import json
import shutil

import numpy as np
import pytest

from nearfar.errors import InvalidRun
from nearfar.model.run import RunFolder
from nearfar.parameter_server.progress import staleness_bin
from nearfar.report.reading import read_runs


def test_a_run_is_read_whole(place):
    run, other = read_runs([place / "pairs", place / "paper"])
    assert (run.name, other.name, run.number, other.number) == ("pairs", "paper", 0, 1)
    assert run.reports == list(RunFolder(place / "pairs").reports())
    assert run.metric.rank == 16
    assert (run.has_ended, run.notes) == (True, [])
    assert (run.loss, other.loss) == ("logistic", "hinge")
    assert run.made_with.keys() == {"nearfar", "python", "numpy", "machine"}
    assert "made_with" not in run.source


def test_every_push_is_counted_by_its_staleness(place):
    for run in read_runs([place / "pairs", place / "paper"]):
        counts = [sum(report.staleness_counts) for report in run.reports]
        assert counts == np.diff([0, *(report.step for report in run.reports)]).tolist()
        assert all(report.staleness_counts == [] or report.staleness_counts[-1] for report in run.reports)
        for report in run.reports[1:]:
            assert len(report.staleness_counts) - 1 == staleness_bin(report.staleness_max)


@pytest.mark.parametrize("damage", ["cut", "garbage", "other keys", "text for a number"])
def test_a_damaged_history_is_read_up_to_the_damage(copied, damage):
    path = copied("pairs")
    lines = (path / "history.jsonl").read_text().splitlines(keepends=True)
    bad = {
        "cut": lines[6][:40],
        "garbage": "\x00\x01\n",
        "other keys": json.dumps({"step": 3}) + "\n",
        "text for a number": json.dumps({**json.loads(lines[6]), "objective": "low"}) + "\n",
    }[damage]
    (path / "history.jsonl").write_text("".join(lines[:6]) + bad)
    run = read_runs([path])[0]
    assert [report.step for report in run.reports] == [json.loads(line)["step"] for line in lines[:6]]
    assert len(run.notes) == 1
    assert "6 of 7 lines" in run.notes[0]
    assert run.metric is not None


def test_a_line_in_the_making_is_no_damage_while_a_run_goes_on(copied):
    path = copied("pairs")
    text = (path / "history.jsonl").read_text()
    (path / "history.jsonl").write_text(text[:-30])
    live, ended = read_runs([path], live=True)[0], read_runs([path])[0]
    assert live.notes == []
    assert len(ended.notes) == 1
    assert len(live.reports) == len(ended.reports) == text.count("\n") - 1


def test_histories_and_descriptions_of_older_versions_are_read(copied):
    path = copied("pairs")
    lines = [json.loads(line) for line in (path / "history.jsonl").read_text().splitlines()]
    for line in lines:
        del line["staleness_counts"]
    (path / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (path / "run.toml").write_text((path / "run.toml").read_text().partition("[made_with]")[0])
    run = read_runs([path])[0]
    assert len(run.reports) == len(lines)
    assert (run.notes, run.made_with) == ([], {})
    assert RunFolder(path).read()[1].keys() == run.source.keys()


def test_a_run_without_a_metric_has_not_ended(copied):
    path = copied("pairs")
    (path / "metric.safetensors").unlink()
    run = read_runs([path])[0]
    assert not run.has_ended
    assert "no metric yet" in run.notes[0]
    assert read_runs([path], live=True)[0].notes == []


def test_a_run_that_is_resumed_with_a_larger_budget_has_not_ended(copied):
    path = copied("pairs")
    toml = (path / "run.toml").read_text()
    (path / "run.toml").write_text(toml.replace("steps = 60", "steps = 90"))
    assert not read_runs([path])[0].has_ended


def test_a_damaged_metric_is_noted(copied):
    path = copied("pairs")
    content = bytearray((path / "metric.safetensors").read_bytes())
    content[-5] ^= 0xFF
    (path / "metric.safetensors").write_bytes(content)
    run = read_runs([path])[0]
    assert run.metric is None
    assert "damaged" in run.notes[0]


def test_runs_of_one_name_are_told_apart(place, tmp_path):
    paths = [shutil.copytree(place / "pairs", tmp_path / part / "run") for part in ("a", "b")]
    assert [run.name for run in read_runs(paths)] == ["a/run", "b/run"]
    with pytest.raises(InvalidRun, match="twice"):
        read_runs([paths[0], paths[0] / ".." / "run"])


def test_what_is_no_run_is_refused(place, tmp_path):
    for path, says in ((place / "digits", "no run folder"), (place / "pairs" / "run.toml", "is a file")):
        with pytest.raises(InvalidRun, match=says):
            read_runs([path])
    empty = tmp_path / "empty"
    empty.mkdir()
    shutil.copy(place / "pairs" / "run.toml", empty)
    with pytest.raises(InvalidRun, match="neither a history nor a metric"):
        read_runs([empty])
    assert read_runs([empty], live=True)[0].reports == []
