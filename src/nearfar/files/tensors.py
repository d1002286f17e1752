"""Tensors in safetensors files: written slice by slice, with a checksum that tells damage."""

import hashlib
import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from numpy.typing import NDArray

from nearfar.errors import InvalidFile
from nearfar.files.atomic import atomic_file, open_file

CHECKSUM = "sha256"
"""The metadata key of a safetensors file that holds the checksum of its tensors."""

_NO_CHECKSUM = "0" * 64
_SLICE_BYTES = 16 << 20
_SAFETENSORS_NAMES = {"float32": "F32", "float64": "F64", "int64": "I64", "int32": "I32", "uint8": "U8"}


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
                counting = threading.Thread(target=digest.update, args=(piece.data,), name="checksum")
                counting.start()  # beside the writing, as it takes as long
                try:
                    file.write(piece.data)
                finally:
                    counting.join()
        file.seek(0)
        file.write(
            len(text).to_bytes(8, "little") + text.replace(_NO_CHECKSUM.encode(), digest.hexdigest().encode(), 1)
        )


def read_safetensors(path: Path, *, verify: bool = False) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The tensors and the metadata of a safetensors file; with ``verify``, after comparing the checksum."""
    open_file(path).close()  # the package says of a file that may not be read that it is missing
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
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
