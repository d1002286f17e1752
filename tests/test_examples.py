"""Every example runs, prints a better figure than before learning, and draws its picture."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
FIGURES = {
    "verification": r"ROC AUC ([\d.]+)",
    "neighbours": r"accuracy ([\d.]+)",
    "retrieval": r"recall@1 ([\d.]+)",
    "clustering": r"information ([\d.]+)",
}


def test_every_example_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == FIGURES.keys()


@pytest.mark.parametrize("name", FIGURES)
def test_it_runs_and_learning_helps(name, tmp_path):
    ended = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", tmp_path / "figure.png"],
        capture_output=True, text=True, check=False, env={**os.environ, "MPLCONFIGDIR": str(tmp_path)},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "figure.png").stat().st_size > 5000
    *before, after = [float(value) for value in re.findall(FIGURES[name], ended.stdout)]
    assert after > (before[0] + 0.03 if before else 0.95), ended.stdout
