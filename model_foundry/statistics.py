"""What a sample of durations shows: exact tests of a share, distribution-free intervals, which of two is faster. Pure.

Belongs here: formulas, each with its source. Does not belong here: what is compared with what (``fleet.advice``).

Observations are taken as independent. Samples are ascending; one that was cut off (a request that ran out of time) is
``math.inf``, longer than any other. Results are never infinite or NaN: such a figure is None. scipy is imported where
it is used: that takes most of a second, and most processes never need it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

ALLOWED_SHARE = 0.05
"""A p95 within its budget is: at most 5% of the answers over it."""
LEVEL = 0.05
"""The level of every test here, and the complement of every bound's confidence."""
MIN_N_P95 = 59
"""The least n with which none over the budget shows the p95 within it: 0.95**59 <= 0.05 < 0.95**58."""
FEW = 8
"""Up to so many in one sample the rank test does not approximate, unless the other has very many."""
MANY = 200
"""Above so many in both, exact ranks cost too much; the approximation then errs towards not significant."""
PERMUTATIONS = 9999


@dataclass(frozen=True, slots=True)
class Exceedance:
    """How often a limit was exceeded, and what that shows of the share behind it.

    Attributes:
        n: observations.
        over: those above the limit.
        low: lower bound of the share, one-sided 95%, exact (Clopper and Pearson, 1934).
        high: upper bound, likewise; the two together are a two-sided 90% interval.
        p_over: of the exact binomial test that the share is at most 5%; small when it is more. ``p_over < 0.05`` is the
            same as ``low > 0.05``.
        p_within: of the exact binomial test that the share is at least 5%; ``p_within <= 0.05`` is the same as
            ``high <= 0.05``, and shows that the p95 is within the limit.
    """

    n: int
    over: int
    low: float
    high: float
    p_over: float
    p_within: float

    @property
    def share(self) -> float:
        """The share over the limit."""
        return self.over / self.n


def exceedance(sample: Sequence[float], limit: float) -> Exceedance:
    """How often an ascending, not empty sample exceeds a limit."""
    return exceedance_of_counts(len(sample) - bisect_right(sample, limit), len(sample))


def exceedance_of_counts(over: int, n: int) -> Exceedance:
    """As :func:`exceedance`, from the counts; ``n`` is at least 1."""
    from scipy import special

    return Exceedance(
        n=n,
        over=over,
        low=0.0 if over == 0 else float(special.betaincinv(over, n - over + 1, LEVEL)),
        high=1.0 if over == n else float(special.betaincinv(over + 1, n - over, 1 - LEVEL)),
        p_over=1.0 if over == 0 else float(special.bdtrc(over - 1, n, ALLOWED_SHARE)),
        p_within=float(special.bdtr(over, n, ALLOWED_SHARE)),
    )


def more_to_show_within(over: int, n: int) -> int:
    """How many more observations, none of them over the limit, would show that at most 5% are; 0 when it is shown."""
    from scipy import special

    def shown(more: int) -> bool:
        return bool(special.bdtr(over, n + more, ALLOWED_SHARE) <= LEVEL)

    if shown(0):
        return 0
    enough = MIN_N_P95
    while not shown(enough):
        enough *= 2
    too_few = 0
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        too_few, enough = (too_few, middle) if shown(middle) else (middle, enough)
    return enough


def quantile(sample: Sequence[float], q: float) -> float | None:
    """A quantile, linear between neighbours (DuckDB's ``quantile_cont``); None when it lies among those cut off."""
    if not sample:
        return None
    place = q * (len(sample) - 1)
    below = sample[math.floor(place)]
    above = sample[math.ceil(place)]
    if math.isinf(above):
        return None
    return below + (above - below) * (place - math.floor(place))


def median_interval(sample: Sequence[float]) -> tuple[float | None, float | None]:
    """A distribution-free interval of the median with at least 95% confidence: two order statistics.

    The r-th from either end, with the largest r for which P(Binomial(n, 1/2) < r) <= 2.5% (David and Nagaraja, Order
    Statistics, 7.1). That takes 6 observations; below, both ends are None. An end among those cut off is None: it has
    no bound there.
    """
    from scipy import special

    n, rank, too_far = len(sample), 0, len(sample) // 2 + 1
    while too_far - rank > 1:
        middle = (rank + too_far) // 2
        rank, too_far = (middle, too_far) if special.bdtr(middle - 1, n, 0.5) <= LEVEL / 2 else (rank, middle)
    if rank == 0:
        return None, None
    lower, upper = sample[rank - 1], sample[n - rank]
    return (None if math.isinf(lower) else lower), (None if math.isinf(upper) else upper)


def p_faster(sample: Sequence[float], other: Sequence[float]) -> float:
    """p of the one-sided Mann-Whitney test that the first sample is not faster than the other.

    Ranks only, so those cut off count as the slowest, tied. With few: exact, and with ties by permutation (fixed seed);
    else the normal approximation with the correction for ties (Mann and Whitney, 1947).
    """
    from scipy import stats

    if not sample or not other:
        return 1.0
    top = 1 + max((v for s in (sample, other) for v in s if math.isfinite(v)), default=0.0)
    a, b = ([min(v, top) for v in s] for s in (sample, other))
    method: Any = "asymptotic"
    if min(len(a), len(b)) <= FEW and len(a) + len(b) <= MANY:
        tied = len({*a, *b}) < len(a) + len(b)
        method = stats.PermutationMethod(n_resamples=PERMUTATIONS, rng=0) if tied else "exact"
    return float(stats.mannwhitneyu(a, b, alternative="less", method=method).pvalue)


def holm(ps: Sequence[float]) -> list[float]:
    """p-values adjusted for how many there are (Holm, 1979).

    Calling significant those below 5% calls any falsely with at most 5% probability, whatever their dependence.
    """
    adjusted = [0.0] * len(ps)
    least = 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        least = max(least, min(1.0, (len(ps) - rank) * ps[index]))
        adjusted[index] = least
    return adjusted
