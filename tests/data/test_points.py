"""Points give the same float32 rows however they are stored, and never more of them than asked for."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from nearfar import cost
from nearfar.data.points import SparsePoints, SparseRows, as_points
from nearfar.data.scratch import Scratch
from nearfar.errors import InvalidPoints

N, D = 30, 11


def plain(seed=0, n=N, d=D):
    """Whole numbers, half of them 0, which every type here holds exactly."""
    random = np.random.default_rng(seed)
    return random.integers(0, 100, (n, d)) * (random.random((n, d)) < 0.5)


def as_dense(rows):
    return rows.to_scipy().toarray() if isinstance(rows, SparseRows) else np.asarray(rows)


def mapped(array, folder, name="points"):
    np.save(folder / f"{name}.npy", array)
    return np.load(folder / f"{name}.npy", mmap_mode="r")


def with_wide_indices(X, _folder):
    matrix = sp.csr_array(X)
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
    return matrix


def unsorted(X, _folder):
    matrix = sp.csr_matrix(X)
    for start, end in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
        matrix.indices[start:end] = matrix.indices[start:end][::-1].copy()
        matrix.data[start:end] = matrix.data[start:end][::-1].copy()
    return sp.csr_matrix((matrix.data, matrix.indices, matrix.indptr), matrix.shape)


def with_duplicates(X, _folder):
    """Every entry in two parts."""
    matrix = sp.csr_matrix(X)
    data = np.column_stack((matrix.data - 3, np.full_like(matrix.data, 3))).ravel()
    return sp.csr_matrix((data, np.repeat(matrix.indices, 2), 2 * matrix.indptr), matrix.shape)


def mapped_csr(X, folder, value_type=np.int64, column_type=np.int32):
    matrix = sp.csr_matrix(X)
    data, columns = matrix.data.astype(value_type), matrix.indices.astype(column_type)
    arrays = {"data": data, "indices": columns, "indptr": matrix.indptr}
    return SparsePoints(*(mapped(array, folder, name) for name, array in arrays.items()), matrix.shape[1])


DENSE = {
    **{
        np.dtype(kind).str: lambda X, _folder, kind=kind: X.astype(kind)
        for kind in ("f4", "f8", "u1", "i2", "i8", "f2", ">f4", ">f8", ">i4", "g")
    },
    "a list": lambda X, _folder: X.tolist(),
    "columns first": lambda X, _folder: np.asfortranarray(X, dtype=np.float32),
    "every second row": lambda X, _folder: np.repeat(X, 2, axis=0).astype(np.float64)[::2],
    "backwards": lambda X, _folder: X[::-1, ::-1].astype(np.float32).copy()[::-1, ::-1],
    "mapped": lambda X, folder: mapped(X.astype(np.float32), folder),
    "mapped uint8": lambda X, folder: mapped(X.astype(np.uint8), folder),
}
SPARSE = {
    "matrix": lambda X, _folder: sp.csr_matrix(X, dtype=np.float32),
    "array": lambda X, _folder: sp.csr_array(X, dtype=np.float64),
    "coordinates": lambda X, _folder: sp.coo_array(X),
    "columns first": lambda X, _folder: sp.csc_matrix(X),
    "wide indices": with_wide_indices,
    "unsorted": unsorted,
    "duplicates": with_duplicates,
    "long floats": lambda X, _folder: sp.csr_matrix(X, dtype=np.longdouble),
    "mapped": mapped_csr,
    "mapped half floats, short columns": lambda X, folder: mapped_csr(X, folder, np.float16, np.uint16),
}
STORAGES = {f"dense {name}": store for name, store in DENSE.items()} | {
    f"sparse {name}": store for name, store in SPARSE.items()
}


@pytest.fixture(params=STORAGES.values(), ids=STORAGES)
def stored(request, tmp_path):
    return as_points(request.param(plain(), tmp_path))


def test_rows_and_differences_equal_plain_numpy(stored):
    X = plain().astype(np.float32)
    left, right = np.random.default_rng(1).integers(0, N, (2, 50))
    left[0] = right[0]
    assert (len(stored), stored.n_features) == X.shape
    for indices in (left, left[:1], left[:0]):
        rows = stored.rows(indices)
        assert len(rows) == len(indices)
        np.testing.assert_array_equal(as_dense(rows), X[indices])
    np.testing.assert_array_equal(as_dense(stored.differences(left, right)), X[left] - X[right])
    for rows in (stored.rows(left), stored.differences(left, right)):
        assert (rows.values if isinstance(rows, SparseRows) else rows).dtype == np.float32


@pytest.mark.parametrize("counted", [0, 2**32 - 3000, 2**32 - 1])
def test_differences_stay_right_as_long_as_they_are_gathered_into_the_same_memory(counted):
    rng = np.random.default_rng(0)
    X = sp.random(40, 60, density=0.3, random_state=rng, format="csr", dtype=np.float32)
    points, scratch = as_points(X), Scratch()
    scratch.lasting("columns seen", 61, np.uint32)[0] = counted
    for _ in range(20):
        left, right = rng.integers(40, size=(2, 25))
        found = as_dense(points.differences(left, right, scratch))
        np.testing.assert_array_equal(found, (X[left] - X[right]).toarray())


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 30))
def test_a_column_of_both_rows_is_one_entry_of_their_sparse_difference(seed, n_features):
    X = sp.random(40, n_features, 0.4, "csr", np.float32, random_state=seed)
    (left, right), scratch = np.random.default_rng(seed).integers(0, 40, (2, 30)), Scratch()
    found = as_points(X).differences(left, right, scratch)
    both = (X[left] != 0) + (X[right] != 0)
    np.testing.assert_array_equal(np.diff(found.starts), np.diff(both.indptr))
    np.testing.assert_array_equal(as_dense(found), (X[left] - X[right]).toarray())


@pytest.mark.parametrize("kind", ["i4", "u4", "u8"])
@pytest.mark.parametrize("store", [np.float32, sp.csr_matrix], ids=["dense", "sparse"])
def test_indices_may_be_of_any_whole_type_and_any_stride(store, kind):
    points = as_points(store(plain()))
    pairs = np.random.default_rng(1).integers(0, N, (50, 2)).astype(kind)
    np.testing.assert_array_equal(as_dense(points.rows(pairs[:, 0])), plain()[pairs[:, 0]])
    differences = plain()[pairs[:, 0]] - plain()[pairs[:, 1]]
    np.testing.assert_array_equal(as_dense(points.differences(pairs[:, 0], pairs[:, 1])), differences)


def test_scaled_divides_each_feature_and_leaves_the_points_alone(stored):
    X, scale = plain().astype(np.float32), 10.0 ** np.linspace(-3, 3, D)
    left, right = np.random.default_rng(2).integers(0, N, (2, 20))
    scaled = stored.scaled(scale)
    np.testing.assert_allclose(as_dense(scaled.rows(left)), X[left] / scale, rtol=1e-6)
    np.testing.assert_allclose(as_dense(scaled.differences(left, right)), (X[left] - X[right]) / scale, 1e-5, 0.1)
    np.testing.assert_allclose(as_dense(scaled.scaled(scale).rows(left)), X[left] / scale**2, rtol=1e-6)
    np.testing.assert_array_equal(as_dense(stored.rows(left)), X[left])


def test_blocks_cover_all_points_in_order(stored, monkeypatch):
    monkeypatch.setattr(cost, "BLOCK_ENTRIES", 31)
    chosen = np.array([3, 3, 0, N - 1, 7, 8, 9, 10])
    for indices, whole in ((None, plain()), (chosen, plain()[chosen])):
        blocks = list(stored.blocks(indices))
        assert len(blocks) > 1
        np.testing.assert_array_equal(np.concatenate([as_dense(rows) for _, rows in blocks]), whole)
        assert [place.start for place, _ in blocks[1:]] == [place.stop for place, _ in blocks[:-1]]


def test_chosen_points_are_points_of_their_own(stored):
    X, chosen = plain().astype(np.float32), np.array([5, 2, 2, 20])
    few = stored.chosen(chosen)
    assert (len(few), few.n_features, few.is_sparse) == (4, D, stored.is_sparse)
    np.testing.assert_array_equal(as_dense(few.rows(np.array([3, 0]))), X[[20, 5]])
    np.testing.assert_array_equal(as_dense(few.differences(np.array([0]), np.array([3]))), X[[5]] - X[[20]])
    np.testing.assert_allclose(as_dense(few.scaled(np.full(D, 4.0)).rows(np.array([1]))), X[[2]] / 4)


def test_booleans_are_ones():
    X = plain() > 0
    for points in (as_points(X), as_points(X[:, ::2].repeat(2, axis=1)[:, : 2 * D]), as_points(sp.csr_matrix(X))):
        rows = as_dense(points.rows(np.arange(N)))
        assert rows.dtype == np.float32
        assert set(np.unique(rows)) == {0, 1}
    np.testing.assert_array_equal(as_dense(as_points(sp.csr_matrix(X)).rows(np.arange(N))), X)


def test_unsigned_numbers_do_not_wrap_around():
    points = as_points(np.array([[0], [255]], np.uint8))
    assert points.differences(np.array([0]), np.array([1])) == -255


def arrays_of(rows):
    return (rows.values, rows.columns, rows.starts) if isinstance(rows, SparseRows) else (rows,)


@pytest.mark.parametrize("store", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_scratch_gives_the_same_memory_again(store):
    points, scratch = as_points(store(plain())), Scratch()
    many, few = np.arange(N), np.array([4, 1])
    at_first = [array.ctypes.data for array in arrays_of(points.differences(many, many[::-1], scratch))]
    for rows in (points.rows(few, scratch), points.differences(few, few[::-1], scratch), points.rows(many, scratch)):
        assert [array.ctypes.data for array in arrays_of(rows)] == at_first
    kept, fresh = points.rows(few), points.rows(many)
    assert not any(np.shares_memory(a, b) for a, b in zip(arrays_of(kept), arrays_of(fresh), strict=True))


def test_scratch_grows_and_keeps_types_apart():
    scratch = Scratch()
    small = scratch.array("a", (2, 3))
    assert np.shares_memory(small, scratch.array("a", (3,)))
    assert scratch.array("a", (40, 3)).shape == (40, 3)
    assert scratch.array("a", (2,), np.int32).dtype == np.int32
    assert not np.shares_memory(scratch.array("b", (2, 3)), scratch.array("a", (2, 3)))


def test_arrays_are_not_copied(tmp_path):
    dense = plain().astype(np.float64)
    points = as_points(dense)
    dense[3] = -1
    assert (points.rows(np.array([3])) == -1).all()
    matrix = sp.csr_matrix(dense)
    sparse = as_points(matrix)
    matrix.data[:] = 7
    assert (sparse.rows(np.arange(N)).values == 7).all()
    assert as_points(points) is points


def test_sparse_points_are_never_made_dense():
    columns = np.random.default_rng(0).integers(0, 200_000_000, 5000)
    wide = sp.csr_matrix((np.ones(5000), columns, np.arange(0, 5001, 5)), (1000, 200_000_000))
    points = as_points(wide)
    rows = points.differences(np.arange(500), np.arange(500, 1000)).to_scipy()
    assert rows.shape == (500, 200_000_000)
    assert rows.nnz == wide.nnz
    assert points.stored_per_point == wide.nnz / 1000
    points.check_finite()


@pytest.mark.parametrize("store", [unsorted, with_duplicates])
def test_what_was_given_stays_as_it_was(store):
    matrix, before = store(plain(), None), store(plain(), None)
    for array in (matrix.data, matrix.indices, matrix.indptr):
        array.setflags(write=False)
    as_points(matrix)
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(matrix, name), getattr(before, name))


@pytest.mark.parametrize("wrong", [max(N, D), 2_000_000_000, -1])
@pytest.mark.parametrize("store", [sp.csr_matrix, sp.csc_matrix, sp.bsr_matrix, sp.coo_matrix, sp.csc_array])
def test_a_sparse_matrix_whose_indices_lie_outside_it_is_refused(store, wrong):
    matrix = store(plain())
    (matrix.col if matrix.format == "coo" else matrix.indices)[3] = wrong
    with pytest.raises(InvalidPoints, match="do not fit its shape"):
        as_points(matrix)


@settings(deadline=None, max_examples=50)
@given(
    st.integers(0, N - 1),
    st.integers(0, D - 1),
    st.sampled_from([np.nan, np.inf, -np.inf]),
    st.sampled_from([np.asarray, np.float32, lambda X: np.asfortranarray(X, np.float32), sp.csr_matrix]),
)
def test_check_finite_names_the_point_and_the_feature(point, feature, wrong, store):
    X = plain().astype(np.float64)
    X[point, feature] = wrong
    points = as_points(store(X))
    with pytest.raises(InvalidPoints, match=rf"point {point} has .* in feature {feature};"):
        points.check_finite()
    points.check_finite(np.delete(np.arange(N), point))
    with pytest.raises(InvalidPoints, match=rf"point {point} has"):
        points.check_finite(np.array([(point + 1) % N, point]))


@pytest.mark.parametrize(
    "store", [np.asarray, sp.csr_matrix, lambda X: X.astype(">f8")], ids=["dense", "sparse", ">f8"]
)
def test_check_finite_names_what_float32_cannot_hold(store):
    X = np.ones((5, 3))
    X[2, 1] = 1e300
    with pytest.raises(InvalidPoints, match=r"point 2 .* feature 1"):
        as_points(store(X)).check_finite()


def test_check_finite_bears_what_only_its_sum_overflows():
    as_points(np.full((4, 4), 3e38, np.float32)).check_finite()
    with pytest.raises(InvalidPoints, match=r"point 1 .* feature 0"):
        as_points(np.array([[3e38, 3e38], [np.inf, -np.inf]], np.float32)).check_finite()


def test_check_finite_looks_at_every_block(monkeypatch):
    monkeypatch.setattr(cost, "BLOCK_ENTRIES", 1)
    X = plain().astype(np.float64)
    X[N - 1, 3] = np.nan
    with pytest.raises(InvalidPoints, match=f"point {N - 1} .* feature 3"):
        as_points(X).check_finite()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (np.ones(3), r"shape \(3,\)"),
        (np.ones((3, 2, 2)), r"shape \(3, 2, 2\)"),
        (5.0, r"shape \(\)"),
        (np.ones((0, 3)), "at least one point"),
        (np.ones((3, 0)), "one feature"),
        (sp.csr_matrix((0, 3)), "at least one point"),
        (np.ones((2, 2), complex), "complex128"),
        (np.array([["a", "b"]]), "real numbers"),
        (np.array([[1, None]], object), "object"),
        (np.array([["2026-01-01"]], "M8[D]"), "datetime64"),
        (sp.csr_matrix(np.ones((2, 2), complex)), "complex128"),
    ],
    ids=str,
)
def test_what_cannot_be_points_is_refused(wrong, said):
    with pytest.raises(InvalidPoints, match=said):
        as_points(wrong)
