"""Comparing models and workers on the same prompts: how much faster or better, and how sure that is. Pure.

Belongs here: pairing, intervals, tests, and the sentence that says what they show. Does not belong here: reading and
storing rows (``comparing``), pictures (``report``), what a single sample shows (``statistics``).

**Pairing.** A prompt's figure under one model is the mean over its repeats (of logarithms, for durations and rates),
turn by turn and load by load; the difference of two models is the mean of those of the turns and loads that both have.
So each prompt gives one difference, however often it was asked, and prompts are what is resampled.

**Interval**, 95%: for ratios the wider of the studentized bootstrap (Efron and Tibshirani 1993, 12.5) and Student's t,
of the mean of the log ratios; the bootstrap keeps its level with skewed differences, t with heavy tails (decision 0012
has the coverage). For shares Agresti and Min (2005) with half a pseudo-prompt in each cell.

**Test**: that the differences are symmetric about none, by flipping signs (Fisher 1935, 21), exact up to 16 prompts.
Where the random flips can't resolve a small p, Hoeffding's bound (1963) stands for it, which is never smaller than the
exact one. Holm (1979) corrects over all pairs of one suite, domain, figure and level.

**A difference is shown** when the corrected p is at most 5% *and* the interval excludes none: the sentence never says
what one of them contradicts.

**Effect size**: the matched-pairs rank-biserial correlation (Kerby 2014), from -1 to 1.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from model_foundry.config import ObjectiveConfig
from model_foundry.statistics import holm

Level = Literal["model", "model_worker"]
LEVELS: tuple[Level, ...] = ("model", "model_worker")
Verdict = Literal["faster", "slower", "better", "worse", "no_difference_shown", "too_few", "not_comparable"]
Floats = NDArray[np.float64]

ALPHA = 0.05
"""The level of the tests and the complement of the intervals' confidence."""
POWER = 0.8
ALL_DOMAINS = "(all)"
BOOTSTRAPS = 4999
FLIPS = 9999
EXACT_UP_TO = 16
"""Prompts up to which every pattern of signs is looked at."""
FEWEST_FOR_INTERVAL = 4
LEFT_OUT_SHARE = 0.05
"""Prompts left out, because one of the two has no answer to them, beyond which the sentence says so."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure that is compared.

    Attributes:
        name: of it.
        kind: ``ratio`` (positive, compared by b / a) or ``share`` (0 to 1, compared by b - a).
        lower_is_better: for durations and errors.
        words: what it is called in a sentence.
    """

    name: str
    kind: Literal["ratio", "share"]
    lower_is_better: bool
    words: str


FIGURES: Mapping[str, Figure] = {
    f.name: f
    for f in (
        Figure("e2e_s", "ratio", True, "from sending to the last token"),
        Figure("ttft_s", "ratio", True, "to the first token"),
        Figure("tpot_s", "ratio", True, "per token"),
        Figure("prefill_tps", "ratio", False, "at reading prompts (PP)"),
        Figure("decode_tps", "ratio", False, "at writing tokens (TG)"),
        Figure("tokens_per_joule", "ratio", False, "in tokens per joule"),
        Figure("goodput", "share", False, "in answers within the objective"),
        Figure("error_rate", "share", True, "in requests without an answer"),
        Figure("passed", "share", False, "in prompts that pass their checks"),
        Figure("score", "share", False, "in checks passed"),
    )
}


def meets(objective: ObjectiveConfig, row: Mapping[str, Any]) -> bool:
    """Whether a request was answered within an objective; an unknown figure is not. Pure."""
    if row["status"] != "answered":
        return False
    limits = objective.model_dump()
    return all(
        most is None or ((value := row.get(name)) is not None and value <= most) for name, most in limits.items()
    )


@dataclass(frozen=True, slots=True)
class Comparison:
    """What comparing b with a showed.

    Attributes:
        suite, domain, level, a, b, figure: what was compared.
        n_prompts: that both have.
        estimate: ratio b / a, or difference b - a; None when it can't be computed.
        low, high: of the 95% interval.
        p, p_holm: of the test, and corrected.
        effect_size: rank-biserial, positive where b is larger.
        verdict: of b, as in ``Verdict``.
        words: the sentence.
        only_a, only_b: prompts that only one of them has.
        could_show: the smallest ratio (or difference) that this n and spread would show with 80% power.
        workers: those that were compared.
    """

    suite: str
    domain: str
    level: Level
    a: str
    b: str
    figure: str
    n_prompts: int
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_holm: float | None = None
    effect_size: float | None = None
    verdict: Verdict = "too_few"
    words: str = ""
    only_a: int = 0
    only_b: int = 0
    could_show: float | None = None
    workers: tuple[str, ...] = ()


