"""Synthetic datasets with the shapes of the paper's: points whose classes a learned metric finds and Euclid does not.

**Images** (``imnet-63k``, ``imnet-1m``). A picture has 4 × 4 cells. In a cell any of its m parts may be seen, each by
itself. A part that is seen makes one descriptor there, to which five codewords respond: four that belong to the part,
and one that is drawn anew, as codes of locality-constrained linear coding would,

    code[cell, word] = max over the parts p seen in the cell of  strength_p · weight_{p,word} · u,   u even in [½, 1].

The codes of the four quarters and of the whole picture are the maxima over their cells: 21 regions × 1,024 codewords.
Nearly all parts are seen with the same probability q whatever the class. A few in each cell are *telling*: every class
owns some of all telling parts, and of its pictures a share r shows each of them; other classes never do. Since classes
own as many as makes a telling part as frequent as any other, q = r · owned / telling, nothing but the labels sets it
apart: neither distance nor whitening can know the few directions that matter from the many that do not. (Telling parts
are a little stronger on average, else whitening, which takes all as equally strong, would gain by that alone.)

**Documents** (``text-1m``). Words of a language have Zipf frequencies. A document has one topic, its class, and some
themes, which say nothing about the class. Topics and themes are vocabularies of the same kind, one as frequent as
another. Each word of a document comes from the topic, from one of the themes, or from the whole language.
"""

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nearfar.data import draw, synthesis_kernels
from nearfar.data.dataset import Dataset
from nearfar.data.writer import DatasetWriter
from nearfar.errors import InvalidFile, InvalidSettings

ShapeName = Literal["imnet-63k", "imnet-1m", "text-1m"]
Rows = tuple[sp.csr_matrix, NDArray[np.int32]]
"""Some points, and the class of each."""

_TRAINING, _TEST = 1 << 40, 1 << 41
_MOST_SEED = 2**62
_BLOCK_ROWS = 1024
_MOST_THREADS = 4

_PARTS, _TELLING = 75, 4
"""Parts of a cell, and how many of them are telling."""
_OWNED, _SHOWN = 7, 0.6
"""Telling parts that a class owns, and the share of its pictures that show each."""
_WEAKEST, _WEAKEST_TELLING = 0.3, 0.5
"""Strengths of parts are even on a logarithmic scale from here to 1."""

_THEMES = 300
_VOCABULARY = 200
"""Words of a topic or theme, with Zipf frequencies of their own."""
_SHARES = (0.15, 0.15, 0.15, 0.15)
"""Of a document's words, the share that comes from its topic, then from each of its themes."""
_LENGTHS = (50, 150)
"""Fewest and most different words in a document."""
_FEWEST_WORDS = 10_000


class Source(Protocol):
    """Points without end, each a function of its number."""

    n_features: int
    n_classes: int

    def rows(self, stream: int, first: int, count: int) -> Rows:
        """Points number ``first`` to ``first + count`` of a stream."""


class Images:
    """Max-pooled codes in 21 regions by 1,024 codewords, as whole numbers from 0 to 255; about 5 % are not 0."""

    n_features = synthesis_kernels.REGIONS * synthesis_kernels.CODEWORDS
    n_classes = 1000

    def __init__(self, seed: int) -> None:
        self._seed = seed
        cells, codes, words = synthesis_kernels.CELLS, synthesis_kernels.CODES, synthesis_kernels.CODEWORDS
        rng = np.random.default_rng([seed, 0x1333])
        n_parts, n_telling = cells * _PARTS, cells * _TELLING
        self._codewords = np.argsort(rng.random((n_parts, words)), axis=1)[:, : codes - 1].astype(np.int64)
        weights = np.sort(rng.dirichlet(np.full(codes, 2.0), n_parts), axis=1)[:, ::-1]
        is_telling = np.arange(n_parts)[:, None] % _PARTS < _TELLING
        strength = np.where(is_telling, _WEAKEST_TELLING, _WEAKEST) ** rng.random((n_parts, 1))
        self._weights = strength * weights / weights[:, :1]
        owned = np.argsort(rng.random((self.n_classes, n_telling)), axis=1) < _OWNED
        likelihood = np.full((self.n_classes, cells, _PARTS), _SHOWN * _OWNED / n_telling, np.float32)
        likelihood[:, :, :_TELLING] = _SHOWN * owned.reshape(self.n_classes, cells, _TELLING)
        self._likelihood = likelihood.reshape(self.n_classes, n_parts)

    def rows(self, stream: int, first: int, count: int) -> Rows:
        rows = _Room(count, self.n_features)
        synthesis_kernels.image_rows(
            self._seed, stream, first, self._likelihood, self._codewords, self._weights, *rows.arrays
        )
        return rows.filled(self.n_features)


