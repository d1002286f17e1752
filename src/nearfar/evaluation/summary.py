"""All figures of one metric on one dataset, as the command line prints them."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from nearfar.data.constraints import Comparisons, Indices, Labels, Pairs
from nearfar.data.dataset import Dataset
from nearfar.data.from_labels import LabelDraws, draw_pairs
from nearfar.errors import InvalidConstraints, InvalidSettings
from nearfar.evaluation.bootstrap import Interval, Resampling
from nearfar.evaluation.clustering import MOST_POINTS, Clusters, judge_clusters
from nearfar.evaluation.curves import Curves
from nearfar.evaluation.nearest import comparison_cost
from nearfar.evaluation.retrieval import Retrieval, judge_neighbours
from nearfar.evaluation.verification import Verification, judge_ranking, rank_pairs
from nearfar.model.distance import Distance

_MOST_QUERIES, _FEWEST_QUERIES = 10_000, 100
_MOST_WORK = 4e12
"""Multiplications that the search for neighbours may take before fewer queries are made: some minutes of one core."""
_MOST_PAIRS = 5_000_000
"""Pairs of either kind that are judged; of more, evenly spaced ones."""


@dataclass(frozen=True)
class Summary:
    """How good a metric is: at telling pairs apart, and, where there are labels, at neighbours and clusters."""

    verification: Verification
    curves: Curves
    confidence: float
    retrieval: Retrieval | None = None
    clusters: Clusters | None = None
    remarks: tuple[str, ...] = ()
    """What was left out, and why; one sentence each."""

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON values; without the curves."""
        figures: dict[str, Any] = asdict(self.verification)
        figures["confidence"] = self.confidence
        if self.retrieval is not None:
            found = self.retrieval
            figures |= {name: figure for name, (figure, _) in self._neighbours(found).items()}
            figures["intervals"] |= {name: interval for name, (_, interval) in self._neighbours(found).items()}
            figures |= {"n_queries": found.n_queries, "n_references": found.n_references, "n_ranked": found.n_ranked}
        if self.clusters is not None:
            clusters = asdict(self.clusters)
            figures |= clusters | {"n_clustered": clusters.pop("n_points")}
        figures["intervals"] = {name: interval for name, interval in figures["intervals"].items() if interval}
        return figures

    def title(self) -> str:
        """What stands above the table."""
        pairs = self.verification
        intervals = f"; figures with {100 * self.confidence:g} % intervals" if pairs.intervals else ""
        return f"{pairs.n_similar:,} similar and {pairs.n_dissimilar:,} dissimilar pairs{intervals}"

    def rows(self) -> list[tuple[str, str]]:
        """The figures as lines of a table."""
        pairs = self.verification
        rows = [
            ("average precision", _text(pairs.average_precision, pairs.intervals.get("average_precision"))),
            ("ROC AUC", _text(pairs.roc_auc, pairs.intervals.get("roc_auc"))),
            *((f"precision at recall {at}", _text(pairs.precision_at_recall[at], None)) for at in ("0.5", "0.9")),
            ("equal error rate", _text(pairs.equal_error_rate, pairs.intervals.get("equal_error_rate"))),
            ("accuracy at the threshold", _text(pairs.accuracy, pairs.intervals.get("accuracy"))),
            ("threshold", f"{pairs.threshold:.4g} ({pairs.threshold_from})"),
        ]
        if self.retrieval is not None:
            (name, (error, interval)), *others = self._neighbours(self.retrieval).items()
            rows.append((f"{self.retrieval.k}-NN error", _percent(error, interval)))
            for name, (figure, interval) in others:
                rows.append((name.replace("map_at_r", "MAP@R").replace("_at_", "@"), _text(figure, interval)))
        if self.clusters is not None:
            rows.append(("k-means NMI", f"{self.clusters.normalized_mutual_information:.4f}"))
            rows.append(("k-means ARI", f"{self.clusters.adjusted_rand_index:.4f}"))
        return rows

    @staticmethod
    def _neighbours(found: Retrieval) -> dict[str, tuple[float, Interval | None]]:
        """The figures of the neighbours by their names, each with its interval."""
        figures = {f"{found.k}nn_error": ("error", found.error)}
        figures |= {f"recall_at_{k}": (f"recall_at_{k}", share) for k, share in found.recall.items()}
        figures["map_at_r"] = ("map_at_r", found.map_at_r)
        return {name: (figure, found.intervals.get(key)) for name, (key, figure) in figures.items()}


