"""The simulated engine learns what other engines learn, and its clock shows what one can compute by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import nearfar as nf
from nearfar.engine.simulated import SimulatedEngine
from nearfar.engine.simulated.cluster import Costs, Death, Pause, SimulatedCluster, Stragglers
from nearfar.engine.supervisor import LocalSupervisor
from nearfar.errors import InvalidRun, InvalidSettings, WorkerFailed
from nearfar.parameter_server.worker import Worker

FREE = SimulatedCluster(bandwidth=math.inf, latency=0.0, costs=Costs(0.0, 0.0), pulls="before")
"""Nothing takes any time."""
TIMED = replace(FREE, costs=Costs(1.0, 0.0))
"""A batch takes a second, all else nothing."""
REAL = SimulatedCluster(
    bandwidth=1e6, latency=1e-3, costs=Costs(0.01, 0.001), spread=0.3, stragglers=Stragglers(3.0, count=1)
)
"""Everything takes some time, not always the same."""


class Simulated:
    """A short training on digits."""

    def __init__(self, digits, cluster: SimulatedCluster, *, sparse: bool = False, **settings: object) -> None:
        X, y = digits
        self.engine = SimulatedEngine(cluster)
        chosen = nf.TrainingSettings(**{"rank": 4, "block_size": 20, "steps": 12, "held_out": 100} | settings)
        self.result = nf.train(sp.csr_matrix(X) if sparse else X, y, chosen, engine=self.engine)
        self.history, self.usage = self.result.history, self.engine.usage
        self.seconds = self.engine.now()

    @property
    def steps(self) -> list[int]:
        """Steps of each worker."""
        return [worker["steps"] for worker in self.history[-1].workers]


@pytest.fixture
def simulated(digits):
    return lambda cluster, **settings: Simulated(digits, cluster, **settings)


def test_a_small_block_takes_its_share_of_the_time(simulated):
    """Blocks of 125 points, then of 250, where a full one of 1,000 takes a second."""
    run = simulated(TIMED, block_size=None, steps=None, minutes=0.1, report_every=16)
    assert [(report.step, report.seconds) for report in run.history[:3]] == [(0, 0.0), (16, 2.0), (32, 6.0)]


# What is learned


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("consistency", ["asp", "ssp:1", "bsp"])
@pytest.mark.parametrize("pulls", ["with", "before", "behind"])
@pytest.mark.parametrize("rule", ["adam", "sgd"])
def test_one_worker_without_costs_is_the_serial_engine_bit_for_bit(digits, rule, pulls, consistency, sparse):
    X, y = digits
    points = sp.csr_matrix(X) if sparse else X
    settings = nf.TrainingSettings(
        rank=4, block_size=20, steps=15, held_out=100, update_rule=rule, consistency=consistency
    )
    serial = nf.train(points, y, settings, engine="serial")
    simulated = nf.train(points, y, settings, engine=SimulatedEngine(replace(FREE, pulls=pulls)))
    np.testing.assert_array_equal(simulated.metric.components, serial.metric.components)
    assert [report.objective for report in simulated.history] == [report.objective for report in serial.history]


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("pulls", ["with", "before", "behind"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_in_step_it_is_the_threads_engine_bit_for_bit(digits, workers, pulls, sparse):
    X, y = digits
    points = sp.csr_matrix(X) if sparse else X
    settings = nf.TrainingSettings(
        rank=4, block_size=20, steps=20, held_out=100, workers=workers, consistency="bsp", engine="threads"
    )
    threads = nf.train(points, y, settings)
    for cluster in (FREE, REAL):
        simulated = nf.train(points, y, settings, engine=SimulatedEngine(replace(cluster, pulls=pulls)))
        np.testing.assert_array_equal(simulated.metric.components, threads.metric.components)
        assert [report.step for report in simulated.history] == [report.step for report in threads.history]


@pytest.mark.parametrize("consistency", ["asp", "ssp:2", "bsp"])
def test_one_seed_gives_one_history(simulated, consistency):
    first, second = (simulated(REAL, workers=5, consistency=consistency, report_every=3) for _ in range(2))
    assert first.history == second.history
    assert first.usage == second.usage
    np.testing.assert_array_equal(first.result.metric.components, second.result.metric.components)
    other = simulated(replace(REAL, seed=1), workers=5, consistency=consistency, report_every=3)
    assert other.seconds != first.seconds


def test_by_name_costs_are_counted_so_that_one_seed_gives_one_history_too(digits):
    settings = nf.TrainingSettings(rank=4, block_size=20, steps=12, workers=3, engine="simulated")
    first, second = (nf.train(*digits, settings).history for _ in range(2))
    assert first == second
    assert first[-1].pairs_per_second > 1e6


# Time


def test_one_worker_computes_while_the_server_updates(simulated):
    run = simulated(replace(FREE, costs=Costs(2.0, 0.5)))
    assert run.seconds == pytest.approx(12 * 2.0 + 0.5)
    assert run.history[-1].seconds == run.seconds
    assert run.usage.computing == pytest.approx(24 / 24.5)
    assert run.usage.servers_update == pytest.approx(6 / 24.5)


@pytest.mark.parametrize("pulls", ["with", "before", "behind"])
def test_a_round_in_step_is_a_pull_the_slowest_batch_a_push_and_all_updates(simulated, pulls):
    cluster = replace(FREE, latency=0.5, costs=Costs(1.0, 0.25), stragglers=Stragglers(3.0, count=1), pulls=pulls)
    run = simulated(cluster, workers=2, consistency="bsp")
    assert run.seconds == pytest.approx(6 * (2 * 0.5 + 3.0 + 0.5 + 2 * 0.25))
    assert run.usage.computing == pytest.approx((1 + 3) / 2 / 5)
    assert run.usage.servers_update == pytest.approx(0.5 / 5)
    assert run.usage.latency == pytest.approx(1 / 5)
    assert run.usage.waiting_for_others == pytest.approx((2.5 + 0.5) / 2 / 5)  # each until its push, or both, arrived


def test_pulls_before_a_step_cost_a_round_trip_and_pulls_behind_do_not(simulated):
    cluster = replace(FREE, latency=0.1, costs=Costs(1.0, 0.01))
    assert simulated(replace(cluster, pulls="before")).seconds == pytest.approx(12 * (0.2 + 1.0) + 0.1 + 0.01)
    assert simulated(replace(cluster, pulls="behind")).seconds == pytest.approx(0.2 + 12 * 1.0 + 0.1 + 0.01)


def test_rows_that_come_with_a_push_come_when_it_is_applied(simulated):
    run = simulated(replace(FREE, latency=0.1, costs=Costs(1.0, 0.5), pulls="with"))
    assert run.seconds == pytest.approx(0.2 + 12 * (1.0 + 0.1 + 0.5) + 11 * 0.1)
    assert run.usage.latency == pytest.approx(12 * 0.2 / run.seconds, rel=0.1)
    assert run.history[-1].staleness_max == 0


def test_a_server_on_the_workers_core_takes_its_time_from_them(simulated):
    shared = replace(FREE, machine_cores=1, server_apart=False, costs=Costs(2.0, 1.0))
    assert simulated(shared).seconds == pytest.approx(12 * (2.0 + 1.0))
    assert simulated(replace(shared, machine_cores=2)).seconds == pytest.approx(12 * 2.0 + 1.0)


def test_cores_are_shared_evenly(simulated):
    """Three threads on two cores: the update of one second takes 1.5, and so does what others do meanwhile."""
    shared = replace(FREE, machine_cores=2, server_apart=False, costs=Costs(2.0, 0.5))
    run = simulated(shared, workers=2, steps=4)
    assert run.seconds == pytest.approx(2.0 + (2.0 + 0.5) + 2 * 0.5)  # pushes of one moment are one update
    assert run.steps == [2, 2]


def test_busy_cores_slow_each_other_down(simulated):
    """One worker has its machine to itself; of four cores, three busy ones are two thirds of the way to crowded."""
    crowded = replace(FREE, machine_cores=4, costs=Costs(2.0, 0.0, crowding=1.6))
    assert simulated(crowded, workers=1, steps=3).seconds == pytest.approx(3 * 2.0)
    assert simulated(crowded, workers=3, steps=9).seconds == pytest.approx(3 * 2.0 * 1.4)
    assert simulated(crowded, workers=4, steps=12).seconds == pytest.approx(3 * 2.0 * 1.6)


def test_rows_are_gathered_on_another_core_if_there_is_one(simulated):
    gathering = replace(FREE, machine_cores=2, costs=Costs(2.0, 0.0, gather_seconds=1.0))
    assert simulated(gathering, workers=1, steps=5).seconds == pytest.approx(5 * 2.0)
    assert simulated(replace(gathering, machine_cores=1), workers=1, steps=5).seconds == pytest.approx(5 * (2.0 + 1.0))


@pytest.mark.parametrize("crowding", [1.0, 1.5])
def test_pulls_go_on_where_steps_end_sooner_than_foreseen(simulated, crowding):
    shared = replace(REAL, machine_cores=2, server_apart=False, costs=Costs(0.01, 0.003, crowding=crowding))
    run = simulated(replace(shared, pulls="behind"), workers=2, steps=200, consistency="asp")
    assert run.history[-1].staleness_max <= 8


@pytest.mark.parametrize("workers", [1, 4])
def test_rows_that_come_behind_computing_come_in_time(simulated, workers):
    """A step begins with all but its worker's last push, though cores are shared and rows travel."""
    costs = Costs(0.025, 0.0003, 1.9e6, 1.9e6, crowding=1.1, gather_seconds=0.001)
    run = simulated(SimulatedCluster(costs=costs, spread=0.05), workers=workers, steps=100 * workers)
    assert run.history[-1].staleness_mean <= workers + 1


