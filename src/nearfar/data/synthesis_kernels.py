"""Compiled loops that make synthetic points, codes of images and bags of words; ``synthesis.py`` explains the models.

A point is a pure function of (seed, stream, number): its random numbers are hashes of its own key. So a set is the
beginning of any larger one, and blocks may be made in any order, by any thread. All functions release the GIL.
"""

from typing import Any

import numpy as np

from nearfar.compiled import compiled
from nearfar.data.draw import Array, Whole, mixed, permuted, stream_key

CELLS = 16
REGIONS = 21
CODEWORDS = 1024
CODES = 5
"""Codewords that respond to one descriptor."""

_LABELS = 1 << 32
"""Added to the number of a stream: the order of its labels is another stream."""


@compiled(inline="always")
def chance(key: Whole, position: Whole) -> float:
    """The number at a position of a key's stream, even in [0, 1)."""
    return np.float64(mixed(np.uint64(position), np.uint64(key)) >> np.uint64(11)) / 9007199254740992.0  # 2 ** 53


@compiled()
def label_of(number: Whole, n_classes: Whole, seed: Whole, stream: Whole) -> Any:
    """The class of a point. Every ``n_classes`` points in a row are one of each class, in an order of their own."""
    turn, place = divmod(number, n_classes)
    return permuted(place, n_classes, stream_key(seed, stream + _LABELS, turn))


@compiled()
def image_rows(
    seed: Whole, stream: Whole, first: Whole, likelihood: Array, codewords: Array, weights: Array,
    labels: Array, starts: Array, columns: Array, values: Array,
) -> None:  # fmt: skip
    """Images ``first``, ``first + 1``, … as CSR rows: max-pooled codes of the parts that are seen in each.

    ``likelihood`` is (classes, parts); ``codewords`` and ``weights`` are (parts, codes), the parts cell by cell.
    """
    n_classes, n_parts = likelihood.shape
    parts_a_cell = n_parts // CELLS
    pooled = np.zeros((REGIONS, CODEWORDS), np.uint8)
    eights = pooled.reshape(-1).view(np.uint64)  # most codes are zero: eight are passed over at once
    flat = pooled.reshape(-1)
    stored = 0
    starts[0] = 0
    for i in range(len(labels)):
        labels[i] = label = label_of(first + i, n_classes, seed, stream)
        key = stream_key(seed, stream, first + i)
        for part in range(n_parts):
            if chance(key, 3 * part) >= likelihood[label, part]:
                continue
            cell = part // parts_a_cell
            quarter = 1 + cell // 8 * 2 + cell % 4 // 2
            size = 255.0 * (0.5 + 0.5 * chance(key, 3 * part + 1))
            for j in range(CODES):
                word = codewords[part, j] if j < CODES - 1 else int(chance(key, 3 * part + 2) * CODEWORDS)
                code = np.uint8(np.ceil(size * weights[part, j]))
                for region in (0, quarter, 5 + cell):
                    pooled[region, word] = max(pooled[region, word], code)
        for place in range(len(eights)):
            if eights[place] == 0:
                continue
            for column in range(8 * place, 8 * place + 8):
                if flat[column] > 0:
                    columns[stored], values[stored] = column, flat[column]
                    stored += 1
            eights[place] = 0
        starts[i + 1] = stored


@compiled()
def document_rows(
    seed: Whole, stream: Whole, first: Whole, n_classes: Whole, n_features: Whole, vocabularies: Array, shares: Array,
    lengths: Array, labels: Array, starts: Array, columns: Array, values: Array,
) -> None:  # fmt: skip
    """Documents ``first``, ``first + 1``, … as CSR rows of word counts.

    A word is drawn from the document's topic, its themes or the whole language with the running ``shares``; the
    vocabularies of the topics stand first. Words are drawn until a number of different ones, between the two
    ``lengths``, is reached.
    """
    n_vocabularies, n_words = vocabularies.shape
    n_themes = len(shares) - 1
    themes = np.empty(n_themes + 1, np.int64)
    language = stream_key(seed, stream_of_words(), 0)
    stored: Any = 0
    starts[0] = 0
    for i in range(len(labels)):
        key = stream_key(seed, stream, first + i)
        labels[i] = themes[0] = label_of(first + i, n_classes, seed, stream)
        for theme in range(1, n_themes + 1):
            themes[theme] = n_classes + int(chance(key, theme) * (n_vocabularies - n_classes))
        end = stored + lengths[0] + int(chance(key, 0) * (lengths[1] + 1 - lengths[0]))
        position = n_themes + 1
        while stored < end:
            source, rank = chance(key, position), chance(key, position + 1)
            position += 2
            if source < shares[-1]:
                theme = 0
                while source >= shares[theme]:
                    theme += 1
                word: Any = vocabularies[themes[theme], zipf(rank, n_words)]
            else:
                word = permuted(zipf(rank, n_features), n_features, language)
            stored = _counted(word, starts[i], stored, columns, values)
        starts[i + 1] = stored
        _sort(columns, values, starts[i], stored)


@compiled()
def stream_of_words() -> Whole:
    """The stream that scatters words over the columns, the same for every document."""
    return _LABELS << 1


@compiled(inline="always")
def zipf(even: float, size: Whole) -> Whole:
    """One of 0 … size-1, the i-th about as often as 1 / (i + 1), from a number that is even in [0, 1)."""
    return min(int(np.exp(even * np.log(size + 1.0))) - 1, size - 1)


@compiled(inline="always")
def _counted(word: Whole, start: Whole, end: Whole, columns: Array, values: Array) -> Whole:
    """Count a word in the row that is being made; where the row ends now."""
    for j in range(start, end):
        if columns[j] == word:
            values[j] = min(values[j], 254) + 1
            return end
    columns[end], values[end] = word, 1
    return end + 1


@compiled()
def _sort(columns: Array, values: Array, start: Whole, end: Whole) -> None:
    """Order a short row by column, by insertion."""
    for j in range(start + 1, end):
        column, value, hole = columns[j], values[j], j
        while hole > start and columns[hole - 1] > column:
            columns[hole], values[hole] = columns[hole - 1], values[hole - 1]
            hole -= 1
        columns[hole], values[hole] = column, value
