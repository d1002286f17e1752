"""What each way to do a step costs, counted in flops: the one place where a cheaper way is chosen.

Counting, unlike timing, gives the same answer every time, so runs stay reproducible.
"""

from typing import Literal

REPORT_SHARE = 1 / 30
"""The share of the work that may go into judging progress."""
BLOCK_ENTRIES = 4 << 20
"""Entries of the points that are in memory at a time where all are gone over."""

_FEWEST_STEPS = (10, 25)
"""Steps between two reports, at the least: closer ones differ by noise. An epoch, if that is between the two."""
_FAR = 32 << 20
"""Bytes of L from which on each pass over it waits for memory."""
_WORTH_ALL_CORES = 5e8
"""Flops of a step from which on its products gain by being split over all cores."""

# Break-even points, measured with one thread on an AMD Zen 3 (AVX2): flops of different kernels differ in price.
_FLOPS_A_SECOND = 80e9
"""Of a core's products, where seconds on a network are to be weighed against them."""
_DENSE_FROM = 0.45
"""The share of non-zeros from which on rows are made dense: BLAS makes about twice the flops a second, all of them."""
_BLOCKS_FROM = 25
"""Entries a column from which on rows are cut into blocks; with fewer, cutting and packing cost what they save."""
_BLOCKS_FROM_RANK = 16
_SPAN = 1024
_VISITED_FROM, _VISITED_FROM_PRODUCTS = 1, 128
"""Entries of a row among 1,024 columns from which on blocks are worth it: this many, and so many products (entries · k)
more, as a visit and its place in the cut cost the same for one entry as for ten. Rows of 10 entries in 100,000 columns
take 5 times as long in blocks (k = 64)."""
_DIFFERENCES_SAVE = 0.2
"""What differences save in blocks against as many entries of points: half as many rows, each twice as full."""


def step_flops(rows: float, stored: float, rank: int, pairs: float = 0) -> float:
    """A gradient from ``rows`` rows of ``stored`` entries each: two products with L, and some work a pair."""
    return 4 * rows * stored * rank + 6 * pairs * rank


def block_flops(points: int, stored: float, rank: int) -> float:
    """A gradient from all pairs of a block: two products with L, two with the block's own projections."""
    return step_flops(points, stored, rank) + 4 * points * points * rank


def points_are_cheaper(
    n_pairs: int, n_distinct: int, stored: float, rank: int, *, sparse: bool, n_features: int
) -> bool:
    """Whether to go through the distinct points of a batch rather than through its differences.

    A difference of sparse rows has the entries of both.
    """
    through_points = step_flops(n_distinct, stored, rank, n_pairs)
    if not sparse:
        return through_points < step_flops(n_pairs, stored, rank)
    through_differences = step_flops(n_pairs, 2 * stored, rank)
    if sparse_form(n_pairs, 2 * stored * n_pairs, n_features, rank) == "blocks":
        through_differences *= 1 - _DIFFERENCES_SAVE
    return through_points < through_differences


def sparse_form(n_rows: int, n_entries: float, n_columns: int, rank: int) -> Literal["dense", "blocks", "entries"]:
    """How to multiply sparse rows that have entries in ``n_columns`` columns: see objective/sparse_products.py."""
    if n_entries > _DENSE_FROM * n_rows * n_columns:
        return "dense"
    visits = n_rows * n_columns / _SPAN
    are_full = n_entries > (_VISITED_FROM + _VISITED_FROM_PRODUCTS / rank) * visits
    if are_full and n_entries > _BLOCKS_FROM * n_columns and rank >= _BLOCKS_FROM_RANK:
        return "blocks"
    return "entries"


def steps_between_reports(judging_flops: float, flops_a_step: float, steps_per_epoch: int) -> int:
    """Steps between two reports so that judging stays within its share of the work.

    Few constraints are soon learned by heart: where an epoch is short, reports are closer, to see that in time.
    """
    least, most = _FEWEST_STEPS
    fewest = min(max(steps_per_epoch, least), most)
    return max(fewest, round(judging_flops / (REPORT_SHARE * max(1.0, flops_a_step))))


def factors_are_cheaper(rows: int, entries: float, touched: int, rank: int, *, sparse: bool, bandwidth: float) -> bool:
    """Whether a push is to travel as factors, to be multiplied out by the server, rather than as a gradient.

    A gradient takes one product on the worker and a row of k numbers for each touched feature on the way; factors take
    the rows and their coefficients on the way, and the product on the server. A server serves many workers, so its
    product counts half as much again.
    """
    product = 2 * rows * entries * rank / _FLOPS_A_SECOND
    gradient_bytes = 4 * touched * (rank + 1)
    factors_bytes = rows * (entries * (8 if sparse else 4) + 4 * rank)
    return factors_bytes / bandwidth + 1.5 * product < gradient_bytes / bandwidth + product


def are_most_features(touched: float, n_features: int) -> bool:
    """Whether a gradient covers so many features that the next one, of any worker, covers most of the same."""
    return touched > n_features / 2


def is_far(L_bytes: float, threads: int) -> bool:
    """Whether L is so large that threads of one process are to go over it as seldom as can be.

    Their pushes then go in pairs, and batches that need most of L pack it without a copy of their own in between.
    """
    return threads > 1 and L_bytes >= _FAR


def worth_all_cores(flops_a_step: float) -> bool:
    """Whether a lone worker's products are large enough to be split over all cores."""
    return flops_a_step >= _WORTH_ALL_CORES
