"""What watches a fit: functions that are called with every report.

Any function of one :class:`~nearfar.parameter_server.progress.Report` will do; here are those for a progress bar,
TensorBoard and MLflow.
"""

import importlib
import math
import sys
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from nearfar.errors import MissingExtra
from nearfar.parameter_server.progress import Report

_FIGURES = ("objective", "ap", "pairs_per_second", "staleness_mean", "queue_depth")


class ProgressBar:
    """What ``verbose=True`` shows: a bar on a terminal, else a line a report. Used as ``with ProgressBar() as bar``."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._console = Console(file=stream or sys.stderr, highlight=False)
        self._progress: Progress | None = None

    def __enter__(self) -> "ProgressBar":
        if self._console.is_terminal:
            self._progress = Progress(
                SpinnerColumn(),
                BarColumn(bar_width=16),
                TextColumn("{task.description}"),
                TimeElapsedColumn(),
                console=self._console,
            )
            self._task = self._progress.add_task("starting", total=None)
            self._progress.start()
        return self

    def __call__(self, report: Report) -> None:
        """Show one report."""
        ap = "" if report.ap is None else f"  AP {report.ap:.4f}"
        line = f"step {report.step}  objective {report.objective_text}{ap}"
        if self._progress is None:
            self._console.print(f"{report.seconds:8.1f} s  {line}", soft_wrap=True)
        else:
            total = 1.0 if report.used else None
            self._progress.update(self._task, total=total, completed=report.used, description=line)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()


class TensorBoardCallback:
    """Writes the figures of every report where TensorBoard reads them; needs the package ``tensorboard``.

    Parameters
    ----------
    log_dir : str
        The folder of event files.
    """

    def __init__(self, log_dir: str) -> None:
        _imported("tensorboard.summary", "tensorboard", type(self).__name__)
        self.log_dir = log_dir
        self._writer: Any = None

    def __call__(self, report: Report) -> None:
        """Write one report."""
        if self._writer is None:
            self._writer = _imported("tensorboard.summary", "tensorboard", type(self).__name__).Writer(self.log_dir)
        for name, value in _figures(report).items():
            self._writer.add_scalar(name, value, report.step)
        self._writer.flush()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_writer": None}  # an open file does not travel; the next report opens another


class MLflowCallback:
    """Logs the figures of every report as metrics of the active MLflow run; needs the package ``mlflow``.

    Parameters
    ----------
    prefix : str
        Put before the name of each figure.
    """

    def __init__(self, prefix: str = "") -> None:
        _imported("mlflow", "mlflow", type(self).__name__)
        self.prefix = prefix

    def __call__(self, report: Report) -> None:
        """Log one report."""
        figures = {self.prefix + name: value for name, value in _figures(report).items()}
        _imported("mlflow", "mlflow", type(self).__name__).log_metrics(figures, step=report.step)


def _figures(report: Report) -> dict[str, float]:
    """The numbers of a report that make a curve."""
    values = {name: getattr(report, name) for name in _FIGURES if name != "objective" or report.has_objective}
    return {name: float(value) for name, value in values.items() if value is not None and math.isfinite(value)}


def _imported(module: str, package: str, wanted_by: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(f"{wanted_by} needs the package {package}: pip install {package}") from error
