"""The metric: the learned L and what it can do. It outlives training and needs nothing of it."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.data.points import Floats, Indices, Points, Rows, SparseRows
from nearfar.errors import InvalidFile, InvalidInput, InvalidPoints, InvalidSettings
from nearfar.files import Transposed, read_safetensors, write_safetensors
from nearfar.model.distance import Distance, checked_out, places, squared_norms
from nearfar.objective.lift import Lift, LiftedPoints

Setting = str | int | float | bool
Settings = Mapping[str, Setting]

_FORMAT, _VERSION = "nearfar.metric", "1"
_TENSORS = {"components": 2, "centre": 1, "threshold": 1, "lift.weights": 2, "lift.phases": 1}
_PROJECTIONS_BYTES = 1 << 30


class Metric(Distance):
    """A learned Mahalanobis metric: ``dist(x, y) = ‖L(x − y)‖``. Immutable.

    With a lift φ it is ``‖L(φ(x) − φ(y))‖``: every method takes raw points and lifts them block by block.

    Parameters
    ----------
    components : array of shape (k, d), or (k, D) with a lift to D features
        L, one row a component. Copied, as float32.
    lift : Lift, optional
        A fixed map of points, before L.
    centre : array of shape (d,), or (D,) with a lift, optional
        :meth:`transform` subtracts it before L is applied. Distances do not depend on it.
    threshold : float, optional
        Two points at this distance or nearer count as similar.
    settings : mapping of names to strings, numbers and booleans, optional
        How the metric was made; kept and saved with it, never read.
    """

    def __init__(
        self,
        components: ArrayLike,
        *,
        lift: Lift | None = None,
        centre: ArrayLike | None = None,
        threshold: float | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._keep(_floats(components, "components").T.copy(), lift, centre, threshold, settings)

    @classmethod
    def from_transposed(
        cls,
        transposed: Floats,
        *,
        lift: Lift | None = None,
        centre: ArrayLike | None = None,
        threshold: float | None = None,
        settings: Settings | None = None,
    ) -> "Metric":
        """A metric of ``Lᵀ``, (d, k) or (D, k). Float32 in C order is not copied: do not change it any more."""
        metric = cls.__new__(cls)
        metric._keep(_floats(transposed, "transposed components"), lift, centre, threshold, settings)
        return metric

    def _keep(
        self,
        transposed: Floats,
        lift: Lift | None,
        centre: ArrayLike | None,
        threshold: float | None,
        settings: Settings | None,
    ) -> None:
        if transposed.ndim != 2 or 0 in transposed.shape:
            raise InvalidInput(f"components have shape {transposed.T.shape}; expected (rank, features), not empty")
        if lift is not None and lift.dim != len(transposed):
            raise InvalidInput(f"components are for {len(transposed)} features, but the lift makes {lift.dim}")
        self._transposed, self._lift = _read_only(np.ascontiguousarray(transposed)), lift
        self._centre = None if centre is None else _read_only(np.array(_floats(centre, "centre")))
        if self._centre is not None and self._centre.shape != transposed.shape[:1]:
            raise InvalidInput(f"centre has shape {self._centre.shape}; expected {transposed.shape[:1]}")
        if threshold is not None and not 0 <= threshold < math.inf:
            raise InvalidSettings(f"threshold is {threshold}; expected a finite distance, 0 or more")
        self._threshold = None if threshold is None else float(threshold)
        self._settings = dict(settings or {})
        for name, value in self._settings.items():
            if not isinstance(value, Setting):
                raise InvalidSettings(f"setting {name} is {value!r}; expected a string, number or boolean")

    def __repr__(self) -> str:
        threshold = "" if self.threshold is None else f", threshold={self.threshold:.6g}"
        lift = "" if self.lift is None else f", lifted to {self.lift.dim}"
        return f"Metric(rank={self.rank}, n_features={self.n_features}{lift}{threshold})"

    @property
    def components(self) -> Floats:
        """L, (k, d), or (k, D) with a lift: a read-only view."""
        return self._transposed.T

    @property
    def rank(self) -> int:
        """k, the number of rows of L."""
        return int(self._transposed.shape[1])

    @property
    def n_features(self) -> int:
        """d, the width of the points it measures: raw ones, also with a lift."""
        return int(self._transposed.shape[0]) if self._lift is None else self._lift.n_features

    @property
    def lift(self) -> Lift | None:
        """The fixed map before L, if there is one."""
        return self._lift

    @property
    def centre(self) -> Floats | None:
        """What :meth:`transform` subtracts before L, if anything: a point, lifted where there is a lift."""
        return self._centre

    @property
    def threshold(self) -> float | None:
        return self._threshold

    @property
    def settings(self) -> dict[str, Setting]:
        """How the metric was made."""
        return dict(self._settings)

    def transform(self, X: Any, out: Floats | None = None) -> Floats:
        """``L(x − centre)`` for each point: Euclidean distance between the results is this metric.

        With a lift, ``L(φ(x) − centre)``.

        Parameters
        ----------
        X : points of shape (n, d)
            Dense, memory-mapped or sparse; read in blocks.
        out : array of shape (n, k), float32, optional
            Where to write the result.

        Returns
        -------
        array of shape (n, k), float32
        """
        points = self.points(X)
        out = checked_out(out, (len(points), self.rank))
        origin = None if self._centre is None else self._centre @ self._transposed
        return self._project_into(out, points, np.arange(len(points)), origin)

    def matrix(self) -> NDArray[np.float64]:
        """``M = LᵀL``, (d, d): symmetric and positive semi-definite. With a lift it is of the lifted space, (D, D)."""
        wide = self._transposed.astype(np.float64)
        return wide @ wide.T

    def is_similar(self, A: Any, B: Any) -> NDArray[np.bool_]:
        """Whether each point of A and the point of B in the same row are at the threshold or nearer."""
        if self.threshold is None:
            raise InvalidSettings(
                "this metric has no threshold; find one on known pairs with best_threshold of "
                "nearfar.objective.ranking, and set it with metric.with_threshold(...)"
            )
        return self.distance(A, B) <= np.float64(self.threshold)

    def with_threshold(self, threshold: float) -> "Metric":
        """The same metric, shared and not copied, with this threshold."""
        return Metric.from_transposed(
            self._transposed, lift=self._lift, centre=self._centre, threshold=threshold, settings=self._settings
        )

    def reduced(self, rank: int | Literal["auto"], tolerance: float = 1e-3) -> "Metric":
        """The metric of lower rank whose M is nearest to this one's: it keeps L's largest singular values.

        No distance grows, and a squared distance shrinks by at most ``σ² ‖x − y‖²``, with σ the largest
        singular value left out. The threshold is dropped, as it belongs to the old distances. A lift is kept, and
        φ(x) stands for x in the above.

        Parameters
        ----------
        rank : int or "auto"
            Rows to keep (no more than there are features); "auto" keeps the fewest that hold
            ``1 − tolerance`` of the trace of M.
        tolerance : float
            For "auto": from 0 to less than 1.
        """
        if rank != "auto" and not (isinstance(rank, (int, np.integer)) and 1 <= rank <= self.rank):
            raise InvalidSettings(f'rank is {rank}; expected "auto" or a whole number from 1 to {self.rank}')
        if not 0 <= tolerance < 1:
            raise InvalidSettings(f"tolerance is {tolerance}; expected from 0 to less than 1")
        is_tall = len(self._transposed) >= self.rank
        squares, vectors = np.linalg.eigh(_gram(self._transposed if is_tall else self._transposed.T))
        squares, vectors = np.maximum(squares[::-1], 0.0), vectors[:, ::-1]
        if rank == "auto":
            held = np.cumsum(squares)
            rank = int(np.searchsorted(held, (1 - tolerance) * held[-1])) + 1
        kept = vectors[:, :rank] if is_tall else vectors[:, :rank] * np.sqrt(squares[:rank])
        reduced = self._transposed @ kept.astype(np.float32) if is_tall else kept.astype(np.float32)
        return Metric.from_transposed(reduced, lift=self._lift, centre=self._centre, settings=self._settings)

    def save(self, path: str | Path) -> None:
        """Write a safetensors file, whole or not at all; :func:`load_metric` reads it back exactly."""
        tensors: dict[str, NDArray[Any] | Transposed] = {"components": Transposed(self._transposed)}
        if self._lift is not None:
            tensors |= {"lift.weights": self._lift.weights, "lift.phases": self._lift.phases}
        if self._centre is not None:
            tensors["centre"] = self._centre
        if self.threshold is not None:
            tensors["threshold"] = np.array([self.threshold])
        metadata = {"format": _FORMAT, "version": _VERSION, "settings": json.dumps(self._settings)}
        write_safetensors(Path(path), tensors, metadata)

    def points(self, X: Any) -> Points:
        """Row access to ``X``, lifted where there is a lift."""
        if isinstance(X, LiftedPoints) and X.lift is self._lift:
            return X  # by this very method
        points = super().points(X)
        if points.n_features != self.n_features:
            raise InvalidPoints(
                f"points have {points.n_features} features; this metric measures points of {self.n_features}"
            )
        return points if self._lift is None else LiftedPoints(points, self._lift)

    def width(self, points: Points) -> float:
        return self.rank

    def is_dense(self, points: Points) -> bool:
        return True

    def projected(self, points: Points, indices: Indices, origin: Floats | None = None) -> Floats:
        return self._project_into(np.empty((len(indices), self.rank), np.float32), points, indices, origin)

    def _project_into(self, out: Floats, points: Points, indices: Indices, origin: Floats | None) -> Floats:
        for place in places(len(indices), 2 * points.stored_per_point + self.rank):
            out[place] = self._project(points.rows(indices[place]))
            if origin is not None:
                out[place] -= origin
            if not np.isfinite(out[place]).all():
                points.check_finite(indices[place])
        return out

    @np.errstate(over="ignore", invalid="ignore")  # the points are checked when a result is not finite
    def _project(self, rows: Rows) -> Floats:
        product: Floats = (rows.to_scipy() if isinstance(rows, SparseRows) else rows) @ self._transposed
        return product

    def _squared_of_pairs(self, points: Points, pairs: Indices) -> Floats:
        """Projects each distinct point once, or each difference: whichever is cheaper and fits in memory."""
        used = np.zeros(len(points), np.bool_)
        for place in places(len(pairs), 4):
            used[pairs[place]] = True
        distinct = np.flatnonzero(used)
        rows_a_difference = 2 if points.is_sparse or self._lift else 1
        if len(distinct) >= rows_a_difference * len(pairs) or len(distinct) * self.rank * 4 > _PROJECTIONS_BYTES:
            return super()._squared_of_pairs(points, pairs)
        projected = self.projected(points, distinct)
        position = np.cumsum(used) - 1
        out = np.empty(len(pairs), np.float32)
        for place in places(len(pairs), 3 * self.rank):
            left, right = position[pairs[place]].T
            out[place] = squared_norms(projected[left] - projected[right])
        return out


def load_metric(path: str | Path) -> Metric:
    """Read a metric that :meth:`Metric.save` wrote. Anything else is an InvalidFile error."""
    path = Path(path)
    tensors, metadata = read_safetensors(path)
    if metadata.get("format") != _FORMAT or "components" not in tensors:
        raise InvalidFile(f"{path} is a safetensors file, but not a metric; expected one written by Metric.save")
    if metadata.get("version") != _VERSION or not tensors.keys() <= _TENSORS.keys():
        raise InvalidFile(
            f"{path} is a metric of version {metadata.get('version')} with {', '.join(sorted(tensors))}; "
            f"this nearfar reads version {_VERSION} with {', '.join(_TENSORS)}: use a newer nearfar"
        )
    for name, tensor in tensors.items():
        if tensor.ndim != _TENSORS[name] or (name == "threshold" and tensor.shape != (1,)):
            raise InvalidFile(f"{path} holds {name} of shape {tensor.shape}; expected {_TENSORS[name]} dimension(s)")
    lifting = [name for name in tensors if name.startswith("lift.")]
    if len(lifting) == 1:
        raise InvalidFile(f"{path} holds {lifting[0]} alone; a lift is lift.weights and lift.phases")
    tensors, metadata = read_safetensors(path, verify=True)  # only now: other files have no checksum to compare
    threshold = float(tensors["threshold"][0]) if "threshold" in tensors else None
    try:
        settings = json.loads(metadata.get("settings", "{}"))
        return Metric(
            tensors["components"],
            lift=Lift(tensors["lift.weights"], tensors["lift.phases"]) if len(lifting) == 2 else None,
            centre=tensors.get("centre"),
            threshold=threshold,
            settings=settings,
        )
    except (ValueError, TypeError) as error:  # InvalidInput is a ValueError
        raise InvalidFile(f"{path} is not a usable metric: {error}") from error


def _floats(values: ArrayLike, name: str) -> Floats:
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise InvalidInput(f"{name} have type {array.dtype}; expected real numbers")
    with np.errstate(over="ignore"):
        floats = array.astype(np.float32, copy=False)
    if not np.isfinite(floats).all():
        raise InvalidInput(f"{name} hold NaN or infinity; expected finite numbers")
    return floats


def _read_only(array: Floats) -> Floats:
    view = array.view()
    view.setflags(write=False)
    return view


def _gram(tall: Floats) -> NDArray[np.float64]:
    """``tallᵀ tall`` in float64, without a float64 copy of the whole."""
    total = np.zeros((tall.shape[1], tall.shape[1]))
    for place in places(len(tall), 2 * tall.shape[1]):
        block = tall[place].astype(np.float64)
        total += block.T @ block
    return total
