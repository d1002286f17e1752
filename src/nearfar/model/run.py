"""The run folder: run.toml, history.jsonl, checkpoints/, metric.safetensors."""

import contextlib
import json
import os
import platform
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO

import numpy as np

from nearfar.errors import InvalidFile, InvalidRun
from nearfar.files import locked, make_folder, remove_unfinished, write_text
from nearfar.parameter_server.checkpoint import Checkpoint, Checkpoints
from nearfar.parameter_server.progress import Report
from nearfar.settings import BUDGET, TrainingSettings


@dataclass(frozen=True)
class RunFolder:
    """One training on disk."""

    path: Path

    @property
    def metric(self) -> Path:
        return self.path / "metric.safetensors"

    @property
    def history(self) -> Path:
        return self.path / "history.jsonl"

    @property
    def description(self) -> Path:
        return self.path / "run.toml"

    def checkpoints(self, keep: int) -> Checkpoints:
        return Checkpoints(self.path / "checkpoints", keep)

    def check_new(self) -> None:
        """Raise if there is something at this place already."""
        if self.path.exists():
            raise InvalidRun(f"{self.path} exists already; choose another folder, or go on with it by --resume")

    @contextlib.contextmanager
    def taken(self, *, resume: bool) -> Iterator[None]:
        """Have the folder alone while the block lasts; raise if another process is training there.

        A new run's is made, and is gone again if the block fails before anything was learned: the same command may be
        tried again.
        """
        if resume:
            self.read()  # says what is wrong with it
        else:
            self.check_new()
            try:
                make_folder(self.path)
            except InvalidFile as error:
                raise InvalidFile(f"{error}; choose a place that is writable") from error
        refusal = InvalidRun(f"{self.path} is being trained by another process; wait until that has ended, or end it")
        with locked(self.path, refusal):
            try:
                yield
            except BaseException:
                if not resume and self._is_blank:
                    shutil.rmtree(self.path, ignore_errors=True)
                raise

    @property
    def _is_blank(self) -> bool:
        return all(report.step == 0 for report in self.reports()) and not (self.path / "checkpoints").exists()

    def resume(self, settings: TrainingSettings, source: dict[str, str]) -> Checkpoint | None:
        """Take the folder up again with the same data and settings, of which only the budget may differ.

        The newest checkpoint that is whole is returned; None if the run ended before there was one. What was being
        written when it ended is removed.
        """
        before, source_before = self.read()
        changed = settings.differences(before, ignore=(*BUDGET, "memory"))
        changed += [
            f"{key}: {value} now, {source_before.get(key)} before"
            for key, value in source.items()
            if key != "dataset" and source_before.get(key) != value
        ]
        if changed:
            what = "; ".join(changed)
            raise InvalidRun(f"{self.path} was made with other settings or data ({what}); resume it with the same")
        for folder in (self.path, self.path / "checkpoints"):
            remove_unfinished(folder)
        newest = self.checkpoints(settings.keep_checkpoints).newest()
        self.describe(settings, source)
        if newest is None:
            self.history.unlink(missing_ok=True)
        return newest

    def read(self) -> tuple[TrainingSettings, dict[str, str]]:
        """The settings, and what the run learns from."""
        settings_text, tables = self._tables()
        return TrainingSettings.from_toml(settings_text, str(self.description)), tables["data"]

    def made_with(self) -> dict[str, str]:
        """The versions and the machine that the run was last begun or resumed with; empty where that was not noted."""
        return self._tables()[1].get("made_with", {})

    def _tables(self) -> tuple[str, dict[str, dict[str, str]]]:
        """The settings as text, and the tables after them."""
        try:
            text = self.description.read_text()
        except FileNotFoundError as error:
            raise InvalidRun(f"{self.path} is no run folder: it has no run.toml; nearfar train makes one") from error
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidFile(f"{self.description} cannot be read: {error}") from error
        settings_text, heading, rest = text.partition("[data]\n")
        try:
            return settings_text, {"data": {}} | tomllib.loads(heading + rest)
        except tomllib.TOMLDecodeError as error:
            raise InvalidFile(f"{self.description} is not valid TOML: {error}") from error

    def reports(self) -> Iterator[Report]:
        """The history as it was written, up to a line that a kill cut short."""
        if self.history.exists():
            for line in self.history.read_text().splitlines():
                try:
                    yield Report(**json.loads(line))
                except (ValueError, TypeError):
                    return

    def truncate_history(self, step: int) -> None:
        """Drop what was reported after ``step``: it will be done again."""
        kept = [report for report in self.reports() if report.step <= step]
        write_text(self.history, "".join(_line(report) for report in kept))

    def open_history(self) -> IO[str]:
        """The history, to be added to."""
        return self.history.open("a", buffering=1)

    def describe(self, settings: TrainingSettings, source: dict[str, str]) -> None:
        """Write run.toml; ``source`` says what the run learns from."""
        tables = "".join(f"\n[{name}]\n{_table(of)}" for name, of in (("data", source), ("made_with", _this_place())))
        write_text(self.description, settings.to_toml() + tables)


def append_report(file: IO[str], report: Report) -> None:
    """Write one line of history."""
    file.write(_line(report))


def _line(report: Report) -> str:
    return json.dumps(report.to_json()) + "\n"


def _table(values: dict[str, str]) -> str:
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def _this_place() -> dict[str, str]:
    try:
        ours = version("nearfar")
    except PackageNotFoundError:  # run from a checkout that is not installed
        ours = "not installed"
    return {
        "nearfar": ours,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }
