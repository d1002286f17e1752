"""Simulated speed-ups, from Python and from the command line; and what is said when something is wrong."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import nearfar as nf
from nearfar.cli import app, main
from nearfar.cli.simulating import _counts
from nearfar.data.dataset import write_dataset
from nearfar.engine.simulated.cluster import Costs, SimulatedCluster
from nearfar.engine.simulated.usage import Usage
from nearfar.errors import Diverged, InvalidSettings
from nearfar.experiments.simulation import Moment, SimulatedRun, planned_costs, simulate
from nearfar.model.run import RunFolder

TIMED = SimulatedCluster(bandwidth=math.inf, latency=0.0, costs=Costs(1.0, 0.0), spread=0.1)
SETTINGS = nf.TrainingSettings(rank=4, block_size=60, steps=60, report_every=5)
QUICK = ("--rank", "4", "--block-size", "60", "--steps", "40", "--report-every", "5")
GIVEN = ("--compute", "0.01", "--server-seconds", "0.001")


@pytest.fixture(scope="module")
def dataset(digits, tmp_path_factory):
    X, y = digits
    folder = tmp_path_factory.mktemp("data") / "digits"
    write_dataset(folder, X.astype(np.float32), labels=y)
    return folder


def nearfar(*arguments: object) -> str:
    ended = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "140"})
    assert ended.exit_code == 0, ended.output
    return ended.stdout


# Python


def test_more_workers_reach_the_goal_of_one_sooner(digits):
    told = []
    simulation = simulate(
        digits[0], nf.Labels(digits[1]), SETTINGS, TIMED, workers=[4, 1], consistencies=["asp", "bsp"],
        on_run=lambda *run: told.append(run),
    )  # fmt: skip
    assert told == [(1, "asp"), (1, "bsp"), (4, "asp"), (4, "bsp")]
    assert [(run.workers, run.consistency) for run in simulation.runs] == told
    one, _, four, in_step = simulation.runs
    assert simulation.goal == one.curve[-1].objective
    assert simulation.speed_up(one) == 1.0
    assert simulation.speed_up(four) > 1.2
    assert four.steps_per_second == pytest.approx(4.0, rel=0.1)
    assert 3.0 < in_step.steps_per_second < four.steps_per_second
    assert in_step.usage.waiting_for_others > 0.02 > four.usage.waiting_for_others
    assert four.curve[-1].objective <= simulation.goal < four.curve[-2].objective  # it stops there


def test_a_goal_of_ones_own_that_is_never_reached_is_told_as_such(digits):
    simulation = simulate(digits[0], nf.Labels(digits[1]), SETTINGS, TIMED, workers=[1, 2], goal=0.0, at_most=1.5)
    assert [run.seconds_to(0.0) for run in simulation.runs] == [math.inf, math.inf]
    assert [run.usage.steps for run in simulation.runs] == [60, 90]
    assert all(simulation.speed_up(run) == 0 for run in simulation.runs)
    assert [run["seconds_to_goal"] for run in simulation.to_json()["runs"]] == [None, None]
    assert "Infinity" not in json.dumps(simulation.to_json())


def test_the_better_of_two_step_sizes_counts(digits, tmp_path):
    X, labels = digits[0], nf.Labels(digits[1])
    both = simulate(X, labels, SETTINGS, TIMED, workers=[4], step_factors=[1e-3, 1.0], out=tmp_path / "both")
    assert [run.step_factor for run in both.runs] == [1.0]
    slow, _ = (RunFolder(tmp_path / "both" / f"asp-4-step-{factor}").read()[0] for factor in ("0.001", "1"))
    assert slow.step_size < 1e-3
    assert both.runs == simulate(X, labels, SETTINGS, TIMED, workers=[4]).runs


def test_a_step_size_that_diverges_is_left_out_unless_all_do(digits):
    X, labels = digits[0], nf.Labels(digits[1])
    sgd = replace(SETTINGS, update_rule="sgd", schedule="constant")
    kept = simulate(X, labels, sgd, TIMED, workers=[2], step_factors=[1e6, 0.1])
    assert [run.step_factor for run in kept.runs] == [0.1]
    with pytest.raises(Diverged):
        simulate(X, labels, sgd, TIMED, workers=[2], step_factors=[1e6, 1e7])


def test_the_time_to_a_goal_is_between_two_reports():
    curve = tuple(Moment(seconds, 0, objective, None, 0.0) for seconds, objective in ((0, 1.0), (10, 0.6), (20, 0.2)))
    run = SimulatedRun(1, "asp", 1.0, curve, Usage(20, 2, 1, 0, 0, 0, 0, 0))
    assert run.seconds_to(0.8) == pytest.approx(5.0)
    assert run.seconds_to(0.2) == pytest.approx(20.0)
    assert run.seconds_to(1.0) == 0.0
    assert run.seconds_to(0.1) == math.inf
    assert run.objective_at(19.9) == 0.6


@pytest.mark.filterwarnings("ignore:.*both similar and dissimilar")
def test_costs_of_a_problem_of_the_paper_are_of_its_size():
    costs = planned_costs(None, None, nf.TrainingSettings(), shape="mnist")
    assert costs.push_bytes == 4 * 784 * 601
    assert costs.pull_bytes == costs.push_bytes
    assert 0 < costs.update_seconds < costs.compute_seconds < 5


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"workers": []}, "workers is ; expected whole numbers"),
        ({"workers": [0]}, "workers is 0; expected whole numbers, each at least 1"),
        ({"consistencies": ["sometimes"]}, "consistency is 'sometimes'"),
        ({"goal": math.nan}, "goal is nan"),
        ({"at_most": 0.5}, "at_most is 0.5"),
        ({"step_factors": [0.0]}, "step_factors is"),
    ],
)
def test_what_cannot_be_simulated_is_refused(digits, wrong, says):
    given = {"workers": [1]} | wrong
    with pytest.raises(InvalidSettings, match=says):
        simulate(digits[0], nf.Labels(digits[1]), SETTINGS, TIMED, **given)


def test_the_goal_needs_something_held_out(digits):
    with pytest.raises(InvalidSettings, match="held_out is 0"):
        simulate(digits[0], nf.Labels(digits[1]), replace(SETTINGS, held_out=0), TIMED, workers=[1])


# The command line


def test_the_tables_say_what_was_simulated_and_what_came_of_it(dataset, tmp_path):
    printed = nearfar(
        "simulate", dataset, *QUICK, *GIVEN, "--workers", "1,2,4", "--consistency", "asp,ssp:2,bsp",
        "--machine-cores", "2", "--bandwidth", "1Gbit", "--latency", "0.2ms", "--straggler", "1x4.0", "--spread", "0.1",
        "--push-bytes", "2e6", "--pause", "0:10ms:20ms", "--out", tmp_path / "out",
    )  # fmt: skip
    for said in (
        "1 Gbit/s each way", "200 µs", "10 ms (given)", "1 ms (given)", "2 MB (given)", "as it is (real)", "0.1",
        "1, slower by 4", "worker 0 at 10 ms for 20 ms", "behind computing", "one, on a machine of its own",
        f"real, of {dataset}", "1 asp", "4 ssp:2", "4 bsp", "bottleneck", "server's link", "held-out objective after",
    ):  # fmt: skip
        assert said in " ".join(printed.split()), said
    runs = sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir())
    assert runs == sorted(f"{name}-{count}" for name in ("asp", "ssp-2", "bsp") for count in (1, 2, 4))
    reports = list(RunFolder(tmp_path / "out" / "bsp-4").reports())
    assert reports[-1].seconds > reports[0].seconds == 0
    written = json.loads((tmp_path / "out" / "simulation.json").read_text())
    assert written["cluster"]["stragglers"] == {"factor": 4.0, "count": 1, "share": 0.0}


def test_json_has_the_curves_and_one_seed_gives_one_answer(dataset):
    asked = ("simulate", dataset, *QUICK, *GIVEN, "--workers", "1,3", "--spread", "0.2", "--json")
    first, second = (json.loads(nearfar(*asked)) for _ in range(2))
    assert first == second
    assert first["costs_are"]["computing a batch"] == "given"
    assert first["cluster"]["costs"] == {
        "compute_seconds": 0.01, "update_seconds": 0.001, "push_bytes": None, "pull_bytes": None, "crowding": 1.0,
        "gather_seconds": 0.0,
    }  # fmt: skip
    one, three = first["runs"]
    assert one["speed_up"] == 1.0
    assert one["curve"][-1]["objective"] == first["goal"]
    assert sum(three["usage"].values()) > 0.9
    assert json.loads(nearfar(*asked, "--seed", "1"))["goal"] != first["goal"]


def test_a_goal_that_is_never_reached_shows_as_a_dash(dataset):
    printed = nearfar("simulate", dataset, *QUICK, *GIVEN, "--workers", "1,2", "--goal", "0", "--at-most", "1")
    assert "—: the objective was not reached" in printed
    assert printed.count("—") > 4


def test_costs_are_measured_where_none_are_given(dataset):
    printed = nearfar("simulate", dataset, *QUICK, "--workers", "1")
    assert printed.count("(measured here)") == 4


@pytest.mark.parametrize(
    ("text", "counts"),
    [("8", [8]), ("4,2", [4, 2]), ("1,2,4,...,64", [1, 2, 4, 8, 16, 32, 64]), ("3,...,20,99", [3, 6, 12, 20, 99])],
)
def test_three_dots_double(text, counts):
    assert _counts(text) == counts


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--workers", "0"), ("workers is 0", "each at least 1")),
        (("--workers", "0,...,4"), ("workers is 0", "each at least 1")),
        (("--workers", "a,b"), ("workers is 'a,b'", "as in 1,2,4")),
        (("--workers", "1,..."), ("workers is '1,...'", "as in 1,2,4")),
        (("--workers", "...,4"), ("workers is '...,4'", "as in 1,2,4")),
        (("--workers", ""), ("workers is ''", "as in 1,2,4")),
        (("--bandwidth", "10"), ("bandwidth is '10'", "a number and a unit", "10Gbit")),
        (("--bandwidth", "fastGbit"), ("bandwidth is 'fastGbit'", "10Gbit")),
        (("--latency", "50"), ("latency is '50'", "50us")),
        (("--consistency", "asp,often"), ("consistency is 'often'", "asp, bsp or ssp:S")),
        (("--straggler", "one"), ("straggler is 'one'", "1x4.0")),
        (("--pause", "1:2s"), ("pause is '1:2s'", "3:10s:5s")),
        (("--death", "1"), ("death is '1'", "3:10s")),
        (("--death", "9:1s", *GIVEN), ("a death is of worker 9", "workers are 0 to 0")),
        (("--compute", "-1", "--server-seconds", "0"), ("compute_seconds is -1",)),
        (("--step-factors", "big"), ("step-factors is 'big'", "1,2,4")),
        (("--servers", "2", "--server-inside"), ("servers is 2", "no machines of their own")),
        (("--engine", "threads"), ("--engine", "nearfar simulate --help")),
    ],
)
def test_wrong_input_ends_in_one_clear_line(dataset, capsys, options, says):
    with pytest.raises(SystemExit) as ended:
        main(["simulate", str(dataset), *QUICK, *(options if "--workers" in options else ("--workers", "1", *options))])
    assert ended.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: ")
    assert not [part for part in says if part not in last], last


def test_a_folder_that_exists_is_refused(dataset, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["simulate", str(dataset), *QUICK, *GIVEN, "--workers", "1", "--out", str(tmp_path)])
    assert "exists already; choose another folder" in capsys.readouterr().err