@pytest.mark.parametrize("workers", [4, 16])
def test_a_full_link_of_the_server_carries_bytes_at_its_bandwidth(simulated, workers):
    cluster = SimulatedCluster(
        machine_cores=1, bandwidth=1e9, server_bandwidth=1e6, latency=0.0, costs=Costs(0.001, 0.0, 1e5, 0.0)
    )
    run = simulated(cluster, workers=workers, steps=80)
    assert run.seconds == pytest.approx(0.001 + 80 * 1e5 / 1e6)
    assert run.usage.servers_link == pytest.approx(1.0, abs=2e-3)
    assert run.usage.bottleneck == "server's link"
    twice = simulated(replace(cluster, servers=2), workers=workers, steps=80)
    assert twice.seconds == pytest.approx(0.001 + 80 * 1e5 / 2e6)


def test_workers_share_the_link_of_their_machine(simulated):
    cluster = SimulatedCluster(
        machine_cores=8, bandwidth=1e6, server_bandwidth=1e9, latency=0.0, costs=Costs(0.001, 0.0, 1e5, 0.0)
    )
    together = simulated(cluster, workers=8, steps=80)
    assert together.seconds == pytest.approx(0.001 + 80 * 1e5 / 1e6 + 1e5 / 1e9, rel=1e-3)
    assert together.usage.bottleneck == "a machine's link"
    apart = simulated(replace(cluster, machine_cores=1), workers=8, steps=80)
    assert apart.seconds == pytest.approx(together.seconds / 8, rel=0.02)


