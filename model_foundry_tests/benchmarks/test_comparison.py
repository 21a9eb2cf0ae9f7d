"""Comparisons of known data: what must be shown, what must not, and that nothing contradicts itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_foundry.benchmarks.comparison import (
    ALL_DOMAINS,
    Comparison,
    against,
    compare,
    detectable,
    fewest_prompts,
    interval,
    rank_biserial,
    share_interval,
    sign_flip_p,
)
from model_foundry.config import ObjectiveConfig
from model_foundry.statistics import holm

DIFFERENT = ("faster", "slower", "better", "worse")


def a_row(**changes: Any) -> dict[str, Any]:
    return {
        "suite": "s",
        "domain": "code",
        "phase": "measured",
        "model": "a",
        "worker": "w",
        "prompt_id": "p0",
        "turn": 0,
        "loop": "closed",
        "concurrency": 1,
        "rate_rps": None,
        "arrival": None,
        "status": "answered",
        "cold": False,
        "e2e_s": 1.0,
    } | changes


def drawn(
    rng: np.random.Generator, models: dict[str, float], prompts: int = 15, repeats: int = 3, **more: Any
) -> list[dict[str, Any]]:
    """Log-normal times: a prompt's own, a model's own on it, each repeat's; by model a shift of the logarithm."""
    own = rng.normal(0, 0.8, prompts)
    rows = []
    for model, shift in models.items():
        mine = own + rng.normal(0, 0.25, prompts) + shift
        for n in range(prompts):
            times = np.exp(mine[n] + rng.normal(0, 0.1, repeats))
            rows += [
                a_row(model=model, prompt_id=f"p{n}", e2e_s=float(t), repeat=r, **more) for r, t in enumerate(times)
            ]
    return rows


def only(found: list[Comparison], **wanted: Any) -> Comparison:
    [one] = [c for c in found if all(getattr(c, name) == value for name, value in wanted.items())]
    return one


def test_a_model_that_takes_half_the_time_is_faster_by_about_twice_and_said_so() -> None:
    found = compare(drawn(np.random.default_rng(1), {"a": 0.0, "b": -math.log(2)}), figures=["e2e_s"])
    [c] = found
    assert (c.a, c.b, c.verdict, c.n_prompts, c.domain) == ("a", "b", "faster", 15, "code")
    assert c.low is not None
    assert c.high is not None
    assert c.low < 0.5 < c.high < 1
    assert c.words.startswith("b is faster than a from sending to the last token by ")
    assert c.effect_size is not None
    assert c.effect_size < -0.9


def test_null_comparisons_alarm_at_most_as_often_as_stated() -> None:
    rng = np.random.default_rng(2)
    alarms = sum(
        c.verdict in DIFFERENT for _ in range(400) for c in compare(drawn(rng, {"a": 0, "b": 0}), figures=["e2e_s"])
    )
    assert alarms <= 400 * 0.05 + 2 * math.sqrt(400 * 0.05 * 0.95)


def test_a_family_of_null_comparisons_alarms_at_most_as_often_as_stated() -> None:
    rng = np.random.default_rng(3)
    models = dict.fromkeys("abcd", 0.0)
    alarms = sum(
        any(c.verdict in DIFFERENT for c in compare(drawn(rng, models), figures=["e2e_s"])) for _ in range(150)
    )
    assert alarms <= 150 * 0.05 + 2 * math.sqrt(150 * 0.05 * 0.95)


def test_the_size_that_could_have_been_shown_is_shown_four_times_of_five() -> None:
    rng = np.random.default_rng(4)
    size, shown = detectable(0.4, 15), 0
    for _ in range(400):
        values = rng.normal(size, 0.4, 15)
        low, _ = interval(values)
        shown += sign_flip_p(values) <= 0.05 and low is not None and low > 0
    assert 0.74 <= shown / 400 <= 0.88


@pytest.mark.parametrize("n", [10, 30])
@pytest.mark.parametrize("kind", ["normal", "heavy", "skewed"])
def test_intervals_cover_as_stated(kind: str, n: int) -> None:
    rng = np.random.default_rng(5)
    draw = {
        "normal": lambda: rng.normal(size=n),
        "heavy": lambda: rng.standard_t(3, size=n),
        "skewed": lambda: rng.exponential(size=n) - 1,
    }[kind]
    covered = 0
    for _ in range(400):
        low, high = interval(draw())
        covered += low is not None and high is not None and low <= 0 <= high
    assert covered / 400 >= 0.92


def test_too_few_prompts_are_said_to_be_too_few_with_the_number_needed() -> None:
    [c] = compare(drawn(np.random.default_rng(6), {"a": 0, "b": -3}, prompts=5), figures=["e2e_s"])
    assert c.verdict == "too_few"
    assert c.words == "n too small to say: 5 prompts in common, at least 6 are needed."
    assert [fewest_prompts(m) for m in (1, 3, 190)] == [6, 7, 13]


def test_prompts_that_only_one_answered_are_counted_and_named() -> None:
    rows = drawn(np.random.default_rng(7), {"a": 0, "b": -1})
    for row in rows:
        if row["model"] == "b" and row["prompt_id"] in ("p0", "p1", "p2"):
            row |= {"status": "failed", "e2e_s": None}
    found = compare(rows, figures=["e2e_s", "error_rate"])
    time = only(found, figure="e2e_s")
    assert (time.n_prompts, time.only_a, time.only_b) == (12, 3, 0)
    assert "Left out: 3 prompts that only a has" in time.words
    errors = only(found, figure="error_rate")
    assert errors.estimate == pytest.approx(0.2)


