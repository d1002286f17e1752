"""What a run takes of a machine, counted: its memory, and the work and the traffic of a step.

Training keeps to it where memory is limited, and ``nearfar plan`` prints it, with times at a machine's measured rates.
"""

import math
from dataclasses import dataclass

from nearfar import cost
from nearfar.errors import InvalidSettings

GATHER = "gather rows"
"""The part of a step that a thread of its own does, ahead."""
LIBRARIES = 190 << 20
"""Python, NumPy, SciPy, scikit-learn and the compiled loops, once all have been used."""

_FLOAT = 4
_SPARSE_ENTRY = 8
"""Bytes of a non-zero: as it is gathered, and in the order of a product; there it is half as long if it is rounded."""
_PACKED_AT_ONCE = 32
"""Numbers of a packed row come in as many as this, where registers are the widest."""
_STATE_ARRAYS = {"sgd": 0, "momentum": 1, "adagrad": 1, "adam": 2}
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BANDWIDTHS = {"kbit": 125.0, "Mbit": 125e3, "Gbit": 125e6, "Tbit": 125e9, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
_DURATIONS = {"days": 86_400.0, "hours": 3600.0, "minutes": 60.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}


@dataclass(frozen=True)
class Rates:
    """What one thread does in a second, while as many threads as there will be do the same."""

    gather: float
    """Entries of rows gathered."""
    products: float
    """Flops of gradients."""
    pull: float
    """Bytes read and written to bring a copy of L up to date."""
    update: float
    """Bytes read and written by the update rule."""


@dataclass(frozen=True)
class BatchSizes:
    """What the cost of one step's gradient depends on, beside L."""

    rows: int
    """Rows that its two products go over: the points of a block, the distinct points of pairs, or their differences."""
    entries: float
    """Entries of a row that cost work: the number of features, or of non-zeros."""
    touched: int
    """Features that the gradient covers: all, or those in which the rows have a non-zero."""
    pairs: int
    is_sparse: bool
    is_block: bool
    """Whether all pairs among the rows are used."""


@dataclass(frozen=True)
class Sizes:
    """What the cost of a run depends on."""

    n_features: int
    rank: int
    batch: BatchSizes
    workers: int = 1
    threads_per_worker: int = 1
    has_copies: bool = False
    """Whether workers have copies of L: not where one worker trains alone."""
    hands_over: bool = False
    """Whether workers are in the server's memory, and none waits until a push is applied."""
    begins_small: bool = False
    """Whether the first batches are smaller: those may take a copy of L that the later ones do without."""
    slots: int = 1
    """Gradients that each worker may have under way."""
    update_rule: str = "adam"
    keeps_best: bool = True
    """Whether a copy of the best L is kept, for when patience ends the training."""
    judged_rows: int = 0
    """Points that a judgement projects."""
    lift_features: int = 0
    """Features of raw points, where they are lifted."""
    rounded: bool = False
    """Whether the rows of L that a sparse batch needs are packed as rounded numbers of two bytes."""
    is_simulated: bool = False
    """Whether one thread computes for all workers in turn, and snapshots take time to travel."""

    @property
    def L_bytes(self) -> float:  # noqa: N802 - the paper's letter
        return _FLOAT * self.n_features * self.rank

    @property
    def checkpoint_bytes(self) -> float:
        """L, the rule's state, and the best L."""
        return self.L_bytes * (1 + _STATE_ARRAYS[self.update_rule] + self.keeps_best)

    @property
    def goes_in_pairs(self) -> bool:
        """Whether pushes wait for each other, to be applied in one pass over L."""
        return self.hands_over and cost.is_far(self.L_bytes, self.workers * self.threads_per_worker) and self.slots > 1

    @property
    def shares_packed_copies(self) -> bool:
        """Whether workers read the server's packed copies of L, and have none of their own."""
        batch = self.batch
        return (
            self.hands_over
            and cost.is_far(self.L_bytes, self.workers * self.threads_per_worker)
            and batch.is_sparse
            and cost.are_most_features(batch.touched, self.n_features)
            and self._form == "blocks"
        )

    @property
    def copied_rows(self) -> int:
        """Rows of L that a step brings up to date in its worker's copy."""
        return self.batch.touched if self.has_copies and not self.shares_packed_copies else 0

    @property
    def number_bytes(self) -> int:
        """Of a number in packed rows."""
        return 2 if self.rounded else _FLOAT

    @property
    def packed_copy_bytes(self) -> float:
        """One packed copy of L, where workers share those."""
        return self.packed_row_bytes * self.n_features if self.shares_packed_copies else 0.0

    @property
    def packed_row_bytes(self) -> float:
        """A row of L that is packed, filled up to whole registers."""
        return self.number_bytes * math.ceil(self.rank / _PACKED_AT_ONCE) * _PACKED_AT_ONCE

    @property
    def gradient_bytes(self) -> float:
        """A gradient, as a worker pushes it."""
        return _FLOAT * self.batch.touched * (self.rank + 1)

    @property
    def batch_bytes(self) -> float:
        """What one computing thread holds of a step: rows, projections, coefficients, and all pairs of a block."""
        batch = self.batch
        now_ahead_and_in_both_products = 2 * _SPARSE_ENTRY + 2 * 2 * self.number_bytes
        gathered = batch.rows * batch.entries * (now_ahead_and_in_both_products if batch.is_sparse else _FLOAT)
        projections = 2 * _FLOAT * batch.rows * self.rank
        among_all = 4 * _FLOAT * batch.rows**2 if batch.is_block else 0.0
        packed_rows = batch.rows if self.shares_packed_copies else max(batch.rows, batch.touched)
        packed = self.packed_row_bytes * packed_rows if self._form == "blocks" else 0.0
        made_dense = _FLOAT * batch.rows * batch.touched if batch.is_sparse and self._form == "dense" else 0.0
        lifting = _FLOAT * batch.rows * self.lift_features
        return gathered + projections + among_all + packed + made_dense + lifting

    @property
    def _form(self) -> str:
        """In which form a batch is multiplied."""
        batch = self.batch
        if not batch.is_sparse:
            return "dense"
        return cost.sparse_form(batch.rows, batch.rows * batch.entries, batch.touched, self.rank)

    @property
    def flops(self) -> float:
        """The two products of a step with L; for a block, two more among its own projections."""
        among_all = 4 * self.batch.rows**2 * self.rank if self.batch.is_block else 0.0
        return 4 * self.batch.rows * self.batch.entries * self.rank + among_all

    @property
    def update_bytes(self) -> float:
        """What the server reads and writes to apply a push: the gradient once, L and the state twice, or for a pair.

        A packed copy of L is written by the pass for a pair, or else by one of its own.
        """
        shared = self.goes_in_pairs and cost.are_most_features(self.batch.touched, self.n_features)
        passes = (1 if shared else 2) * (1 + _STATE_ARRAYS[self.update_rule])
        packing = 0.0
        if self.shares_packed_copies:
            packing = self.packed_copy_bytes / 2 if shared else self.packed_copy_bytes + self.L_bytes
        return _FLOAT * self.batch.touched * self.rank * (1 + passes) + packing

    @property
    def pull_bytes(self) -> float:
        """What is read and written to bring a worker's copy up to date before a step."""
        return 2 * _FLOAT * self.copied_rows * self.rank

    @property
    def local_step_bytes(self) -> float:
        """What a worker reads and writes to change its own copy; not where others' steps would replace that at once."""
        replaced = self.workers > 1 and cost.are_most_features(self.batch.touched, self.n_features)
        return 0.0 if replaced else 3 * _FLOAT * self.copied_rows * self.rank

    def compute_seconds(self, rates: Rates) -> dict[str, float]:
        """What a computing thread spends on a step, part by part."""
        return {
            GATHER: self.batch.rows * self.batch.entries / rates.gather,
            "gradient": self.flops / rates.products,
            "pull": self.pull_bytes / rates.pull,
            "step on the own copy": self.local_step_bytes / rates.pull,
        }

    def update_seconds(self, rates: Rates) -> float:
        """What the server spends on a push."""
        return self.update_bytes / rates.update

    @property
    def judging_bytes(self) -> float:
        """What a judgement holds: a block of rows, all projections, and for sparse points the packed rows of L."""
        if not self.judged_rows:
            return 0.0
        all_at_once = cost.are_most_features(self.batch.touched, self.n_features)
        n_packed = self.n_features if all_at_once else self.batch.touched
        packed = _FLOAT * n_packed * self.rank if self.batch.is_sparse else 0.0
        entries = min(self.judged_rows * self.batch.entries, cost.BLOCK_ENTRIES)
        rows = entries * (2 * _SPARSE_ENTRY if self.batch.is_sparse else _FLOAT)  # gathered, and for the product
        return rows + _FLOAT * self.judged_rows * self.rank + packed

    @property
    def memory(self) -> dict[str, float]:
        """Bytes that the process allocates, part by part; memory-mapped data comes and goes as the system likes."""
        copies = self.workers if self.copied_rows or (self.has_copies and self.begins_small) else 0
        return {
            "Python and libraries": float(LIBRARIES),
            "L": self.L_bytes,
            f"state of {self.update_rule}": _STATE_ARRAYS[self.update_rule] * self.L_bytes,
            "workers' copies of L": copies * self.L_bytes,
            "packed copies of L": (self.workers * self.threads_per_worker + 2) * self.packed_copy_bytes,
            "snapshots under way": self.L_bytes + self.workers * self.gradient_bytes if self.is_simulated else 0.0,
            "gradients under way": self.workers * self.slots * self.gradient_bytes,
            "best L": self.L_bytes if self.keeps_best else 0.0,
            "batches": (1 if self.is_simulated else self.workers * self.threads_per_worker) * self.batch_bytes,
            "judging": self.judging_bytes,
            "lift": _FLOAT * self.lift_features * self.n_features if self.lift_features else 0.0,
        }


def memory_bytes(text: str, name: str = "memory") -> int:
    """The bytes that a text like ``8GB`` says, in powers of 1,000; ``name`` names it in an error."""
    stripped = text.strip().upper().replace(" ", "")
    unit = next((unit for unit in ("TB", "GB", "MB", "KB", "B") if stripped.endswith(unit)), None)
    try:
        number = float(stripped.removesuffix(unit or ""))
    except ValueError:
        number = -1.0
    if unit is None or not 0 < number < 1e9:
        raise InvalidSettings(f"{name} is {text!r}; expected a number and a unit, as in 8GB or 500MB")
    return int(number * _UNITS[unit])


def memory_text(count: float) -> str:
    """Bytes as one reads them: ``3.4 GB``."""
    for unit in ("TB", "GB", "MB", "KB"):
        if count >= _UNITS[unit]:
            return f"{count / _UNITS[unit]:.3g} {unit}"
    return f"{count:.0f} B"


def bandwidth_bytes(text: str) -> float:
    """The bytes a second that a text like ``10Gbit`` says; a text in bytes, as ``1.25GB``, will do too."""
    number, unit = _number_and_unit(text)
    found = {name.lower(): size for name, size in _BANDWIDTHS.items()}.get(unit.lower())
    if found is None or not number > 0:
        raise InvalidSettings(
            f"bandwidth is {text!r}; expected a number and a unit a second, as in 10Gbit, 100Mbit or 1.25GB"
        )
    return number * found


def bandwidth_text(rate: float) -> str:
    """Bytes a second as links are sold: ``10 Gbit/s``."""
    for unit in ("Tbit", "Gbit", "Mbit"):
        if rate >= _BANDWIDTHS[unit]:
            return "unlimited" if math.isinf(rate) else f"{rate / _BANDWIDTHS[unit]:.3g} {unit}/s"
    return f"{rate / _BANDWIDTHS['kbit']:.3g} kbit/s"


def duration_seconds(text: str, name: str = "duration") -> float:
    """The seconds that a text like ``50us`` says; ``name`` names it in an error."""
    number, unit = _number_and_unit(text)
    found = {**_DURATIONS, "us": 1e-6, "min": 60.0, "h": 3600.0}.get(unit)
    if found is None or not number >= 0:
        raise InvalidSettings(f"{name} is {text!r}; expected a number and a unit, as in 50us, 0.5ms or 2s")
    return number * found


def duration_text(seconds: float) -> str:
    """Seconds as one reads them: ``1.5 ms``."""
    for unit in ("days", "hours", "minutes", "s", "ms"):
        if seconds >= _DURATIONS[unit]:
            return f"{seconds / _DURATIONS[unit]:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def _number_and_unit(text: str) -> tuple[float, str]:
    """NaN and what was given, if it does not begin with a number."""
    stripped = text.strip().removesuffix("/s")
    unit = stripped.lstrip("0123456789.").strip()
    try:
        number = float(stripped.removesuffix(unit).strip()) if unit else math.nan
    except ValueError:
        number = math.nan
    return number, unit
