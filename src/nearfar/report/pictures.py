"""How a point is shown to a reader: as a picture where it is one, by its largest features where those have names."""

import base64
import re
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.points import Points, SparseRows
from nearfar.errors import InvalidFile, InvalidSettings

_SMALLEST_SIDE = 8
_MOST_PIXELS = 64
_TERMS = 6
_SAMPLE = 64


@dataclass(frozen=True)
class Looks:
    """How points look: ``shape`` and the range of values of a picture, ``names`` of features, or neither."""

    shape: tuple[int, ...] | None = None
    low: float = 0.0
    high: float = 1.0
    names: Sequence[str] | None = None

    @classmethod
    def of(cls, points: Points, shape: tuple[int, ...] | None, names: Sequence[str] | None) -> "Looks":
        """The looks of these points: as told, else pictures if they are squares of whole numbers."""
        if names is not None:
            if len(names) != points.n_features:
                raise InvalidSettings(
                    f"there are {len(names)} feature names, but points have {points.n_features} features; "
                    "give one name a line"
                )
            return cls(names=names)
        sample = _dense(points, np.unique(np.linspace(0, len(points) - 1, _SAMPLE).astype(np.int64)))
        if shape is None:
            side = round(points.n_features**0.5)
            if side < _SMALLEST_SIDE or side * side != points.n_features or not (sample == np.round(sample)).all():
                return cls()
            shape = (side, side)
        elif int(np.prod(shape)) != points.n_features:
            raise InvalidSettings(
                f"image shape {'x'.join(map(str, shape))} has {int(np.prod(shape))} values, but points have "
                f"{points.n_features} features"
            )
        return cls(shape, min(0.0, float(sample.min())), float(sample.max()))

    def show(self, points: Points, rows: NDArray[np.integer[Any]], titles: Sequence[str]) -> list[str]:
        """HTML of some points; a title says in words which point it is."""
        if self.shape is not None:
            return [
                f'<img src="{_png_address(self._pixels(values))}" alt="{escape(title)}">'
                for values, title in zip(_dense(points, rows), titles, strict=True)
            ]
        named = [f'<span class="point">{escape(title)}</span>' for title in titles]
        if self.names is None:
            return named
        return [
            f'{name}<span class="terms">{escape(" · ".join(terms))}</span>'
            for name, terms in zip(named, self._terms(points, rows), strict=True)
        ]

    def _pixels(self, values: NDArray[np.float32]) -> NDArray[np.uint8]:
        assert self.shape is not None
        span = max(self.high - self.low, 1e-30)
        grey = np.clip(255 * (values.astype(np.float64) - self.low) / span, 0, 255).round().astype(np.uint8)
        step = max(1, -(-max(self.shape[:2]) // _MOST_PIXELS))
        return grey.reshape(self.shape)[::step, ::step]

    def _terms(self, points: Points, rows: NDArray[np.integer[Any]]) -> list[list[str]]:
        assert self.names is not None
        found = []
        for row in rows:
            one = points.rows(np.array([row]))
            if isinstance(one, SparseRows):
                columns, values = one.columns, one.values
            else:
                columns, values = np.arange(points.n_features, dtype=np.int32), one[0]
            largest = np.argsort(-values, kind="stable")[:_TERMS]
            found.append([self.names[columns[i]] for i in largest if values[i] > 0])
        return found


def image_shape(text: str | None) -> tuple[int, ...] | None:
    """Height and width, and 3 for colours, from a text such as 28x28 or 32x32x3."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)x(\d+)(x3)?", text)
    if found is None or not int(found[1]) or not int(found[2]):
        raise InvalidSettings(f"image shape is {text!r}; expected HEIGHTxWIDTH, as in 28x28, or 32x32x3 for colours")
    return (int(found[1]), int(found[2]), *((3,) if found[3] else ()))


def read_names(path: Path | None) -> list[str] | None:
    """Names of features, one a line."""
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(f"{path} cannot be read as text: {error}; expected one feature name a line") from error


def png(pixels: NDArray[np.uint8]) -> bytes:
    """A PNG file of grey values (height, width), or of colours (height, width, 3)."""
    height, width = pixels.shape[:2]
    rows = np.ascontiguousarray(pixels).reshape(height, -1)
    filtered = np.concatenate((np.zeros((height, 1), np.uint8), rows), axis=1)  # each row: no filter, then its values
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if pixels.ndim == 3 else 0, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(filtered.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )


def _png_address(pixels: NDArray[np.uint8]) -> str:
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode()


def _dense(points: Points, rows: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
    found = points.rows(rows)
    return found.to_scipy().toarray() if isinstance(found, SparseRows) else found
