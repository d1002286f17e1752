"""How near the products of sparse rows come to the machine's limit, and how they compare with SciPy and PyTorch.

The limit is the rate of the same kernel on a problem that stays in the second cache, with nothing to prepare; where
columns are used once or twice, as in text, far memory is the limit. A flop counts if it is useful:
2 · non-zeros · k a product.
"""

import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from nearfar.data.points import SparseRows, as_points
from nearfar.data.sampling import Batch
from nearfar.data.scratch import Scratch
from nearfar.objective import packing, sparse_cut, sparse_kernels
from nearfar.objective.fast_gradient import Gatherer, Gradient, GradientKernel
from nearfar.objective.losses import Hinge
from nearfar.objective.sparse_products import SparseProducts, TouchedFeatures

Fall = Callable[[np.ndarray, int], np.ndarray]
"""Random numbers below 1 to columns below d, the first ones the most frequent."""


def even(places: np.ndarray, d: int) -> np.ndarray:
    """All columns are as frequent."""
    return d * places


def as_in_images(places: np.ndarray, d: int) -> np.ndarray:
    """A tenth of the columns holds about half of the entries, and half of the columns nearly all."""
    frequent = 0.95
    falling = d / 2 * np.minimum(places / frequent, 1) ** 3.2
    return np.where(places < frequent, falling, d * (places - frequent) / (1 - frequent))


def as_in_text(places: np.ndarray, d: int) -> np.ndarray:
    """The first columns are in nearly every row, most of the others in hardly any."""
    return d**places


SHAPES: dict[str, tuple[int, int, int, Fall, int, int]] = {
    "sparse, d=21504, k=1000": (20_000, 21_504, 1075, even, 1000, 1000),
    "sparse as in images, d=21504, k=1000": (20_000, 21_504, 1400, as_in_images, 1000, 1000),
    "sparse, d=1000000, k=100": (50_000, 1_000_000, 100, as_in_text, 100, 1000),
}
SMALL: dict[str, tuple[int, int, int, Fall, int, int]] = {
    "sparse, small": (300, 400, 40, even, 50, 200),
    "sparse as in images, small": (300, 400, 40, as_in_images, 50, 200),
}
ROUNDS = 5


def run(*, small: bool) -> Iterator[dict[str, Any]]:
    """Useful flops a second, all with one thread and in turns.

    ``gradient``: all of a worker's gradient, from the gather on. ``products``: its two products and their preparation.
    Both with rounded numbers, as in training, and so is the limit. ``float32_products`` are those without rounding, to
    be compared with SciPy's and PyTorch's.
    """
    for name, (n, d, stored, fall, k, b) in (SMALL if small else SHAPES).items():
        with threadpool_limits(1):
            yield {"shape": name, **_compared(_random_points(n, d, stored, fall), k, b, rounds=2 if small else ROUNDS)}


