"""The plan of a sweep: what is asked, in which order, and what is left of it."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_foundry.benchmarks.arrivals import arrivals
from model_foundry.benchmarks.plan import Block, Pair, Plan, left_of, make_plan, spread
from model_foundry.benchmarks.settings import SweepSettings, sweep_settings
from model_foundry.benchmarks.suite import Suite, SuitePrompt
from model_foundry.errors import ConfigError


def a_suite(prompts: int = 4, turns: int = 1) -> Suite:
    return Suite(
        name="s",
        prompts=[
            SuitePrompt(id=f"p {n}/{n}", domain=f"d{n % 2}", turns=[f"question {t}" for t in range(turns)])
            for n in range(prompts)
        ],
    )


def a_pair(model: str = "m", worker: str = "w", **changes: object) -> Pair:
    return replace(Pair(model, worker, model, "openai", 4, worker), **changes)  # type: ignore[arg-type]


pairs_lists = st.lists(
    st.tuples(st.sampled_from(["a", "b:1", "c/d"]), st.sampled_from(["moon", "card", "sun"])),
    min_size=1,
    max_size=6,
    unique=True,
).map(
    lambda found: [
        a_pair(m, w, hardware={"moon": "host", "sun": "host", "card": "gpu 0"}[w], can_unload=w == "moon")
        for m, w in found
    ]
)
all_settings = st.builds(
    SweepSettings,
    repeats=st.integers(3, 5),
    warmups=st.integers(0, 2),
    cold=st.booleans(),
    concurrency=st.lists(st.integers(1, 4), unique=True, min_size=1, max_size=2).map(tuple),
    rate_rps=st.one_of(st.none(), st.floats(0.5, 50)),
    arrival=st.sampled_from(["poisson", "constant"]),
    limit=st.one_of(st.none(), st.integers(1, 9)),
    parallel=st.sampled_from(["hardware", "workers"]),
)
plans = st.builds(
    lambda suite, pairs, settings, seed: (suite, pairs, settings, seed),
    st.builds(a_suite, st.integers(1, 6), st.integers(1, 3)),
    pairs_lists,
    all_settings,
    st.integers(0, 2**31),
)
Case = tuple[Suite, list[Pair], SweepSettings, int]


def measured(plan: Plan) -> list[tuple[Block, str, str, int, int]]:
    return [
        (block, stage.load.name, c.prompt.id, c.repeat, r.turn)
        for block in plan.blocks()
        for stage in block.stages
        if stage.phase == "measured"
        for c in stage.conversations
        for r in c.requests
    ]


@given(plans)
def test_every_prompt_is_asked_once_of_every_pair_in_every_repeat_and_load(case: Case) -> None:
    suite, pairs, settings, seed = case
    asked = Counter((b.pair, *rest) for b, *rest in measured(make_plan(suite, pairs, settings, seed)))
    prompts = spread(suite.prompts, settings.limit)
    expected = {
        (pair, load.name, prompt.id, repeat, turn)
        for pair in pairs
        for load in settings.loads
        for prompt in prompts
        for repeat in range(settings.repeats)
        for turn in range(len(prompt.turns))
    }
    assert asked == Counter(expected)


@given(plans)
def test_a_worker_stands_in_one_line_and_a_line_has_one_block_at_a_time(case: Case) -> None:
    plan = make_plan(*case)
    workers = [worker for line in plan.lines for worker in plan.workers(line)]
    assert len(workers) == len(set(workers))
    for blocks in plan.lines.values():
        spans = [[r.position for r in block.requests()] for block in blocks]
        assert all(a[-1] < b[0] for a, b in itertools.pairwise(spans)), "blocks of a line follow one another"
        if case[2].parallel == "hardware":
            assert len({block.pair.hardware for block in blocks}) == 1


@given(plans)
def test_the_same_seed_gives_the_same_plan_whatever_the_order_of_the_pairs(case: Case) -> None:
    suite, pairs, settings, seed = case
    assert make_plan(suite, pairs, settings, seed) == make_plan(suite, list(reversed(pairs)), settings, seed)


@given(plans)
def test_ids_are_unique_and_positions_count_up(case: Case) -> None:
    requests = make_plan(*case).requests()
    assert [r.position for r in requests] == list(range(len(requests)))
    assert len({r.request_id for r in requests}) == len(requests)


@given(plans)
def test_models_change_no_more_often_than_there_are_blocks_and_meet_every_repeat(case: Case) -> None:
    _, pairs, settings, _ = case
    plan = make_plan(*case)
    for blocks in plan.lines.values():
        here = [p for p in pairs if p.worker in {b.pair.worker for b in blocks}]
        assert [b.repeat for b in blocks] == [r for r in range(settings.repeats) for _ in here], "repeat after repeat"
        for repeat in range(settings.repeats):
            assert {b.pair for b in blocks if b.repeat == repeat} == set(here)
    assert plan.swaps < len(plan.blocks())


@given(plans, st.data())
def test_what_is_left_and_what_is_done_are_all_of_it(case: Case, data: st.DataObject) -> None:
    plan = make_plan(*case)
    ids = [r.request_id for r in plan.requests()]
    done = set(ids[: data.draw(st.integers(0, len(ids)))])
    for blocks in plan.lines.values():
        left = left_of(blocks, done)
        asked = {
            r.request_id
            for b in left
            for s in b.stages
            if s.phase != "warmup"
            for c in s.conversations
            for r in c.requests
        }
        planned = {
            r.request_id
            for b in blocks
            for s in b.stages
            if s.phase != "warmup"
            for c in s.conversations
            for r in c.requests
        }
        assert asked == planned - done
        assert not {r.request_id for b in left for r in b.requests()} & done, "a warm-up is made again under a new id"
    assert not any(left_of(blocks, set(ids)) for blocks in plan.lines.values())


def test_another_seed_shuffles_otherwise() -> None:
    suite, pairs = a_suite(8), [a_pair(m) for m in "abc"]
    orders = {
        tuple(r.request_id for r in make_plan(suite, pairs, SweepSettings(), seed).requests()) for seed in range(5)
    }
    assert len(orders) == 5


def test_one_more_model_changes_nothing_about_the_others_prompts() -> None:
    def prompts_of(plan: Plan) -> dict[tuple[str, int], list[str]]:
        return {(b.pair.model, b.repeat): [c.prompt.id for c in b.stages[-1].conversations] for b in plan.blocks()}

    few = prompts_of(make_plan(a_suite(9), [a_pair("a")], SweepSettings(), 1))
    more = prompts_of(make_plan(a_suite(9), [a_pair("a"), a_pair("b")], SweepSettings(), 1))
    assert few.items() <= more.items()


def test_a_block_is_a_cold_start_then_warm_up_then_each_load() -> None:
    settings = SweepSettings(concurrency=(1, 3), rate_rps=2, warmups=2)
    plan = make_plan(a_suite(), [a_pair(can_unload=True)], settings, 7)
    first = plan.blocks()[0]
    assert [stage.phase for stage in first.stages] == ["cold", "warmup", "measured", "measured", "measured"]
    assert {stage.load.name for stage in first.stages[2:]} == {"c1", "c3", "poisson-2"}
    assert len(first.stages[1].conversations) == 6, "two for each of the three clients"
    assert {c.prompt.domain for c in first.stages[1].conversations} == {"warmup"}
    assert [len(c.requests) for c in first.stages[0].conversations] == [1]


def test_cold_starts_use_the_same_prompt_for_every_model_and_say_where_there_are_none() -> None:
    pairs = [a_pair("a", "moon", can_unload=True), a_pair("b", "moon", can_unload=True), a_pair("c", "vllm")]
    plan = make_plan(a_suite(9), pairs, SweepSettings(), 3)
    cold = {(b.repeat, s.conversations[0].prompt.id) for b in plan.blocks() for s in b.stages if s.phase == "cold"}
    assert len(cold) == 3
    assert plan.notes == ("no cold starts at vllm: their servers can't be told to unload a model",)


def test_more_clients_than_slots_are_left_out_and_said() -> None:
    pairs = [a_pair("a", "moon", slots=1), a_pair("a", "card", slots=4)]
    plan = make_plan(a_suite(), pairs, SweepSettings(concurrency=(1, 4), cold=False), 1)
    loads = {(b.pair.worker, s.load.name) for b in plan.blocks() for s in b.stages if s.phase == "measured"}
    assert loads == {("moon", "c1"), ("card", "c1"), ("card", "c4")}
    assert plan.notes == ("a at moon: 4 clients for 1 slots; left out",)
    with pytest.raises(ConfigError, match="nothing would be asked: a at moon: 4 clients for 1 slots"):
        make_plan(a_suite(), pairs[:1], SweepSettings(concurrency=(4,)), 1)


def test_an_open_loop_goes_through_the_suite_again_for_as_long_as_it_lasts() -> None:
    settings = SweepSettings(concurrency=(), rate_rps=10, arrival="constant", duration_s=1, cold=False)
    plan = make_plan(a_suite(4), [a_pair("a"), a_pair("b")], settings, 1)
    stage = plan.blocks()[0].stages[-1]
    assert [c.planned_at_s for c in stage.conversations] == [n / 10 for n in range(10)]
    assert Counter(c.prompt.id for c in stage.conversations).most_common()[-1][1] == 2
    ids = [r.request_id for r in plan.requests()]
    assert len(ids) == len(set(ids)) == 2 * 3 * (10 + 1)


def test_arrivals_are_the_same_for_every_model_and_others_in_every_repeat() -> None:
    settings = SweepSettings(concurrency=(), rate_rps=5, cold=False)
    plan = make_plan(a_suite(6), [a_pair("a"), a_pair("b")], settings, 1)
    moments = {(b.repeat, tuple(c.planned_at_s for c in b.stages[-1].conversations)) for b in plan.blocks()}
    assert len(moments) == 3


def test_a_trace_is_played_as_recorded_from_its_first_moment_on() -> None:
    settings = SweepSettings(concurrency=(), arrival="trace", trace_s=(100.0, 100.5, 103.0))
    plan = make_plan(a_suite(2), [a_pair()], settings, 1)
    assert [c.planned_at_s for c in plan.blocks()[0].stages[-1].conversations] == [0.0, 0.5, 3.0]


def test_a_suite_made_from_a_trace_is_asked_at_its_own_moments_in_its_own_order() -> None:
    recorded = [
        SuitePrompt(
            id=f"{n}", domain="d", turns=["x"], metadata={"at_s": at, "prompt_tokens": 1, "completion_tokens": 1}
        )
        for n, at in enumerate((4.0, 4.5, 9.0))
    ]
    settings = SweepSettings(concurrency=(), arrival="trace", cold=False)
    plan = make_plan(Suite(name="t", prompts=recorded), [a_pair()], settings, 1)
    stage = plan.blocks()[0].stages[-1]
    assert [(c.prompt.id, c.planned_at_s) for c in stage.conversations] == [("0", 0.0), ("1", 0.5), ("2", 5.0)]
    with pytest.raises(ConfigError, match="the suite's prompts have no moments of their own"):
        make_plan(a_suite(), [a_pair()], settings, 1)


@given(st.floats(0.1, 100), st.integers(0, 99))
def test_poisson_arrivals_ascend_and_keep_their_rate(rate: float, seed: int) -> None:
    found = arrivals("poisson", rate_rps=rate, duration_s=None, number=400, trace_s=(), seed=str(seed))
    assert list(found) == sorted(found)
    assert len(found) == 400
    assert 0.75 < found[-1] * rate / 400 < 1.3, "400 gaps: five standard errors of 5%"


def test_a_duration_that_is_too_short_or_a_rate_that_is_too_high_is_said() -> None:
    with pytest.raises(ConfigError, match=r"nothing arrives within 0\.001 s"):
        arrivals("poisson", rate_rps=0.1, duration_s=0.001, number=1, trace_s=(), seed="1")
    with pytest.raises(ConfigError, match="more than 200000 arrivals"):
        arrivals("constant", rate_rps=9000, duration_s=1000, number=1, trace_s=(), seed="1")


def test_a_limit_is_spread_over_the_suite() -> None:
    assert [p.id for p in spread(a_suite(10).prompts, 3)] == ["p 0/0", "p 3/3", "p 6/6"]
    assert len(spread(a_suite(4).prompts, 9)) == 4


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"repeats": 2}, "repeats: is 2; input should be greater than or equal to 3"),
        ({"concurrency": []}, "concurrency is empty, and neither rate_rps nor a trace is given"),
        ({"concurrency": [2, 2]}, r"concurrency is \[2, 2\]; allowed: each number once"),
        ({"duration_s": 5}, "duration_s is given without rate_rps or a trace"),
        ({"trace_s": [1]}, "arrival is 'poisson' with trace_s; allowed: 'trace'"),
        ({"trace_s": [2, 1], "arrival": "trace"}, "trace_s is not ascending"),
        ({"rate": 5}, "rate: no such key; allowed: repeats, warmups, "),
        ({"params": {"model": "x"}}, "params: holds model, which the sweep sets"),
        ({"rate_rps": float("inf")}, "rate_rps: is inf"),
    ],
)
def test_settings_that_can_not_be_used_say_what_is_allowed(given_: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        sweep_settings(given_)