def test_a_push_and_a_pull_take_what_they_really_have(simulated):
    cluster = SimulatedCluster(bandwidth=1e6, latency=0.0, costs=Costs(0.0, 0.0))
    bytes_a_step = 2 * 4 * 64 * (4 + 1)
    assert simulated(cluster, consistency="bsp").seconds == pytest.approx(12 * bytes_a_step / 1e6)


def test_minutes_are_virtual(simulated):
    run = simulated(TIMED, steps=None, minutes=0.5)
    assert run.history[-1].step == 30
    assert run.history[-1].used == 1


def test_the_spread_is_what_was_asked_for():
    factors = [SimulatedCluster(spread=0.4).variation(worker, clock) for worker in range(20) for clock in range(200)]
    assert np.mean(factors) == pytest.approx(1.0, abs=0.03)
    assert np.std(factors) == pytest.approx(0.4, abs=0.03)


# Waiting


def test_asynchronous_workers_never_wait_and_a_straggler_slows_itself_only(simulated):
    cluster = replace(TIMED, stragglers=Stragglers(4.0, count=1))
    run = simulated(cluster, workers=3, steps=90)
    assert run.usage.computing == pytest.approx(1.0, abs=0.05)
    assert run.usage.waiting_for_others == 0
    assert run.steps == [40, 40, 10]
    assert run.seconds == pytest.approx(40.0)


