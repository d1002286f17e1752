"""The arguments of learners that stand for settings, and how they are documented: from the settings."""

import contextlib
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, TypeVar

from nearfar.errors import InvalidSettings
from nearfar.settings import TrainingSettings

ARGUMENTS = {"rank": "n_components", "workers": "n_workers", "seed": "random_state"}
"""The settings that a learner's argument has another name for."""
LEFT_OUT = ("checkpoint_every", "keep_checkpoints", "compact")
"""The settings of a run folder, which a learner does not write; and one that ``n_components="auto"`` stands for."""

_Class = TypeVar("_Class", bound=type)

_FIRST_PARAMETER = """
    preprocessor : array, memory map or sparse matrix of shape (n, d), nf.Points, nf.NamedPoints or callable, optional
        Where the points of ids are. A callable is given distinct ids, in blocks, and returns one row each; it is only
        called from the thread that calls the learner. A clone shares the preprocessor.
"""
_LAST_PARAMETERS = """
    warm_start : bool, default False
        Let ``fit`` go on from what was learned before.
    verbose : bool, default False
        Show progress.
    callbacks : functions, optional
        Each is called with every report of the training.
"""
_ATTRIBUTES = """
    metric_ : nf.Metric
        What was learned; it needs no learner.
    components_ : array of shape (n_components, d)
        L, in the float type of the points.
    history_ : list of reports
        Of the last call.
    n_iter_ : int
        Steps made.
    n_features_in_ : int
    feature_names_in_ : array
        Only if the points are in a data frame with names of text.
"""
_SECTIONS = """
    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    {attributes}
"""


def documented(learner: _Class) -> _Class:
    """Put what all learners share, and what the settings say of themselves, into a learner's docstring.

    Where the docstring has parameters or attributes of its own, it names the places; else both sections are added.
    """
    settings = "\n".join(
        f"    {name} : default {default!r}\n        {text}" for name, (default, text) in setting_arguments().items()
    )
    parameters = f"{_FIRST_PARAMETER.strip()}\n{settings}\n    {_LAST_PARAMETERS.strip()}"
    own = learner.__doc__ or ""
    text = own if "{parameters}" in own else f"{own}\n{_SECTIONS}"
    learner.__doc__ = text.replace("{parameters}", parameters).replace("{attributes}", _ATTRIBUTES.strip())
    return learner


@contextlib.contextmanager
def named_as_given() -> Iterator[None]:
    """Let errors of settings name the arguments that stand for them."""
    try:
        yield
    except InvalidSettings as error:
        setting, _, fault = str(error).partition(" is ")
        if setting not in ARGUMENTS:
            raise
        raise InvalidSettings(f"{ARGUMENTS[setting]} is {fault}") from error


def setting_arguments() -> dict[str, tuple[Any, str]]:
    """The arguments that stand for settings, each with its default and its explanation."""
    told = {"rank": '; "auto" drops the directions that the held-out objective can do without'}
    return {
        ARGUMENTS.get(setting.name, setting.name): (
            None if setting.name == "seed" else setting.default,
            setting.metadata["help"] + told.get(setting.name, ""),
        )
        for setting in fields(TrainingSettings)
        if setting.name not in LEFT_OUT
    }
