"""The matrices among which Eq. 1 is solved: all of them, or diagonal ones.

A form says how to measure pairs by M, how a multiplier of a pair changes M, and what the nearest allowed M is.
"Nearest" is by a norm of one's choice, ``‖T⁻¹ Z T⁻¹‖``; which one changes the way to the solution, not the solution.
With ``T = (A + ε)^(−1/2)``, A the mean of ``(x − y)(x − y)ᵀ`` over the similar pairs, the way is short whatever the
scales and correlations of the features are; with ``T = I`` it is the plain norm.
"""

from abc import ABC, abstractmethod

import numpy as np
import scipy.linalg

from nearfar.baselines.progress import Matrix
from nearfar.baselines.spectra import clipped, factor

_RIDGE = 1e-6
"""ε, as a share of the mean eigenvalue of A: directions in which similar pairs do not differ have no inverse."""
_UNSEEN = 1e-9
"""The share of the largest eigenvalue below which an eigenvalue of A counts as 0."""


class Form(ABC):
    """A kind of matrices M; "features" are what of a difference v matters to them."""

    gradient: Matrix
    """Of the mean squared distance of similar pairs, by the norm of this form."""

    @abstractmethod
    def start(self) -> Matrix:
        """The identity."""

    @abstractmethod
    def features(self, V: Matrix) -> Matrix:
        """What of these differences matters, (n, d)."""

    @abstractmethod
    def values(self, F: Matrix, M: Matrix) -> Matrix:
        """``vᵀMv`` of each, (n,)."""

    @abstractmethod
    def turned(self, F: Matrix) -> Matrix:
        """The features as they stand in a change of M, (n, d)."""

    @abstractmethod
    def products(self, F: Matrix, turned: Matrix) -> Matrix:
        """How much a unit of each multiplier adds to the value of each other pair, (n, n)."""

    @abstractmethod
    def change(self, turned: Matrix, multipliers: Matrix) -> Matrix:
        """What these multipliers add to M."""

    @abstractmethod
    def nearest(self, Z: Matrix) -> Matrix:
        """The nearest positive semi-definite matrix."""

    @abstractmethod
    def size(self, Z: Matrix) -> float:
        """The norm."""

    @abstractmethod
    def objective(self, M: Matrix) -> float:
        """The mean squared distance of similar pairs."""

    @abstractmethod
    def excess(self, H: Matrix) -> float:
        """By how much the multipliers that make up H are too large to be a bound: the least x with A − H/x ⪰ 0."""

    @abstractmethod
    def components(self, M: Matrix) -> Matrix:
        """L, (k, d)."""


class FullForm(Form):
    """All symmetric matrices (d, d)."""

    def __init__(self, similar: Matrix, whiten: bool) -> None:
        self._similar = similar
        self._values, self._vectors = scipy.linalg.eigh(similar)
        d = len(similar)
        powers = self._values + _RIDGE * max(self._values.mean(), np.finfo(np.float64).tiny) if whiten else np.ones(d)
        self._norm, self._half, self._half_inverse, self._inverse = (
            self._power(powers, power) for power in (1.0, 0.5, -0.5, -1.0)
        )
        self.gradient = self._inverse @ similar @ self._inverse

    def _power(self, values: Matrix, power: float) -> Matrix:
        product: Matrix = (self._vectors * values**power) @ self._vectors.T
        return product

    def start(self) -> Matrix:
        return np.eye(len(self._similar))

    def features(self, V: Matrix) -> Matrix:
        return V

    def values(self, F: Matrix, M: Matrix) -> Matrix:
        values: Matrix = np.einsum("ij,ij->i", F @ M, F)
        return values

    def turned(self, F: Matrix) -> Matrix:
        return F @ self._inverse

    def products(self, F: Matrix, turned: Matrix) -> Matrix:
        return np.square(turned @ F.T)

    def change(self, turned: Matrix, multipliers: Matrix) -> Matrix:
        change: Matrix = (turned * multipliers[:, np.newaxis]).T @ turned
        return change

    def nearest(self, Z: Matrix) -> Matrix:
        return self._half_inverse @ clipped(self._half @ Z @ self._half) @ self._half_inverse

    def size(self, Z: Matrix) -> float:
        product = self._norm @ Z
        return float(np.sqrt(max(0.0, np.sum(product * product.T))))

    def objective(self, M: Matrix) -> float:
        return float(np.sum(self._similar * M))

    def excess(self, H: Matrix) -> float:
        plain = self._vectors.T @ (self._norm @ H @ self._norm) @ self._vectors
        seen = self._values > _UNSEEN * self._values[-1]
        unseen = np.trace(plain[~seen][:, ~seen])
        if unseen > _UNSEEN * np.trace(plain):
            return float("inf")
        scale = self._values[seen] ** -0.5
        return float(np.linalg.eigvalsh(scale[:, np.newaxis] * plain[seen][:, seen] * scale)[-1])

    def components(self, M: Matrix) -> Matrix:
        return factor(M)


class DiagonalForm(Form):
    """Diagonal matrices, kept as their diagonal (d,)."""

    def __init__(self, similar: Matrix, whiten: bool) -> None:
        self._similar = np.diag(similar).copy()
        ridge = _RIDGE * max(self._similar.mean(), np.finfo(np.float64).tiny)
        self._norm = self._similar + ridge if whiten else np.ones(len(self._similar))
        self.gradient = self._similar / self._norm**2

    def start(self) -> Matrix:
        return np.ones(len(self._similar))

    def features(self, V: Matrix) -> Matrix:
        return np.square(V)

    def values(self, F: Matrix, M: Matrix) -> Matrix:
        return F @ M

    def turned(self, F: Matrix) -> Matrix:
        return F / self._norm**2

    def products(self, F: Matrix, turned: Matrix) -> Matrix:
        return turned @ F.T

    def change(self, turned: Matrix, multipliers: Matrix) -> Matrix:
        return multipliers @ turned

    def nearest(self, Z: Matrix) -> Matrix:
        return np.maximum(Z, 0.0)

    def size(self, Z: Matrix) -> float:
        return float(np.linalg.norm(self._norm * Z))

    def objective(self, M: Matrix) -> float:
        return float(self._similar @ M)

    def excess(self, H: Matrix) -> float:
        plain = self._norm**2 * H
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.max(np.where(plain > 0, plain / self._similar, 0.0)))

    def components(self, M: Matrix) -> Matrix:
        kept = np.flatnonzero(M)
        L = np.zeros((max(1, len(kept)), len(M)))
        L[np.arange(len(kept)), kept] = np.sqrt(M[kept])
        return L