class Documents:
    """Word counts: about 100 different words in a document, whatever the number of features."""

    n_classes = 100

    def __init__(self, seed: int, n_features: int) -> None:
        self._seed, self.n_features = seed, n_features
        rng = np.random.default_rng([seed, 0x2333])
        # Neither the words that everyone uses nor those that nearly nobody does: even in log(rank) between.
        ranks = 100 * (n_features / 1000) ** rng.random((self.n_classes + _THEMES, _VOCABULARY))
        words = ranks.astype(np.int64)
        language = draw.stream_key(seed, synthesis_kernels.stream_of_words(), 0)
        draw.permuted_rows(words.reshape(-1), n_features, language)
        self._vocabularies, self._shares = words, np.cumsum(_SHARES)

    def rows(self, stream: int, first: int, count: int) -> Rows:
        rows = _Room(count, _LENGTHS[1])
        synthesis_kernels.document_rows(
            self._seed, stream, first, self.n_classes, self.n_features, self._vocabularies, self._shares,
            np.array(_LENGTHS), *rows.arrays,
        )  # fmt: skip
        return rows.filled(self.n_features)


class _Room:
    """Arrays for a block of rows at its longest; what is never written to takes no memory."""

    def __init__(self, count: int, longest: int) -> None:
        self._labels, self._starts = np.empty(count, np.int32), np.empty(count + 1, np.int64)
        self._columns, self._values = np.empty(count * longest, np.int32), np.empty(count * longest, np.uint8)
        self.arrays = (self._labels, self._starts, self._columns, self._values)

    def filled(self, n_features: int) -> Rows:
        end = self._starts[-1]
        shape = (len(self._labels), n_features)
        return sp.csr_matrix((self._values[:end], self._columns[:end], self._starts), shape=shape), self._labels


@dataclass(frozen=True)
class _Shape:
    """What a name stands for when nothing else is said."""

    n_points: int
    most_test_points: int
    n_features: int
    n_classes: int


_SHAPES = {
    "imnet-63k": _Shape(63_000, 10_000, Images.n_features, Images.n_classes),
    "imnet-1m": _Shape(1_000_000, 63_000, Images.n_features, Images.n_classes),
    "text-1m": _Shape(1_000_000, 10_000, 1_000_000, Documents.n_classes),
}


def synthesize(
    name: ShapeName,
    out: Path,
    *,
    points: int | None = None,
    test_points: int | None = None,
    features: int | None = None,
    seed: int = 0,
) -> tuple[Dataset, Dataset]:
    """Make a synthetic dataset at ``out`` and one of other points of the same classes at ``out`` with ``-test`` added.

    Both appear complete, or after any error neither does. The points are the first of an endless sequence that the
    seed decides, so a smaller set is the beginning of a larger one. Memory does not grow with their number.

    Parameters
    ----------
    name
        ``imnet-63k``, ``imnet-1m`` or ``text-1m``.
    out
        The folder to make.
    points
        Points to train on; by default 63,000, a million and a million.
    test_points
        Points to test on; by default a tenth, at most 10,000 (``imnet-1m``: 63,000), at least two of each class.
    features
        Different words that there are (``text-1m`` only), by default a million.
    seed
        Decides everything.
    """
    if name not in get_args(ShapeName):
        raise InvalidSettings(f"the shape is {name!r}; expected one of {', '.join(get_args(ShapeName))}")
    shape = _SHAPES[name]
    fewest = 2 * shape.n_classes
    n_points = shape.n_points if points is None else points
    n_test = max(fewest, min(n_points // 10, shape.most_test_points)) if test_points is None else test_points
    for asked, count in (("points", n_points), ("test_points", n_test)):
        if count < fewest:
            raise InvalidSettings(f"{asked} is {count}; expected at least {fewest}: two of each class of {name}")
    if not 0 <= seed <= _MOST_SEED:
        raise InvalidSettings(f"seed is {seed}; expected a whole number from 0 to 2**62")
    test_out = out.with_name(f"{out.name}-test") if out.name else out
    for path in (out, test_out):
        if path.exists():
            raise InvalidFile(f"{path} exists already; choose another name or remove it")
    source = _source(name, seed, features)

    def writer_to(path: Path) -> DatasetWriter:
        described = f"nearfar synthesize {name} --seed {seed}"
        return DatasetWriter(path, n_features=source.n_features, sparse=True, source=described)

    test, training = writers = writer_to(test_out), writer_to(out)
    try:
        with test, training:
            for writer, stream, count in ((test, _TEST, n_test), (training, _TRAINING, n_points)):
                for rows, labels in _blocks(source, stream, count):
                    writer.append(rows, labels=labels)
                writer.complete()
    except BaseException:
        for writer in writers:  # one may have got its name before the other failed
            writer.withdraw()
        raise
    return Dataset.open(out), Dataset.open(test_out)


def _source(name: ShapeName, seed: int, features: int | None) -> Source:
    if name == "text-1m":
        n_features = _SHAPES[name].n_features if features is None else features
        if not _FEWEST_WORDS <= n_features < 2**31:
            raise InvalidSettings(f"features is {n_features}; expected from {_FEWEST_WORDS} to {2**31 - 1}")
        return Documents(seed, n_features)
    if features not in (None, Images.n_features):
        raise InvalidSettings(f"features is {features}, but {name} always has {Images.n_features}; leave it out")
    return Images(seed)


def _blocks(source: Source, stream: int, count: int) -> Iterator[Rows]:
    """Points 0 to ``count`` of a stream in order, block by block, some blocks being made ahead by other threads."""
    threads = min(_MOST_THREADS, os.cpu_count() or 1)
    waiting: deque[Future[Rows]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for first in range(0, count, _BLOCK_ROWS):
            waiting.append(pool.submit(source.rows, stream, first, min(_BLOCK_ROWS, count - first)))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