def _compared(X: sp.csr_matrix, k: int, b: int, rounds: int) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    pairs = rng.integers(X.shape[0], size=(b, 2))
    batch = Batch(pairs[: b // 2], pairs[b // 2 :])
    kernel, out = GradientKernel(as_points(X), Hinge(margin=1e9), k, rounded=True), Gradient.empty()
    gatherer = Gatherer(as_points(X), k)
    Lt = rng.standard_normal((X.shape[1], k), dtype=np.float32)
    rows = gatherer.rows_of(batch).rows
    assert isinstance(rows, SparseRows)
    rows = SparseRows(rows.values.copy(), rows.columns.copy(), rows.starts.copy(), rows.n_features)

    def gradient() -> None:
        kernel.gradient(Lt, batch, gatherer.rows_of(batch), out)

    flops = 2 * len(rows.columns) * k
    cached, cached_flops = _in_second_cache(len(rows.columns) / len(rows) / X.shape[1])
    work = {
        "gradient": (gradient, 2 * flops),
        "products": (_products(rows, Lt, rounded=True), 2 * flops),
        "float32_products": (_products(rows, Lt, rounded=False), 2 * flops),
        "scipy": (lambda: rows.to_scipy() @ Lt, flops),
        "second_cache": (cached, cached_flops),
    }
    torch_product = _torch_product(rows, Lt)
    if torch_product:
        work["torch"] = (torch_product, flops)
    rates = _rates(work, rounds)
    return {
        **{f"{name}_gflops": round(max(found) / 1e9, 2) for name, found in rates.items()},
        "pairs_per_second": round(b * max(rates["gradient"]) / (2 * flops)),
        "times_scipy": _ratio(rates["float32_products"], rates["scipy"]),
        **({"times_torch": _ratio(rates["float32_products"], rates["torch"])} if torch_product else {}),
        "ratio": _ratio(rates["products"], rates["second_cache"]),
    }


def _rates(work: dict[str, tuple[Callable[[], Any], float]], rounds: int) -> dict[str, list[float]]:
    """Flops of each, in turns, for a second of this thread's own time; the first turn warms up."""
    rates: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(rounds + 1):
        for name, (compute, flops) in work.items():
            began = time.thread_time()
            compute()
            if turn:
                rates[name].append(flops / (time.thread_time() - began))
    return rates


def _ratio(ours: list[float], other: list[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(ours, other, strict=True)), 3)


def _products(rows: SparseRows, Lt: np.ndarray, *, rounded: bool) -> Callable[[], None]:
    products, kept = SparseProducts(rows.n_features, rounded=rounded), np.arange(len(rows), dtype=np.int32)
    features = TouchedFeatures(rows.n_features).of(rows)
    Z, G = (np.empty((size, Lt.shape[1]), np.float32) for size in (len(rows), len(features)))

    def both() -> None:
        of_rows = products.of(rows, features, Lt.shape[1])
        of_rows.project(Lt, Z)
        of_rows.gradient(kept, Z, G)

    return both


def _in_second_cache(density: float) -> tuple[Callable[[], None], float]:
    """The kernel alone on 384 rows and 512 columns of one tile: sums and packed columns are 144 and 96 KB."""
    n, d, k, repeats, scratch = 384, 512, packing.TILES[2], 100, Scratch()
    rows = as_points(_random_points(n, d, round(max(0.05, density) * d), even)).rows(np.arange(n))
    assert isinstance(rows, SparseRows)
    order = sparse_cut.by_frequency(rows, np.arange(d, dtype=np.int32), np.empty(d, np.uint32))
    cut = sparse_cut.cut(rows, order, scratch, rounded=True)
    base = np.random.default_rng(2).random((d, k), dtype=np.float32)
    packed = packing.pack(base, order.columns, order.places, scratch, rounded=True)
    out = np.empty((n, k), np.float32)

    def multiply() -> None:
        for _ in range(repeats):
            sparse_kernels.multiply(cut, packed, out, scratch)

    return multiply, repeats * 2.0 * len(rows.columns) * k


def _torch_product(rows: SparseRows, Lt: np.ndarray) -> Callable[[], Any] | None:
    try:
        import torch  # noqa: PLC0415 - optional
    except ImportError:
        return None
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that its sparse tensors are in beta
        matrix = torch.sparse_csr_tensor(
            *(torch.from_numpy(part) for part in (rows.starts, rows.columns.astype(np.int64), rows.values)),
            size=(len(rows), rows.n_features),
        )
    dense = torch.from_numpy(Lt)
    return lambda: matrix @ dense


def _random_points(n: int, d: int, stored: int, fall: Fall) -> sp.csr_matrix:
    """Points of ``stored`` non-zeros, or somewhat fewer: a column that is drawn twice is one."""
    rng = np.random.default_rng(0)
    places = rng.random((n, stored))
    columns = rng.permutation(d).astype(np.int32)[fall(places, d).astype(np.int64) % d]
    matrix = sp.csr_matrix(
        (rng.random(columns.size, dtype=np.float32), columns.ravel(), np.arange(n + 1) * stored), (n, d)
    )
    matrix.sum_duplicates()
    return matrix
