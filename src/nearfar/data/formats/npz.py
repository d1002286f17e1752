"""Points and labels in a NumPy .npz file: an array, or the arrays of a sparse matrix."""

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nearfar.data.formats.table import Table, one_row_a_point
from nearfar.errors import InvalidFile, InvalidPoints

_POINTS_KEYS = ("points", "X")
_LABELS_KEYS = ("labels", "y")
_CSR_KEYS = ("data", "indices", "indptr", "shape")
_DAMAGED = (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""What NumPy and zipfile raise on a damaged, truncated or encrypted archive."""


def read(source: Path, points_key: str | None = None, labels_key: str | None = None) -> Table:
    """The points, from the array of this name, else ``points`` or ``X``, else the arrays of a sparse matrix.

    A sparse matrix is what SciPy's ``save_npz`` wrote, or CSR arrays ``data``, ``indices``, ``indptr``,
    ``shape``. The labels are the array of their name, else ``labels`` or ``y``, else none.
    """
    with source.open("rb") as file:  # opened here, since np.load leaves a damaged archive open
        try:
            archive = np.load(file, allow_pickle=False)
        except _DAMAGED as error:
            raise InvalidFile(
                f"{source} is not a complete .npz file: {_reason(error)}; expected one that np.savez wrote"
            ) from error
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise InvalidFile(f"{source} holds a single array; expected an .npz archive: rename it to .npy")
        return Table(_points(source, archive, points_key), _labels(source, archive, labels_key))


def _points(source: Path, archive: Mapping[str, Any], key: str | None) -> NDArray[Any] | sp.csr_matrix:
    found = _chosen(source, archive, key, _POINTS_KEYS, "--points-key")
    if found is not None:
        return one_row_a_point(_array(source, archive, found))
    if "format" in archive:
        return _saved_by_scipy(source)
    if all(name in archive for name in _CSR_KEYS):
        return _csr(source, *(_array(source, archive, name) for name in _CSR_KEYS))
    raise InvalidFile(
        f"{source} has the arrays {_listed(archive)}, none named points or X; "
        "say which of them holds the points with --points-key"
    )


def _labels(source: Path, archive: Mapping[str, Any], key: str | None) -> NDArray[Any] | None:
    found = _chosen(source, archive, key, _LABELS_KEYS, "--labels-key")
    return None if found is None else _array(source, archive, found)


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
    except _DAMAGED as error:
        if "Object arrays" in str(error):
            raise InvalidFile(
                f"array {name!r} of {source} holds Python objects, which are never unpickled; "
                "save it as numbers or as text (.astype(str))"
            ) from error
        raise InvalidFile(f"array {name!r} of {source} is damaged: {_reason(error)}") from error


def _saved_by_scipy(source: Path) -> sp.csr_matrix:
    try:
        matrix = sp.load_npz(source)
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)
        return _canonical(sp.csr_matrix(matrix))
    except (*_DAMAGED, NotImplementedError, TypeError) as error:
        raise InvalidFile(f"{source} is not a matrix that SciPy's save_npz wrote: {_reason(error)}") from error


def _csr(
    source: Path, data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], shape: NDArray[Any]
) -> sp.csr_matrix:
    try:
        matrix = sp.csr_matrix((data, indices, indptr), shape=tuple(int(size) for size in shape))
        matrix.check_format(full_check=True)
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise InvalidPoints(f"{source}: data, indices, indptr and shape are no CSR matrix: {_reason(error)}") from error
    return _canonical(matrix)


def _canonical(matrix: sp.csr_matrix) -> sp.csr_matrix:
    matrix.sum_duplicates()
    return matrix


def _listed(archive: Mapping[str, Any]) -> str:
    return ", ".join(archive) or "(none)"


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
