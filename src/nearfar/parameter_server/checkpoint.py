"""Checkpoints: complete or absent, checksummed, the newest few kept; a damaged one gives way to the one before."""

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from nearfar.errors import InvalidFile, InvalidRun
from nearfar.files import make_folder, read_safetensors, write_safetensors

_FORMAT = {"format": "nearfar.checkpoint", "version": "1"}


@dataclass(frozen=True)
class Checkpoint:
    """All that training needs to go on: arrays (L transposed, the rule's state, …) and plain values."""

    step: int
    arrays: dict[str, NDArray[Any]]
    values: dict[str, Any]


class Checkpoints:
    """The checkpoints of one run, in one folder."""

    def __init__(self, folder: Path, keep: int) -> None:
        self._folder, self._keep = folder, keep

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint, then remove the oldest ones beyond those to keep."""
        make_folder(self._folder)
        path = self._folder / f"step-{checkpoint.step:010d}.safetensors"
        write_safetensors(path, checkpoint.arrays, {**_FORMAT, "values": json.dumps(checkpoint.values)})
        for old in self.paths()[self._keep :]:
            old.unlink(missing_ok=True)
        return path

    def paths(self) -> list[Path]:
        """The checkpoint files there are, newest first."""
        return sorted(self._folder.glob("step-*.safetensors"), reverse=True)

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint that is whole, with a warning for each that is not; None if there was never one."""
        paths = self.paths()
        for path in paths:
            try:
                return _read(path)
            except InvalidFile as error:
                warnings.warn(f"{error}; going back to the checkpoint before it", stacklevel=2)
        if paths:
            raise InvalidRun(f"every checkpoint in {self._folder} is damaged; start the run again")
        return None


def _read(path: Path) -> Checkpoint:
    arrays, metadata = read_safetensors(path, verify=True)
    if metadata.get("format") != _FORMAT["format"]:
        raise InvalidFile(f"{path} is not a checkpoint of nearfar")
    return Checkpoint(int(path.stem.removeprefix("step-")), arrays, json.loads(metadata["values"]))
