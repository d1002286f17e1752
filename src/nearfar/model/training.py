"""Training: learns a metric from points and constraints, on whichever engine is asked for."""

import contextlib
import json
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from nearfar import cost
from nearfar.data.constraints import Comparisons, Constraints, Groups, Labels, Pairs
from nearfar.data.dataset import constraints_fingerprint
from nearfar.data.description import fingerprint
from nearfar.data.points import as_points
from nearfar.engine.budget import Budget
from nearfar.engine.engine import Engine, Job
from nearfar.engine.ray_cluster import RayEngine
from nearfar.engine.serial import SerialEngine
from nearfar.engine.simulated import SimulatedEngine
from nearfar.engine.supervisor import LocalSupervisor, Watch
from nearfar.engine.threads import ThreadsEngine
from nearfar.errors import Diverged, InvalidRun, InvalidSettings
from nearfar.model.learned import learned_metric
from nearfar.model.metric import Metric
from nearfar.model.preparation import Prepared, prepare
from nearfar.model.run import RunFolder, append_report
from nearfar.objective.losses import Loss
from nearfar.parameter_server.checkpoint import Checkpoint
from nearfar.parameter_server.clocks import Clocks
from nearfar.parameter_server.progress import Report
from nearfar.parameter_server.server import Server
from nearfar.parameter_server.update_rule import Schedule, UpdateRule
from nearfar.parameter_server.worker import Shard
from nearfar.settings import EngineName, TrainingSettings, slack

_DEFAULT_PATIENCE = 4
_DEFAULT_LIFTED_PATIENCE = 2  # steps are dearer, and fewer are needed
_ENGINES: dict[EngineName, Callable[[], Engine]] = {
    "serial": SerialEngine,
    "threads": ThreadsEngine,
    "ray": RayEngine,
    "simulated": SimulatedEngine,
}


@dataclass(frozen=True)
class TrainingResult:
    """What training gives back."""

    metric: Metric
    history: list[Report]
    ended: str
    """Why training ended."""
    interrupted: bool
    report: Report
    """The report of the metric: the last one, or the best one where patience ended the training."""


def train(
    points: Any,
    constraints: Constraints | ArrayLike,
    settings: TrainingSettings | None = None,
    *,
    engine: EngineName | Engine | None = None,
    labels: ArrayLike | None = None,
    loss: Loss | None = None,
    start: NDArray[np.floating[Any]] | Metric | None = None,
    run: Path | str | None = None,
    resume: bool = False,
    source: dict[str, str] | None = None,
    on_report: Sequence[Callable[[Report], None]] = (),
    stop_on_signals: bool = False,
) -> TrainingResult:
    """Learn a metric.

    Parameters
    ----------
    points : array (n, d), memory map, SciPy sparse matrix or Points
    constraints : Pairs, Comparisons, Labels, Groups, or an array of one label a point
    settings : TrainingSettings, optional
        The defaults are meant to be left alone.
    engine : str or engine, optional
        In place of ``settings.engine``: a name, or an engine of its own making, as ``RayEngine(options)``.
    labels : array, optional
        Classes of the points, used only to hold out points that no training constraint touches.
    loss : Loss, optional
        A loss of your own, in place of ``settings.loss``.
    start : array (k, d) or Metric, optional
        A starting L of your own, in place of ``settings.start``; or a metric to go on from, whose lift is kept.
    run : path, optional
        Where to keep history, checkpoints and the metric; nothing is written without it.
    resume : bool
        Go on with the run at ``run`` from its newest checkpoint.
    source : dict of str, optional
        What the run learns from, noted in run.toml.
    on_report : functions
        Each is called with every :class:`Report`.
    stop_on_signals : bool
        Let Ctrl-C, SIGTERM and SIGHUP end training after the current update, saved; only in the main thread.
    """
    settings = settings or TrainingSettings()
    if not isinstance(settings, TrainingSettings):
        raise InvalidSettings(f"settings is a {type(settings).__name__}; expected nf.TrainingSettings(...)")
    if engine is not None:
        settings = replace(settings, engine=engine if isinstance(engine, str) else _name(engine))
    chosen = _ENGINES[settings.chosen_engine]() if engine is None or isinstance(engine, str) else engine
    known = labels if labels is None or isinstance(labels, Labels) else Labels(labels)
    given = constraints if isinstance(constraints, Pairs | Comparisons | Labels | Groups) else Labels(constraints)
    folder = None if run is None else RunFolder(Path(run))
    if resume and not folder:
        raise InvalidRun("there is no run to resume; name its folder")
    if folder and not resume:
        folder.check_new()
    prepared = prepare(points, given, settings, labels=known, loss=loss, start=start)
    described = {**(source or {}), **_fingerprints(points, given)} if folder else {}
    if isinstance(chosen, SimulatedEngine):
        described["cluster"] = json.dumps(chosen.cluster.to_json())
    with contextlib.ExitStack() as stack:
        newest = None
        if folder:
            stack.enter_context(folder.taken(resume=resume))
            if resume:
                newest = folder.resume(settings, described)
            else:
                folder.describe(settings, described)
        training = _Training(prepared, settings, chosen, folder, points)
        return training.run(newest, list(on_report), stop_on_signals)


