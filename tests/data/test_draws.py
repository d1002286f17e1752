"""Draws are even, on the right side, and the same wherever and whenever they are made."""

import time

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from nearfar.data import draw
from nearfar.data.constraints import Labels
from nearfar.data.from_labels import GroupDraws, LabelDraws, draw_pairs, draw_triplets
from nearfar.errors import InvalidConstraints

seeds = st.integers(0, 2**62)
SIZES = {
    "even": [5, 5, 5],
    "singletons": [1, 4, 1, 1, 2, 1],
    "imbalanced": [2000, 1, 2],
    "last one": [1, 1, 1, 2],
    "two": [2, 1],
}


def shuffled_labels(sizes, seed=0):
    return Labels(np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes)))


def permutation(size, key):
    rows = np.arange(size)
    draw.permuted_rows(rows, size, key)
    return rows


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 5000), st.integers(0, 2**63 - 1))
def test_permuted_is_a_permutation(size, key):
    np.testing.assert_array_equal(np.sort(permutation(size, key)), np.arange(size))


def test_permutations_of_other_keys_are_others_and_have_no_pattern():
    first, second = permutation(10_000, 1), permutation(10_000, 2)
    assert (first == second).mean() < 0.002
    for rows in (first, second):
        assert (rows == np.arange(10_000)).mean() < 0.002
        assert abs(np.corrcoef(rows, np.arange(10_000))[0, 1]) < 0.05
        assert abs(np.corrcoef(rows[1:], rows[:-1])[0, 1]) < 0.05


def test_every_place_of_a_small_permutation_is_equally_likely():
    seen = np.zeros((5, 5))
    for key in range(5000):
        seen[np.arange(5), permutation(5, draw.stream_key(key, 0, 0))] += 1
    assert chisquare(seen.ravel()).pvalue > 1e-4


def test_permuted_reaches_beyond_32_bits():
    size = 10**12 + 7
    places = [draw.permuted(position, size, 5) for position in range(1000)]
    assert len(set(places)) == 1000
    assert 0 <= min(places) < size / 50
    assert size * 0.98 < max(places) < size


def rows_of_shard(n_rows, n_shards, shard, first, count, seed=0):
    rows = np.empty(count, np.int64)
    draw.shard_rows(n_rows, n_shards, shard, first, seed, rows)
    return rows


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 300), st.integers(1, 20), seeds)
def test_shards_part_all_rows_and_walk_each_once_a_lap(n_rows, n_shards, seed):
    n_shards = min(n_rows, n_shards)
    laps = []
    for shard in range(n_shards):
        size = len(range(shard, n_rows, n_shards))
        walk = rows_of_shard(n_rows, n_shards, shard, 0, 3 * size, seed).reshape(3, size)
        for lap in walk:
            assert set(lap) == set(range(shard, n_rows, n_shards))
        laps.append(walk[1])
    np.testing.assert_array_equal(np.sort(np.concatenate(laps)), np.arange(n_rows))


def test_a_walk_can_be_cut_anywhere_and_laps_differ():
    whole = rows_of_shard(100, 3, 1, 0, 200)
    pieces = [rows_of_shard(100, 3, 1, first, 8) for first in range(0, 200, 8)]
    np.testing.assert_array_equal(whole, np.concatenate(pieces))
    assert (whole[:33] != whole[33:66]).any()
    assert (whole != rows_of_shard(100, 3, 1, 0, 200, seed=1)).any()


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_draws_are_on_the_right_side(sizes):
    labels = shuffled_labels(sizes)
    draws = LabelDraws(labels)
    similar, dissimilar, triplets = draws.similar(5000, 1), draws.dissimilar(5000, 1), draws.triplets(5000, 1)
    codes = labels.codes
    for near in (similar, triplets[:, :2]):
        assert (codes[near[:, 0]] == codes[near[:, 1]]).all()
        assert (near[:, 0] != near[:, 1]).all()
    for far in (dissimilar, triplets[:, ::2]):
        assert (codes[far[:, 0]] != codes[far[:, 1]]).all()
    counts = np.array(sizes)
    assert draws.n_similar == (counts * (counts - 1)).sum() // 2
    assert draws.n_dissimilar == (counts.sum() ** 2 - (counts**2).sum()) // 2


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 6), min_size=2, max_size=30), seeds)
def test_draws_of_any_labels_are_on_the_right_side(sizes, seed):
    labels = shuffled_labels([2, *sizes], seed)
    draws = LabelDraws(labels)
    near, far = draws.similar(200, seed), draws.dissimilar(200, seed)
    assert (labels.codes[near[:, 0]] == labels.codes[near[:, 1]]).all()
    assert (near[:, 0] != near[:, 1]).all()
    assert (labels.codes[far[:, 0]] != labels.codes[far[:, 1]]).all()


