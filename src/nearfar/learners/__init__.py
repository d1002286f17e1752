"""Learners with scikit-learn's conventions and metric-learn's calls, thin over :func:`nearfar.train`."""

from nearfar.learners.callbacks import MLflowCallback, TensorBoardCallback
from nearfar.learners.comparisons import QuadrupletLearner, TripletLearner
from nearfar.learners.labels import LabelLearner
from nearfar.learners.named_points import NamedPoints
from nearfar.learners.pairs import PairLearner
from nearfar.learners.splitting import ApartSplit

__all__ = [
    "ApartSplit",
    "LabelLearner",
    "MLflowCallback",
    "NamedPoints",
    "PairLearner",
    "QuadrupletLearner",
    "TensorBoardCallback",
    "TripletLearner",
]