def figure_of(row: Mapping[str, Any], figure: Figure, objective: ObjectiveConfig | None = None) -> float | None:
    """A request's figure: the logarithm of a ratio's, a share's as it is; None where it has none. Pure.

    A request without an answer counts in error rate and goodput, and nowhere else.
    """
    answered = row["status"] == "answered"
    if figure.name == "error_rate":
        return 0.0 if answered else 1.0
    if figure.name == "goodput":
        return None if objective is None else float(meets(objective, row))
    if figure.kind == "share":
        # what was not answered did not pass, where there was something to pass
        value = row.get(figure.name)
        if value is None:
            return None
        return float(value) if answered else 0.0
    if not answered or row.get("cold") or row.get("disturbed"):
        return None
    if figure.name == "tokens_per_joule":
        tokens, energy_j = row.get("completion_tokens"), row.get("energy_j")
        value = tokens / energy_j if tokens and energy_j else None
    else:
        value = row.get(figure.name)
    if value is None or not math.isfinite(value) or value <= 0:
        return None
    return math.log(value)


@dataclass(slots=True)
class _Sample:
    """One side's figures: prompt -> part (turn, load, worker) -> values of its repeats."""

    parts: dict[str, dict[tuple[Any, ...], list[float]]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, prompt: str, part: tuple[Any, ...], value: float) -> None:
        self.parts[prompt].setdefault(part, []).append(value)


def compare(
    rows: Iterable[Mapping[str, Any]],
    *,
    objective: ObjectiveConfig | None = None,
    seed: int = 0,
    figures: Sequence[str] = tuple(FIGURES),
) -> list[Comparison]:
    """Every pair of models, and of models on workers, in every domain and over all of them.

    Args:
        rows: of ``benchmark_results``, as mappings; those of the phase ``measured`` count.
        objective: for goodput; left out, there is none.
        seed: of the bootstrap and the random flips.
        figures: which ones.

    Returns:
        By suite, domain, level, figure and pair. What neither has is left out.
    """
    return [
        comparison
        for suite, domain, family in _families(rows)
        for name in figures
        for level in LEVELS
        for comparison in _compare_all(family, suite, domain, level, FIGURES[name], objective, seed)
    ]


def against(
    then: Iterable[Mapping[str, Any]], now: Iterable[Mapping[str, Any]], *, seed: int = 0, figures: Sequence[str] = ()
) -> list[Comparison]:
    """Each model at each worker now, against the same then; ``a`` is then. One family a suite, domain and figure.

    Args:
        then: results.
        now: results.
        seed: of the bootstrap and the random flips.
        figures: which ones; all but goodput when left out.
    """
    rows = [dict(row) | {"moment": "then"} for row in then] + [dict(row) | {"moment": "now"} for row in now]
    found: list[Comparison] = []
    for suite, domain, family in _families(rows, always_all=True):
        for name in figures or [n for n in FIGURES if n != "goodput"]:
            figure = FIGURES[name]
            samples = _samples(family, lambda row: f"{row['model']} @ {row['worker']} {row['moment']}", figure)
            pairs = []
            for label in sorted({f"{row['model']} @ {row['worker']}" for row in family}):
                a, b = f"{label} then", f"{label} now"
                if a in samples and b in samples:
                    bare = Comparison(suite, domain, "model_worker", a, b, name, 0)
                    pairs.append(_difference(bare, samples[a], samples[b], figure, seed))
            found += _concluded(pairs, figure)
    return found


def _families(
    rows: Iterable[Mapping[str, Any]], *, always_all: bool = False
) -> Iterator[tuple[str, str, list[Mapping[str, Any]]]]:
    """The measured rows by suite and domain; all of a suite's together first, with several domains, or always."""
    suites: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["phase"] == "measured":
            suites[row["suite"]].append(row)
    for suite, of_suite in sorted(suites.items()):
        domains = sorted({row["domain"] for row in of_suite})
        if always_all or len(domains) > 1:
            yield suite, ALL_DOMAINS, of_suite
        for domain in domains:
            yield suite, domain, [row for row in of_suite if row["domain"] == domain]


