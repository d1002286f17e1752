"""Learn a distance from examples of what is near and what is far."""

from typing import TYPE_CHECKING, Any

from nearfar.data.constraints import Comparisons, Groups, Labels, Pairs
from nearfar.data.from_labels import GroupDraws, LabelDraws, draw_pairs, draw_triplets
from nearfar.data.points import Points, as_points
from nearfar.engine.ray_cluster import RayEngine, RayOptions
from nearfar.engine.simulated import SimulatedEngine
from nearfar.engine.simulated.cluster import Costs, SimulatedCluster, Stragglers
from nearfar.evaluation.neighbour_triplets import draw_neighbour_triplets
from nearfar.evaluation.search import search
from nearfar.model.export import to_faiss, to_onnx, to_torch
from nearfar.model.metric import Metric, load_metric
from nearfar.model.training import TrainingResult, train
from nearfar.settings import TrainingSettings

if TYPE_CHECKING:
    from nearfar.learners import ApartSplit, LabelLearner, NamedPoints, PairLearner, QuadrupletLearner, TripletLearner

__all__ = [
    "ApartSplit",
    "Comparisons",
    "Costs",
    "GroupDraws",
    "Groups",
    "LabelDraws",
    "LabelLearner",
    "Labels",
    "Metric",
    "NamedPoints",
    "PairLearner",
    "Pairs",
    "Points",
    "QuadrupletLearner",
    "RayEngine",
    "RayOptions",
    "SimulatedCluster",
    "SimulatedEngine",
    "Stragglers",
    "TrainingResult",
    "TrainingSettings",
    "TripletLearner",
    "as_points",
    "draw_neighbour_triplets",
    "draw_pairs",
    "draw_triplets",
    "load_metric",
    "search",
    "to_faiss",
    "to_onnx",
    "to_torch",
    "train",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The learners, imported when they are first used: scikit-learn takes longer to import than all the rest."""
    if name in __all__:
        from nearfar import learners  # noqa: PLC0415

        return getattr(learners, name)
    raise AttributeError(f"module 'nearfar' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
