"""Settings are checked where they are made, say what is wrong, and survive being written down."""

import math
import tomllib
from dataclasses import FrozenInstanceError, fields
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearfar.errors import InvalidFile, InvalidSettings
from nearfar.settings import BUDGET, TrainingSettings, slack

WHOLE_ABOVE_0 = [
    "rank", "batch_size", "block_size", "per_class", "workers", "threads_per_worker", "queue_capacity", "steps",
    "patience", "report_every", "keep_checkpoints", "lift_dim",
]  # fmt: skip
REAL_ABOVE_0 = ["margin", "dissimilar_weight", "step_size", "epochs", "minutes", "checkpoint_every", "lift_width"]
MAY_BE_ZERO = ["seed", "held_out"]
NAMES = ["loss", "start", "lift", "precision", "update_rule", "schedule", "engine"]
SWITCHES = ["scale_features", "centre", "staleness_scaling", "compact", "held_out_apart"]


def test_every_setting_is_tabled_here_and_explained():
    tabled = {*WHOLE_ABOVE_0, *REAL_ABOVE_0, *MAY_BE_ZERO, *NAMES, *SWITCHES, "consistency", "memory"}
    assert {setting.name for setting in fields(TrainingSettings)} == tabled
    assert all(len(setting.metadata["help"]) > 5 for setting in fields(TrainingSettings))
    assert set(BUDGET) <= tabled


NOT_NUMBERS = ["3", True, [1], {}, 1j, np.array([1, 2]), np.bool_(True)]
WRONG = [
    *((name, value, "number") for name in WHOLE_ABOVE_0 + REAL_ABOVE_0 + MAY_BE_ZERO for value in NOT_NUMBERS),
    *((name, value, "number") for name in WHOLE_ABOVE_0 + REAL_ABOVE_0 for value in (math.nan, math.inf, -math.inf)),
    *((name, value, "more than 0") for name in WHOLE_ABOVE_0 + REAL_ABOVE_0 for value in (0, -1, -1e9)),
    *((name, value, "a whole number") for name in WHOLE_ABOVE_0 + MAY_BE_ZERO for value in (2.5, Fraction(7, 2))),
    *((name, -1, "at least 0") for name in MAY_BE_ZERO),
    *((name, 10**400, "a finite number") for name in REAL_ABOVE_0),
    *((name, value, "one of") for name in NAMES for value in ("", "Hinge", 3, None, ["hinge"])),
    *((name, value, "true or false") for name in SWITCHES for value in (1, 0, "yes", None)),
    ("seed", 2**64, "at most"),
    ("seed", 10**400, "at most"),
    ("batch_size", 1, "at least 2"),
    ("block_size", 3, "at least 4"),
    ("per_class", 1, "at least 2"),
    *(("consistency", value, "ssp:S") for value in ("", "BSP", "ssp", "ssp:", "ssp:-1", "ssp:1.5", "bsp:1", "ssp:3:4")),
    ("consistency", 3, "text"),
    *(("memory", value, "as in 8GB") for value in ("", "8", "GB", "-1GB", "0MB", "8 GiB", "eight GB", "nanGB")),
    ("memory", 8, "text"),
]


@pytest.mark.parametrize(("name", "value", "said"), WRONG, ids=lambda v: str(v)[:20])
def test_what_is_wrong_is_named(name, value, said):
    with pytest.raises(InvalidSettings, match=f"(?s)^{name} is .*; expected .*{said}"):
        TrainingSettings(**{name: value})


def test_only_settings_that_may_be_left_out_take_none():
    for setting in fields(TrainingSettings):
        if setting.default is None:
            assert getattr(TrainingSettings(**{setting.name: None}), setting.name) is None
        else:
            with pytest.raises(InvalidSettings, match=f"^{setting.name} is None"):
                TrainingSettings(**{setting.name: None})


@pytest.mark.parametrize("value", [np.int64(8), np.uint8(8), 8.0, np.float32(8), Fraction(8)], ids=repr)
def test_numbers_of_any_kind_become_plain_ones(value):
    made = TrainingSettings(rank=value, margin=value)
    assert (made.rank, made.margin) == (8, 8.0)
    assert type(made.rank) is int
    assert type(made.margin) is float


