"""Every benchmark runs, in its small form, and prints what it promises."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.__main__ import BENCHMARKS

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_small_form_runs(name):
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks", name, "--small"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    for line in ended.stdout.splitlines():
        figures = json.loads(line)
        assert figures["benchmark"] == name
        assert figures["ratio"] >= 0  # 0 where a goal was not reached, as may be in so short a run
        assert figures["load"] >= 0


def test_an_unknown_name_is_refused():
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks", "speed"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "unknown benchmark speed" in ended.stderr
