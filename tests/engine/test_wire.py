"""What travels between processes arrives as it was sent."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import nearfar as nf
from nearfar import cost
from nearfar.data.points import as_points
from nearfar.data.sampling import Batch
from nearfar.engine.ray_cluster.parcel import pack, unpack
from nearfar.engine.ray_cluster.wire import lengthened, received, send, shorten
from nearfar.errors import InvalidFile, InvalidSettings
from nearfar.objective.fast_gradient import Gatherer, Gradient, GradientKernel
from nearfar.objective.losses import Hinge
from nearfar.parameter_server.messages import Push

D, K = 40, 5
RANGES = {"one server": [range(D)], "three servers": [range(13), range(13, 26), range(26, D)]}


def push_of(kind: str, density: float) -> tuple[Push, np.ndarray]:
    """A push of a batch of sparse or dense points, as a gradient or as factors, and its gradient as one array."""
    rng = np.random.default_rng(0)
    X = sp.random(30, D, density, random_state=0, format="csr", dtype=np.float32)
    points = as_points(X if density < 1 else X.toarray())
    batch = Batch(rng.integers(0, 30, (6, 2)), rng.integers(0, 30, (6, 2)))
    Lt = rng.normal(size=(D, K)).astype(np.float32)
    gathered, kernel = Gatherer(points, K).rows_of(batch), GradientKernel(points, Hinge(margin=4.0), K)
    gradient = Gradient.empty()
    objective = kernel.gradient(Lt, batch, gathered, gradient)
    whole = np.zeros((D, K), np.float32)
    whole[gradient.features] = gradient.values
    if kind == "factors":
        value, factors = kernel.factors(Lt, batch, gathered)
        assert value == objective
        return Push(3, 1, 2, 0, 5, 7, factors, value, 12, 24, lambda: None), whole
    return Push(3, 1, 2, 0, 5, 7, gradient, objective, 12, 24, lambda: None), whole


@pytest.mark.parametrize("servers", RANGES)
@pytest.mark.parametrize("density", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("kind", ["gradient", "factors"])
def test_the_parts_of_a_push_make_the_whole_gradient(kind, density, servers):
    push, whole = push_of(kind, density)
    put_together = np.zeros_like(whole)
    for features in RANGES[servers]:
        arrived = received(send(push, features, "float32"), features.start)
        part = arrived.gradient.part(features)
        put_together[features.start : features.stop][part.features] = part.values
        assert (arrived.worker, arrived.number, arrived.clock, arrived.version) == (3, 1, 2, 7)
        assert arrived.nbytes > 0
    np.testing.assert_allclose(put_together, whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["gradient", "factors"])
def test_bfloat16_halves_the_numbers_and_keeps_eight_bits(kind):
    push, whole = push_of(kind, 1.0)
    full, half = (send(push, range(D), precision) for precision in ("float32", "bfloat16"))
    assert half.push.nbytes == full.push.nbytes / 2
    values = received(half, 0).gradient.part(range(D)).values
    np.testing.assert_allclose(values, whole, rtol=2e-2, atol=2e-2 * np.abs(whole).max())


@given(arrays(np.float32, st.integers(0, 30), elements=st.floats(width=32, allow_nan=True, allow_infinity=True)))
def test_bfloat16_rounds_to_the_nearest(values):
    back = lengthened(shorten(values, "bfloat16"))
    finite = np.isfinite(values) & (np.abs(values) < 3.3e38)
    assert np.all(np.abs(back[finite] - values[finite]) <= np.abs(values[finite]) / 256 + 1e-40)
    np.testing.assert_array_equal(np.isnan(back), np.isnan(values))
    np.testing.assert_array_equal(back[np.isinf(values)], values[np.isinf(values)])


@pytest.mark.parametrize(
    "view", [lambda M: M, np.asarray, lambda M: M[10:50], lambda M: np.asarray(M)[3:, 2:5], lambda M: M[::2]]
)
def test_mapped_arrays_travel_by_name(view, tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((100, 7)).astype(np.float32))
    mapped = view(np.load(tmp_path / "x.npy", mmap_mode="r"))
    parcel = pack({"points": mapped})
    assert parcel.nbytes < 1000
    np.testing.assert_array_equal(unpack(parcel)["points"], mapped)


def test_a_file_that_another_node_does_not_see_is_named(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((5, 2)))
    parcel = pack(as_points(np.load(tmp_path / "x.npy", mmap_mode="r")))
    Path(tmp_path / "x.npy").unlink()
    with pytest.raises(InvalidFile, match=r"x.npy is not there on this node; put the dataset where every node sees it"):
        unpack(parcel)


def test_arrays_in_memory_travel_apart_from_what_holds_them():
    X = np.random.default_rng(0).random((1000, 50)).astype(np.float32)
    parcel = pack(as_points(X))
    assert len(parcel.content) < 2000
    np.testing.assert_array_equal(unpack(parcel).rows(np.arange(5)), X[:5])


def test_a_loss_of_ones_own_travels():
    class Mine(Hinge):
        pass

    assert unpack(pack(Mine(margin=2.0))).margin == 2.0


def test_factors_travel_where_the_network_is_the_limit_and_rows_are_few():
    shape = {"rows": 100, "entries": 21_504, "touched": 21_504, "rank": 1000, "sparse": False}
    assert cost.factors_are_cheaper(**shape, bandwidth=10e9 / 8)
    assert not cost.factors_are_cheaper(**shape, bandwidth=100e9)
    assert not cost.factors_are_cheaper(**shape | {"rows": 21_504}, bandwidth=10e9 / 8)


def test_options_are_checked():
    for wrong in ({"servers": 0}, {"wire": "float16"}, {"placement": "here"}, {"bandwidth": -1}, {"hang_after": 0}):
        with pytest.raises(InvalidSettings, match=next(iter(wrong))):
            nf.RayOptions(**wrong)
    with pytest.raises(InvalidSettings, match="object_store is '2'"):
        nf.RayOptions(object_store="2")