def test_a_straggler_slows_all_that_go_in_step(simulated):
    slow = replace(TIMED, stragglers=Stragglers(4.0, count=1))
    run = simulated(slow, workers=5, steps=90, consistency="bsp")
    assert run.seconds == pytest.approx(18 * 4.0)
    assert run.usage.bottleneck == "waiting for others"
    assert simulated(TIMED, workers=5, steps=90, consistency="bsp").seconds == pytest.approx(18.0)


@pytest.mark.parametrize(("consistency", "slack"), [("bsp", 0), ("ssp:1", 1), ("ssp:3", 3)])
def test_no_step_begins_further_ahead_than_the_bound(simulated, monkeypatch, consistency, slack):
    ahead, applied = [], dict.fromkeys(range(4), 0)
    compute, attend = Worker.compute, LocalSupervisor.attend

    def begins(worker, task, *others):
        ahead.append(task.clock - min(applied.values()))
        return compute(worker, task, *others)

    def attends(supervisor, pushes):
        for one in pushes:
            applied[one.push.worker] += 1
        return attend(supervisor, pushes)

    monkeypatch.setattr(Worker, "compute", begins)
    monkeypatch.setattr(LocalSupervisor, "attend", attends)
    simulated(replace(TIMED, stragglers=Stragglers(10.0, count=1)), workers=4, steps=60, consistency=consistency)
    assert max(ahead) == slack


def test_memory_under_way_is_bounded_where_the_server_is_slow(simulated, monkeypatch):
    most = 0
    compute = Worker.compute

    def recorded(worker, task, gathered, kernel, server, step_size):
        nonlocal most
        push = compute(worker, task, gathered, kernel, server, step_size)
        most = max(most, 3 - worker._free.qsize())
        return push

    monkeypatch.setattr(Worker, "compute", recorded)
    run = simulated(replace(FREE, costs=Costs(1.0, 10.0)), workers=2, steps=30, queue_capacity=3)
    assert most == 3
    assert run.seconds == pytest.approx(1.0 + 30 * 10.0)
    assert run.usage.bottleneck == "server's update"


def test_threads_of_a_worker_share_its_copy_and_its_pulls(simulated):
    cluster = replace(TIMED, bandwidth=1e6, costs=Costs(1.0, 0.0, 0.0, 1e5))
    run = simulated(cluster, workers=2, threads_per_worker=4, steps=80)
    assert run.steps == [40, 40]
    assert run.seconds == pytest.approx(10 * (1.0 + 2 * 0.1), rel=0.1)  # one pull for four threads


def test_a_thousand_workers_run(simulated):
    run = simulated(REAL, workers=1000, steps=1500)
    assert run.history[-1].step == 1500
    assert sum(run.steps) == 1500
    assert min(run.steps) >= 1


# What goes wrong


def test_a_worker_that_pauses_makes_the_others_wait_in_step_only(simulated):
    paused = replace(TIMED, pauses=(Pause(worker=1, at=3.0, seconds=10.0),))
    assert simulated(paused, workers=2, consistency="bsp").seconds == pytest.approx(6 + 10)
    run = simulated(paused, workers=2, consistency="asp")
    assert run.steps == [9, 3]


@pytest.mark.parametrize("consistency", ["asp", "ssp:2", "bsp"])
@pytest.mark.parametrize("pulls", ["with", "before", "behind"])
def test_a_dead_workers_shards_move_on_and_no_batch_is_lost(simulated, monkeypatch, consistency, pulls):
    cluster = replace(TIMED, pulls=pulls, deaths=(Death(worker=2, at=3.5),))
    seen = []
    attend = LocalSupervisor.attend

    def recorded(supervisor, applied):
        seen.extend((one.push.shard, one.push.shard_clock) for one in applied)
        return attend(supervisor, applied)

    monkeypatch.setattr(LocalSupervisor, "attend", recorded)
    with pytest.warns(RuntimeWarning, match=r"worker 2 failed \(.*it died at 3.5 s.*its shards go to the 2"):
        run = simulated(cluster, workers=3, steps=60, consistency=consistency)
    assert run.steps[2] == 3
    assert run.history[-1].step == len(seen) == len(set(seen)) == 60
    for shard in range(12):
        clocks = sorted(clock for number, clock in seen if number == shard)
        assert clocks == list(range(len(clocks))), shard


