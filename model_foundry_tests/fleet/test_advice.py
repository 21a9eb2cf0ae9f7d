"""What measured places show against budgets, and what is proposed. Seconds; ``math.inf`` ran out of time."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from model_foundry.config import BudgetConfig, FoundryConfig, parse
from model_foundry.fleet.advice import (
    NO_BUDGETS,
    NOTHING_MEASURED,
    NOWHERE_BETTER,
    Advice,
    Cell,
    Row,
    Verdict,
    advise,
    budget_for,
    cells_from_rows,
)
from model_foundry.routing import workers_for
from model_foundry_tests.builders import raw_config

SLOW = [26.0, 30.0, 34.0, 38.0, 42.0, 47.0, 52.0, 58.0, 64.0, 70.0]
FAST = [0.5 + i / 100 for i in range(80)]
BUDGET = {"fleet": {"budgets": [{"p95_s": 10}]}}
THREE = {
    "workers": {name: {"url": f"http://{name}:8000", "api": "openai"} for name in ("one", "two", "three")},
    "models": {"small": "cpu_inference", "tiny": "cpu_inference", "big": "gpu_inference"},
    "roles": {},
    "profiles": {},
    "domains": {d: {"candidates": ["small", "tiny", "big"]} for d in ("general", "code", "japanese")},
}


def a_fleet(**changes: Any) -> dict[str, Any]:
    """The small configuration with one budget of 10 s."""
    return raw_config(**{**BUDGET, **changes})


def a_cell(seconds: Sequence[float], worker: str = "moon", model: str = "small", domain: str = "general") -> Cell:
    return Cell(domain, model, worker, tuple(sorted(seconds)))


def advice_of(raw: Mapping[str, Any], *cells: Cell) -> Advice:
    return advise(parse(raw), cells)


def pasted(raw: Mapping[str, Any], *texts: str) -> dict[str, Any]:
    """The configuration with the texts pasted in place of what stands at their keys."""
    merged = copy.deepcopy(dict(raw))
    for text in texts:
        for section, names in yaml.safe_load(text).items():
            for name, keys in names.items():
                merged[section][name] |= keys
    return merged


def row_of(found: Advice, worker: str = "moon", model: str = "small", domain: str = "general") -> Row:
    [row] = [r for r in found.rows if (r.domain, r.model, r.worker) == (domain, model, worker)]
    return row


# -- rows ------------------------------------------------------------------------------------------------------------


def test_ten_of_ten_slow_answers_are_over_and_one_slow_answer_shows_nothing() -> None:
    over = row_of(advice_of(a_fleet(), a_cell(SLOW)))
    assert (over.verdict, over.n, over.over, over.share) == (Verdict.OVER, 10, 10, 1.0)
    assert over.share_low == pytest.approx(0.05 ** (1 / 10))
    assert over.p_over == pytest.approx(0.05**10)
    assert (over.p95_s, over.p95_note, over.more_needed) == (None, "n<59", None)
    assert (over.p50_s, over.p50_low_s, over.p50_high_s) == (44.5, 30.0, 64.0)
    one = row_of(advice_of(a_fleet(), a_cell([26.0])))
    assert one.verdict is Verdict.NOT_SHOWN


@pytest.mark.parametrize(("n", "verdict", "more"), [(58, Verdict.NOT_SHOWN, 1), (59, Verdict.WITHIN, 0)])
def test_within_takes_59_answers_with_none_over(n: int, verdict: Verdict, more: int) -> None:
    row = row_of(advice_of(a_fleet(), a_cell([1.0] * n)))
    assert (row.verdict, row.more_needed) == (verdict, more)
    assert (row.p95_s is None) == (n < 59)
    if more:
        assert "1 more, none over, would show it within" in row.advice


def test_what_ran_out_of_time_counts_as_over_and_makes_no_figure_infinite() -> None:
    row = row_of(advice_of(a_fleet(), *cells_from_rows([a_measured_row([1.0] * 40, timeouts=60)])))
    assert (row.n, row.over, row.verdict) == (100, 60, Verdict.OVER)
    assert (row.p50_s, row.p50_high_s, row.p95_s, row.p95_note) == (None, None, None, "ran out of time")
    assert cells_from_rows([a_measured_row([], timeouts=0)]) == []


def a_measured_row(seconds: list[float], timeouts: int) -> dict[str, Any]:
    return {"domain": "general", "model": "small", "worker": "moon", "seconds": seconds, "timeouts": timeouts}


def test_a_row_that_is_over_only_by_itself_is_not_called_over_among_many() -> None:
    suspicious = a_cell([1.0] * 8 + [20.0] * 2)
    assert row_of(advice_of(a_fleet(), a_cell([1.0] * 7 + [20.0] * 3))).verdict is Verdict.OVER
    many = [a_cell([1.0] * 20, worker=f"w{i}") for i in range(20)]
    row = row_of(advice_of(a_fleet(), a_cell([1.0] * 7 + [20.0] * 3), *many))
    assert row.verdict is Verdict.NOT_SHOWN
    assert "over by itself (p 0.012), but not as one of 21 rows" in row.advice
    assert row_of(advice_of(a_fleet(), suspicious)).verdict is Verdict.NOT_SHOWN


def test_the_budget_that_names_most_counts_and_of_equals_the_strictest() -> None:
    budgets = [
        BudgetConfig(p95_s=1),
        BudgetConfig(p95_s=60, domain="code"),
        BudgetConfig(p95_s=30, model="big"),
        BudgetConfig(p95_s=90, domain="code", worker="card"),
    ]

    def seconds(domain: str, model: str, worker: str) -> float | None:
        found = budget_for(budgets, domain, model, worker)
        return None if found is None else found.p95_s

    assert seconds("general", "small", "moon") == 1
    assert seconds("code", "small", "moon") == 60
    assert seconds("code", "big", "moon") == 30
    assert seconds("code", "big", "card") == 90
    assert budget_for(budgets[1:], "general", "small", "moon") is None


def test_without_budgets_or_without_rows_it_says_what_is_missing() -> None:
    assert advice_of(raw_config(), a_cell(SLOW)) == Advice(hint=NO_BUDGETS)
    assert advice_of(a_fleet()) == Advice(hint=NOTHING_MEASURED)
    elsewhere = {"fleet": {"budgets": [{"p95_s": 10, "domain": "code"}]}}
    assert advice_of(raw_config(**elsewhere), a_cell(SLOW)).status == "empty"


# -- a model off a worker --------------------------------------------------------------------------------------------


def test_a_model_is_taken_off_a_worker_when_another_is_within_the_budget() -> None:
    found = advice_of(a_fleet(), a_cell(SLOW), a_cell(FAST, worker="card"))
    [proposal] = found.proposals
    assert (proposal.kind, proposal.subject) == ("take_off", "take small off moon")
    assert yaml.safe_load(proposal.config) == {"workers": {"moon": {"models": []}}}
    assert proposal.config == found.config
    assert "10 of 10 (100%, at least 74.1%) took longer than 10 s, p 2e-13" in proposal.why
    assert "card: within 10 s there (0 of 80, at most 3.68%) and faster there (median 0.895 s of 80" in proposal.why
    assert "Nothing is left for moon to serve." in proposal.why
    assert row_of(found).advice == "over budget; take small off moon"
    assert [r.verdict for r in found.rows] == [Verdict.OVER, Verdict.WITHIN]


def test_faster_is_enough_even_where_the_other_is_not_shown_within() -> None:
    found = advice_of(a_fleet(), a_cell(SLOW), a_cell([8.0, 8.5, 9.0, 9.5, 11.0], worker="card"))
    [proposal] = found.proposals
    assert "within 10 s" not in proposal.why
    assert "Mann-Whitney p" in proposal.why


def test_a_place_that_is_not_shown_better_is_not_proposed() -> None:
    found = advice_of(a_fleet(), a_cell(SLOW), a_cell([5.0], worker="card"), a_cell(FAST, worker="stranger"))
    assert (found.proposals, found.config) == ((), "")
    assert row_of(found).advice == NOWHERE_BETTER


def test_a_looser_budget_of_its_own_does_not_make_a_worker_better() -> None:
    budgets = {"fleet": {"budgets": [{"p95_s": 10}, {"p95_s": 100, "worker": "card"}]}}
    found = advice_of(raw_config(**budgets), a_cell(SLOW), a_cell([60.0] * 80, worker="card"))
    assert row_of(found, worker="card").verdict is Verdict.WITHIN
    assert found.proposals == ()


def test_what_the_configuration_no_longer_has_there_is_not_proposed_again() -> None:
    cells = [a_cell(SLOW), a_cell(FAST, worker="card")]
    found = advice_of(pasted(a_fleet(), advice_of(a_fleet(), *cells).config), *cells)
    assert found.proposals == ()
    assert "does not have it there" in row_of(found).advice


def test_the_names_that_a_server_gives_its_models_are_kept() -> None:
    raw = a_fleet(**THREE)
    raw["workers"]["one"] = {**raw["workers"]["one"], "models": {"small": "acme/small", "tiny": "acme/tiny-1b"}}
    found = advice_of(raw, a_cell(SLOW, "one"), a_cell(FAST, "two"))
    assert yaml.safe_load(found.config) == {"workers": {"one": {"models": {"tiny": "acme/tiny-1b"}}}}


def test_two_models_off_one_worker_share_a_line_and_a_role_that_names_it_is_said() -> None:
    raw = a_fleet(**THREE | {"roles": {"helper": {"model": "tiny", "worker": "one"}}})
    cells = [a_cell(s, w, m) for m in ("small", "tiny") for w, s in (("one", SLOW), ("two", FAST))]
    found = advice_of(raw, *cells)
    assert [p.subject for p in found.proposals] == ["take small off one", "take tiny off one"]
    assert {p.config for p in found.proposals} == {found.config} == {"workers:\n  one:\n    models: []\n"}
    assert "also leaves out tiny" in found.proposals[0].why
    assert "roles.helper.worker" in found.proposals[1].why


def test_workers_that_are_each_better_in_another_domain_keep_the_model() -> None:
    found = advice_of(
        a_fleet(**THREE),
        a_cell(SLOW, "one", domain="code"),
        a_cell(FAST, "two", domain="code"),
        a_cell(FAST, "one", domain="japanese"),
        a_cell(SLOW, "two", domain="japanese"),
    )
    assert found.proposals == ()
    assert row_of(found, "one", domain="code").advice == "over budget; two is better here and worse in another domain"


def test_of_a_circle_of_workers_one_keeps_the_model() -> None:
    ring = list(zip(("general", "code", "japanese"), ("one", "two", "three"), ("two", "three", "one"), strict=True))
    cells = [c for d, slow, fast in ring for c in (a_cell(SLOW, slow, domain=d), a_cell(FAST, fast, domain=d))]
    raw = a_fleet(**THREE)
    found = advice_of(raw, *cells)
    assert 1 <= len(found.proposals) <= 2
    assert workers_for(parse(pasted(raw, found.config)), "small", "cpu_inference")
    assert any("lose the model themselves" in r.advice for r in found.rows)


# -- a domain prefers a model ----------------------------------------------------------------------------------------


def test_a_domain_whose_first_model_is_over_on_all_its_workers_prefers_a_later_one() -> None:
    found = advice_of(
        a_fleet(), a_cell(SLOW), a_cell([s + 1 for s in SLOW], worker="card"), a_cell(FAST, worker="card", model="big")
    )
    [proposal] = [p for p in found.proposals if p.kind == "prefer"]
    assert proposal.subject == "domain general prefers big"
    assert proposal.config == "domains:\n  general:\n    candidates: [big, small]\n"
    assert "20 of 20 over 10 s, at least 86.1%; big: within 10 s there (0 of 80" in proposal.why
    assert row_of(found).advice == "over budget; domain general prefers big"


def test_a_domain_keeps_its_first_model_while_one_of_its_workers_is_not_over() -> None:
    found = advice_of(a_fleet(), a_cell(SLOW), a_cell(FAST, worker="card", model="big"))
    assert found.proposals == (), "card serves small too, and nobody knows how fast"


def test_of_several_better_models_the_one_within_is_preferred() -> None:
    raw = a_fleet(**THREE)
    raw["models"] = {"small": "gpu_inference", "tiny": "cpu_inference", "big": "cpu_inference"}
    raw["workers"]["one"] = {**raw["workers"]["one"], "supports": ["gpu_inference"]}
    cells = [a_cell(SLOW, "one"), a_cell([0.1] * 12 + [11.0], "two", "tiny"), a_cell([9.0] * 80, "three", "big")]
    [proposal] = [p for p in advice_of(raw, *cells).proposals if p.kind == "prefer"]
    assert proposal.config.endswith("candidates: [big, small, tiny]\n")


# -- every proposal --------------------------------------------------------------------------------------------------

SAMPLES = st.sampled_from([SLOW, FAST, [20.0] * 70, [1.0] * 9 + [math.inf], [12.0, 13.0, 14.0, 15.0, 16.0, 17.0]])
PLACES = list(
    itertools.product(("general", "code", "japanese", "elsewhere"), ("small", "tiny", "big"), ("one", "two", "three"))
)
FLEETS = st.lists(st.sampled_from(PLACES), unique=True, max_size=len(PLACES)).flatmap(
    lambda places: st.tuples(st.just(places), st.lists(SAMPLES, min_size=len(places), max_size=len(places)))
)
SUPPORTS = st.lists(
    st.sampled_from([["cpu_inference"], ["gpu_inference"], ["gpu_inference", "cpu_inference"]]), min_size=3, max_size=3
)
MODELS = st.lists(
    st.none() | st.lists(st.sampled_from(["small", "tiny", "big"]), unique=True, min_size=1), min_size=3, max_size=3
)


def served(config: FoundryConfig) -> set[str]:
    return {m for m, c in config.models.items() if workers_for(config, m, c.capability)}


@settings(max_examples=150, deadline=None)
@given(FLEETS, SUPPORTS, MODELS)
def test_every_line_can_be_pasted_alone_or_with_all_others_and_no_model_loses_its_last_worker(
    fleet: tuple[list[tuple[str, str, str]], list[list[float]]],
    supports: list[list[str]],
    models: list[list[str] | None],
) -> None:
    raw = a_fleet(**copy.deepcopy(THREE))
    for worker, capabilities, listed in zip(raw["workers"].values(), supports, models, strict=True):
        worker |= {"supports": capabilities} | ({} if listed is None else {"models": listed})
    cells = [a_cell(s, w, m, d) for (d, m, w), s in zip(*fleet, strict=True)]
    found = advice_of(raw, *cells)
    before = served(parse(raw))
    texts = [p.config for p in found.proposals]
    for pasting in [*([t] for t in texts), texts, [found.config] if found.config else []]:
        assert served(parse(pasted(raw, *pasting))) == before
    if texts:
        assert pasted(raw, *texts) == pasted(raw, found.config)
    for row in found.rows:
        assert row.share_low <= row.share <= row.share_high
        assert all(v is None or math.isfinite(v) for v in (row.p50_s, row.p50_low_s, row.p50_high_s, row.p95_s))
        assert row.advice


# -- false alarms and power ------------------------------------------------------------------------------------------


def fleets(share: float, times: int, seed: int) -> list[Advice]:
    """Fleets of 12 places with 5 to 400 answers each, of which a share takes 20 s against a budget of 10 s."""
    random = np.random.default_rng(seed)
    config = parse(a_fleet(**THREE))
    found = []
    for _ in range(times):
        cells = [
            a_cell(np.where(random.random(random.integers(5, 400)) < share, 20.0, 1.0).tolist(), w, m, d)
            for d, m, w in itertools.product(("general", "code"), ("small", "tiny"), ("one", "two", "three"))
        ]
        found.append(advise(config, cells))
    return found


def test_of_fleets_exactly_at_their_budgets_at_most_5_in_100_have_a_row_called_over() -> None:
    times = 600
    alarms = sum(advice.count(Verdict.OVER) > 0 for advice in fleets(0.05, times, seed=20261201))
    assert stats.binomtest(alarms, times, 0.05, alternative="greater").pvalue > 0.001
    assert alarms > 0, "or the simulation is of something else"


def test_a_row_exactly_at_its_budget_is_called_within_at_most_5_times_in_100() -> None:
    """Each row by itself: this level is not corrected for the number of rows."""
    rows = [row for advice in fleets(0.05, 100, seed=3) for row in advice.rows]
    reassured = sum(row.verdict is Verdict.WITHIN for row in rows)
    assert stats.binomtest(reassured, len(rows), 0.05, alternative="greater").pvalue > 0.001


def test_answers_of_26_to_70_seconds_against_10_are_found_with_ten_of_them_among_a_dozen_places() -> None:
    random = np.random.default_rng(5)
    others = [a_cell(FAST, worker=f"w{i}") for i in range(11)]
    for _ in range(50):
        assert (
            row_of(advice_of(a_fleet(), a_cell(random.uniform(26, 70, 10).tolist()), *others)).verdict is Verdict.OVER
        )


def test_between_equal_workers_that_are_both_over_a_move_is_proposed_at_most_5_times_in_100() -> None:
    random = np.random.default_rng(17)
    times, config = 500, parse(a_fleet())
    moves = 0
    for _ in range(times):
        cells = [a_cell((11 + random.exponential(20, 15)).tolist(), worker) for worker in ("moon", "card")]
        moves += bool(advise(config, cells).proposals)
    assert stats.binomtest(moves, times, 0.05, alternative="greater").pvalue > 0.001