@pytest.mark.parametrize("seed", [0, 7])
def test_pairs_are_drawn_evenly_from_all_there_are(seed):
    labels = shuffled_labels([1, 5, 2, 3])
    draws, n = LabelDraws(labels), len(labels)
    same = (labels.codes[:, None] == labels.codes) & ~np.eye(n, dtype=bool)
    other = labels.codes[:, None] != labels.codes
    for drawn, allowed in ((draws.similar(50_000, seed), same), (draws.dissimilar(50_000, seed), other)):
        seen = np.bincount(drawn[:, 0] * n + drawn[:, 1], minlength=n * n).reshape(n, n)
        assert not seen[~allowed].any()
        assert chisquare(seen[allowed]).pvalue > 1e-3
    anchors, _, far = draws.triplets(50_000, seed).T
    for anchor in np.unique(anchors):
        seen = np.bincount(far[anchors == anchor], minlength=n)[other[anchor]]
        assert chisquare(seen).pvalue > 1e-4


@pytest.mark.parametrize("kind", ["similar", "dissimilar", "triplets"])
def test_a_stream_can_be_cut_into_pieces(kind):
    of_labels = LabelDraws(shuffled_labels([10, 20, 3]))
    of_groups = GroupDraws(sp.csr_matrix(np.eye(4)[np.arange(40) % 4]))
    for draws in (of_labels, of_groups) if kind != "triplets" else (of_labels,):
        whole = getattr(draws, kind)(10, 3)
        pieces = [getattr(draws, kind)(count, 3, first=first) for first, count in ((0, 4), (4, 0), (4, 1), (5, 5))]
        np.testing.assert_array_equal(whole, np.concatenate(pieces))
        assert (whole != getattr(draws, kind)(10, 4)).any()


def test_only_points_among_those_given_are_drawn():
    labels = shuffled_labels([30, 30, 1, 30])
    among = np.random.default_rng(1).permutation(len(labels))[:40]
    draws = LabelDraws(labels, among)
    drawn = [draws.similar(3000, 0), draws.dissimilar(3000, 0), draws.triplets(3000, 0)]
    for constraints in drawn:
        assert set(np.unique(constraints)) <= set(among)
    assert set(np.unique(drawn[1])) == set(among)
    assert set(draws.block(100, 100, 0, 0, 0)[0]) <= set(among)
    assert draws.n_points == 40


def test_what_cannot_be_drawn_is_refused():
    lonely, alike = LabelDraws(Labels([0, 1, 2])), LabelDraws(Labels([0, 0, 0]))
    for draws, kind in ((lonely, "similar"), (lonely, "triplets"), (alike, "dissimilar"), (alike, "triplets")):
        with pytest.raises(InvalidConstraints, match="to draw"):
            getattr(draws, kind)(1, 0)
        assert len(getattr(draws, kind)(0, 0)) == 0


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=12), st.integers(2, 40), st.integers(2, 10), seeds)
def test_blocks_have_distinct_points_class_by_class(sizes, size, per_class, seed):
    labels = shuffled_labels(sizes, 3)
    points, taken = LabelDraws(labels).block(size, per_class, seed, 2, 5)
    assert len(points) == taken.sum() <= size
    assert len(np.unique(points)) == len(points)
    codes = labels.codes[points]
    assert len(np.unique(codes)) == len(taken)
    np.testing.assert_array_equal(codes, np.repeat(codes[np.cumsum(taken) - taken], taken))
    assert all(2 <= count <= min(per_class, sizes[code]) for count, code in zip(taken, dict.fromkeys(codes)))  # noqa: B905
    room = sum(min(count, per_class) for count in sizes if count > 1)
    assert len(points) >= min(size, room) - 1


