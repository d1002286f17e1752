"""Judges a metric; never trains. What each figure means is in the guide."""

from nearfar.evaluation.bootstrap import Resampling
from nearfar.evaluation.clustering import Clusters, adjusted_rand_index, judge_clusters, normalized_mutual_information
from nearfar.evaluation.curves import Curves, ThinnedCurve, thinned
from nearfar.evaluation.retrieval import Retrieval, judge_neighbours, neighbours
from nearfar.evaluation.summary import Summary, summarise
from nearfar.evaluation.verification import Verification, judge_distances, judge_pairs, precision_recall, roc
from nearfar.model.euclidean import Euclidean
from nearfar.objective.ranking import average_precision, best_threshold, roc_auc

__all__ = [
    "Clusters",
    "Curves",
    "Euclidean",
    "Resampling",
    "Retrieval",
    "Summary",
    "ThinnedCurve",
    "Verification",
    "adjusted_rand_index",
    "average_precision",
    "best_threshold",
    "judge_clusters",
    "judge_distances",
    "judge_neighbours",
    "judge_pairs",
    "neighbours",
    "normalized_mutual_information",
    "precision_recall",
    "roc",
    "roc_auc",
    "summarise",
    "thinned",
]
