"""Learn a distance from examples of what is near and what is far."""

from nearfar.data.constraints import Comparisons, Labels, Pairs
from nearfar.data.from_labels import GroupDraws, LabelDraws, draw_pairs, draw_triplets
from nearfar.data.points import Points, as_points
from nearfar.model.metric import Metric, load_metric
from nearfar.model.training import TrainingResult, train
from nearfar.settings import TrainingSettings

__all__ = [
    "Comparisons",
    "GroupDraws",
    "LabelDraws",
    "Labels",
    "Metric",
    "Pairs",
    "Points",
    "TrainingResult",
    "TrainingSettings",
    "as_points",
    "draw_pairs",
    "draw_triplets",
    "load_metric",
    "train",
]
__version__ = "0.1.0"
