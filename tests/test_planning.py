"""A plan counts what the run will have, and names what is in the way."""

import json
import re
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import nearfar as nf
from nearfar import cost, planning
from nearfar.cli import app
from nearfar.data import stand_in as data_stand_in
from nearfar.data.dataset import write_dataset
from nearfar.data.stand_in import Shape, stand_in
from nearfar.model.preparation import prepare
from nearfar.objective.fast_gradient import squared_distances
from nearfar.parameter_server.server import Server
from nearfar.parameter_server.update_rule import UpdateRule
from nearfar.planning import Plan, Rates, plan, plan_of_shape
from nearfar.sizes import BatchSizes, Sizes
from tests.commands import nearfar, used_by

SIZES = Sizes(
    784, 600, BatchSizes(1000, 784, 784, 1000, is_sparse=False, is_block=False), workers=2, has_copies=True, slots=2
)
RATES = Rates(gather=1e9, products=1e11, pull=1e10, update=1e10)


def test_the_largest_limit_is_the_bottleneck():
    planned = Plan(SIZES, RATES, cores=2)
    assert planned.step_seconds == max(planned.limits.values()) == planned.limits[planned.bottleneck]
    assert Plan(SIZES, replace(RATES, update=1e7), cores=2).bottleneck == "the server's update"
    assert Plan(SIZES, replace(RATES, products=1e9), cores=8).bottleneck == "computing threads"
    assert Plan(SIZES, RATES, cores=1).bottleneck == "cores"
    assert Plan(SIZES, RATES, cores=2, machines=4, bandwidth=1e6).bottleneck == "network"


def test_more_machines_take_less_time_and_memory_until_the_network_is_in_the_way():
    one, four = (Plan(SIZES, RATES, cores=2, machines=m, bandwidth=1e12, constraints=1e6) for m in (1, 4))
    assert four.step_seconds == pytest.approx(one.step_seconds / 4, rel=0.01)
    assert four.pass_seconds == pytest.approx(one.pass_seconds / 4, rel=0.01)
    assert four.memory["L"] == one.memory["L"] / 4
    assert one.network_bytes == 0 < four.network_bytes


@pytest.mark.parametrize(("workers", "threads", "slots"), [(1, 2, 3), (2, 1, 2), (2, 2, 3)])
def test_no_more_gradients_are_under_way_than_there_are_slots(workers, threads, slots):
    sizes = replace(SIZES, rank=20_000, hands_over=True, workers=workers, threads_per_worker=threads, slots=slots)
    planned = Plan(sizes, RATES, cores=2)
    assert sizes.goes_in_pairs
    assert planned.memory["gradients under way"] <= sizes.memory["gradients under way"]


@pytest.mark.parametrize("nonzeros", [None, 20])
@pytest.mark.parametrize("pairs", [True, False])
def test_a_stand_in_has_the_shape_asked_for(nonzeros, pairs):
    points, constraints = stand_in(Shape(10**9, 500, nonzeros), pairs)
    assert points.shape[1] == 500
    assert 2000 <= points.shape[0] < 10**6
    assert isinstance(constraints, nf.Pairs if pairs else nf.Labels)
    if nonzeros:
        assert points.nnz == nonzeros * points.shape[0]


@pytest.mark.filterwarnings("ignore:.*both similar and dissimilar")
@pytest.mark.parametrize("workers", [1, 2])
def test_the_plan_is_about_right(workers, monkeypatch):
    """Within a factor of two, in processor time on both sides, which other processes do not take part of.

    The benchmark `scale` holds it to more, in seconds as they pass.
    """
    monkeypatch.setattr(planning, "time", SimpleNamespace(perf_counter=time.thread_time))
    points, pairs = stand_in(Shape(5000, 400), pairs=True)
    settings = nf.TrainingSettings(rank=200, workers=workers, steps=400, held_out=0, report_every=100)
    ratios, marks = [], []
    for _ in range(3):
        planned = plan(points, pairs, settings)
        marks.clear()
        nf.train(points, pairs, settings, on_report=[lambda report: marks.append((report.step, time.process_time()))])
        (first_step, first), (last_step, last) = marks[1], marks[-1]
        work = sum(planned.compute_seconds.values()) + planned.update_seconds
        ratios.append(work * (last_step - first_step) / (last - first))
        if 0.5 < ratios[-1] < 2:
            break
    assert 0.4 < ratios[-1] < 2.5


