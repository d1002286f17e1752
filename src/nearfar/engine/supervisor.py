"""The supervisor: counts, reports, saves, and says when training is to end. Runs on the thread that updates."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nearfar.engine.budget import Budget
from nearfar.engine.engine import Servers
from nearfar.errors import Diverged
from nearfar.objective.judging import Judge
from nearfar.parameter_server.checkpoint import Checkpoint, Checkpoints
from nearfar.parameter_server.messages import Applied
from nearfar.parameter_server.progress import Progress, Report
from nearfar.parameter_server.update_rule import Schedule

_BETTER_BY = 1e-3
"""The share by which the held-out objective has to fall to count as better."""
_DROPS = 2
"""How often a plateau makes the steps smaller before it ends the training."""
_SPACED_OUT = 25
"""The part of the steps so far that may pass before the next report."""
_WRITING_SHARE = 100
"""A checkpoint that takes long to write comes after a pause this many times as long."""
_WRITING_RATE = 1e9
"""Bytes a second that are foreseen for the first checkpoint; those after it go by what the last one took."""


@dataclass
class Watch:
    """What the supervisor is to look at, and how often."""

    judge: Judge | None
    report_every: int
    """Steps between reports, or at first, where they may be spaced out."""
    may_space_out: bool
    """Whether reports come further apart as training goes on: not where they were asked for, or who reads them decides
    when it ends."""
    patience: int | None
    schedule: Schedule
    checkpoints: Checkpoints | None
    checkpoint_every: float
    checkpoint_bytes: float
    on_report: list[Callable[[Report], None]] = field(default_factory=list)


class LocalSupervisor:
    """Supervises from the process that called for training.

    Attributes
    ----------
    history : list of Report
    ended : str
        Why training ended.
    best : array or None
        The L of the best report, kept where patience may end the training.
    """

    def __init__(self, server: Servers, budget: Budget, watch: Watch) -> None:
        self.history: list[Report] = []
        self.ended = "the budget is used up"
        self.best: NDArray[np.float32] | None = None
        self.progress = Progress()
        self._server, self._budget, self._watch = server, budget, watch
        self._all_features = np.arange(server.features.start, server.features.stop, dtype=np.int32)
        self._best_known = np.full(len(server.features), -1, np.int64)
        self._interrupted = False
        self._best_objective = math.inf
        self._reports_since_best = 0
        self._next_report = 0
        self._next_checkpoint = self._pause(watch.checkpoint_bytes / _WRITING_RATE)

    def interrupt(self) -> None:
        """End training after the current update; may be called from a signal handler."""
        self._interrupted = True

    @property
    def has_nothing_to_do(self) -> bool:
        """Whether a run that was taken up again had ended, and may not go on for longer."""
        if not self.history or self.history[-1].step != self._server.version:
            return False
        had_patience = self.best is not None
        return self._budget.used(self._server.version) >= 1 or (had_patience and self._has_lost_patience())

    def begin(self) -> None:
        """Begin, or go on; the best L so far stands only where patience, which may be new, still goes by it."""
        if not self.history:
            self._report()
        elif self._watch.patience is None:
            self.best = None
        elif self.best is None:
            self._best_objective, self._reports_since_best = math.inf, 0

    def attend(self, applied: list[Applied]) -> bool:
        self.progress.record(applied)
        if self._server.version >= self._next_report:
            self._report()
        ends = self._is_to_end()  # before a checkpoint, as that is to hold the step size that comes next
        if not ends and self._watch.checkpoints and self._budget.elapsed >= self._next_checkpoint:
            self.save()
        return ends

    def _is_to_end(self) -> bool:
        if self._is_out_of_patience and self._may_drop:
            self._watch.schedule.drops += 1
            self._reports_since_best = 0
        if self._interrupted:
            self.ended = "interrupted"
            return True
        if self._budget.used(self._server.version) >= 1 and self._budget.seconds is not None:
            return True
        return self._has_lost_patience()

    @property
    def _is_out_of_patience(self) -> bool:
        """Whether there was no better objective for as many reports as patience allows."""
        return self._watch.patience is not None and self._reports_since_best >= self._watch.patience

    @property
    def _may_drop(self) -> bool:
        """Whether training may go on in smaller steps then."""
        return self._watch.schedule.name == "plateau" and self._watch.schedule.drops < _DROPS

    def _has_lost_patience(self) -> bool:
        if not self._is_out_of_patience or self._may_drop:
            return False
        count = self._watch.patience
        self.ended = f"the {self.history[-1].objective_name} was no better in {count} report{'' if count == 1 else 's'}"
        return True

    def worker_failed(self, worker: int, error: BaseException, left: int) -> None:
        message = f"worker {worker} failed ({type(error).__name__}: {error})"
        if left:
            warnings.warn(f"{message}; its shards go to the {left} that are left", RuntimeWarning, stacklevel=2)

    def servers_went_back(self, version: int) -> None:
        self._next_report = min(self._next_report, version + self._watch.report_every)
        warnings.warn(
            f"a server was lost; all went back to step {version}, and {self.progress.lost} pushes are lost in all",
            RuntimeWarning,
            stacklevel=2,
        )

    def finish(self) -> None:
        """The last report and the last checkpoint.

        Of an interrupted training the checkpoint comes first: a report that nobody foresaw would count against
        patience when it goes on.
        """
        if self._watch.checkpoints and self.ended == "interrupted":
            self.save()
        last = self.history[-1] if self.history else None
        if last is None or (last.step, last.lost) != (self._server.version, self.progress.lost):
            self._report()
        if self._watch.checkpoints and self.ended != "interrupted":
            self.save()

    def save(self) -> None:
        """Write a checkpoint of the server as it is."""
        assert self._watch.checkpoints is not None
        if not self._server.is_finite():
            raise Diverged(
                f"the metric is no longer finite after step {self._server.version}; "
                "lower step_size, or look for extreme values in the points"
            )
        began = self._budget.elapsed
        arrays = dict(self._server.state())
        if self.best is not None:
            arrays["best"] = self.best
        values = {
            "seconds": began,
            "progress": self.progress.state,
            "best_objective": self._best_objective,
            "reports_since_best": self._reports_since_best,
            "next_report": self._next_report,
            "drops": self._watch.schedule.drops,
        }
        self._watch.checkpoints.save(Checkpoint(self._server.version, arrays, values))
        took = self._budget.elapsed - began
        self._next_checkpoint = self._budget.elapsed + self._pause(took)

    def _pause(self, writing: float) -> float:
        """Seconds to the next checkpoint, where writing one takes so many."""
        return max(self._watch.checkpoint_every, _WRITING_SHARE * writing)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint: the server's L, its rule's state and version, and all that was counted."""
        self._server.restore(checkpoint.step, checkpoint.arrays)
        values = checkpoint.values
        self.best = checkpoint.arrays.get("best")
        self._best_objective = values["best_objective"]
        self._reports_since_best = values["reports_since_best"]
        self._next_report = values["next_report"]
        self._watch.schedule.drops = values["drops"]
        self._budget.seconds_before = values["seconds"]
        self._next_checkpoint = values["seconds"] + self._pause(self._watch.checkpoint_bytes / _WRITING_RATE)
        self.progress.restore(values["progress"], values["seconds"])

    @property
    def kept_report(self) -> Report:
        """The report of the L that is kept: the best one's where patience may end the training, else the last."""
        if self.best is None:
            return self.history[-1]
        compared = [report for report in self.history if report.has_objective]
        return min(compared, key=lambda report: abs(report.objective - self._best_objective))

    def _report(self) -> None:
        step = self._server.version
        every = self._watch.report_every
        apart = max(every, step // _SPACED_OUT if self._watch.may_space_out else 0)
        self._next_report = (step + apart) // every * every
        judgement = self._watch.judge(self._server.read()) if self._watch.judge else None
        report = self.progress.report(step, self._budget.elapsed, self._budget.used(step), judgement)
        self.history.append(report)
        self._compare(report)
        for tell in self._watch.on_report:
            tell(report)

    def _compare(self, report: Report) -> None:
        if not report.has_objective:
            return
        better_than = self._best_objective - _BETTER_BY * abs(self._best_objective)
        if math.isinf(self._best_objective) or report.objective < better_than:
            self._best_objective = report.objective
            self._reports_since_best = 0
            if self._watch.patience is not None:
                if self.best is None:
                    self.best = np.empty_like(self._server.read())
                self._server.pull(self._all_features, self.best, self._best_known)  # copies what changed since the last
        else:
            self._reports_since_best += 1
