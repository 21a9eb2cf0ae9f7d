"""What verdicts show: win rates, consistency, agreement, strengths. Pure.

Belongs here: statistics of outcomes, with seeded intervals. Does not belong here: who is asked (``judging``), reading
files of verdicts (``verdict_files``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95% interval; None where it is unknown."""

    estimate: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Judged:
    """One pair, judged in both orders; the words are those of the table ``judgements``."""

    prompt_id: str
    verdict_ab: str
    verdict_ba: str
    outcome: str
    chars_a: int
    chars_b: int
    asked: bool = True


def clopper_pearson(right: int, n: int, level: float = 0.95) -> Interval:
    """A share with its exact interval (Clopper and Pearson 1934).

    Raises:
        ValueError: when ``right`` is not in 0 to ``n``.
    """
    if not 0 <= right <= n:
        raise ValueError(f"right is {right} of {n}; allowed: 0 to {n}")
    if n == 0:
        return Interval(None, None, None)
    from scipy.stats import beta

    tail = (1 - level) / 2
    low = 0.0 if right == 0 else float(beta.ppf(tail, right, n - right + 1))
    high = 1.0 if right == n else float(beta.ppf(1 - tail, right + 1, n - right))
    return Interval(right / n, low, high)


def bootstrap(
    units: Sequence[Sequence[object]],
    figure: Callable[[list[object]], float | None],
    *,
    seed: int,
    resamples: int = RESAMPLES,
) -> Interval:
    """A figure with its percentile interval, drawn over units (prompts) with all that belongs to them.

    Resamples in which the figure is unknown are left out; when more than half are, so is the interval.
    """
    estimate = figure([x for unit in units for x in unit])
    if estimate is None or len(units) < 2:
        return Interval(estimate, None, None)
    random = np.random.default_rng(seed)
    drawn = []
    for _ in range(resamples):
        picked = random.integers(0, len(units), len(units))
        value = figure([x for i in picked for x in units[i]])
        if value is not None and math.isfinite(value):
            drawn.append(value)
    if len(drawn) < resamples / 2:
        return Interval(estimate, None, None)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Interval(estimate, float(low), float(high))


def score(outcome: str) -> float | None:
    """1: a won, 0: b won, a half: a tie or a verdict that the swap turned; None: no verdict."""
    return {"a": 1.0, "b": 0.0, "tie": 0.5, "inconsistent": 0.5}.get(outcome)


@dataclass(frozen=True, slots=True)
class Summary:
    """What pairs of two models come to.

    Attributes:
        n: pairs.
        rates: the share of each outcome, all of them: a, b, tie, inconsistent, unparsable, error.
        win_rate: of a, among pairs that one of the two won.
        order_consistency: the share with the same verdict in both orders, of those with two verdicts from the judge.
        first_position_rate: how often the answer shown first was preferred, of the judge's verdicts for one of them.
        chars_difference: the median of a's length less b's, in characters.
        length_controlled: see :func:`length_controlled_win_rate`.
    """

    n: int
    rates: dict[str, float]
    win_rate: Interval
    order_consistency: float | None
    first_position_rate: float | None
    chars_difference: float | None
    length_controlled: float | None


OUTCOMES = ("a", "b", "tie", "inconsistent", "unparsable", "error")


def summarize(judged: Sequence[Judged], *, seed: int) -> Summary:
    """The figures of one pair of models."""
    n = len(judged)
    counts = Counter(j.outcome for j in judged)
    units: dict[str, list[object]] = {}
    for j in judged:
        units.setdefault(j.prompt_id, []).append(j.outcome)

    def wins(outcomes: list[object]) -> float | None:
        a, b = outcomes.count("a"), outcomes.count("b")
        return a / (a + b) if a + b else None

    asked = [j for j in judged if j.asked]
    both = [j for j in asked if {j.verdict_ab, j.verdict_ba} <= {"a", "b", "tie"}]
    first = [v == shown for j in asked for v, shown in ((j.verdict_ab, "a"), (j.verdict_ba, "b")) if v in ("a", "b")]
    return Summary(
        n=n,
        rates={o: counts[o] / n for o in OUTCOMES} if n else {},
        win_rate=bootstrap(list(units.values()), wins, seed=seed),
        order_consistency=sum(j.verdict_ab == j.verdict_ba for j in both) / len(both) if both else None,
        first_position_rate=sum(first) / len(first) if first else None,
        chars_difference=float(np.median([j.chars_a - j.chars_b for j in judged])) if n else None,
        length_controlled=length_controlled_win_rate(judged),
    )


