"""Update rules against their textbook forms, merged and apart, on all features and on some."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearfar.data.scratch import Scratch
from nearfar.errors import InvalidSettings
from nearfar.objective import packing
from nearfar.objective.fast_gradient import Gradient
from nearfar.parameter_server.packed_copies import PackedCopy
from nearfar.parameter_server.update_rule import LocalStep, Schedule, UpdateRule

RULES = ["sgd", "momentum", "adagrad", "adam"]


def gradient_of(features: np.ndarray, values: np.ndarray) -> Gradient:
    gradient = Gradient.empty()
    gradient.features, gradient.values = features.astype(np.int32), values.astype(np.float32)
    return gradient


def textbook(rule: str, L: np.ndarray, gradients: list[np.ndarray], step_sizes: list[float]) -> np.ndarray:
    """The rules in float64, one whole gradient after the other."""
    L = L.astype(np.float64)
    first, second = np.zeros_like(L), np.zeros_like(L)
    for t, (g, step) in enumerate(zip(gradients, step_sizes, strict=True), start=1):
        if rule == "sgd":
            L -= step * g
        elif rule == "momentum":
            first = 0.9 * first + g
            L -= step * first
        elif rule == "adagrad":
            second += g * g
            L -= step * g / np.sqrt(second)
        else:
            first = 0.9 * first + 0.1 * g
            second = 0.999 * second + 0.001 * g * g
            L -= step * (first / (1 - 0.9**t)) / np.sqrt(second / (1 - 0.999**t))
    return L


@pytest.mark.parametrize("rule", RULES)
def test_equals_the_textbook(rule: str) -> None:
    rng = np.random.default_rng(1)
    L = rng.normal(size=(50, 7)).astype(np.float32)
    gradients = [rng.normal(size=L.shape) for _ in range(20)]
    step_sizes = list(rng.uniform(0.001, 0.1, 20))
    expected = textbook(rule, L, gradients, step_sizes)
    update = UpdateRule(rule, *L.shape)
    for g, step in zip(gradients, step_sizes, strict=True):
        update.apply(L, [gradient_of(np.arange(50), g)], [step])
    np.testing.assert_allclose(L, expected, rtol=2e-4, atol=2e-5)


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(RULES), st.integers(1, 6), st.integers(1, 300), st.integers(1, 70), st.integers(0, 2**31))
def test_merged_gradients_act_as_the_separate_ones(rule: str, count: int, d: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    L = rng.normal(size=(d, k)).astype(np.float32)
    gradients = []
    for _ in range(count):
        if not gradients or rng.random() < 0.3:
            features = np.sort(rng.choice(d, rng.integers(1, d + 1), replace=False))
        else:  # those of the one before, or nearly
            features = features[rng.random(len(features)) > rng.choice([0.0, 0.05])]
        gradients.append(gradient_of(features, rng.normal(size=(len(features), k))))
    step_sizes = list(rng.uniform(0.001, 0.1, count))
    merged, apart = L.copy(), L.copy()
    together, one_by_one = UpdateRule(rule, d, k), UpdateRule(rule, d, k)
    together.apply(merged, gradients, step_sizes)
    for gradient, step in zip(gradients, step_sizes, strict=True):
        one_by_one.apply(apart, [gradient], [step])
    np.testing.assert_array_equal(merged, apart)
    for key, array in together.state.items():
        np.testing.assert_array_equal(array, one_by_one.state[key])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("rounded", [False, True])
def test_the_pass_for_two_gradients_packs_all_of_the_new_metric(rule: str, rounded: bool) -> None:
    rng = np.random.default_rng(5)
    d, k = 40, 150
    L = rng.normal(size=(d, k)).astype(np.float32)
    places = rng.permutation(d).astype(np.int32)
    copy = PackedCopy(packing.room_for(d, k, Scratch(), rounded=rounded), places)
    most, few = np.delete(np.arange(d), [3]), np.arange(5)
    update = UpdateRule(rule, d, k)
    for chosen in ([most, np.arange(1, d)], [most, few, most, most]):
        gradients = [gradient_of(features, rng.normal(size=(len(features), k))) for features in chosen]
        copy.packed.memory.fill(np.nan)
        assert update.apply(L, gradients, [0.1] * len(gradients), copy)
        expected = packing.pack(L, np.arange(d, dtype=np.int32), places, Scratch(), rounded=rounded)
        np.testing.assert_array_equal(copy.packed.memory.view(np.uint32), expected.memory.view(np.uint32))


def test_what_was_packed_is_said() -> None:
    L, copy = np.zeros((20, 3), np.float32), PackedCopy(packing.room_for(20, 3, Scratch(), rounded=True), np.arange(20))
    one, few = (gradient_of(np.arange(n), np.ones((n, 3))) for n in (20, 4))

    def packs(*gradients: Gradient) -> bool:
        return UpdateRule("adam", 20, 3).apply(L, list(gradients), [0.1] * len(gradients), copy)

    assert packs(one, one)
    assert packs(few, one, one)  # the one without a second goes first, so that the last pass is for two
    assert not packs(one)
    assert not packs(one, few)
    assert not packs(one, one, one, few)


@pytest.mark.parametrize("rule", RULES)
def test_a_feature_that_is_not_touched_stays_and_a_rare_one_learns_as_if_alone(rule: str) -> None:
    rng = np.random.default_rng(2)
    L = rng.normal(size=(4, 3)).astype(np.float32)
    before = L.copy()
    update = UpdateRule(rule, 4, 3)
    g = rng.normal(size=(1, 3))
    for _ in range(10):
        update.apply(L, [gradient_of(np.array([0]), rng.normal(size=(1, 3)))], [0.1])
    update.apply(L, [gradient_of(np.array([2]), g)], [0.1])
    np.testing.assert_array_equal(L[[1, 3]], before[[1, 3]])
    np.testing.assert_allclose(L[2], textbook(rule, before[[2]], [g], [0.1])[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rule", RULES)
def test_a_restored_state_goes_on_bit_for_bit(rule: str) -> None:
    rng = np.random.default_rng(3)
    L = rng.normal(size=(9, 4)).astype(np.float32)
    gradients = [gradient_of(np.arange(9), rng.normal(size=(9, 4))) for _ in range(6)]
    whole, halves = L.copy(), L.copy()
    first, second, other = (UpdateRule(rule, 9, 4) for _ in range(3))
    first.apply(whole, gradients, [0.01] * 6)
    second.apply(halves, gradients[:3], [0.01] * 3)
    other.restore({key: array.copy() for key, array in second.state.items()})
    other.apply(halves, gradients[3:], [0.01] * 3)
    np.testing.assert_array_equal(whole, halves)


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="rmsprop"):
        UpdateRule("rmsprop", 2, 2)


@pytest.mark.parametrize("rule", RULES)
def test_a_workers_own_step_is_about_as_long_as_the_servers(rule: str) -> None:
    rng = np.random.default_rng(4)
    L = rng.normal(size=(40, 8)).astype(np.float32)
    local, step, update = L.copy(), LocalStep(rule, 40), UpdateRule(rule, 40, 8)
    gradient = gradient_of(np.arange(40), rng.normal(size=(40, 8)) * 1e-3)
    update.apply(server := L.copy(), [gradient], [0.05])
    step.apply(local, gradient, 0.05)
    assert 0.5 < np.linalg.norm(local - L) / np.linalg.norm(server - L) < 2
    assert np.sum((local - L) * gradient.values) < 0


def test_schedules() -> None:
    assert Schedule("constant", 0.5).at(10_000, 1.0) == 0.5
    assert Schedule("inverse-root", 0.5, settle=100).at(300, 0.0) == pytest.approx(0.25)
    cosine = Schedule("cosine", 0.5)
    assert cosine.at(0, 0.0) == pytest.approx(0.5)
    assert cosine.at(0, 0.5) == pytest.approx(0.5 * (0.01 + 0.99 / 2))
    assert cosine.at(0, 1.0) == pytest.approx(0.005)
    sizes = [cosine.at(0, used) for used in np.linspace(0, 1, 50)]
    assert sizes == sorted(sizes, reverse=True)
    assert math.isclose(cosine.at(0, 2.0), cosine.at(0, 1.0))


def test_a_long_training_takes_smaller_steps_and_a_short_one_does_not() -> None:
    """At its full step size adam breaks out now and again, from a thousand steps or so on."""
    cosine, long = Schedule("cosine", 0.5), Schedule("cosine-root", 0.5)
    assert long.at(0, 0.3) == cosine.at(0, 0.3)
    assert long.at(100, 0.3) == pytest.approx(cosine.at(100, 0.3), rel=0.05)
    assert long.at(3000, 0.3) == pytest.approx(cosine.at(3000, 0.3) / 2)
