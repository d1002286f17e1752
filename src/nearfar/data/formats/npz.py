"""Points and labels in a NumPy .npz file: an array, read by blocks, or the arrays of a sparse matrix, read whole."""

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nearfar.data.formats.table import Choice, Table, flat_shape, rows_at_once
from nearfar.data.points import check_shape
from nearfar.data.stored import check_label_count
from nearfar.errors import InvalidFile, InvalidPoints
from nearfar.files import DAMAGED, damage, open_file

_POINTS_KEYS = ("points", "X")
_LABELS_KEYS = ("labels", "y")
_CSR_KEYS = ("data", "indices", "indptr", "shape")
_BEGINNINGS = (b"PK", np.lib.format.MAGIC_PREFIX)
"""How archives begin, and single arrays, which are told apart from them later."""


def read(source: Path, choice: Choice) -> Iterator[Table]:
    """The points, from the array of this name, else ``points`` or ``X``, else the arrays of a sparse matrix.

    A sparse matrix is what SciPy's ``save_npz`` wrote, or CSR arrays ``data``, ``indices``, ``indptr``,
    ``shape``. The labels are the array of their name, else ``labels`` or ``y``, else none.
    """
    with open_file(source) as file:  # opened here, since np.load leaves a damaged archive open
        beginning = file.read(len(np.lib.format.MAGIC_PREFIX))
        file.seek(0)
        if not beginning.startswith(_BEGINNINGS):  # np.load would take it for a pickle
            raise InvalidFile(f"{source} is not an .npz archive; expected one that np.savez wrote")
        try:
            archive = np.load(file, allow_pickle=False)
        except DAMAGED as error:
            raise InvalidFile(
                f"{source} is not a complete .npz file: {damage(error)}; expected one that np.savez wrote"
            ) from error
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise InvalidFile(f"{source} holds a single array; expected an .npz archive: rename it to .npy")
        points = _chosen(source, archive, choice.points_key, _POINTS_KEYS, "--points-key")
        labels = _chosen(source, archive, choice.labels_key, _LABELS_KEYS, "--labels-key")
        if points is None:
            found = None if labels is None else _array(source, archive, labels)
            yield Table(_sparse(source, archive), found, size=source.stat().st_size)
        else:
            yield from _dense(source, archive.zip, points, labels)


def _dense(source: Path, archive: Any, points_name: str, labels_name: str | None) -> Iterator[Table]:
    with ExitStack() as members:
        points = members.enter_context(_Member(source, archive, points_name))
        labels = None if labels_name is None else members.enter_context(_Member(source, archive, labels_name))
        shape = flat_shape(points.shape)
        check_shape(shape, points.dtype)
        if labels is not None and labels.shape:
            check_label_count(labels.shape[0], shape[0])
        size = rows_at_once(shape[1], points.dtype)
        for start in range(0, shape[0], size):
            n_rows = min(size, shape[0] - start)
            yield Table(
                points.read(n_rows).reshape(n_rows, shape[1]),
                None if labels is None else labels.read(n_rows),
                size=points.size * n_rows // shape[0],
            )
        points.finish()


class _Member:
    """An array of the archive, read row by row in its order, compressed or not."""

    def __init__(self, source: Path, archive: Any, name: str) -> None:
        self._source, self._name = source, name
        try:
            self._file: IO[bytes] = archive.open(f"{name}.npy")
            self.size = archive.getinfo(f"{name}.npy").compress_size
            self.shape, columns_first, self.dtype = _header(self._file)
            if any(size < 0 for size in self.shape):
                raise ValueError(f"its shape is {self.shape}")
        except DAMAGED as error:
            raise self._damaged(error) from error
        if self.dtype.hasobject:
            raise InvalidFile(
                f"array {name!r} of {source} holds Python objects, which are never unpickled; "
                "save it as numbers or as text (.astype(str))"
            )
        self._rest: NDArray[Any] | None = None
        if columns_first:  # its rows are spread over all of the file
            self._rest = self._numbers(self.shape, "F")

    def __enter__(self) -> "_Member":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, n_rows: int) -> NDArray[Any]:
        """The next rows."""
        if self._rest is not None:
            rows, self._rest = self._rest[:n_rows], self._rest[n_rows:]
            return rows
        return self._numbers((n_rows, *self.shape[1:]))

    def finish(self) -> None:
        """Read to the end, where the archive's checksum is compared."""
        try:
            self._file.read(1)
        except DAMAGED as error:
            raise self._damaged(error) from error

    def _numbers(self, shape: tuple[int, ...], order: Literal["C", "F"] = "C") -> NDArray[Any]:
        count = math.prod(shape)
        try:
            content = self._file.read(count * self.dtype.itemsize)
            return np.frombuffer(content, self.dtype, count).reshape(shape, order=order)
        except DAMAGED as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> InvalidFile:
        return InvalidFile(f"array {self._name!r} of {self._source} is damaged: {damage(error)}")


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read_header(file)


def _sparse(source: Path, archive: Mapping[str, Any]) -> sp.csr_matrix:
    if "format" in archive:
        return _saved_by_scipy(source)
    if all(name in archive for name in _CSR_KEYS):
        return _csr(source, *(_array(source, archive, name) for name in _CSR_KEYS))
    raise InvalidFile(
        f"{source} has the arrays {_listed(archive)}, none named points or X; "
        "say which of them holds the points with --points-key"
    )


def _chosen(
    source: Path, archive: Mapping[str, Any], key: str | None, usual: tuple[str, ...], option: str
) -> str | None:
    """The name asked for, which must be there, or the first of the usual ones that is."""
    if key is not None and key not in archive:
        raise InvalidFile(f"{source} has no array {key!r}; it has {_listed(archive)}: choose one with {option}")
    return key if key is not None else next((name for name in usual if name in archive), None)


def _array(source: Path, archive: Mapping[str, Any], name: str) -> NDArray[Any]:
    try:
        return np.asarray(archive[name])
    except DAMAGED as error:
        if "Object arrays" in str(error):
            raise InvalidFile(
                f"array {name!r} of {source} holds Python objects, which are never unpickled; "
                "save it as numbers or as text (.astype(str))"
            ) from error
        raise InvalidFile(f"array {name!r} of {source} is damaged: {damage(error)}") from error


def _saved_by_scipy(source: Path) -> sp.csr_matrix:
    try:
        matrix = sp.load_npz(source)
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)
        return _canonical(sp.csr_matrix(matrix))
    except DAMAGED as error:
        raise InvalidFile(f"{source} is not a matrix that SciPy's save_npz wrote: {damage(error)}") from error


def _csr(
    source: Path, data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], shape: NDArray[Any]
) -> sp.csr_matrix:
    try:
        matrix = sp.csr_matrix((data, indices, indptr), shape=tuple(int(size) for size in shape))
        matrix.check_format(full_check=True)
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise InvalidPoints(f"{source}: data, indices, indptr and shape are no CSR matrix: {damage(error)}") from error
    return _canonical(matrix)


def _canonical(matrix: sp.csr_matrix) -> sp.csr_matrix:
    matrix.sum_duplicates()
    return matrix


def _listed(archive: Mapping[str, Any]) -> str:
    return ", ".join(archive) or "(none)"
