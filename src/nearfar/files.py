"""Files that are either complete or absent. The only module that writes.

Everything is written under a temporary name in the same folder, flushed to the disk and renamed, so a reader, or a
process that comes back after a kill, sees the whole file or none. Arrays are written in slices, never copied whole.
"""

import contextlib
import errno
import hashlib
import json
import math
import os
import shutil
import tempfile
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import safetensors
from numpy.typing import DTypeLike, NDArray

from nearfar.errors import InvalidFile

CHECKSUM = "sha256"
"""The metadata key of a safetensors file that holds the checksum of its tensors."""

_NO_CHECKSUM = "0" * 64
_SLICE_BYTES = 16 << 20
_DAMAGED = (OSError, ValueError, EOFError, SyntaxError, ArithmeticError, tokenize.TokenError)
"""What NumPy raises on a damaged .npy file: its header is a Python literal, so also what parsing one raises."""

_SAFETENSORS_NAMES = {"float32": "F32", "float64": "F64", "int64": "I64", "int32": "I32", "uint8": "U8"}


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to that appears at ``path``, complete and on disk, only if the block ends without an error."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    except OSError as error:
        raise InvalidFile(
            f"cannot write {path}: {error.strerror}; choose a folder that exists and is writable"
        ) from error
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
        _flush_folder(path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        Path(temporary).unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A folder to fill that appears at ``path`` only if the block ends without an error."""
    if path.exists():
        raise InvalidFile(f"{path} exists already; choose another name or remove it")
    try:
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial"))
    except OSError as error:
        raise InvalidFile(
            f"cannot write {path}: {error.strerror}; choose a folder that exists and is writable"
        ) from error
    try:
        yield temporary
        temporary.chmod(0o755)
        temporary.replace(path)
        _flush_folder(path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _unwritable(path: Path, error: OSError) -> InvalidFile:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return InvalidFile(
        f"cannot write {path}: {error.strerror}" + ("; free some, or choose another disk" if full else "")
    )


def check_free(path: Path, suffix: str) -> None:
    """Raise unless ``path`` is the name of a file of this kind that does not exist yet, in a folder that does."""
    if path.suffix.lower() != suffix:
        raise InvalidFile(f"{path} is no name of a {suffix[1:]} file; expected one that ends in {suffix}")
    if path.exists():
        raise InvalidFile(f"{path} exists already; choose another name or remove it")
    if not path.parent.is_dir():
        raise InvalidFile(f"cannot write {path}: there is no such folder; choose a folder that exists and is writable")


def make_folder(path: Path) -> None:
    """Make ``path`` and its parents, or say why it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidFile(f"cannot make the folder {path}: {error.strerror}") from error


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_file(path) as file:
        file.write(text.encode())


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file atomically."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise InvalidFile(f"{path} is missing") from error
    except (OSError, ValueError) as error:
        raise InvalidFile(f"{path} is not readable as JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidFile(f"{path} should hold a JSON object, but holds a {type(value).__name__}")
    return value


def write_npy(path: Path, array: NDArray[Any]) -> None:
    """Write one array as .npy, slice by slice, in this machine's byte order."""
    with atomic_file(path) as file:
        np.lib.format.write_array_header_1_0(
            file,
            {
                "descr": np.lib.format.dtype_to_descr(_native(array)),
                "fortran_order": False,
                "shape": array.shape,
            },
        )
        for piece in _slices(array):
            file.write(piece.data)


def read_npy(path: Path, *, mapped: bool = True) -> NDArray[Any]:
    """Open an .npy file, memory-mapped and read-only unless told otherwise; never unpickles."""
    try:
        # Not np.load, which opens a zip or a pickle as readily, whatever the file's name.
        if mapped:
            with np.errstate(over="raise"):
                return np.lib.format.open_memmap(path, mode="r")
        with path.open("rb") as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except FileNotFoundError as error:
        raise InvalidFile(f"{path} is missing") from error
    except _DAMAGED as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidFile(f"{path} is not a complete .npy file: {reason}") from error


class NpyAppender:
    """An .npy file that grows by blocks of rows; the header, with the final length, is written on close.

    The type may change under way: what is there is then rewritten in place, block by block.
    """

    _HEADER_BYTES = 128

    def __init__(self, file: IO[bytes], dtype: DTypeLike, row_shape: tuple[int, ...] = ()) -> None:
        self._file, self.dtype, self._row_shape = file, np.dtype(dtype), row_shape
        self.n_rows = 0
        file.write(bytes(self._HEADER_BYTES))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what was written so far."""
        return (self.n_rows, *self._row_shape)

    def append(self, rows: NDArray[Any]) -> None:
        """Write some rows after those already there."""
        self._file.write(np.ascontiguousarray(rows, self.dtype).data)
        self.n_rows += len(rows)

    def retype(self, dtype: DTypeLike, shift: int = 0) -> None:
        """Turn what is there, and what is to come, into another type; ``shift`` is added to what is there."""
        old, new = self.dtype, np.dtype(dtype)
        if old == new and not shift:
            return
        size = math.prod(self.shape)
        step = max(1, _SLICE_BYTES // max(old.itemsize, new.itemsize))
        starts = range(0, size, step)
        # Larger elements are written from the end, smaller ones from the start: never over what is still to be read.
        for start in reversed(starts) if new.itemsize > old.itemsize else starts:
            self._file.seek(self._HEADER_BYTES + start * old.itemsize)
            block = np.frombuffer(self._file.read(min(step, size - start) * old.itemsize), old)
            self._file.seek(self._HEADER_BYTES + start * new.itemsize)
            self._file.write((block.astype(np.int64) + shift if shift else block).astype(new).data)
        self._file.truncate(self._HEADER_BYTES + size * new.itemsize)
        self._file.seek(0, os.SEEK_END)
        self.dtype = new

    def mapped(self) -> NDArray[Any]:
        """What was written so far, memory-mapped and read-only."""
        if not self.n_rows:
            return np.empty(self.shape, self.dtype)
        self._file.flush()
        return np.memmap(self._file, self.dtype, "r", self._HEADER_BYTES, self.shape)

    def close(self) -> None:
        """Write the header, now that the length is known."""
        descr = np.lib.format.dtype_to_descr(self.dtype)
        header = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {self.shape}, }}"
        magic = b"\x93NUMPY\x01\x00" + (self._HEADER_BYTES - 10).to_bytes(2, "little")
        self._file.seek(0)
        self._file.write(magic + header.ljust(self._HEADER_BYTES - 11).encode() + b"\n")


@contextlib.contextmanager
def atomic_npy(path: Path, dtype: DTypeLike, row_shape: tuple[int, ...] = ()) -> Iterator[NpyAppender]:
    """An .npy file to append to that appears at ``path``, whole, only if the block ends without an error."""
    with atomic_file(path) as file:
        appender = NpyAppender(file, dtype, row_shape)
        yield appender
        appender.close()


@contextlib.contextmanager
def growing_npy(path: Path, dtype: DTypeLike, row_shape: tuple[int, ...] = ()) -> Iterator[NpyAppender]:
    """An .npy file to append to, in a folder that is itself atomic: complete and on disk when the block ends."""
    with path.open("w+b") as file:
        appender = NpyAppender(file, dtype, row_shape)
        yield appender
        appender.close()
        file.flush()
        os.fsync(file.fileno())


@dataclass(frozen=True)
class Transposed:
    """A tensor to be written as the transpose of ``array``, without ever holding that transpose in memory."""

    array: NDArray[Any]


def write_safetensors(
    path: Path, tensors: Mapping[str, NDArray[Any] | Transposed], metadata: Mapping[str, str]
) -> None:
    """Write tensors and their checksum, slice by slice, atomically."""
    # The checksum stands first: it is filled in at the first place where its zeros are.
    filled_in_later = {CHECKSUM: _NO_CHECKSUM}
    header: dict[str, Any] = {"__metadata__": filled_in_later | dict(metadata) | filled_in_later}
    offset = 0
    for name, tensor in tensors.items():
        array = tensor.array.T if isinstance(tensor, Transposed) else tensor
        header[name] = {
            "dtype": _SAFETENSORS_NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    with atomic_file(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            for piece in _slices(tensor.array.T if isinstance(tensor, Transposed) else tensor):
                file.write(piece.data)
                digest.update(piece.data)
        file.seek(0)
        file.write(
            len(text).to_bytes(8, "little") + text.replace(_NO_CHECKSUM.encode(), digest.hexdigest().encode(), 1)
        )


def read_safetensors(path: Path, *, verify: bool = False) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The tensors and the metadata of a safetensors file; with ``verify``, after comparing the checksum."""
    if path.is_dir():
        raise InvalidFile(f"{path} is a folder; expected a safetensors file")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except FileNotFoundError as error:
        raise InvalidFile(f"{path} is missing") from error
    except (OSError, safetensors.SafetensorError, ValueError) as error:
        raise InvalidFile(f"{path} is not a complete safetensors file: {error}") from error
    if verify and metadata.get(CHECKSUM) != _checksum_on_disk(path):
        raise InvalidFile(f"{path} is damaged: its checksum is not the one written with it")
    return tensors, metadata


def _checksum_on_disk(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(8 + int.from_bytes(file.read(8), "little"))
        while piece := file.read(_SLICE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def _slices(array: NDArray[Any]) -> Iterable[NDArray[Any]]:
    """The array's elements in C order and native byte order, in contiguous pieces of bounded size."""
    if array.ndim == 0 or array.size == 0:
        yield np.ascontiguousarray(array, _native(array))
        return
    rows = max(1, _SLICE_BYTES // max(1, array[0].nbytes))
    for start in range(0, len(array), rows):
        yield np.ascontiguousarray(array[start : start + rows], _native(array))


def _native(array: NDArray[Any]) -> np.dtype[Any]:
    return array.dtype.newbyteorder("=")


def _flush_folder(folder: Path) -> None:
    """Make a rename in this folder survive a power cut, where the system lets a folder be opened."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