def summarise(
    metric: Distance,
    dataset: Dataset,
    training: Dataset | None = None,
    *,
    n_pairs: int = 10_000,
    k: int = 3,
    seed: int = 0,
    most_queries: int | None = None,
    most_clustered: int = MOST_POINTS,
    resamples: int | None = None,
) -> Summary:
    """Judge a metric on a dataset: on its stored pairs (or pairs drawn from its labels), neighbours and clusters.

    Neighbours are searched among the training points, or among the dataset's own where there are none or they are the
    same. A metric without a threshold gets the one that is best on pairs of the training data, if there are any.

    Parameters
    ----------
    metric : Metric or Euclidean
    dataset : Dataset
        What the metric is judged on: points that it has not seen in training.
    training : Dataset, optional
        What the metric was trained on.
    n_pairs : int
        Pairs of either kind to draw from labels, where no pairs are stored.
    k : int
        How many neighbours vote; 0 leaves neighbours out.
    seed : int
        Of all draws.
    most_queries : int, optional
        Points whose neighbours are searched; of more, so many are drawn. By default 10,000, or, where a search among
        so many or so wide references takes more than some minutes, fewer, but at least 100.
    most_clustered : int
        Points to cluster; of more, so many are drawn. 0 leaves clusters out.
    resamples : int, optional
        See :class:`~nearfar.evaluation.Resampling`.
    """
    if training is not None and training.fingerprint == dataset.fingerprint:
        training = None
    resampling = Resampling(resamples, seed=seed)
    pairs, remarks = _pairs(dataset, n_pairs, seed)
    ranking = rank_pairs(metric, dataset.points, pairs)
    threshold, source = _threshold(metric, training, n_pairs, seed)
    verification = judge_ranking(ranking, threshold, resampling)
    retrieval = clusters = None
    if k and dataset.labels is not None:
        try:
            retrieval = _judge_neighbours(metric, dataset, training, k, most_queries, resampling)
        except InvalidConstraints as error:
            remarks.append(f"neighbours are left out: {error}")
    if most_clustered and dataset.labels is not None:
        try:
            clusters = judge_clusters(metric, dataset.points, dataset.labels, most_points=most_clustered, seed=seed)
        except (InvalidConstraints, InvalidSettings) as error:
            remarks.append(f"clusters are left out: {error}")
    return Summary(
        replace(verification, threshold_from=source or verification.threshold_from),
        Curves.of(ranking),
        resampling.confidence,
        retrieval,
        clusters,
        tuple(remarks),
    )


def _judge_neighbours(
    metric: Distance,
    dataset: Dataset,
    training: Dataset | None,
    k: int,
    most_queries: int | None,
    resampling: Resampling,
) -> Retrieval:
    others = training is not None and training.labels is not None
    references = training if training is not None and others else dataset
    queries, labels = dataset.points, np.asarray(dataset.labels)
    rows = np.arange(len(queries))
    if most_queries is None:
        work = len(references.points) * comparison_cost(metric, *metric.two_sets(queries, references.points))
        most_queries = min(_MOST_QUERIES, max(_FEWEST_QUERIES, int(_MOST_WORK / work)))
    if len(queries) > most_queries:
        rows = np.random.default_rng(resampling.seed).permutation(len(queries))[:most_queries]
        rows.sort()
        queries, labels = queries.chosen(rows), labels[rows]
    return judge_neighbours(
        metric,
        references.points,
        np.asarray(references.labels),
        queries,
        labels,
        k=k,
        leave_one_out=False if others else rows,
        resampling=resampling,
    )


def _pairs(dataset: Dataset, n_pairs: int, seed: int, most: int = _MOST_PAIRS) -> tuple[Pairs, list[str]]:
    """The pairs to judge by, no more than ``most`` of a kind, and what is to be said of them."""
    stored = dataset.constraints
    if isinstance(stored, Pairs):
        return _some(stored.similar, stored.dissimilar, most)
    if isinstance(stored, Comparisons) and dataset.labels is None:
        return _some(stored.near, stored.far, most)
    if dataset.labels is None:
        raise InvalidConstraints(
            f"{dataset.folder} has neither pairs nor labels to judge a metric by; "
            "ingest it again with --labels or --pairs"
        )
    return draw_pairs(LabelDraws(Labels(dataset.labels)), n_pairs, n_pairs, seed), []


def _some(similar: Indices, dissimilar: Indices, most: int) -> tuple[Pairs, list[str]]:
    """Stored pairs; of more than ``most`` of a kind, evenly spaced ones."""
    kinds = {"similar": similar, "dissimilar": dissimilar}
    chosen = {kind: pairs[:: max(1, -(-len(pairs) // most))] for kind, pairs in kinds.items()}
    remarks = [
        f"of {len(pairs)} {kind} pairs, {len(chosen[kind])} are judged, evenly spaced"
        for kind, pairs in kinds.items()
        if len(chosen[kind]) < len(pairs)
    ]
    return Pairs(**chosen), remarks


def _threshold(metric: Distance, training: Dataset | None, n_pairs: int, seed: int) -> tuple[float | None, str | None]:
    """The metric's own threshold, or the one that is best on training pairs, and where it comes from."""
    if metric.threshold is not None:
        return metric.threshold, "metric"
    if training is None:
        return None, None
    try:
        pairs, _ = _pairs(training, n_pairs, seed, most=n_pairs)
        return rank_pairs(metric, training.points, pairs).best_threshold(), "training pairs"
    except InvalidConstraints:  # pairs of one kind, or none: no threshold can be found on them
        return None, None


def _text(figure: float, interval: Interval | None) -> str:
    return f"{figure:.4f}" + ("" if interval is None else f"  {interval[0]:.4f}–{interval[1]:.4f}")


def _percent(figure: float, interval: Interval | None) -> str:
    return f"{100 * figure:.2f} %" + ("" if interval is None else f"  {100 * interval[0]:.2f}–{100 * interval[1]:.2f}")
