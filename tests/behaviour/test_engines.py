"""One suite over all engines: what training promises wherever it runs."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp

import nearfar as nf
from nearfar.data.from_labels import LabelDraws, draw_pairs, draw_triplets
from nearfar.evaluation.verification import judge_pairs
from nearfar.objective.losses import Hinge

ENGINES = {
    "serial": {"engine": "serial"},
    "threads, asp": {"engine": "threads", "workers": 2, "consistency": "asp"},
    "threads, ssp": {"engine": "threads", "workers": 2, "consistency": "ssp:2"},
    "threads, bsp": {"engine": "threads", "workers": 2, "consistency": "bsp"},
    "threads, two a worker": {"engine": "threads", "workers": 2, "threads_per_worker": 2},
    "simulated": {"engine": "simulated", "workers": 2},
}
CLUSTERS = {
    "ray, asp": {"engine": "ray", "workers": 2, "consistency": "asp"},
    "ray, bsp": {"engine": "ray", "workers": 2, "consistency": "bsp"},
    "ray, two servers": {"engine": "ray", "workers": 2, "consistency": "ssp:2"},
}
"""Processes take seconds to start, so only what depends on where things run is tried on these."""
EVERYWHERE = [*ENGINES, *CLUSTERS]
REPRODUCIBLE = ["serial", "threads, bsp", "simulated"]


def settings_of(engine: str, **more: object) -> nf.TrainingSettings:
    return nf.TrainingSettings(**{"steps": 120, "block_size": 200, "seed": 3} | (ENGINES | CLUSTERS)[engine] | more)


def engine_of(engine: str) -> nf.RayEngine | None:
    """What settings do not say: on how many servers."""
    return nf.RayEngine(nf.RayOptions(servers=2)) if engine == "ray, two servers" else None


@pytest.fixture(autouse=True)
def cluster(request: pytest.FixtureRequest) -> None:
    """The cluster is there for those that run on one."""
    parameters = getattr(request.node, "callspec", None)
    if parameters and parameters.params.get("engine") in CLUSTERS:
        request.getfixturevalue("ray_cluster")


@pytest.fixture(scope="module")
def test_pairs(digits):
    return draw_pairs(LabelDraws(nf.Labels(digits[1])), 3000, 3000, seed=9)


@pytest.mark.parametrize("engine", EVERYWHERE)
def test_labels_teach_a_better_metric_than_none(engine, digits, test_pairs):
    X, y = digits
    result = nf.train(X, y, settings_of(engine), engine=engine_of(engine))
    assert judge_pairs(result.metric, X, test_pairs).average_precision > 0.95
    assert result.history[-1].ap > result.history[0].ap + 0.02
    assert result.history[-1].objective < result.history[0].objective


@pytest.mark.parametrize("engine", EVERYWHERE)
def test_pairs_teach(engine, digits, test_pairs):
    X, y = digits
    pairs = draw_pairs(LabelDraws(nf.Labels(y)), 5000, 5000)
    result = nf.train(X, pairs, settings_of(engine, loss="hinge", batch_size=400), engine=engine_of(engine))
    assert judge_pairs(result.metric, X, test_pairs).average_precision > 0.93


@pytest.mark.parametrize("engine", EVERYWHERE)
def test_triplets_teach(engine, digits, test_pairs):
    X, y = digits
    triplets = draw_triplets(LabelDraws(nf.Labels(y)), 5000)
    result = nf.train(X, triplets, settings_of(engine, batch_size=400), engine=engine_of(engine))
    assert judge_pairs(result.metric, X, test_pairs).average_precision > 0.93


@pytest.mark.parametrize("engine", EVERYWHERE)
def test_sparse_points_teach_as_dense_ones_do(engine, digits, test_pairs):
    X, y = digits
    result = nf.train(sp.csr_matrix(X), y, settings_of(engine), engine=engine_of(engine))
    assert judge_pairs(result.metric, X, test_pairs).average_precision > 0.95


@pytest.mark.parametrize("engine", [*REPRODUCIBLE, "ray, bsp"])
def test_rounded_products_teach_what_exact_ones_do(engine, digits):
    """On sparse points that use their columns often; dense ones are never rounded, nor is any evaluation."""
    X, y = digits
    threshold = np.quantile(X, 0.75)
    X = X * np.greater(X, threshold)  # so sparse that rows are cut into blocks
    rounded, exact = (
        nf.train(sp.csr_matrix(X), y, settings_of(engine, precision=precision), engine=engine_of(engine))
        for precision in ("mixed", "float32")
    )
    assert not np.array_equal(rounded.metric.components, exact.metric.components)
    assert rounded.history[-1].objective == pytest.approx(exact.history[-1].objective, rel=0.02)
    assert rounded.history[-1].ap == pytest.approx(exact.history[-1].ap, abs=0.005)
    dense = [nf.train(X, y, settings_of(engine, precision=p, steps=5)).metric.components for p in ("mixed", "float32")]
    np.testing.assert_array_equal(*dense)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("steps", [1, 7, 50])
def test_the_budget_of_steps_is_used_up_exactly(engine, steps, digits):
    result = nf.train(*digits, settings_of(engine, steps=steps))
    last = result.history[-1]
    assert last.step == steps
    assert sum(worker["steps"] for worker in last.workers) == steps


@pytest.mark.parametrize("engine", REPRODUCIBLE)
def test_one_seed_gives_one_metric_bit_for_bit(engine, digits):
    first, second = (nf.train(*digits, settings_of(engine)).metric.components for _ in range(2))
    np.testing.assert_array_equal(first, second)
    other = nf.train(*digits, settings_of(engine, seed=4)).metric.components
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("engine", REPRODUCIBLE)
def test_ending_by_patience_is_reproducible_too(engine, digits):
    settings = dataclasses.replace(settings_of(engine), steps=None)
    first, second = (nf.train(*digits, settings) for _ in range(2))
    assert "no better" in first.ended
    assert first.history[-1].step == second.history[-1].step
    np.testing.assert_array_equal(first.metric.components, second.metric.components)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rule", ["sgd", "momentum", "adagrad", "adam"])
def test_every_update_rule_learns_with_its_default_step_size(engine, rule, digits):
    result = nf.train(*digits, settings_of(engine, update_rule=rule, steps=200))
    assert result.history[-1].ap > 0.95


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("schedule", ["constant", "inverse-root", "cosine", "cosine-root", "plateau"])
def test_every_schedule_learns(engine, schedule, digits):
    result = nf.train(*digits, settings_of(engine, schedule=schedule))
    assert result.history[-1].ap > 0.95


@pytest.mark.parametrize("engine", ENGINES)
def test_the_unit_of_the_features_does_not_matter(engine, digits):
    X, y = digits
    aps = [nf.train(X * unit, y, settings_of(engine)).history[-1].ap for unit in (1e-4, 1.0, 1e4)]
    assert max(aps) - min(aps) < 0.01


@pytest.mark.parametrize("engine", EVERYWHERE)
def test_history_says_what_was_done(engine, digits):
    result = nf.train(*digits, settings_of(engine), engine=engine_of(engine))
    first, *others = result.history
    assert first.step == 0
    for before, after in zip(result.history, others, strict=False):
        assert after.step > before.step
        assert after.seconds >= before.seconds
        assert after.pairs > before.pairs
        assert after.bytes > before.bytes
    assert result.history[-1].pairs == 120 * 200 * 199 / 2
    assert result.history[-1].used == 1


def test_a_loss_and_a_start_of_your_own_are_used(digits):
    X, y = digits
    mine = np.eye(8, 64) / 16
    settings = nf.TrainingSettings(rank=8, steps=1, step_size=1e-12)
    result = nf.train(X, y, settings, loss=Hinge(margin=3.0), start=mine)
    np.testing.assert_allclose(result.metric.components, mine, atol=1e-6)


def test_features_that_differ_in_scale_by_ten_thousand_are_no_obstacle(digits, test_pairs):
    X, y = digits
    scales = 10 ** np.random.default_rng(0).uniform(-2, 2, X.shape[1])
    plain = nf.train(X, y, settings_of("serial")).metric
    scaled = nf.train(X * scales, y, settings_of("serial")).metric
    before = judge_pairs(plain, X, test_pairs).average_precision
    after = judge_pairs(scaled, X * scales, test_pairs).average_precision
    assert after > before - 0.01
