"""All figures of one metric on one dataset, as the command line prints them."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nearfar.data.constraints import Comparisons, Labels, Pairs
from nearfar.data.dataset import Dataset
from nearfar.data.from_labels import LabelDraws, draw_pairs
from nearfar.errors import InvalidConstraints
from nearfar.evaluation.retrieval import Retrieval, judge_neighbours
from nearfar.evaluation.verification import Verification, judge_pairs
from nearfar.model.distance import Distance

_MOST_QUERIES = 10_000


@dataclass(frozen=True)
class Summary:
    """How good a metric is: at telling pairs apart, and, where there are labels, at finding neighbours."""

    verification: Verification
    k: int
    retrieval: Retrieval | None

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON values."""
        figures: dict[str, Any] = asdict(self.verification)
        if self.retrieval is not None:
            figures[f"{self.k}nn_error"] = self.retrieval.error
            figures |= {f"recall_at_{k}": share for k, share in self.retrieval.recall.items()}
        return figures

    def rows(self) -> list[tuple[str, str]]:
        """The figures as lines of a table."""
        pairs = self.verification
        rows = [
            ("average precision", f"{pairs.average_precision:.4f}"),
            ("ROC AUC", f"{pairs.roc_auc:.4f}"),
            *(
                (f"precision at recall {recall}", f"{pairs.precision_at_recall[recall]:.4f}")
                for recall in ("0.5", "0.9")
            ),
            ("accuracy at the threshold", f"{pairs.accuracy:.4f}"),
            ("equal error rate", f"{pairs.equal_error_rate:.4f}"),
        ]
        if self.retrieval is not None:
            rows.append((f"{self.k}-NN error", f"{100 * self.retrieval.error:.2f} %"))
            rows += [(f"recall@{k}", f"{share:.4f}") for k, share in self.retrieval.recall.items()]
        return rows


def summarise(
    metric: Distance, dataset: Dataset, training: Dataset | None, *, n_pairs: int = 10_000, k: int = 3, seed: int = 0
) -> Summary:
    """Judge a metric on a dataset's stored pairs (or pairs drawn from its labels), and on its neighbours.

    Neighbours are searched among the training points, or among the dataset's own where there are none or they are the
    same; with ``k=0`` not at all.
    """
    pairs = _pairs(dataset, n_pairs, seed)
    verification = judge_pairs(metric, dataset.points, pairs)
    references = training if training is not None and training.labels is not None else dataset
    if not k or dataset.labels is None or references.labels is None:
        return Summary(verification, k, None)
    own = references.fingerprint == dataset.fingerprint
    queries, query_labels = dataset.points, dataset.labels
    if not own and len(queries) > _MOST_QUERIES:
        chosen = np.sort(np.random.default_rng(seed).choice(len(queries), _MOST_QUERIES, replace=False))
        queries, query_labels = queries.chosen(chosen), query_labels[chosen]
    retrieval = judge_neighbours(
        metric, references.points, references.labels, queries, query_labels, k=k, leave_one_out=own
    )
    return Summary(verification, k, retrieval)


def _pairs(dataset: Dataset, n_pairs: int, seed: int) -> Pairs:
    if isinstance(dataset.constraints, Pairs):
        return dataset.constraints
    if isinstance(dataset.constraints, Comparisons) and dataset.labels is None:
        return Pairs(dataset.constraints.near, dataset.constraints.far)
    if dataset.labels is None:
        raise InvalidConstraints(f"{dataset.folder} has neither pairs nor labels to judge a metric by")
    return draw_pairs(LabelDraws(Labels(dataset.labels)), n_pairs, n_pairs, seed)
