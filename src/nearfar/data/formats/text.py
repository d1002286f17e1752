"""Text read by blocks of whole lines, and numbers in it: compiled where they are plain, Python's where they are not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.compiled import compiled
from nearfar.errors import InvalidFile
from nearfar.files import open_file

Bytes = NDArray[np.uint8]
Whole = int | np.integer[Any]

NEWLINE, RETURN, TAB, BLANK, COMMENT = (ord(letter) for letter in "\n\r\t #")
_PLUS, _MINUS, _POINT, _ZERO, _NINE, _SMALL_E, _LARGE_E = (ord(letter) for letter in "+-.09eE")

_BLOCK_BYTES = 1 << 20
_LONGEST_LINE = 256 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_POWERS_OF_TEN = 10.0 ** np.arange(23)
"""All powers of ten that float64 holds exactly."""


def text_blocks(path: Path) -> Iterator[Bytes]:
    """The bytes of a text file, some megabytes at a time, each block ending with a line."""
    rest = b""
    try:
        with open_file(path) as file:
            if file.read(len(_BYTE_ORDER_MARK)) != _BYTE_ORDER_MARK:
                file.seek(0)
            while piece := file.read(_BLOCK_BYTES):
                end = piece.rfind(b"\n") + 1
                if end:
                    yield np.frombuffer(rest + piece[:end], np.uint8)
                    rest = piece[end:]
                else:
                    rest += piece
                if len(rest) > _LONGEST_LINE:
                    raise InvalidFile(f"{path} has a line of more than {_LONGEST_LINE >> 20} MB; is it text?")
    except OSError as error:
        raise InvalidFile(f"{path} is not readable as text: {error.strerror}") from error
    if rest:
        yield np.frombuffer(rest + b"\n", np.uint8)


def decoded(text: Bytes, start: int, end: int) -> str:
    """A piece of a block, to be read by Python or shown to the user."""
    return text[start:end].tobytes().decode("utf-8", "replace")


def line_at(text: Bytes, start: int) -> tuple[str, int]:
    """The line that begins at ``start``, and where the next one begins."""
    end = start + int(np.argmax(text[start:] == NEWLINE)) + 1
    return decoded(text, start, end - 1), end


def parsed_number(word: str) -> float | None:
    """The number a word stands for, or None if it is none: the reference for :func:`number`."""
    if not word.isascii() or "_" in word:
        return None
    try:
        return float(word)
    except ValueError:
        return None


@compiled()
def past_blanks(text: Bytes, i: int) -> int:
    """Where the blanks from ``i`` on end."""
    while text[i] == BLANK or text[i] == TAB or text[i] == RETURN:
        i += 1
    return i


@compiled()
def past_line(text: Bytes, i: int) -> int:
    """Where the line after the one of ``i`` begins."""
    while text[i] != NEWLINE:
        i += 1
    return i + 1


@compiled()
def number(text: Bytes, start: Whole, end: Whole) -> tuple[float, bool]:
    """The number in ``text[start:end]`` and True, or 0 and False if it needs a closer look.

    Rounded to float32 it is exactly what :func:`parsed_number` gives; so it is as float64 up to 15 digits.
    """
    negative = start < end and text[start] == _MINUS
    i = start + 1 if start < end and (negative or text[start] == _PLUS) else start
    mantissa, exponent, digits, significant, fraction = np.uint64(0), 0, 0, 0, False
    while i < end:
        if text[i] == _POINT and not fraction:
            fraction = True
        elif _ZERO <= text[i] <= _NINE:
            mantissa = mantissa * np.uint64(10) + np.uint64(text[i] - _ZERO)
            digits += 1
            significant += 1 if mantissa > 0 else 0
            exponent -= 1 if fraction else 0
        else:
            break
        i += 1
    if i < end:
        power, clear = _power(text, i, end)
        if not clear:
            return 0.0, False
        exponent += power
    if digits == 0 or significant > 19 or (mantissa > 0 and abs(exponent) > 44):
        return 0.0, False
    value, clear = _scaled(mantissa, exponent)
    return -value if negative else value, clear


@compiled()
def _power(text: Bytes, start: Whole, end: Whole) -> tuple[int, bool]:
    """The power of ten in ``e+12`` and the like."""
    i = start + 1
    negative = i < end and text[i] == _MINUS
    i = i + 1 if i < end and (negative or text[i] == _PLUS) else i
    if text[start] not in (_SMALL_E, _LARGE_E) or not 1 <= end - i <= 3:
        return 0, False
    power = 0
    for j in range(i, end):
        if not _ZERO <= text[j] <= _NINE:
            return 0, False
        power = 10 * power + int(text[j]) - _ZERO
    return -power if negative else power, True


@compiled()
def _scaled(mantissa: Any, exponent: int) -> tuple[float, bool]:
    """``mantissa * 10**exponent``, and whether that is sure to be right as float32."""
    if mantissa == 0:
        return 0.0, True
    first = min(abs(exponent), 22)
    scale, rest = _POWERS_OF_TEN[first], _POWERS_OF_TEN[abs(exponent) - first]
    value = np.float64(mantissa)
    value = value * scale * rest if exponent >= 0 else value / scale / rest
    if mantissa < np.uint64(1 << 53) and rest == 1.0:
        return value, True
    return value, np.float32(value * (1 - 1e-15)) == np.float32(value * (1 + 1e-15))
