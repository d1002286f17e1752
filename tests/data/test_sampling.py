"""Batches are pure functions of (seed, shard, clock), and together they cover what trains, and only that."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearfar.data.constraints import Comparisons, Labels, Pairs
from nearfar.data.from_labels import LabelDraws
from nearfar.data.sampling import (
    BlockSampler,
    ComparisonSampler,
    LabelTripletSampler,
    PairSampler,
    SamplingPlan,
    compared,
)
from nearfar.errors import InvalidConstraints

N_POINTS = 10_000


def numbered_pairs(n_similar, n_dissimilar):
    """Pairs that can be told apart: pair i is (i, i + 1), dissimilar ones start at 5000."""
    near, far = np.arange(n_similar), 5000 + np.arange(n_dissimilar)
    return Pairs(np.column_stack((near, near + 1)), np.column_stack((far, far + 1)))


def numbered_triplets(n):
    return Comparisons(np.arange(n)[:, None] + [0, 1, 2])


def rows_of(batches):
    """What comes in batches, near and far, each constraint by its first point."""
    return (
        Counter(np.concatenate([batch.near[:, 0] for batch in batches]).tolist()),
        Counter(np.concatenate([batch.far[:, 0] for batch in batches]).tolist()),
    )


def all_batches(sampler, clocks):
    return [sampler.batch(shard, clock) for shard in range(sampler.n_shards) for clock in range(clocks)]


def drawn(batch):
    return [batch.indices.tolist(), getattr(batch, "sizes", None)]


SAMPLERS = {
    "pairs": lambda seed: PairSampler(numbered_pairs(90, 110), SamplingPlan(10, 4, seed)),
    "triplets": lambda seed: ComparisonSampler(numbered_triplets(97), SamplingPlan(10, 4, seed)),
    "label triplets": lambda seed: LabelTripletSampler(LabelDraws(Labels(np.arange(99) % 4)), 10, 4, seed),
    "blocks": lambda seed: BlockSampler(LabelDraws(Labels(np.arange(99) % 4)), 10, None, 4, seed),
    "growing blocks": lambda seed: BlockSampler(LabelDraws(Labels(np.arange(900) % 4)), 800, None, 4, seed, grows=True),
}


@pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS)
def test_batches_are_pure_functions_of_seed_shard_and_clock(make):
    places = [(shard, clock) for shard in range(4) for clock in range(6)]
    sampler = make(3)
    first = {place: drawn(sampler.batch(*place)) for place in places}
    again = make(3)
    for place in reversed(places):
        assert drawn(again.batch(*place)) == first[place]
    assert len({str(batch) for batch in first.values()}) == len(places)
    assert drawn(make(4).batch(0, 0)) != first[0, 0]


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 6), st.integers(0, 9), st.integers(0, 2**62))
def test_an_epoch_of_all_shards_has_every_pair_once(half, n_shards, steps, n_held_out, seed):
    n = half * n_shards * steps
    plan = SamplingPlan(2 * half, n_shards, seed, n_held_out)
    sampler = PairSampler(numbered_pairs(n + n_held_out, n + n_held_out), plan)
    assert sampler.n_shards == n_shards
    assert sampler.steps_per_epoch == n_shards * steps
    batches, held_out = all_batches(sampler, steps), sampler.held_out()
    assert all(len(batch.near) == len(batch.far) == half for batch in batches)
    assert len(held_out.near) == len(held_out.far) == n_held_out
    for trained, apart, first in zip(rows_of(batches), rows_of([held_out]), (0, 5000), strict=True):
        assert trained + apart == Counter(range(first, first + n + n_held_out))
    for later in (all_batches(sampler, 3 * steps), [sampler.batch(0, 10**9)]):
        for trained, apart in zip(rows_of(later), rows_of([held_out]), strict=True):
            assert not trained & apart


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 6), st.integers(0, 9))
def test_an_epoch_of_all_shards_has_every_comparison_once(size, n_shards, steps, n_held_out):
    n = size * n_shards * steps
    sampler = ComparisonSampler(numbered_triplets(n + n_held_out), SamplingPlan(size, n_shards, 0, n_held_out))
    assert sampler.steps_per_epoch == n_shards * steps
    batches, held_out = all_batches(sampler, steps), sampler.held_out()
    for batch in (*batches, held_out):
        np.testing.assert_array_equal(batch.near[:, 0], batch.far[:, 0])
        np.testing.assert_array_equal(batch.near[:, 1] + 1, batch.far[:, 1])
    trained, apart = rows_of(batches)[0], rows_of([held_out])[0]
    assert len(apart) == n_held_out
    assert trained + apart == Counter(range(n + n_held_out))


def test_pairs_are_half_similar_and_half_dissimilar_however_many_there_are():
    sampler = PairSampler(numbered_pairs(7, 3000), SamplingPlan(100, 4, 0))
    batch = sampler.batch(0, 0)
    assert len(batch.near) == len(batch.far) == 50
    assert batch.n_pairs == 100
    assert (batch.near < 5000).all()
    assert (batch.far >= 5000).all()
    near, far = rows_of(all_batches(sampler, 15))
    assert len(near) == 7
    assert len(far) == 3000


def test_a_second_pass_is_in_another_order():
    sampler = PairSampler(numbered_pairs(100, 100), SamplingPlan(200, 1, 0))
    first, second = sampler.batch(0, 0), sampler.batch(0, 1)
    assert set(first.near[:, 0]) == set(second.near[:, 0])
    assert (first.near != second.near).any()
    assert (first.near[:, 0] != np.arange(100)).any()
    assert (first.near[:, 0] != first.far[:, 0] - 5000).any()


@pytest.mark.parametrize("n_shards", [1, 3, 64])
def test_constraints_of_excluded_points_are_passed_over(n_shards):
    excluded = np.zeros(N_POINTS, bool)
    excluded[np.random.default_rng(0).choice(N_POINTS, 2000, replace=False)] = True
    plan = SamplingPlan(20, n_shards, 0, excluded=excluded)
    pairs, comparisons = numbered_pairs(300, 300), numbered_triplets(300)
    for sampler in (PairSampler(pairs, plan), ComparisonSampler(comparisons, plan)):
        batches = all_batches(sampler, 60)
        assert not any(excluded[batch.indices].any() for batch in batches)
    near, far = rows_of(all_batches(PairSampler(pairs, plan), 60))
    assert set(near) | set(far) == {a for a, b in [*pairs.similar, *pairs.dissimilar] if not excluded[[a, b]].any()}


def test_a_batch_may_be_empty_when_all_its_points_are_excluded():
    plan = SamplingPlan(4, 1, 0, excluded=np.ones(N_POINTS, bool))
    for sampler in (PairSampler(numbered_pairs(9, 9), plan), ComparisonSampler(numbered_triplets(9), plan)):
        batch = sampler.batch(0, 0)
        assert batch.near.shape == batch.far.shape == (0, 2)
        assert batch.n_pairs == len(batch.indices) == 0


def test_there_are_no_more_shards_than_constraints():
    for sampler in (
        PairSampler(numbered_pairs(3, 50), SamplingPlan(10, 16, 0)),
        ComparisonSampler(numbered_triplets(5), SamplingPlan(10, 16, 0, n_held_out=2)),
    ):
        assert sampler.n_shards == 3
        near, _ = rows_of(all_batches(sampler, 4))
        assert len(near) == 3
    assert PairSampler(numbered_pairs(1, 1), SamplingPlan(10, 4, 0)).batch(0, 0).near.tolist() == [[0, 1]] * 5


def test_mapped_constraints_give_batches_in_memory(tmp_path):
    np.save(tmp_path / "pairs.npy", numbered_pairs(40, 1).similar)
    mapped = np.load(tmp_path / "pairs.npy", mmap_mode="r")
    batch = PairSampler(Pairs(mapped, mapped), SamplingPlan(10, 2, 0)).batch(1, 3)
    assert type(batch.near) is np.ndarray
    assert not np.shares_memory(batch.near, mapped)


def test_quadruplets_keep_their_two_pairs_together():
    quadruplets = np.random.default_rng(0).integers(0, 100, (30, 4))
    batch = ComparisonSampler(Comparisons(quadruplets), SamplingPlan(8, 2, 0)).batch(1, 2)
    known = {tuple(row) for row in quadruplets.tolist()}
    assert {tuple(row) for row in np.hstack((batch.near, batch.far)).tolist()} <= known
    assert compared(np.empty((0, 3), int)).n_pairs == 0


def test_label_triplets_of_all_shards_are_one_stream():
    draws = LabelDraws(Labels(np.arange(50) % 3))
    sampler = LabelTripletSampler(draws, 6, 4, 1)
    together = [sampler.batch(shard, clock) for clock in range(3) for shard in range(4)]
    stream = draws.triplets(72, 1)
    np.testing.assert_array_equal(np.concatenate([batch.near for batch in together]), stream[:, :2])
    np.testing.assert_array_equal(np.concatenate([batch.far for batch in together]), stream[:, ::2])
    assert sampler.steps_per_epoch == 9


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.integers(1, 40), min_size=2, max_size=20).filter(lambda sizes: sum(n > 1 for n in sizes) > 1),
    st.integers(4, 64),
    st.none() | st.integers(2, 64),
)
def test_blocks_hold_similar_and_dissimilar_pairs(sizes, block_size, per_class):
    labels = Labels(np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes)))
    sampler = BlockSampler(LabelDraws(labels), block_size, per_class, 4, 0)
    for clock in range(4):
        block = sampler.batch(1, clock)
        assert 4 <= len(block.indices) == sum(block.sizes) <= block_size
        assert len(set(block.indices.tolist())) == len(block.indices)
        assert len(block.sizes) >= 2
        assert min(block.sizes) >= 2
        assert block.n_pairs == len(block.indices) * (len(block.indices) - 1) // 2


def test_blocks_of_many_points_have_many_classes():
    few, many = Labels(np.arange(6000) % 10), Labels(np.arange(6000) % 1000)
    assert set(BlockSampler(LabelDraws(few), 500, None, 4, 0).batch(0, 0).sizes) == {50}
    assert len(BlockSampler(LabelDraws(many), 500, None, 4, 0).batch(0, 0).sizes) >= 500 // 8
    assert set(BlockSampler(LabelDraws(few), 500, 100, 4, 0).batch(0, 0).sizes) == {100}
    assert BlockSampler(LabelDraws(few), 500, None, 4, 0).steps_per_epoch == 12


def test_blocks_may_begin_small_and_double_with_all_classes_in_them():
    labels = Labels(np.arange(6000) % 10)
    sampler = BlockSampler(LabelDraws(labels), 1000, None, 4, 0, grows=True)
    blocks = [sampler.batch(step % 4, step // 4) for step in range(60)]
    assert [len(block.indices) for block in blocks] == [125] * 16 + [250] * 16 + [500] * 16 + [1000] * 12
    assert {len(block.sizes) for block in blocks} == {10}
    assert len(sampler.batch(0, sampler.settled).indices) == 1000
    assert len(sampler.batch(3, sampler.settled - 1).indices) == 500


def test_blocks_grow_to_no_more_points_than_there_are():
    draws = LabelDraws(Labels(np.arange(150) % 3))
    sampler = BlockSampler(draws, 1000, None, 1, 0, grows=True)
    assert [len(sampler.batch(0, clock).indices) for clock in (0, 15, 16, 99)] == [125, 125, 150, 150]
    assert BlockSampler(LabelDraws(Labels(np.arange(60) % 3)), 1000, None, 1, 0, grows=True).settled == 0


def test_blocks_need_two_classes_that_have_pairs():
    labels = Labels([0] * 10 + list(range(1, 6)))
    with pytest.raises(InvalidConstraints, match="only one class has two points"):
        BlockSampler(LabelDraws(labels), 8, None, 1, 0)