def length_controlled_win_rate(judged: Sequence[Judged]) -> float | None:
    """What a's win rate would be at equal lengths: a logistic fit of the outcome on the log ratio of the lengths.

    Simple on purpose: one slope, ridge-penalized (1.0) so that separable data have a finite one. Ties and verdicts that
    the swap turned count as a half. None below 10 pairs.
    """
    used = [(s, math.log((j.chars_a + 1) / (j.chars_b + 1))) for j in judged if (s := score(j.outcome)) is not None]
    if len(used) < 10:
        return None
    from scipy.optimize import minimize

    y, x = np.array([u[0] for u in used]), np.array([u[1] for u in used])

    def loss(w: np.ndarray) -> float:
        z = w[0] + w[1] * x
        return float(np.sum(np.logaddexp(0, z) - y * z) + 0.5 * (w[1] ** 2 + 0.01 * w[0] ** 2))

    return float(1 / (1 + math.exp(-minimize(loss, np.zeros(2)).x[0])))


def cohens_kappa(pairs: Sequence[tuple[Hashable, Hashable]]) -> float | None:
    """Agreement of two raters beyond chance (Cohen 1960); None without pairs, or when chance alone explains all."""
    n = len(pairs)
    if not n:
        return None
    one, two = Counter(p[0] for p in pairs), Counter(p[1] for p in pairs)
    agreed = sum(a == b for a, b in pairs) / n
    chance = sum(one[value] * two[value] for value in one) / n**2
    return None if chance >= 1 else (agreed - chance) / (1 - chance)


def krippendorffs_alpha(units: Sequence[Sequence[Hashable | None]]) -> float | None:
    """Agreement of any number of raters, nominal, with missing values (Krippendorff 2011, "Computing alpha", C).

    Args:
        units: for each unit what each rater said; None: nothing.

    Returns:
        Alpha; None without a pairable unit, or when only one value occurs.
    """
    together: Counter[Hashable] = Counter()
    disagreed = 0.0
    for unit in units:
        values = Counter(v for v in unit if v is not None)
        m = sum(values.values())
        if m < 2:
            continue
        together.update(values)
        disagreed += (m * m - sum(c * c for c in values.values())) / (m - 1)
    n = sum(together.values())
    expected = n * n - sum(c * c for c in together.values())
    return None if expected == 0 else 1 - (n - 1) * disagreed / expected


def agreement(units: Sequence[Sequence[Hashable | None]], *, seed: int) -> Interval:
    """Krippendorff's alpha with a bootstrap interval over units."""
    return bootstrap([[tuple(u)] for u in units], lambda us: krippendorffs_alpha(us), seed=seed)  # type: ignore[arg-type]


def kappa(pairs: Sequence[tuple[Hashable, Hashable]], *, seed: int) -> Interval:
    """Cohen's kappa with a bootstrap interval over units."""
    return bootstrap([[p] for p in pairs], lambda ps: cohens_kappa(ps), seed=seed)  # type: ignore[arg-type]


def bradley_terry(
    wins: Mapping[tuple[str, str], float], *, prior: float = 0.1, rounds: int = 10_000
) -> dict[str, float]:
    """Strengths of models from how often each won against each, geometric mean 1 (Hunter 2004, MM algorithm).

    Args:
        wins: (winner, loser) to wins; a tie is a half for both.
        prior: wins added both ways to each pair that met, so that one that never lost has a finite strength.
        rounds: at most.
    """
    names = sorted({name for pair in wins for name in pair})
    at = {name: i for i, name in enumerate(names)}
    w = np.zeros((len(names), len(names)))
    for (winner, loser), n in wins.items():
        w[at[winner], at[loser]] += n
    w += prior * ((w + w.T) > 0)
    met, p = w + w.T, np.ones(len(names))
    for _ in range(rounds):
        new = w.sum(axis=1) / (met / (p[:, None] + p[None, :])).sum(axis=1)
        new /= np.exp(np.log(new).mean())
        done = np.max(np.abs(new / p - 1)) < 1e-10
        p = new
        if done:
            break
    return {name: float(p[at[name]]) for name in names}