@pytest.fixture
def hasty(monkeypatch):
    """Rates measured for a moment, where it does not matter how well."""
    monkeypatch.setattr(planning, "_SECONDS", 0.02)


@pytest.mark.usefixtures("hasty")
def test_the_rank_beyond_what_is_measured_is_counted_in_full():
    points, pairs = stand_in(Shape(2000, 3000), pairs=True)
    planned = plan(points, pairs, nf.TrainingSettings(rank=2500, workers=2))
    assert planned.sizes.rank == 2500
    assert planned.memory["L"] == 4 * 3000 * 2500


@pytest.mark.parametrize(
    ("features", "nonzeros", "rank"), [(1_000_000, None, 100_000), (100_000_000, 100, 100), (1_000_000, 10**6, 1000)]
)
def test_a_plan_of_a_huge_run_is_counted_in_full_and_takes_little_itself(features, nonzeros, rank):
    sizes = ["--points", "1000000", "--features", str(features), "--rank", str(rank), "--workers", "2", "--json"]
    sizes += [] if nonzeros is None else ["--nonzeros", str(nonzeros)]
    used = used_by("plan", *sizes)
    assert used.peak_bytes < 2e9
    assert used.processor_seconds < 120
    planned = json.loads(used.out)
    assert planned["memory"]["L"] == 4 * features * rank
    assert planned["fits"] is False
    touched = features if nonzeros in (None, features) else 1000 * nonzeros
    assert planned["push_bytes"] == pytest.approx(4 * touched * (rank + 1), rel=0.4)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("lift", ["none", "rbf"])
@pytest.mark.parametrize("nonzeros", [None, 40, 2000])
def test_measured_on_smaller_points_the_sizes_are_those_of_the_points_asked_for(nonzeros, lift, monkeypatch):
    shape, settings = Shape(5000, 4000, nonzeros), nf.TrainingSettings(rank=30, workers=2, lift=lift, lift_dim=64)
    whole = plan_of_shape(shape, 1000, settings)
    monkeypatch.setattr(data_stand_in, "_LARGEST_PROBED", 1)
    for name in ("_PROBED_FEATURES", "_PROBED_LIFTED_FEATURES", "_PROBED_SPARSE_FEATURES"):
        monkeypatch.setattr(data_stand_in, name, 2000)
    monkeypatch.setattr(data_stand_in, "_FEWEST_PROBED_NONZEROS", 1)
    enlarged = plan_of_shape(shape, 1000, settings)
    assert enlarged.sizes.batch.touched == pytest.approx(whole.sizes.batch.touched, rel=0.05)
    assert enlarged.memory["L"] == whole.memory["L"]
    assert sum(enlarged.sizes.memory.values()) == pytest.approx(sum(whole.sizes.memory.values()), rel=0.1)
    assert enlarged.sizes.flops == pytest.approx(whole.sizes.flops, rel=0.05)


@pytest.mark.usefixtures("hasty")
def test_a_plan_says_that_there_is_too_little_memory():
    sizes = ["plan", "--points", "1000", "--features", "50"]
    assert "too much" not in nearfar(*sizes)
    assert re.search(r"too much: training refuses more than .* 10 MB", nearfar(*sizes, "--memory", "10MB"))


@pytest.mark.parametrize("shape", [Shape(60_000, 784), Shape(10**6, 21_504), Shape(10**6, 21_504, 1075)])
def test_rates_for_sizes_as_the_papers_are_measured_at_those_sizes(shape):
    assert shape.probed(1000, None) == (shape, 1000)
    assert Shape(10**6, 10**6, 100).probed(100, None) == (Shape(10**6, 10**6, 100), 100)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("workers", [1, 2])
