"""A worker's state in one word, and which worker would get a job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from model_foundry.fleet.board import Board
from model_foundry.fleet.estimates import Rates
from model_foundry.fleet.health import Facts, RecentAttempts, State, health
from model_foundry.fleet.heartbeat import Heartbeat
from model_foundry.fleet.look import FleetLook, Seen
from model_foundry.fleet.preview import preview
from model_foundry.fleet.roster import Member, Roster, without_beats
from model_foundry.fleet.snapshots import FleetCursor, fleet_tick, snapshot_rows
from model_foundry.inference.dispatch import WorkItem
from model_foundry.inference.probe import ProbeResult
from model_foundry_tests.builders import NOW, a_config
from model_foundry_tests.inference.test_dispatch import a_job

OK = ProbeResult(True, True, "ok", models=["small"])


def member(**changes: Any) -> Member:
    found = without_beats(a_config()).members["moon"]
    return replace(found, **changes)


def said(**fields: Any) -> Heartbeat:
    return Heartbeat(name="moon", url="http://m", api="ollama", **fields)


@pytest.mark.parametrize(
    ("facts", "state", "word"),
    [
        (Facts(member(), OK), State.HEALTHY, None),
        (Facts(member(), OK, held=1), State.BUSY, "1 of 1 slots"),
        (Facts(member(), replace(OK, waiting=4)), State.BUSY, "4 requests wait"),
        (Facts(member(), ProbeResult(False, False, "refused")), State.DOWN, "refused"),
        (Facts(member(), ProbeResult(True, False, "HTTP 500", status=500)), State.DOWN, "500"),
        (Facts(member(), ProbeResult(True, False, "refuses", status=401)), State.MISCONFIGURED, "refuses"),
        (Facts(member(), ProbeResult(True, False, "not found", status=404)), State.MISCONFIGURED, "not found"),
        (Facts(member(), ProbeResult(True, False, "no JSON", status=200)), State.MISCONFIGURED, "no JSON"),
        (Facts(member(), ProbeResult(True, False, "Loading model", status=503, loading=True)), State.WARMING, "Load"),
        (Facts(member(gone=True, beat_age_s=42.0), OK), State.GONE, "42 s"),
        (Facts(member(beat=said(progress={"stalled_s": 40})), OK), State.DEGRADED, "nothing for 40 s"),
        (Facts(member(), OK, recent=RecentAttempts(4, 2, None, "boom")), State.DEGRADED, "boom"),
        (Facts(member(), OK, recent=RecentAttempts(3, 3)), State.HEALTHY, None),
        (Facts(member(beat=said(state_hint="loading"))), State.WARMING, "loading"),
        (Facts(member(beat=said(reachable=False, problem="gone fishing"))), State.DOWN, "fishing"),
    ],
)
def test_a_state_has_its_reason(facts: Facts, state: State, word: str | None) -> None:
    found = health(facts)
    assert found.state is state
    assert (word is None) == (not found.reasons)
    assert word is None or word in found.reasons[0]


def test_a_model_that_the_server_does_not_list_is_a_persons_mistake() -> None:
    named = member(config=member().config.model_copy(update={"models": {"small": "small", "big": "their-big"}}))
    found = health(Facts(named, OK, held=1))
    assert (found.state, len(found.reasons)) == (State.MISCONFIGURED, 2)
    assert "does not list their-big; it has small" in found.reasons[0]


def a_look(held: int = 0, **probes: ProbeResult) -> FleetLook:
    config = a_config()
    members = without_beats(config).members
    facts = {n: Facts(m, probes.get(n, OK), held if n == "card" else 0) for n, m in members.items()}
    board = Board(Roster(config, members), (), NOW)
    return FleetLook(board, {n: Seen(f, health(f), None) for n, f in facts.items()})


def test_the_preview_says_of_every_worker_why_or_why_not() -> None:
    item = WorkItem(a_job(1, model="small"), ("moon", "card"), (0, 1), places=(0, 1), service_s=(9.0, 2.0))
    rates: dict[tuple[str, str], Rates] = {}
    quick = preview(a_look(), item, rates)
    assert [(v.worker, v.takes, v.expected_s) for v in quick] == [("card", True, 2.0), ("moon", False, 9.0)]
    assert quick[0].why == "expected to end it first"
    assert quick[1].why == "would end 7.0 s later"
    down = preview(a_look(card=ProbeResult(False, False, "refused")), item, rates)
    assert [(v.worker, v.takes, v.why) for v in down] == [
        ("moon", True, "the only one that can be used now"),
        ("card", False, "down: refused"),
    ]
    full = preview(a_look(held=3), replace(item, service_s=()), rates)
    assert [(v.worker, v.why) for v in full][1] == ("card", "its 3 slots are taken")
    other = preview(a_look(), WorkItem(a_job(1, model="big", lane="gpu_inference"), ("card",), (0,)), rates)
    assert [(v.worker, v.why) for v in other] == [
        ("card", "the only one that can"),
        ("moon", "does not support gpu_inference"),
    ]


def test_a_tick_records_changes_and_asks_for_what_waited_for_a_worker_that_came_to_life() -> None:
    day = NOW.date()
    waiting = [
        {"partition_date": day, "lane": "gpu_inference", "models": ["big"], "jobs": 2},
        {"partition_date": day, "lane": "cpu_inference", "models": ["unknown"], "jobs": 1},
    ]
    first = fleet_tick(a_look(), FleetCursor(), waiting, 300, NOW)
    assert first.record_because == "card is healthy; moon is healthy"
    assert first.answer == [(day, "gpu_inference")]
    again = fleet_tick(a_look(held=3), first.cursor, waiting, 300, NOW)
    assert (again.record_because, again.answer) == (None, []), "busy is no news"
    dead = fleet_tick(a_look(card=ProbeResult(False, False, "refused")), again.cursor, waiting, 300, NOW)
    assert (dead.record_because, dead.answer) == ("card is down", [])
    back = fleet_tick(a_look(), dead.cursor, waiting, 300, NOW)
    assert back.answer == [(day, "gpu_inference")]
    assert FleetCursor.of_text(back.cursor.to_text()) == back.cursor
    assert FleetCursor.of_text("{garbage") == FleetCursor()
    later = fleet_tick(a_look(), replace(back.cursor, recorded_at=0.0), [], 300, NOW)
    assert later.record_because == "300 s have passed"


def test_a_snapshot_keeps_what_is_unknown_as_null_and_zero_as_zero() -> None:
    look = a_look(moon=replace(OK, waiting=0))
    rows = {row["worker"]: row for row in snapshot_rows(look, {"moon": "down"}, "r")}
    assert (rows["moon"]["waiting"], rows["moon"]["running"], rows["moon"]["vram_used_mb"]) == (0, None, None)
    assert (rows["moon"]["previous_state"], rows["card"]["previous_state"]) == ("down", None)