def test_when_all_workers_are_dead_the_run_fails(simulated):
    with pytest.warns(RuntimeWarning), pytest.raises(WorkerFailed, match="every worker died"):
        simulated(replace(TIMED, deaths=(Death(0, 2.5), Death(1, 3.5))), workers=2)


# What is given


def test_too_many_copies_are_refused_with_the_sum(simulated):
    with pytest.raises(InvalidSettings, match=r"memory is 200MB, but this run takes .*workers' copies of L 10.2 MB"):
        simulated(FREE, workers=10_000, memory="200MB")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"machine_cores": 0}, "machine_cores is 0; expected at least 1"),
        ({"bandwidth": 0.0}, "bandwidth is 0.0; expected bytes a second"),
        ({"latency": math.inf}, "latency is inf; expected at least 0, and finite"),
        ({"spread": -1.0}, "spread is -1.0"),
        ({"pulls": "never"}, "pulls is 'never'; expected with, before, behind"),
        ({"servers": 2, "server_apart": False}, "servers is 2, but they have no machines of their own"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(wrong, says):
    with pytest.raises(InvalidSettings, match=says):
        SimulatedCluster(**wrong)


def test_costs_that_cannot_be_are_refused():
    with pytest.raises(InvalidSettings, match="compute_seconds is -1; expected a finite number"):
        Costs(-1, 0)
    with pytest.raises(InvalidSettings, match="push_bytes is nan"):
        Costs(1, 0, math.nan)
    with pytest.raises(InvalidSettings, match=r"crowding is 0\.5; expected at least 1"):
        Costs(1, 0, crowding=0.5)


@pytest.mark.parametrize("text", ["4", "x4", "1x", "onex2", "1x-2", "200%x2"])
def test_stragglers_that_cannot_be_read_are_refused(text):
    with pytest.raises(InvalidSettings, match="straggler"):
        Stragglers.parse(text)


def test_stragglers_are_read():
    assert Stragglers.parse("1x4.0") == Stragglers(4.0, count=1)
    assert Stragglers.parse("25%x2") == Stragglers(2.0, share=0.25)
    slow = SimulatedCluster(stragglers=Stragglers.parse("25%x2"))
    assert [slow.slowness(worker, 8) for worker in range(8)] == [1] * 6 + [2] * 2
    assert slow.slowness(0, 1) == 1


def test_workers_that_have_no_place_or_are_not_there_are_refused(simulated):
    with pytest.raises(InvalidSettings, match="threads_per_worker is 4, but a machine has 2 cores"):
        simulated(replace(TIMED, machine_cores=2), threads_per_worker=4)
    with pytest.raises(InvalidSettings, match="a death is of worker 2, but workers are 0 to 1"):
        simulated(replace(TIMED, deaths=(Death(2, 1.0),)), workers=2)


def test_an_engine_that_is_none_is_refused(digits):
    with pytest.raises(InvalidSettings, match="engine is a dict; expected serial, threads"):
        nf.train(*digits, engine={})


def test_a_run_is_resumed_on_the_same_cluster_only(digits, tmp_path):
    run, settings = tmp_path / "run", nf.TrainingSettings(rank=4, block_size=20, steps=10, workers=2)
    nf.train(*digits, settings, engine=SimulatedEngine(TIMED), run=run)
    more = replace(settings, steps=20)
    with pytest.raises(InvalidRun, match="cluster"):
        nf.train(*digits, more, engine=SimulatedEngine(REAL), run=run, resume=True)
    resumed = nf.train(*digits, more, engine=SimulatedEngine(TIMED), run=run, resume=True)
    assert resumed.history[-1].step == 20
    assert resumed.history[-1].seconds == pytest.approx(10.0)
