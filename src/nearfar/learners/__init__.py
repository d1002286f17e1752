"""Learners with scikit-learn's conventions and metric-learn's calls, thin over :func:`nearfar.train`."""

from nearfar.learners.callbacks import MLflowCallback, TensorBoardCallback
from nearfar.learners.comparisons import QuadrupletLearner, TripletLearner
from nearfar.learners.labels import LabelLearner
from nearfar.learners.pairs import PairLearner

__all__ = [
    "LabelLearner",
    "MLflowCallback",
    "PairLearner",
    "QuadrupletLearner",
    "TensorBoardCallback",
    "TripletLearner",
]
