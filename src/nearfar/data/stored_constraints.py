"""Constraints as the arrays that a dataset folder stores, and the writer that puts others in their place."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.constraints import Comparisons, Pairs
from nearfar.data.description import CONSTRAINT_WIDTHS, Description, array_file
from nearfar.data.stored import Form
from nearfar.errors import InvalidConstraints
from nearfar.files import NpyAppender, growing_npy, hidden_folder, locked


class ConstraintWriter:
    """Puts constraints into a dataset folder, block by block, in place of all it had when the block ends.

    An error leaves the folder as it was. A signal that comes when the old constraints are being replaced takes effect
    when they are. A kill leaves the old constraints, the new ones, or a folder that opens without any or says that its
    constraints are incomplete: never a mixture. Of several writers at once, the last to end has its constraints there.
    ``drawn`` notes in ``dataset.json`` that they were drawn from the labels.
    """

    def __init__(self, folder: Path, *, drawn: bool = False) -> None:
        self._folder, self._drawn = folder, drawn
        self._n_points = Description.read(folder).n_points
        self._made, self._files = ExitStack(), ExitStack()
        self._arrays: dict[str, NpyAppender] = {}
        self.remarks: list[str] = []

    def __enter__(self) -> "ConstraintWriter":
        self._new = self._made.enter_context(hidden_folder(self._folder / "constraints"))
        self._made.push(self._files)
        return self

    def append(self, kind: str, indices: NDArray[np.integer[Any]]) -> None:
        """Add constraints: kind ``similar``, ``dissimilar``, ``triplets`` or ``quadruplets``."""
        for name in stored_together(kind):
            if name not in self._arrays:
                file = growing_npy(array_file(self._new, name), index_type(self._n_points), (CONSTRAINT_WIDTHS[name],))
                self._arrays[name] = self._files.enter_context(file)
        self._arrays[kind].append(indices)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self._made.__exit__(kind, error, at)
            return
        with self._made:
            with self._files:  # all is on disk when this ends, while the old ones are still there, as it may be full
                constraints = constraints_of({name: array.mapped() for name, array in self._arrays.items()})
                if constraints is None:
                    raise InvalidConstraints("there are no constraints; expected at least one")
                self.remarks = constraints.check(self._n_points)
            with locked(self._folder):
                try:
                    self._replace()
                except BaseException as stop:
                    if not isinstance(stop, Exception):
                        self._replace()  # what is left to do takes a moment, and there may be no way back
                    raise

    def _replace(self) -> None:
        """Move the new constraints to the place of the old ones; begun again, it goes on where it was."""
        before = Description.read(self._folder)
        others = {name: form for name, form in before.arrays.items() if name not in CONSTRAINT_WIDTHS}
        replace(before, arrays=others).write(self._folder)
        for name in CONSTRAINT_WIDTHS:
            if name not in self._arrays:
                array_file(self._folder, name).unlink(missing_ok=True)
            elif array_file(self._new, name).exists():
                array_file(self._new, name).replace(array_file(self._folder, name))
        new = {name: Form(array.dtype.str, array.shape) for name, array in self._arrays.items()}
        replace(before, arrays=others | new, drawn=self._drawn).write(self._folder)


def index_type(n_points: int) -> np.dtype[Any]:
    """The type of the indices in stored constraints."""
    return np.dtype(np.int32 if n_points < 2**31 else np.int64)


def constraints_of(arrays: Mapping[str, NDArray[Any]]) -> Pairs | Comparisons | None:
    """The constraints among a dataset's arrays, if any."""
    if "similar" in arrays and "dissimilar" in arrays:
        return Pairs(arrays["similar"], arrays["dissimilar"])
    kind = next((name for name in ("triplets", "quadruplets") if name in arrays), None)
    return None if kind is None else Comparisons(arrays[kind])


def arrays_of(constraints: Pairs | Comparisons) -> dict[str, NDArray[np.integer[Any]]]:
    """Constraints as the arrays they are stored as, by name."""
    if isinstance(constraints, Pairs):
        return {"similar": constraints.similar, "dissimilar": constraints.dissimilar}
    return {"triplets" if constraints.indices.shape[1] == 3 else "quadruplets": constraints.indices}


def stored_together(kind: str) -> tuple[str, ...]:
    """Similar and dissimilar pairs are always both there, if only as an empty array."""
    return ("similar", "dissimilar") if kind in ("similar", "dissimilar") else (kind,)