def _samples(
    rows: Iterable[Mapping[str, Any]],
    name_of: Callable[[Mapping[str, Any]], str],
    figure: Figure,
    objective: ObjectiveConfig | None = None,
    *,
    by_worker: bool = False,
) -> dict[str, _Sample]:
    """The figures of each name that has any. With ``by_worker`` each worker's are parts of their own."""
    samples: dict[str, _Sample] = {}
    for row in rows:
        value = figure_of(row, figure, objective)
        if value is not None:
            part = (row["turn"], row["loop"], row["concurrency"], row["rate_rps"], row["arrival"])
            sample = samples.setdefault(name_of(row), _Sample())
            sample.add(row["prompt_id"], (*part, row["worker"]) if by_worker else part, value)
    return samples


def _compare_all(
    rows: Sequence[Mapping[str, Any]],
    suite: str,
    domain: str,
    level: Level,
    figure: Figure,
    objective: ObjectiveConfig | None,
    seed: int,
) -> list[Comparison]:
    """All pairs of one family."""
    if level == "model_worker" and len({row["worker"] for row in rows}) == 1:
        return []  # the same pairs as by model

    def name_of(row: Mapping[str, Any]) -> str:
        return str(row["model"]) if level == "model" else f"{row['model']} @ {row['worker']}"

    # a mean over workers would compare their mix: models are compared worker by worker
    samples = _samples(rows, name_of, figure, objective, by_worker=level == "model")
    workers: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        workers[name_of(row)].add(row["worker"])
    found = []
    for a, b in combinations(sorted(samples), 2):
        both = workers[a] & workers[b] if level == "model" else workers[a] | workers[b]
        bare = Comparison(suite, domain, level, a, b, figure.name, 0, workers=tuple(sorted(both)))
        if both:
            found.append(_difference(bare, samples[a], samples[b], figure, seed))
        else:
            where = f"{a} ran on {_listed(workers[a])}, {b} on {_listed(workers[b])}"
            words = f"not compared: {where}; see the comparison by model and worker"
            found.append(replace(bare, verdict="not_comparable", words=words))
    return _concluded(found, figure)


def _difference(bare: Comparison, a: _Sample, b: _Sample, figure: Figure, seed: int) -> Comparison:
    """The estimate, interval and raw p of one pair."""
    differences = []
    for prompt in sorted(a.parts.keys() & b.parts.keys()):
        of_a, of_b = a.parts[prompt], b.parts[prompt]
        shared = sorted(of_a.keys() & of_b.keys(), key=repr)
        if shared:
            gaps = [_mean(of_b[part]) - _mean(of_a[part]) for part in shared]
            differences.append(_mean(gaps))
    n = len(differences)
    counted = replace(bare, n_prompts=n, only_a=len(a.parts) - n, only_b=len(b.parts) - n)
    if n == 0:
        return counted
    values = np.asarray(differences)
    low, high = interval(values, seed) if figure.kind == "ratio" else share_interval(values)
    mean = float(values.mean())
    back = math.exp if figure.kind == "ratio" else float
    return replace(
        counted,
        estimate=_finite(back(mean)),
        low=None if low is None else _finite(back(low)),
        high=None if high is None else _finite(back(high)),
        p=sign_flip_p(values, seed),
        effect_size=rank_biserial(values),
        could_show=_spread(values),
    )


def _concluded(found: Sequence[Comparison], figure: Figure) -> list[Comparison]:
    """The family with corrected p values, verdicts and sentences."""
    tested = [c for c in found if c.p is not None and c.verdict != "not_comparable"]
    corrected = dict(zip(map(id, tested), holm([c.p or 1.0 for c in tested]), strict=True))
    concluded = []
    for comparison in found:
        if comparison.verdict == "not_comparable":
            concluded.append(comparison)
            continue
        c = replace(comparison, p_holm=corrected.get(id(comparison)))
        needed = fewest_prompts(len(tested))
        spread, could_show = c.could_show, None
        if spread is not None and c.n_prompts >= needed:
            gap = detectable(spread, c.n_prompts, len(tested))
            could_show = _finite(math.exp(gap) if figure.kind == "ratio" else gap)
        c = replace(c, could_show=could_show)
        verdict = _verdict(c, figure, needed)
        concluded.append(replace(c, verdict=verdict, words=sentence(replace(c, verdict=verdict), figure, needed)))
    return concluded


