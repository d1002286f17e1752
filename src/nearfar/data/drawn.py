"""Constraints drawn from labels straight into a dataset folder, so that there may be more than memory holds."""

from collections.abc import Callable, Mapping
from pathlib import Path

from nearfar.data.from_labels import LabelDraws
from nearfar.data.stored_constraints import ConstraintWriter

_AT_ONCE = 1 << 20


def draw_to_dataset(
    folder: Path,
    draws: LabelDraws,
    counts: Mapping[str, int],
    seed: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[str]:
    """Draw so many constraints of each kind, in place of all the dataset had; return what is odd about them.

    The draws are those of ``draws.similar``, ``draws.dissimilar`` and ``draws.triplets``, made block by block. The
    folder is as safe as :class:`~nearfar.data.stored_constraints.ConstraintWriter` keeps it.
    """
    done, total = 0, sum(counts.values())
    with ConstraintWriter(folder, drawn=True) as writer:
        for kind, count in counts.items():
            draw = {"similar": draws.similar, "dissimilar": draws.dissimilar, "triplets": draws.triplets}[kind]
            for first in range(0, count, _AT_ONCE):
                block = draw(min(_AT_ONCE, count - first), seed, first)
                writer.append(kind, block)
                done += len(block)
                if on_progress is not None:
                    on_progress(done, total)
    return writer.remarks
