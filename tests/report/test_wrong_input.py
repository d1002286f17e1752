"""Bad input to report and watch: exit code 2, one line that says how to mend it, and nothing left behind."""

import io
import shutil
import warnings
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pytest

from nearfar.cli import main
from nearfar.data.dataset import write_dataset


def ended(*arguments) -> tuple[int, str]:
    err = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("default")
        with pytest.raises(SystemExit) as exit_:
            main([str(argument) for argument in arguments])
    return exit_.value.code or 0, err.getvalue()


@pytest.fixture(scope="module")
def given(place, tmp_path_factory):
    """A folder with things that are wrong in many ways."""
    folder = tmp_path_factory.mktemp("wrong")
    write_dataset(folder / "narrow", np.eye(20)[:, :7], np.arange(20) % 2)
    write_dataset(folder / "without-pairs-or-labels", np.random.default_rng(0).normal(size=(20, 64)))
    (folder / "names.txt").write_text("one\ntwo\n")
    (folder / "mine.html").write_text("my page")
    hollow = folder / "hollow"
    hollow.mkdir()
    shutil.copy(place / "pairs" / "run.toml", hollow)
    return folder


WRONG = {
    "no run": (["{place}/digits"], ("is no run folder", "nearfar train")),
    "nothing there": (["{place}/nothing"], ("is no run folder",)),
    "a file": (["{place}/pairs/metric.safetensors"], ("is a file", "expected a run folder")),
    "one of two": (["{place}/pairs", "{place}/digits"], ("is no run folder",)),
    "twice": (["{place}/pairs", "{place}/pairs"], ("given twice",)),
    "nothing in it": (["{given}/hollow"], ("neither a history nor a metric",)),
    "no dataset": (["{place}/pairs", "--dataset", "{given}/nothing"], ("does not exist", "nearfar ingest")),
    "another width": (["{place}/pairs", "--dataset", "{given}/narrow"], ("have 7 features", "64")),
    "image shape": (["{place}/pairs", "--image-shape", "7x7"], ("49 values", "64 features")),
    "no image shape": (["{place}/pairs", "--image-shape", "square"], ("expected HEIGHTxWIDTH",)),
    "too few names": (
        ["{place}/pairs", "--feature-names", "{given}/names.txt"],
        ("2 feature names", "one name a line"),
    ),
    "no names": (["{place}/pairs", "--feature-names", "{given}/nothing.txt"], ("cannot be read",)),
    "a page of mine": (["{place}/pairs", "--out", "{given}/mine.html"], ("is no report", "choose another name")),
    "no page": (["{place}/pairs", "--out", "{tmp}/out.pdf"], ("ends in .html",)),
    "no folder": (["{place}/pairs", "--out", "{tmp}/no/out.html"], ("not there or not writable", "--out")),
    "a folder": (["{place}/pairs", "--out", "{tmp}"], ("ends in .html",)),
    "neighbours": (["{place}/pairs", "--neighbours", "-1"], ("nearfar report --help",)),
    "no run at all": ([], ("nearfar report --help",)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_report_that_cannot_be_made_says_why_and_leaves_nothing(name, place, given, tmp_path):
    arguments, says = WRONG[name]
    arguments = [part.format(place=place, given=given, tmp=tmp_path) for part in arguments]
    out = [] if "--out" in arguments else ["--out", tmp_path / "out.html"]
    code, err = ended("report", *arguments, *out)
    assert code == 2, err
    last = err.splitlines()[-1]
    assert last.startswith("error: ")
    for words in says:
        assert words in last
    assert list(tmp_path.iterdir()) == []
    assert (given / "mine.html").read_text() == "my page"


def test_what_can_be_shown_is_shown_with_a_note(place, copied, given, tmp_path):
    run = copied("pairs")
    (run / "metric.safetensors").unlink()
    lines = (run / "history.jsonl").read_text()
    (run / "history.jsonl").write_text(lines[: len(lines) // 2])
    code, err = ended("report", run, "--out", tmp_path / "out.html")
    assert code == 0
    assert "no metric yet" in err
    assert "cut short" in err
    assert "no metric yet" in (tmp_path / "out.html").read_text()
    options = ("--dataset", given / "without-pairs-or-labels")
    code, err = ended("report", place / "pairs", "--out", tmp_path / "second.html", *options)
    assert code == 0
    assert "neither pairs nor labels" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{place}/digits"], "is no run folder"),
        (["{place}/pairs", "--port", "70000"], "nearfar watch --help"),
        (["{place}/pairs", "--dataset", "{place}/nothing"], "does not exist"),
        (["{place}/digits", "--terminal"], "is no run folder"),
    ],
)
def test_a_watch_that_cannot_begin_says_why(arguments, says, place):
    code, err = ended("watch", *(part.format(place=place) for part in arguments))
    assert code == 2
    assert says in err.splitlines()[-1]