def test_settings_cannot_be_changed_or_misspelt():
    with pytest.raises(FrozenInstanceError):
        TrainingSettings().rank = 3
    with pytest.raises(TypeError, match="rnak"):
        TrainingSettings(rnak=3)


def choices():
    """Any valid settings."""
    whole, real = st.integers(4, 2**62), st.floats(1e-300, 1e300, allow_nan=False)
    by_name = (
        dict.fromkeys(WHOLE_ABOVE_0, whole)
        | dict.fromkeys(REAL_ABOVE_0, real)
        | dict.fromkeys(MAY_BE_ZERO, st.integers(0, 2**62))
        | dict.fromkeys(SWITCHES, st.booleans())
        | {
            "loss": st.sampled_from(["auto", "hinge", "logistic", "comparison", "neighbour"]),
            "start": st.sampled_from(["random", "identity", "pca"]),
            "update_rule": st.sampled_from(["sgd", "momentum", "adagrad", "adam"]),
            "engine": st.sampled_from(["auto", "threads"]),
            "consistency": st.sampled_from(["asp", "bsp"]) | st.integers(0, 99).map("ssp:{}".format),
        }
    )
    return st.fixed_dictionaries({}, optional=by_name).map(lambda chosen: TrainingSettings(**chosen))


@settings(deadline=None, max_examples=50)
@given(choices())
def test_settings_survive_being_written_down(chosen):
    text = chosen.to_toml()
    assert TrainingSettings.from_toml(text, "run.toml") == chosen
    for setting in fields(chosen):
        assert f"# {setting.metadata['help']}\n" in text
        written = setting.name in tomllib.loads(text)
        assert written == (getattr(chosen, setting.name) is not None)


@settings(deadline=None, max_examples=50)
@given(choices(), choices())
def test_differences_are_exactly_what_differs(now, before):
    differ = {s.name for s in fields(now) if getattr(now, s.name) != getattr(before, s.name)}
    assert {phrase.split(":")[0] for phrase in now.differences(before)} == differ
    assert {phrase.split(":")[0] for phrase in now.differences(before, ignore=BUDGET)} == differ - set(BUDGET)


def test_a_difference_says_both_values():
    said = TrainingSettings(rank=64, steps=5).differences(TrainingSettings(rank=32), ignore=BUDGET)
    assert len(said) == 1
    assert said[0].startswith("rank: 64 ")
    assert "32" in said[0]


def test_a_file_that_is_not_settings_is_refused():
    with pytest.raises(InvalidFile, match=r"run\.toml is not valid TOML"):
        TrainingSettings.from_toml("rank = ", "run.toml")
    with pytest.raises(InvalidSettings, match=r"run\.toml has the unknown setting ranks"):
        TrainingSettings.from_toml("ranks = 3", "run.toml")
    with pytest.raises(InvalidSettings, match="rank is 'many'"):
        TrainingSettings.from_toml('rank = "many"', "run.toml")
    assert TrainingSettings.from_toml("", "run.toml") == TrainingSettings()


def test_slack():
    assert (slack("asp"), slack("bsp"), slack("ssp:0"), slack("ssp:12")) == (math.inf, 0, 0, 12)


def test_the_engine_fits_the_workers():
    assert TrainingSettings().chosen_engine == "serial"
    assert TrainingSettings(workers=2).chosen_engine == "threads"
    assert TrainingSettings(threads_per_worker=2).chosen_engine == "threads"
    assert TrainingSettings(engine="threads").chosen_engine == "threads"
    for several in ({"workers": 2}, {"threads_per_worker": 2}):
        with pytest.raises(InvalidSettings, match="serial has one worker"):
            TrainingSettings(engine="serial", **several)


def test_patience_is_not_a_budget():
    assert not TrainingSettings(patience=3).has_budget
    for budget in ({"steps": 1}, {"epochs": 0.5}, {"minutes": 1}):
        assert TrainingSettings(**budget).has_budget