def test_models_on_different_workers_are_not_put_together() -> None:
    rng = np.random.default_rng(8)
    rows = drawn(rng, {"a": 0.0}, worker="gpu") + drawn(rng, {"b": 2.0}, worker="cpu")
    found = compare(rows, figures=["e2e_s"])
    by_model = only(found, level="model")
    assert by_model.verdict == "not_comparable"
    assert "a ran on gpu, b on cpu" in by_model.words
    assert only(found, level="model_worker").a == "a @ gpu"


def test_a_model_on_a_mix_is_compared_worker_by_worker() -> None:
    rng = np.random.default_rng(9)
    rows = drawn(rng, {"a": 0.0, "b": 0.0}, worker="gpu") + drawn(rng, {"a": 2.0}, worker="cpu")
    c = only(compare(rows, figures=["e2e_s"]), level="model")
    assert c.workers == ("gpu",)
    assert c.estimate is not None
    assert 0.7 < c.estimate < 1.4  # a's slow answers on the CPU are no part of it


def test_what_is_cold_disturbed_or_no_number_does_not_count() -> None:
    rows = drawn(np.random.default_rng(10), {"a": 0.0, "b": 0.0})
    odd = [{"cold": True}, {"disturbed": True}, {"e2e_s": float("nan")}, {"e2e_s": None}, {"e2e_s": 0.0}]
    more = [a_row(model="a", prompt_id=f"p{n}", **({"e2e_s": 1e9} | o)) for n in range(15) for o in odd]
    clean, dirty = (compare(r, figures=["e2e_s"])[0] for r in (rows, rows + more))
    assert (clean.estimate, clean.low, clean.high) == (dirty.estimate, dirty.low, dirty.high)


def test_identical_and_all_failed_and_single_models_are_no_trouble() -> None:
    same = [a_row(model=m, prompt_id=f"p{n}") for m in "ab" for n in range(12)]
    [c] = compare(same, figures=["e2e_s"])
    assert (c.estimate, c.low, c.high, c.p, c.verdict) == (1.0, 1.0, 1.0, 1.0, "no_difference_shown")
    failed = [row | {"status": "failed", "e2e_s": None} for row in same]
    assert compare(failed, figures=["e2e_s"]) == []
    assert only(compare(failed, figures=["error_rate"]), a="a").verdict == "no_difference_shown"
    assert compare([row for row in same if row["model"] == "a"]) == []
    assert compare([]) == []


def test_goodput_is_the_share_within_the_objective() -> None:
    rows = [
        a_row(model=m, prompt_id=f"p{n}", e2e_s=t, ttft_s=0.1) for m, t in (("a", 1.0), ("b", 9.0)) for n in range(20)
    ]
    [c] = compare(rows, objective=ObjectiveConfig(e2e_s=5.0), figures=["goodput"])
    assert (c.estimate, c.verdict) == (-1.0, "worse")
    assert compare(rows, figures=["goodput"]) == []


def test_domains_are_compared_apart_and_together() -> None:
    rng = np.random.default_rng(11)
    code, japanese = (drawn(rng, {"a": 0, "b": 0}) for _ in range(2))
    rows = code + [row | {"domain": "ja", "prompt_id": "j" + row["prompt_id"]} for row in japanese]
    assert {c.domain: c.n_prompts for c in compare(rows, figures=["e2e_s"])} == {ALL_DOMAINS: 30, "code": 15, "ja": 15}


def test_against_a_baseline_each_model_is_compared_with_itself() -> None:
    rng = np.random.default_rng(12)
    then = drawn(rng, {"a": 0.0, "b": 0.0})
    now = [row | {"e2e_s": row["e2e_s"] * (1.5 if row["model"] == "b" else 1.0)} for row in then]
    found = {c.b: c.verdict for c in against(then, now, figures=["e2e_s"]) if c.domain == ALL_DOMAINS}
    assert found == {"a @ w now": "no_difference_shown", "b @ w now": "slower"}


def test_holm_is_as_published() -> None:
    # Holm 1979: 0.01, 0.04, 0.03, 0.005 of four
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_rank_biserial_is_as_published() -> None:
    # Kerby 2014: favourable less unfavourable rank sums, by all: ranks 1, 2, 3, 4 with 1 against
    assert rank_biserial(np.array([-1.0, 2.0, 3.0, 4.0])) == pytest.approx((9 - 1) / 10)


def test_the_sign_flip_test_is_exact_for_few_prompts() -> None:
    assert sign_flip_p(np.array([1.0, 2.0, 3.0])) == pytest.approx(2 / 8)
    assert sign_flip_p(np.array([1.0, -1.0])) == 1.0
    assert sign_flip_p(np.full(40, 0.3)) <= 2 * math.exp(-20)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=4, max_size=30))
def test_intervals_hold_the_estimate_and_stay_in_bounds(values: list[float]) -> None:
    array = np.asarray(values)
    low, high = interval(array)
    assert low is not None
    assert high is not None
    assert low - 1e-9 <= array.mean() <= high + 1e-9
    low, high = share_interval(array)
    assert low is not None
    assert high is not None
    assert -1 <= low <= high <= 1
    assert 0 < sign_flip_p(array) <= 1