class _Training:
    """One training from the first step to the metric."""

    def __init__(
        self, prepared: Prepared, settings: TrainingSettings, engine: Engine, folder: RunFolder | None, X: Any
    ) -> None:
        self._prepared, self._settings, self._engine = prepared, settings, engine
        self._folder, self._X = folder, X
        steps, seconds = _steps(settings, prepared.sampler.steps_per_epoch), _seconds(settings)
        self._budget = Budget(steps, seconds, now=engine.now)
        self._schedule = Schedule(_schedule(settings), prepared.step_size)
        self._clocks = Clocks(slack(settings.consistency))
        d, rank = prepared.Lt.shape
        self._slots = prepared.sizes.slots
        self._server = Server(
            prepared.Lt,
            UpdateRule(settings.update_rule, d, rank),
            self._clocks,
            self._step_size,
            capacity=self._slots * settings.workers,
            staleness_scaling=settings.staleness_scaling,
        )

    def run(
        self, newest: Checkpoint | None, on_report: list[Callable[[Report], None]], stop_on_signals: bool
    ) -> TrainingResult:
        settings, prepared = self._settings, self._prepared
        with contextlib.ExitStack() as stack:
            watch = Watch(
                judge=prepared.judge,
                report_every=prepared.report_every,
                may_space_out=not (settings.report_every or _patience(settings) or self._engine.name == "simulated"),
                schedule=self._schedule,
                patience=_patience(settings),
                checkpoints=self._folder.checkpoints(settings.keep_checkpoints) if self._folder else None,
                checkpoint_every=settings.checkpoint_every,
                checkpoint_bytes=prepared.sizes.checkpoint_bytes,
                on_report=on_report,
            )
            supervisor = LocalSupervisor(self._engine.servers(self._server), self._budget, watch)
            if self._folder:
                self._take_up(self._folder, newest, supervisor, watch, stack)
            if stop_on_signals:
                stack.enter_context(_stopped_by_signals(supervisor.interrupt))
            self._budget.begin(self._server.version)
            stays = supervisor.has_nothing_to_do
            if not stays:
                self._train(supervisor)
        Lt = self._server.Lt if supervisor.best is None else supervisor.best
        metric = learned_metric(Lt, prepared, settings, self._X)
        interrupted = supervisor.ended == "interrupted"
        if self._folder and not interrupted:
            metric.save(self._folder.metric)
        ended = f"nothing was left to do, so it stays as it is: {supervisor.ended}" if stays else supervisor.ended
        return TrainingResult(metric, supervisor.history, ended, interrupted, supervisor.kept_report)

    @staticmethod
    def _take_up(
        folder: RunFolder,
        newest: Checkpoint | None,
        supervisor: LocalSupervisor,
        watch: Watch,
        stack: contextlib.ExitStack,
    ) -> None:
        """Restore the newest checkpoint, if there is one, and go on with the history from there."""
        if newest:
            supervisor.restore(newest)
            newest.arrays.clear()  # they were copied, and would stay in memory to the end of training
            untold = newest.values["progress"].get("since", {}).get("pushes", 0)
            folder.truncate_history(newest.step - bool(untold))  # the report of a stop is of what the next one tells
            supervisor.history.extend(folder.reports())
        history = stack.enter_context(folder.open_history())
        watch.on_report.insert(0, lambda report: append_report(history, report))

    def _train(self, supervisor: LocalSupervisor) -> None:
        settings, prepared = self._settings, self._prepared
        positions = supervisor.progress.positions
        job = Job(
            points=prepared.points,
            sampler=prepared.sampler,
            loss=prepared.loss,
            rank=prepared.rank,
            rounded=prepared.sizes.rounded,
            server=self._server,
            clocks=self._clocks,
            budget=self._budget,
            step_size=self._step_size,
            schedule=self._schedule,
            update_rule=settings.update_rule,
            staleness_scaling=settings.staleness_scaling,
            workers=settings.workers,
            threads_per_worker=settings.threads_per_worker,
            slots=self._slots,
            checkpoint_every=settings.checkpoint_every,
            shards=[Shard(number, positions.get(number, 0)) for number in range(prepared.sampler.n_shards)],
            sizes=prepared.sizes,
        )
        # Concurrent products would wait for each other in a multi-threaded BLAS; a large one alone may use all cores.
        is_one = settings.workers * settings.threads_per_worker == 1
        alone = is_one and settings.chosen_engine != "threads" and cost.worth_all_cores(prepared.flops_a_step)
        limit = contextlib.nullcontext() if alone else threadpool_limits(1)
        try:
            with limit:
                supervisor.begin()
                self._engine.run(job, supervisor)
                supervisor.finish()
        except Diverged:
            as_points(self._X).check_finite()  # the likeliest cause, where the points were too many to check before
            raise

    def _step_size(self, version: int) -> float:
        return self._schedule.at(version, self._budget.used(version))