def test_rates_are_of_what_training_does_with_a_far_metric(workers, monkeypatch):
    applied, read, apply, packed = set(), [], UpdateRule.apply, Server.packed

    def noted(rule, Lt, gradients, step_sizes, copy=None):
        assert len({id(gradient) for gradient in gradients}) == len(gradients)
        applied.add((len(gradients), apply(rule, Lt, gradients, step_sizes, copy)))
        return False

    def seen(server, copies):
        read.append(server.version)
        return packed(server, copies)

    monkeypatch.setattr(cost, "_FAR", 0)
    monkeypatch.setattr(UpdateRule, "apply", noted)
    monkeypatch.setattr(Server, "packed", seen)
    planned = plan(
        *stand_in(Shape(2000, 300, 60), pairs=True), nf.TrainingSettings(rank=40, workers=workers, loss="hinge")
    )
    assert planned.sizes.shares_packed_copies == bool(read) == (workers == 2)
    assert ((2, True) in applied) == (workers == 2)
    assert 0 < planned.step_seconds < 1


@pytest.fixture
def dataset(tmp_path):
    rng = np.random.default_rng(0)
    return write_dataset(tmp_path / "data", rng.random((500, 40), dtype=np.float32), np.arange(500) % 5).folder


@pytest.mark.usefixtures("hasty")
def test_the_command_prints_a_table_or_json(dataset):
    shown = CliRunner().invoke(app, ["plan", str(dataset), "--rank", "8"])
    assert shown.exit_code == 0, shown.output
    for words in ("memory of a process", "one thread: the bottleneck", "pairs a second", "one pass"):
        assert words in shown.output
    sizes = ["--points", "10000", "--features", "300", "--nonzeros", "30", "--pairs", "1000000", "--workers", "2"]
    printed = CliRunner().invoke(app, ["plan", *sizes, "--machines", "3", "--bandwidth", "1", "--json"])
    figures = json.loads(printed.output)
    assert figures["memory_bytes"] == sum(figures["memory"].values())
    assert figures["limits"].keys() == {"computing threads", "the server's update", "cores", "network"}
    assert figures["pass_seconds"] == pytest.approx(1000 * figures["step_seconds"])


@pytest.mark.parametrize("given", [[], ["--points", "100"], ["--features", "100"]])
def test_nothing_to_plan_is_said(given):
    ended = CliRunner().invoke(app, ["plan", *given])
    assert ended.exit_code != 0
    assert "give a dataset, or --points and --features" in str(ended.exception)


def test_rates_are_measured_with_as_many_pairs_beyond_the_margin_as_training_soon_has():
    rng = np.random.default_rng(0)
    y = np.arange(400) % 10
    X = (rng.normal(size=(10, 30))[y] + 0.5 * rng.normal(size=(400, 30))).astype(np.float32)
    pairs = nf.draw_pairs(nf.LabelDraws(nf.Labels(y)), 500, 500, seed=0)
    settings = nf.TrainingSettings(rank=10, batch_size=200, loss="hinge")
    prepared = prepare(X, pairs, settings, labels=None, loss=None, start=None)

    def within_the_margin(Lt):
        s = squared_distances(Lt, prepared.points, pairs.dissimilar)
        return np.mean(s < prepared.loss.margin)

    start = prepared.Lt.copy()
    settled = planning._settled(prepared, "adam")
    assert within_the_margin(settled) < 0.8 * within_the_margin(start)
    np.testing.assert_array_equal(prepared.Lt, start)


def test_a_part_that_fails_on_one_thread_ends_the_measuring():
    def failing():
        raise MemoryError("no room for it")

    with pytest.raises(MemoryError, match="no room for it"):
        planning._seconds([lambda: time.sleep(0.01), failing, lambda: time.sleep(0.01)])
