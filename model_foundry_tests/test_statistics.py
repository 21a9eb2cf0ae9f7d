"""Each formula against another implementation, or against what it promises, by simulation with a fixed seed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from model_foundry.statistics import (
    LEVEL,
    MIN_N_P95,
    exceedance,
    exceedance_of_counts,
    holm,
    median_interval,
    more_to_show_within,
    p_faster,
    quantile,
)

COUNTS = st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
SAMPLES = st.lists(st.floats(0.001, 1000) | st.just(math.inf), min_size=1, max_size=80).map(sorted)


@given(COUNTS)
def test_bounds_and_tests_are_those_of_scipys_exact_binomial_test(counts: tuple[int, int]) -> None:
    over, n = counts
    found = exceedance_of_counts(over, n)
    greater = stats.binomtest(over, n, 0.05, alternative="greater")
    less = stats.binomtest(over, n, 0.05, alternative="less")
    assert found.p_over == pytest.approx(greater.pvalue, abs=1e-12)
    assert found.p_within == pytest.approx(less.pvalue, abs=1e-12)
    assert found.low == pytest.approx(greater.proportion_ci(0.95).low, abs=1e-9)
    assert found.high == pytest.approx(less.proportion_ci(0.95).high, abs=1e-9)
    assert (found.low > 0.05) == (found.p_over < LEVEL)
    assert (found.high <= 0.05) == (found.p_within <= LEVEL)
    assert 0 <= found.low <= found.share <= found.high <= 1


def test_none_over_shows_within_from_59_on() -> None:
    assert exceedance_of_counts(0, MIN_N_P95).p_within <= LEVEL < exceedance_of_counts(0, MIN_N_P95 - 1).p_within
    assert (more_to_show_within(0, 58), more_to_show_within(0, 59)) == (1, 0)


@given(COUNTS)
def test_the_answers_that_are_still_needed_are_enough_and_none_too_many(counts: tuple[int, int]) -> None:
    over, n = counts
    more = more_to_show_within(over, n)
    assert exceedance_of_counts(over, n + more).p_within <= LEVEL
    assert more == 0 or exceedance_of_counts(over, n + more - 1).p_within > LEVEL


def test_only_what_is_longer_than_the_limit_exceeds_it() -> None:
    assert exceedance([1.0, 10.0, 10.5, math.inf], 10).over == 2


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=50).map(sorted), st.floats(0, 1))
def test_a_quantile_is_numpys(sample: list[float], q: float) -> None:
    assert quantile(sample, q) == pytest.approx(float(np.quantile(sample, q)), rel=1e-6)


def test_a_quantile_among_those_cut_off_is_unknown() -> None:
    assert (quantile([1.0, 2.0, math.inf], 0.5), quantile([1.0, math.inf], 0.5), quantile([], 0.5)) == (2.0, None, None)


@given(SAMPLES)
def test_the_medians_interval_holds_the_median_and_is_never_infinite(sample: list[float]) -> None:
    low, high = median_interval(sample)
    median = quantile(sample, 0.5)
    assert (len(sample) >= 6) or (low is high is None)
    if median is not None:
        assert low is None or low <= median * (1 + 1e-12)
        assert high is None or high >= median * (1 - 1e-12)
    assert all(end is None or math.isfinite(end) for end in (low, high))


@pytest.mark.parametrize("n", [6, 10, 31, 200])
def test_the_medians_interval_covers_it_at_least_95_times_in_100(n: int) -> None:
    random = np.random.default_rng(7)
    ends = [median_interval(sorted(random.exponential(size=n))) for _ in range(2000)]
    covered = sum(low is not None and high is not None and low <= math.log(2) <= high for low, high in ends)
    assert stats.binomtest(covered, 2000, 0.95, alternative="less").pvalue > 0.001


def test_the_rank_test_is_exact_for_few() -> None:
    assert p_faster([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]) == pytest.approx(1 / 20)
    assert p_faster([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, math.inf, math.inf]) == pytest.approx(1 / 70)
    assert p_faster([5.0, 6.0], [1.0, 2.0]) == 1.0
    assert p_faster([], [1.0]) == p_faster([1.0], []) == 1.0


@pytest.mark.parametrize(("a", "b"), [(4, 5), (3, 12), (5, 400), (30, 30)])
@pytest.mark.parametrize("cut_off", [math.inf, 1.0])
def test_the_rank_test_calls_equals_faster_at_most_5_times_in_100(a: int, b: int, cut_off: float) -> None:
    random = np.random.default_rng(11)

    def sample(n: int) -> list[float]:
        return sorted(v if v < cut_off else math.inf for v in random.exponential(size=n))

    times = 500
    called = sum(p_faster(sample(a), sample(b)) < LEVEL for _ in range(times))
    assert stats.binomtest(called, times, LEVEL, alternative="greater").pvalue > 0.001


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_is_between_no_correction_and_bonferroni_and_keeps_the_order(ps: list[float]) -> None:
    adjusted = holm(ps)
    assert all(p <= a <= min(1, len(ps) * p) for p, a in zip(ps, adjusted, strict=True))
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    assert [adjusted[i] for i in order] == sorted(adjusted)


def test_holm_gives_the_figures_of_the_textbook() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