def _name(engine: Engine) -> EngineName:
    """The name under which settings know an engine."""
    if isinstance(engine, Engine):
        return engine.name
    raise InvalidSettings(
        f"engine is a {type(engine).__name__}; expected {', '.join(_ENGINES)}, or an engine such as RayEngine(options)"
    )


def _fingerprints(points: Any, constraints: Constraints) -> dict[str, str]:
    """What tells a run's data from other data, so that a run is not resumed on those."""
    learned_from = constraints.codes if isinstance(constraints, Labels) else None
    return {
        "learns_from": type(constraints).__name__.lower(),
        "points_fingerprint": fingerprint(as_points(points), learned_from),
        "constraints_fingerprint": "" if isinstance(constraints, Labels) else constraints_fingerprint(constraints),
    }


def _steps(settings: TrainingSettings, steps_per_epoch: int) -> int | None:
    by_epochs = None if settings.epochs is None else max(1, round(settings.epochs * steps_per_epoch))
    given = [steps for steps in (settings.steps, by_epochs) if steps is not None]
    return min(given) if given else None


def _seconds(settings: TrainingSettings) -> float | None:
    return None if settings.minutes is None else 60 * settings.minutes


def _patience(settings: TrainingSettings) -> int | None:
    if settings.patience or settings.has_budget:
        return settings.patience
    return _DEFAULT_PATIENCE if settings.lift == "none" else _DEFAULT_LIFTED_PATIENCE


def _schedule(settings: TrainingSettings) -> str:
    if settings.schedule != "auto":
        return settings.schedule
    return "cosine-root" if settings.has_budget else "plateau"


@contextlib.contextmanager
def _stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP call ``stop``, once; then Ctrl-C acts as it always does, the others not at all."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stopping = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in stopping}
    heeded = [number for number, handler in before.items() if handler not in (signal.SIG_IGN, None)]

    def handle(_number: int, _frame: FrameType | None) -> None:
        for number in heeded:
            signal.signal(number, before[number] if number == signal.SIGINT else signal.SIG_IGN)
        stop()

    for number in heeded:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number in heeded:
            signal.signal(number, before[number])
