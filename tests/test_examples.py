"""Every example runs, prints a better figure than before learning, and draws its picture."""

import re
import runpy
import sys
from pathlib import Path

import matplotlib.pyplot as plt
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
def test_it_runs_and_learning_helps(name, tmp_path, monkeypatch, capsys):
    plt.close("all")
    monkeypatch.setattr(sys, "argv", [f"{name}.py", str(tmp_path / "figure.png")])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert (tmp_path / "figure.png").stat().st_size > 5000
    printed = capsys.readouterr().out
    *before, after = [float(value) for value in re.findall(FIGURES[name], printed)]
    assert after > (before[0] + 0.03 if before else 0.95), printed