def _verdict(c: Comparison, figure: Figure, needed: int) -> Verdict:
    if c.n_prompts < needed or c.low is None or c.high is None or c.p_holm is None or c.estimate is None:
        return "too_few"
    none = 1.0 if figure.kind == "ratio" else 0.0
    if c.p_holm > ALPHA or c.low <= none <= c.high:
        return "no_difference_shown"
    is_good = (c.estimate < none) == figure.lower_is_better
    if figure.kind == "ratio" and figure.name != "tokens_per_joule":
        return "faster" if is_good else "slower"
    return "better" if is_good else "worse"


def sentence(c: Comparison, figure: Figure, needed: int) -> str:
    """What a comparison shows, in words a person would say."""
    left_out = ""
    total = c.n_prompts + c.only_a + c.only_b
    if total and (c.only_a + c.only_b) / total > LEFT_OUT_SHARE:
        left_out = (
            f" Left out: {c.only_a} prompts that only {c.a} has a figure of, {c.only_b} that only {c.b} has; "
            "who fails the hard ones looks faster on the rest."
        )
    if c.verdict == "too_few":
        return f"n too small to say: {c.n_prompts} prompts in common, at least {needed} are needed.{left_out}"
    low, high, estimate = c.low or 0.0, c.high or 0.0, c.estimate or 0.0
    n = f"n = {c.n_prompts}"
    if c.verdict == "no_difference_shown":
        could = ""
        if c.could_show is not None:
            size = f"{_times(c.could_show)} times" if figure.kind == "ratio" else f"{_points(c.could_show)} points"
            could = f"; one of {size} would have shown with 80% power"
        shown = (
            f"{_times(low)} to {_times(high)} times" if figure.kind == "ratio" else f"{_points(low)} to {_points(high)}"
        )
        return f"no difference shown {figure.words} between {c.a} and {c.b} ({n}, {shown}{could}).{left_out}"
    if figure.kind == "ratio":
        is_smaller = estimate < 1
        first, last = (1 / high, 1 / low) if is_smaller else (low, high)
        better = is_smaller == figure.lower_is_better
        word = (
            ("better" if better else "worse")
            if figure.name == "tokens_per_joule"
            else ("faster" if better else "slower")
        )
        return f"{c.b} is {word} than {c.a} {figure.words} by {_times(first)} to {_times(last)} times ({n}).{left_out}"
    first, last = sorted((abs(low), abs(high)))
    word = "more" if estimate > 0 else "fewer"
    return f"{c.b} has {_range(first, last, figure)} {word} than {c.a} {figure.words} ({n}).{left_out}"


# -- statistics ----------------------------------------------------------------------------------------------------