def test_every_point_of_a_class_of_two_or_more_comes_into_blocks():
    labels = shuffled_labels([1, 40, 2, 7])
    draws = LabelDraws(labels)
    blocks = [draws.block(8, 4, 0, shard, clock)[0] for shard in range(3) for clock in range(100)]
    seen = np.bincount(np.concatenate(blocks), minlength=len(labels))
    assert (seen[labels.codes != 0] > 0).all()
    assert (seen[labels.codes == 0] == 0).all()
    assert len({tuple(block) for block in blocks}) > 290
    np.testing.assert_array_equal(draws.block(8, 4, 0, 1, 7)[0], blocks[107])


def random_groups(seed=0, n=60, n_groups=25):
    random = np.random.default_rng(seed)
    member = random.random((n, n_groups)) < 0.06
    member[:5] = False
    return sp.csr_matrix(member)


def test_groups_are_shared_by_similar_and_by_no_dissimilar_pair():
    groups = random_groups()
    before = groups.copy()
    draws = GroupDraws(groups)
    near, far = draws.similar(5000, 0), draws.dissimilar(5000, 0)
    shared = (groups.astype(int) @ groups.astype(int).T).toarray()
    assert (shared[near[:, 0], near[:, 1]] > 0).all()
    assert (near[:, 0] != near[:, 1]).all()
    assert (shared[far[:, 0], far[:, 1]] == 0).all()
    grouped = np.flatnonzero(shared.diagonal())
    assert set(np.unique(far)) == set(grouped)
    assert near.min() >= 5
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(groups, name), getattr(before, name))


def test_groups_are_drawn_evenly():
    groups = random_groups()
    shared = (groups.astype(int) @ groups.astype(int).T).toarray()
    n, grouped = len(shared), shared.diagonal() > 0
    np.fill_diagonal(shared, 0)
    near, far = GroupDraws(groups).similar(60_000, 1), GroupDraws(groups).dissimilar(60_000, 1)
    seen = np.bincount(near[:, 0] * n + near[:, 1], minlength=n * n)
    weights = shared.ravel()[shared.ravel() > 0]
    assert chisquare(seen[shared.ravel() > 0], 60_000 * weights / weights.sum()).pvalue > 1e-3
    apart = (shared == 0) & grouped & grouped[:, None] & ~np.eye(n, dtype=bool)
    assert chisquare(np.bincount(far[:, 0] * n + far[:, 1], minlength=n * n)[apart.ravel()]).pvalue > 1e-3


def test_zeros_and_duplicates_in_the_groups_do_not_count():
    stored = sp.csr_matrix(
        (np.array([1, 1, 0, 1, 1]), np.array([0, 0, 1, 0, 1]), np.array([0, 2, 3, 4, 5])), shape=(4, 2)
    )
    similar = GroupDraws(stored).similar(50, 0)
    assert set(map(frozenset, similar.tolist())) == {frozenset((0, 2))}
    assert stored.nnz == 5


def test_groups_that_cannot_be_drawn_from_are_refused():
    with pytest.raises(InvalidConstraints, match="group has two points"):
        GroupDraws(sp.identity(4, format="csr")).similar(1, 0)
    for groups in (np.ones((4, 1)), np.zeros((4, 2)), np.array([[1.0], [0.0]])):
        with pytest.raises(InvalidConstraints, match="no dissimilar pair"):
            GroupDraws(sp.csr_matrix(groups)).dissimilar(3, 0)
        assert len(GroupDraws(sp.csr_matrix(groups)).dissimilar(0, 0)) == 0


def test_drawn_constraints_are_constraints():
    draws = LabelDraws(shuffled_labels([5, 5]))
    pairs, triplets = draw_pairs(draws, 7, 3, seed=1), draw_triplets(draws, 4, seed=1)
    assert (len(pairs.similar), len(pairs.dissimilar), len(triplets)) == (7, 3, 4)
    assert pairs.check(10) == []


@pytest.mark.alone
def test_millions_of_pairs_a_second(capsys):
    """The target is 10 million a second of one core; a slow machine is given three times as long."""
    draws = LabelDraws(Labels(np.random.default_rng(0).integers(0, 10, 60_000)))
    draw_pairs(draws, 1, 1)
    rates = []
    for seed in range(3):
        start = time.process_time()
        draws.similar(2_000_000, seed)
        draws.dissimilar(2_000_000, seed)
        rates.append(4 / (time.process_time() - start))
    with capsys.disabled():
        print(f" {max(rates):.1f} million pairs a second ", end="")  # noqa: T201
    assert max(rates) >= 3
