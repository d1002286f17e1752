"""Every exception that nearfar raises on purpose.

::

    NearfarError
    ├── InvalidInput (also a ValueError)   what was given is wrong; the message says how to mend it
    │   ├── InvalidPoints                  NaN, a wrong width, an empty array
    │   ├── InvalidConstraints             pairs, triplets or labels that cannot be learned from
    │   ├── InvalidSettings                a setting out of its range, or two that contradict each other
    │   ├── InvalidFile                    a file that is missing, truncated, damaged or of another kind
    │   │   └── UnreadableFile             one that may not be read, or a folder in its place
    │   └── InvalidRun                     a run folder that exists, is missing, or was made with other settings
    ├── TrainingFailed                     the input was fine, the training was not
    │   ├── Diverged                       a gradient or the metric is no longer finite
    │   └── WorkerFailed                   every worker is gone; the first one's error is the cause
    └── MissingExtra (also an ImportError) an optional package is not installed
"""


class NearfarError(Exception):
    """The root of all errors that nearfar raises on purpose."""


class InvalidInput(NearfarError, ValueError):
    """What the user gave is wrong."""


class InvalidPoints(InvalidInput):
    """The points cannot be used."""


class InvalidConstraints(InvalidInput):
    """The pairs, triplets or labels cannot be learned from."""


class InvalidSettings(InvalidInput):
    """A setting is out of its range, or contradicts another."""


class InvalidFile(InvalidInput):
    """A file is missing, truncated, damaged or of another kind."""


class UnreadableFile(InvalidFile):
    """A file is there, but may not be read, or is a folder."""


class InvalidRun(InvalidInput):
    """A run folder exists already, is missing, or was made with other settings."""


class TrainingFailed(NearfarError):
    """The input was valid, but training could not go on."""


class Diverged(TrainingFailed):
    """A gradient or the metric is no longer finite."""


class WorkerFailed(TrainingFailed):
    """Every worker is gone; the first one's error is the cause."""


class MissingExtra(NearfarError, ImportError):
    """An optional package is not installed; the message names the extra that brings it."""