def interval(values: Floats, seed: int = 0) -> tuple[float | None, float | None]:
    """95% interval of a mean: the wider of the studentized bootstrap and Student's t, end by end.

    Args:
        values: one a prompt.
        seed: of the bootstrap.

    Returns:
        Low and high; (None, None) for fewer than ``FEWEST_FOR_INTERVAL`` values.
    """
    from scipy import stats  # here: it takes a second

    n = len(values)
    if n < FEWEST_FOR_INTERVAL:
        return None, None
    mean, deviation = float(values.mean()), float(values.std(ddof=1))
    error = deviation / math.sqrt(n)
    if error == 0 or error < 1e-12 * abs(mean):
        return mean, mean
    weights = _weights(n, seed)
    means = weights @ values / n
    variances = np.maximum((weights @ (values**2) / n - means**2) * n / (n - 1), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = (means - mean) / np.sqrt(variances / n)
    t = np.where(np.isfinite(t), t, np.where(means > mean, np.inf, -np.inf))
    t_low, t_high = np.quantile(t, [ALPHA / 2, 1 - ALPHA / 2], method="nearest")
    student = float(stats.t.ppf(1 - ALPHA / 2, n - 1))
    upper_t = max(float(-t_low) if math.isfinite(t_low) else 0.0, student)
    lower_t = max(float(t_high) if math.isfinite(t_high) else 0.0, student)
    return mean - lower_t * error, mean + upper_t * error


def share_interval(values: Floats) -> tuple[float | None, float | None]:
    """95% interval of a mean difference of shares, each between -1 and 1: Agresti and Min (2005), with their
    pseudo-pairs (half a prompt for, half one against, one without a difference).

    Returns:
        Low and high, within -1 and 1; (None, None) for fewer than ``FEWEST_FOR_INTERVAL`` values.
    """
    n = len(values)
    if n < FEWEST_FOR_INTERVAL:
        return None, None
    total, squares, more = float(values.sum()), float((values**2).sum()) + 1.0, n + 2
    mean = total / more
    error = math.sqrt(max(squares - total**2 / more, 0.0)) / more
    return max(-1.0, mean - 1.959964 * error), min(1.0, mean + 1.959964 * error)


def sign_flip_p(values: Floats, seed: int = 0) -> float:
    """Two-sided p of the test that the values are symmetric about zero, by their sum under flipped signs."""
    n, observed = len(values), abs(float(values.sum()))
    squares = float((values**2).sum())
    if squares == 0:
        return 1.0
    most = observed * (1 - 1e-9)  # equal sums must count as equal, whatever the order of adding
    if n <= EXACT_UP_TO:
        return float(np.mean(np.abs(_all_signs(n) @ values) >= most))
    bound = 2 * math.exp(-(observed**2) / (2 * squares))
    if bound < 1 / (FLIPS + 1):
        return bound
    signs = _random_signs(n, seed)
    return (1 + int(np.sum(np.abs(signs @ values) >= most))) / (FLIPS + 1)


def fewest_prompts(comparisons: int) -> int:
    """The least n with which the test can reach its level in a family of so many: 2 / 2**n <= 0.05 / comparisons."""
    return math.ceil(math.log2(2 * max(1, comparisons) / ALPHA))


def rank_biserial(values: Floats) -> float | None:
    """Matched-pairs rank-biserial correlation: ranks of the positive less those of the negative, by all of them."""
    from scipy import stats

    kept = values[values != 0]
    if not len(kept):
        return 0.0 if len(values) else None
    ranks = stats.rankdata(np.abs(kept))
    return float((ranks * np.sign(kept)).sum() / ranks.sum())


def detectable(deviation: float, n: int, comparisons: int = 1) -> float:
    """The mean difference that would be shown with 80% power, by Student's t at the level of the first Holm step.

    The factor is what it costs that the interval must exclude none too: with it the power is 0.80 from 8 prompts on
    (``benchmarks/calibration.py``).

    Args:
        deviation: standard deviation of the prompts' differences.
        n: prompts.
        comparisons: in the family.
    """
    from scipy import stats

    level = ALPHA / max(1, comparisons)
    t = stats.t.ppf(1 - level / 2, n - 1) + stats.t.ppf(POWER, n - 1)
    return float(t) * (1 + 0.9 / n) * deviation / math.sqrt(n)


@lru_cache(maxsize=16)
def _weights(n: int, seed: int) -> Floats:
    """How often each of n prompts is drawn in each resample."""
    return np.random.default_rng((seed, n)).multinomial(n, np.full(n, 1 / n), size=BOOTSTRAPS).astype(np.float64)


@lru_cache(maxsize=EXACT_UP_TO + 1)
def _all_signs(n: int) -> Floats:
    """Every pattern of n signs whose first is plus; the others give the same sums with the other sign."""
    patterns = np.arange(2 ** (n - 1))[:, None] >> np.arange(n - 1)[None, :] & 1
    signs: Floats = np.hstack([np.ones((len(patterns), 1)), 2.0 * patterns - 1.0])
    return signs


@lru_cache(maxsize=16)
def _random_signs(n: int, seed: int) -> Floats:
    signs: Floats = np.random.default_rng((seed, n, 1)).integers(0, 2, size=(FLIPS, n)).astype(np.float64) * 2 - 1
    return signs


def _spread(values: Floats) -> float | None:
    return float(values.std(ddof=1)) if len(values) > 1 else None


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _times(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 100 else f"{ratio:.3g}" if ratio >= 10 else f"{ratio:.2f}"


def _points(share: float) -> str:
    return f"{100 * share:.0f}"


def _range(low: float, high: float, figure: Figure) -> str:
    if figure.kind == "ratio":
        return f"{_times(low)} to {_times(high)} times"
    return f"{_points(low)} to {_points(high)} percentage points"
