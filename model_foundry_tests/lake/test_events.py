"""Events in the lake: landing, and the views told from them, against the same numbers computed in plain Python."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model_foundry.event_inbox import record_of_day
from model_foundry.records import EVENTS_LANE, Event, Reject
from model_foundry.sessions import flow_of, flows_of_day, gone_quiet, sessions_of_day
from model_foundry.warehouse import landing
from model_foundry.warehouse.invariants import examine
from model_foundry.warehouse.lake import Warehouse
from model_foundry.warehouse.landing import IngestRange, incoming_events
from model_foundry.warehouse.sql_files import sql_files
from model_foundry_tests.builders import NOW, a_message
from model_foundry_tests.lake.rows import CREATED, TODAY, a_job, an_attempt, an_event, finish, land, land_events

COUNTER = itertools.count(CREATED + 1000)
FLOW = "llm.flow.lineage"


def a_reject(seq: int, *, created: int = CREATED) -> Reject:
    return Reject(a_message(b"\xff", seq=seq, stream="EVENTS", stream_created=created), "not UTF-8")


def test_a_landed_message_is_an_event_a_duplicate_or_a_reject(lake: Warehouse) -> None:
    again = an_event(2, {"a": 1}, event_id="event-1")
    other = an_event(3, {"a": 2}, event_id="event-1")
    report = land_events(lake, an_event(1, {"a": 1}), again, other, a_reject(4))
    assert (report.messages, report.records, report.duplicates, report.rejects) == (4, 1, 2, 1)
    [event] = lake.rows("select event_id, seq, duplicates, conflict, payload from events")
    assert event == {"event_id": "event-1", "seq": 1, "duplicates": 2, "conflict": True, "payload": '{"a":1}'}
    assert [row["seq"] for row in lake.rows("select seq from stream_messages where conflict")] == [3]
    assert [found for found in examine(lake) if found.broken] == []


def test_a_duplicate_that_comes_later_is_found_in_the_lake(lake: Warehouse) -> None:
    land_events(lake, an_event(1))
    report = land_events(lake, an_event(2, event_id="event-1"), an_event(3))
    assert (report.records, report.duplicates) == (1, 1)
    assert lake.rows("select duplicates from events where event_id = 'event-1'") == [{"duplicates": 1}]


KINDS = st.lists(st.sampled_from(["a", "b", "c", "reject"]), min_size=1, max_size=8)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kinds=KINDS, data=st.data())
def test_any_order_and_overlap_of_landings_gives_the_rows_of_one_clean_landing(
    shared_lake: Warehouse, kinds: list[str], data: st.DataObject
) -> None:
    created = next(COUNTER)
    items: list[Event | Reject] = [
        a_reject(seq, created=created)
        if kind == "reject"
        else an_event(seq, created=created, event_id=f"{created}-{kind}")
        for seq, kind in enumerate(kinds, start=1)
    ]
    spans = data.draw(st.lists(st.tuples(st.integers(1, len(items)), st.integers(1, len(items))), max_size=4))
    for first, last in [*(sorted(span) for span in spans), (1, len(items))]:
        land_events(shared_lake, *items[first - 1 : last])
    mine = {"created": created}
    rows = shared_lake.rows("select seq from stream_messages where stream_created = $created order by seq", mine)
    events = shared_lake.rows("select event_id, duplicates from events where stream_created = $created", mine)
    assert [row["seq"] for row in rows] == list(range(1, len(items) + 1))
    wanted = {f"{created}-{kind}": count - 1 for kind, count in Counter(kinds).items() if kind != "reject"}
    assert {row["event_id"]: row["duplicates"] for row in events} == wanted


def test_payloads_become_typed_rows_and_the_rest_is_listed(lake: Warehouse) -> None:
    call = {"call_id": "c", "task": "t", "tool": "grep", "duration_ms": 1.5, "ok": False, "arguments": {"a": 1}}
    turn = {"task": "t", "role": "user", "content": "hi", "tokens": 3.0}
    land_events(
        lake,
        an_event(1, call, subject="llm.tool_call", source="ann"),
        an_event(2, turn, subject="llm.chat.persist", source="ann"),
        an_event(3, {"query": "q", "hits": 2, "latency_ms": 7}, subject="obsidian.semantic_search"),
        an_event(4, {"tool": "grep"}, subject="llm.tool_call"),
        an_event(5, {"any": 1}, subject="llm.other"),
    )
    [row] = lake.rows("select agent, task, call_id, tool, duration_ms, ok, arguments_digest from tool_calls")
    assert list(row.values())[:-1] == ["ann", "t", "c", "grep", 1.5, False]
    assert len(row["arguments_digest"]) == 16
    assert lake.rows("select agent, task, role, content, tokens from chat_turns") == [
        {"agent": "ann", "task": "t", "role": "user", "content": "hi", "tokens": 3}
    ]
    assert lake.rows("select query, hits, latency_ms from searches") == [{"query": "q", "hits": 2, "latency_ms": 7.0}]
    assert lake.rows("select subject, reason, events, for_example from untyped_events order by subject") == [
        {"subject": "llm.other", "reason": "no model for this subject", "events": 1, "for_example": "event-5"},
        {"subject": "llm.tool_call", "reason": "call_id is missing", "events": 1, "for_example": "event-4"},
    ]


def typed_before_there_were_bounds(event: Event) -> Event:
    """As an event may have landed: once every number that JSON can write was a count."""
    name = {"llm.tool_call": "tool_call", "llm.chat.persist": "chat_turn", "obsidian.semantic_search": "search"}
    return replace(event, payload_type=name[event.subject], payload_problem=None)


@pytest.mark.parametrize("huge", [10**19, 10**300, 9.9e307])
def test_a_huge_number_breaks_no_view(sqlite_lake: Warehouse, huge: float) -> None:
    call = {"call_id": "c", "task": "t1", "tool": "grep", "duration_ms": huge, "ok": True}
    turn = {"task": "t1", "role": "user", "tokens": huge}
    search = {"hits": huge, "latency_ms": huge}
    payloads = [("llm.tool_call", call), ("llm.chat.persist", turn), ("obsidian.semantic_search", search)]
    events = [
        an_event(seq, payload, subject=subject, source="ann")
        for seq, (subject, payload) in enumerate(payloads * 3, start=500)
    ]
    assert {event.payload_type for event in events} == {None}
    story = Story().node("ann", "agent").node("t1", agent="ann").call("ann", "t1", "grep").turn("ann", tokens=2**53)
    story.told(sqlite_lake)
    land_events(sqlite_lake, *map(typed_before_there_were_bounds, events))
    for view in sql_files("views"):
        sqlite_lake.rows(f"from {view.stem}")
    [row] = sqlite_lake.rows("select tool_calls, tool_s, chat_turns, tokens from flow_agents")
    assert tuple(row.values()) == (4, 0.5, 4, 2**53)
    assert sqlite_lake.rows("select distinct hits, latency_ms from searches") == [{"hits": None, "latency_ms": None}]


def test_more_tokens_than_a_column_holds_are_as_many_as_it_holds(sqlite_lake: Warehouse) -> None:
    story = Story().node("ann", "agent")
    for _ in range(1025):
        story.turn("ann", tokens=2**53)
    story.told(sqlite_lake)
    assert sqlite_lake.rows("select tokens from flow_agents") == [{"tokens": 2**63 - 1}]


def test_a_duplicate_of_another_day_counts_under_its_events_subject(sqlite_lake: Warehouse) -> None:
    first = an_event(1, subject="knowledge.tool_call", event_id="e", published_at=NOW - timedelta(days=1))
    yesterday = IngestRange("EVENTS", CREATED, EVENTS_LANE, TODAY - timedelta(days=1), 1, 1)
    landing.land(sqlite_lake, incoming_events([first], [], range_=yesterday, run_id="run-0", config_digest="digest"))
    land_events(sqlite_lake, an_event(2, subject="knowledge.tool_call", event_id="e"))
    [row] = record_of_day(sqlite_lake, TODAY).by_subject
    assert (row.subject, row.messages, row.duplicates) == ("llm.tool_call", 1, 1)


# -- the flow ------------------------------------------------------------------------------------------------------


class Story:
    """Events of one session's flow, each a second after the one before unless a time is given."""

    def __init__(self, session: str = "s-1", *, first_seq: int = 1) -> None:
        self.session = session
        self.events: list[Event] = []
        self._seq = itertools.count(first_seq)

    def _add(self, payload: dict[str, Any], subject: str, at_s: float | None, source: str | None = None) -> None:
        seq = next(self._seq)
        occurred = NOW + timedelta(seconds=seq % 1000 - 1000 if at_s is None else at_s)
        event = an_event(
            seq,
            payload,
            subject=subject,
            source=source,
            event_id=f"{self.session}-{seq}",
            correlation_id=self.session,
            occurred_at=occurred.isoformat().replace("+00:00", "Z"),
            published_at=NOW + timedelta(hours=1),
        )
        self.events.append(event)

    def node(
        self, node_id: str, node_type: str = "task", state: str = "declared", *, at_s: float | None = None, **more: str
    ) -> Story:
        payload = {"kind": "node", "node_id": node_id, "node_type": node_type, "state": state, **more}
        self._add(payload, FLOW, at_s)
        return self

    def edge(self, from_id: str, to_id: str, relation: str = "assigned") -> Story:
        edge_id = f"{from_id} {relation} {to_id}"
        payload = {"kind": "edge", "edge_id": edge_id, "from": from_id, "to": to_id, "relation": relation}
        self._add(payload, FLOW, None)
        return self

    def turn(self, agent: str, **more: Any) -> Story:
        self._add({"task": "t1", "role": "assistant", **more}, "llm.chat.persist", None, agent)
        return self

    def call(self, agent: str, task: str, tool: str) -> Story:
        payload = {"call_id": f"{len(self.events)}", "task": task, "tool": tool, "duration_ms": 500, "ok": True}
        self._add(payload, "llm.tool_call", None, agent)
        return self

    def task(self, node_id: str, start_s: float, end_s: float | None, **more: str) -> Story:
        self.node(node_id, state="started", at_s=start_s, **more)
        return self if end_s is None else self.node(node_id, state="finished", at_s=end_s)

    def told(self, lake: Warehouse) -> dict[str, Any]:
        land_events(lake, *self.events)
        [row] = lake.rows("from event_flow where correlation_id = $id", {"id": self.session})
        return row


def test_a_role_that_was_declared_and_never_got_a_task_is_named(sqlite_lake: Warehouse) -> None:
    story = Story().node("boss", "agent", role="orchestrator")
    for name, role in (
        ("ann", "writer"),
        ("bob", "reader"),
        ("cy", "translator"),
        ("di", "writer"),
        ("eve", "checker"),
    ):
        story.node(name, "agent", role=role)
    story.node("t1").node("t2").node("t3", agent="eve")
    story.edge("boss", "t1").edge("ann", "t1").edge("t2", "bob")
    assert story.told(sqlite_lake)["roles_without_work"] == ["translator"]
    agents = {row["agent_id"]: row for row in sqlite_lake.rows("from flow_agents")}
    assert {name for name, row in agents.items() if row["assigned"]} == {"ann", "bob", "eve"}
    tasks = {name: row["tasks"] for name, row in agents.items()}
    assert tasks == {"ann": 1, "bob": 1, "eve": 1, "boss": 0, "cy": 0, "di": 0}


def test_an_agent_that_an_agent_was_assigned_to_was_routed_to(sqlite_lake: Warehouse) -> None:
    story = Story().node("boss", "agent", role="orchestrator").node("ann", "agent", role="writer").edge("boss", "ann")
    assert story.told(sqlite_lake)["roles_without_work"] == []


def test_a_task_may_name_an_agent_that_was_never_declared(sqlite_lake: Warehouse) -> None:
    Story().node("t1", agent="ghost", role="writer").told(sqlite_lake)
    [row] = sqlite_lake.rows("select agent_id, role, declared, tasks from flow_agents")
    assert row == {"agent_id": "ghost", "role": "writer", "declared": False, "tasks": 1}


def test_an_agent_whose_events_come_under_several_names_is_one_row(sqlite_lake: Warehouse) -> None:
    story = Story().node("w1", "agent", role="writer", agent="chat/ann", name="ann").node("t1", agent="ann")
    story.call("w1", "t1", "grep").call("chat/ann", "t1", "grep").call("ann", "t1", "grep").call("ann", "t1", "sed")
    story.told(sqlite_lake)
    [row] = sqlite_lake.rows("select agent_id, tasks, tool_calls, tool_s from flow_agents")
    assert row == {"agent_id": "w1", "tasks": 1, "tool_calls": 4, "tool_s": 2}


def test_a_name_that_two_agents_share_counts_for_one_of_them(sqlite_lake: Warehouse) -> None:
    story = Story().node("w1", "agent", agent="ann").node("w2", "agent", agent="ann", name="w1")
    story.node("w3", "agent", name="ann").node("t1", agent="ann").node("t2", agent="w1").call("ann", "t1", "grep")
    story.call("w1", "t2", "grep").call("w2", "t2", "grep").turn("ann", tokens=5).turn("ann").told(sqlite_lake)
    rows = sqlite_lake.rows("select agent_id, tasks, tool_calls, chat_turns, tokens from flow_agents order by agent_id")
    assert [tuple(row.values()) for row in rows] == [("w1", 2, 2, 2, 5), ("w2", 0, 1, 0, 0), ("w3", 0, 0, 0, 0)]
    aliases = sqlite_lake.rows("select alias, agent_id from flow_aliases order by alias")
    assert [tuple(row.values()) for row in aliases] == [("ann", "w1"), ("w1", "w1"), ("w2", "w2"), ("w3", "w3")]


NAMES = st.sampled_from(["a", "b", "c", "d"])
AGENTS = st.dictionaries(NAMES, st.fixed_dictionaries({}, optional={"agent": NAMES, "name": NAMES}), max_size=4)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(agents=AGENTS, tasks=st.lists(NAMES, max_size=4), calls=st.lists(NAMES, max_size=6))
def test_whatever_agents_are_called_every_call_and_task_counts_once(
    shared_lake: Warehouse, agents: dict[str, dict[str, str]], tasks: list[str], calls: list[str]
) -> None:
    number = next(COUNTER)
    story = Story(f"session-{number}", first_seq=(number - CREATED) * 1000).node("s", "session")
    for name, more in agents.items():
        story.node(name, "agent", **more)
    for index, name in enumerate(tasks):
        story.node(f"t{index}", agent=name)
    for name in calls:
        story.call(name, "t0", "grep")
    story.told(shared_lake)
    query = "select agent_id, declared, tasks, tool_calls from flow_agents where correlation_id = $id"
    rows = shared_lake.rows(query, {"id": story.session})
    assert len({row["agent_id"] for row in rows}) == len(rows)
    assert {row["agent_id"] for row in rows if row["declared"]} == set(agents)
    assert sum(row["tasks"] for row in rows) == len(tasks)
    assert sum(row["tool_calls"] for row in rows) == len(calls)


def test_an_edge_may_name_an_agent_by_what_it_is_called(sqlite_lake: Warehouse) -> None:
    story = (
        Story().node("o1", "agent", role="orchestrator", name="boss").node("w1", "agent", role="writer", agent="ann")
    )
    story.node("w2", "agent", role="reader", name="bob").node("t1").node("bob")
    story.edge("boss", "w1").edge("ann", "t1").edge("t1", "bob", "depends_on")
    told = story.told(sqlite_lake)
    assert (told["unknown_nodes"], told["depth"], told["roles_without_work"]) == (0, 2, ["reader"])
    edges = sqlite_lake.rows("select from_id, to_id from flow_edges order by happened_at")
    assert [tuple(row.values()) for row in edges] == [("o1", "w1"), ("w1", "t1"), ("t1", "bob")]
    assert {(row["agent_id"], row["task_id"]) for row in sqlite_lake.rows("from flow_assignments")} == {
        ("w1", None),
        ("w1", "t1"),
    }
    with sqlite_lake.snapshot() as now:
        flow = flow_of(now, "s-1")
    assert flow is not None
    assert [(row["giver"], row["taker"]) for row in flow.handovers] == [("o1", "w1")]


def test_an_agent_that_only_its_own_events_name_is_listed_in_a_session_with_a_flow(sqlite_lake: Warehouse) -> None:
    Story().node("t1").call("ghost", "t1", "grep").turn("voice").told(sqlite_lake)
    land_events(sqlite_lake, *Story("no-flow", first_seq=100).turn("somebody").events)
    query = "select agent_id, role_kind, declared, assigned, tasks, tool_calls, chat_turns from flow_agents"
    assert [tuple(row.values()) for row in sqlite_lake.rows(f"{query} order by agent_id")] == [
        ("ghost", "worker", False, False, 0, 1, 0),
        ("voice", "worker", False, False, 0, 0, 1),
    ]


def test_depth_follows_the_work_and_a_circle_has_none(sqlite_lake: Warehouse) -> None:
    story = Story("line").edge("boss", "t1").edge("t2", "t1", "depends_on").edge("t3", "t2", "depends_on")
    told = story.edge("boss", "t4").told(sqlite_lake)
    assert (told["depth"], told["fan_out"], told["has_cycle"], told["unknown_nodes"]) == (3, 2, False, 5)
    circle = Story("circle", first_seq=100).edge("a", "b").edge("b", "c").edge("c", "a").edge("x", "a")
    told = circle.told(sqlite_lake)
    assert (told["depth"], told["has_cycle"]) == (None, True)
    alone = Story("alone", first_seq=200).edge("a", "b").edge("b", "a").told(sqlite_lake)
    assert (alone["depth"], alone["has_cycle"]) == (None, True)


def test_parallelism_excludes_the_end_of_a_task(sqlite_lake: Warehouse) -> None:
    story = Story().task("t1", 0, 10).task("t2", 10, 20).task("t3", 12, 14).task("t4", 13, None)
    told = story.told(sqlite_lake)
    assert told["max_parallel"] == 3
    assert (told["tasks"], told["finished"], told["open"], told["busy_s"]) == (4, 3, 1, 22.0)


def test_states_that_come_out_of_order_are_put_in_order_by_their_times(sqlite_lake: Warehouse) -> None:
    story = Story().node("t", state="failed", at_s=9).node("t", state="started", at_s=4).node("t", at_s=1)
    assert story.told(sqlite_lake)["failed"] == 1
    [row] = sqlite_lake.rows("select state, busy_s, events from flow_nodes")
    assert row == {"state": "failed", "busy_s": 5.0, "events": 3}


def test_what_a_task_took_is_unknown_until_it_has_both_started_and_ended(sqlite_lake: Warehouse) -> None:
    story = Story().node("t1", state="started", at_s=1).node("t2", state="finished", at_s=2).node("t3")
    story.task("t4", 5, 5).node("t5", state="started", at_s=9).node("t5", state="failed", at_s=8)
    story.told(sqlite_lake)
    rows = sqlite_lake.rows("select node_id, state, busy_s from flow_nodes order by node_id")
    assert [tuple(row.values()) for row in rows] == [
        ("t1", "started", None),
        ("t2", "finished", None),
        ("t3", "declared", None),
        ("t4", "finished", 0),
        ("t5", "started", None),
    ]


def test_a_task_that_failed_and_was_started_again_is_open_until_it_ends_again(sqlite_lake: Warehouse) -> None:
    story = Story().task("t1", 0, None).node("t1", state="failed", at_s=5).node("t1", state="started", at_s=10)
    told = story.told(sqlite_lake)
    assert (told["failed"], told["open"], told["max_parallel"], told["wall_s"]) == (0, 1, 1, 10)
    [row] = sqlite_lake.rows("select state, ended_at, busy_s from flow_nodes")
    assert tuple(row.values()) == ("started", None, None)
    again = Story(first_seq=100).node("t1", state="finished", at_s=15).node("t1", state="declared", at_s=20)
    told = again.told(sqlite_lake)
    assert (told["finished"], told["open"], told["busy_s"]) == (1, 0, 15)


@pytest.mark.parametrize("states", [("started", "failed"), ("failed", "started")])
def test_at_one_time_an_end_comes_after_a_start(sqlite_lake: Warehouse, states: tuple[str, str]) -> None:
    story = Story()
    for state in states:
        story.node("t1", state=state, at_s=5)
    assert story.told(sqlite_lake)["failed"] == 1


def test_a_task_that_two_agents_were_given_is_compared_once(sqlite_lake: Warehouse) -> None:
    story = Story().node("a", "agent").node("b", "agent").node("c", "agent").node("t1", plan="p", agent="a")
    story.edge("t1", "b").node("t2", plan="p", agent="c").call("a", "t1", "x").call("c", "t2", "y").told(sqlite_lake)
    rows = sqlite_lake.rows("select task_a, task_b, agent_a, agent_b, divergence from flow_divergence")
    assert [tuple(row.values()) for row in rows] == [("t1", "t2", "a", "c", 1)]


def test_a_task_without_calls_has_nothing_in_common_with_any_other(sqlite_lake: Warehouse) -> None:
    story = Story()
    for task in ("t1", "t2", "t3"):
        story.node(task, plan="p", agent=f"of {task}")
    for number in range(130):
        story.call("of t1", "t1", f"tool {number:03}")
    story.told(sqlite_lake)
    rows = sqlite_lake.rows("select task_a, task_b, divergence from flow_divergence")
    assert {(row["task_a"], row["task_b"]): row["divergence"] for row in rows} == {
        ("t1", "t2"): 1,
        ("t1", "t3"): 1,
        ("t2", "t3"): None,
    }


def test_tools_of_another_plan_take_no_letters_from_this_one(sqlite_lake: Warehouse) -> None:
    story = (
        Story().node("other", plan="another", agent="a").node("t1", plan="p", agent="a").node("t2", plan="p", agent="b")
    )
    for number in range(130):
        story.call("a", "other", f"a {number:03}")
    for number in range(5):
        story.call("a", "t1", f"y {number}").call("b", "t2", f"z {number}")
    assert story.told(sqlite_lake)["divergence"] == 1


def test_the_rarest_tools_of_a_plan_are_the_ones_that_look_alike(sqlite_lake: Warehouse) -> None:
    story = Story().node("t1", plan="p", agent="a").node("t2", plan="p", agent="b")
    for number in range(130):
        story.call("a", "t1", f"a {number:03}")
    for _ in range(3):
        story.call("a", "t1", "y").call("b", "t2", "z")
    told = story.told(sqlite_lake)
    assert told["divergence"] == 1  # y and z come last by name, and are not taken for one another


def test_divergence_compares_what_two_agents_did_with_the_same_plan(sqlite_lake: Warehouse) -> None:
    story = Story().node("ann", "agent").node("bob", "agent").node("cy", "agent")
    for task, agent, tools in (("t1", "ann", "abc"), ("t2", "bob", "abd"), ("t3", "cy", "abc"), ("t4", "ann", "xyz")):
        story.node(task, name="the plan", agent=agent)
        for tool in tools:
            story.call(agent, task, tool)
    story.node("other", name="another plan", agent="bob")
    told = story.told(sqlite_lake)
    pairs = {
        (row["task_a"], row["task_b"]): row["divergence"]
        for row in sqlite_lake.rows("select task_a, task_b, divergence from flow_divergence")
    }
    third = pytest.approx(1 / 3)
    assert pairs == {("t1", "t2"): third, ("t1", "t3"): 0, ("t2", "t3"): third, ("t2", "t4"): 1, ("t3", "t4"): 1}
    assert told["divergence"] == pytest.approx(sum(pairs.values()) / 5)


TASKS = st.lists(
    st.tuples(st.integers(0, 20), st.none() | st.integers(0, 20), st.sampled_from(["ann", "bob", None])),
    min_size=1,
    max_size=10,
)
EDGES = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=12, unique=True)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tasks=TASKS, edges=EDGES)
def test_the_figures_of_a_flow_are_those_that_plain_python_finds(
    shared_lake: Warehouse, tasks: list[tuple[int, int | None, str | None]], edges: list[tuple[int, int]]
) -> None:
    number = next(COUNTER)
    story = Story(f"session-{number}", first_seq=(number - CREATED) * 1000)
    for index, (start, length, agent) in enumerate(tasks):
        more = {"agent": agent} if agent else {}
        story.task(f"t{index}", start, None if length is None else start + length, **more)
    for low, high in edges:
        if low != high:
            story.edge(f"n{min(low, high)}", f"n{max(low, high)}")
    told = story.told(shared_lake)

    points = range(42)
    running = [
        sum(start <= at and (length is None or at < start + length) for start, length, _ in tasks) for at in points
    ]
    assert told["max_parallel"] == max(running)
    assert told["busy_s"] == sum(length for _, length, _ in tasks if length is not None)
    following = defaultdict(set)
    for low, high in edges:
        if low != high:
            following[min(low, high)].add(max(low, high))
    assert told["fan_out"] == max(map(len, following.values()), default=0)

    def depth(node: int) -> int:
        return max((1 + depth(after) for after in following[node]), default=0)

    assert told["depth"] == max(map(depth, range(8)))
    assert told["edges"] == sum(map(len, following.values()))
    work = Counter(agent for *_, agent in tasks if agent)
    query = "select agent_id, tasks from flow_agents where correlation_id = $id"
    found = shared_lake.rows(query, {"id": story.session})
    assert {row["agent_id"]: row["tasks"] for row in found} == work


def test_a_session_of_1286_events_is_told_whole(sqlite_lake: Warehouse) -> None:
    """584 edges and 702 node events: 4 agents, 233 tasks declared, started and finished, 2 of them never started."""
    story = Story("big").node("s", "session", "started").node("boss", "agent", role="orchestrator")
    for name in ("ann", "bob", "cy"):
        story.node(name, "agent", role=f"role of {name}")
    for index in range(233):
        story.node(f"t{index}", agent=("ann", "bob")[index % 2])
        if index < 232:
            story.node(f"t{index}", state="started").node(f"t{index}", state="finished")
    for index in range(233):
        story.edge("boss", f"t{index}")
        story.edge(("ann", "bob")[index % 2], f"t{index}")
        if 0 < index <= 118:
            story.edge(f"t{index}", f"t{index - 1}", "depends_on")
    told = story.told(sqlite_lake)
    assert (told["node_events"], told["edge_events"]) == (702, 584)
    assert (told["nodes"], told["agents"], told["tasks"], told["open"]) == (238, 4, 233, 1)
    assert (told["depth"], told["fan_out"], told["max_parallel"]) == (119, 233, 1)
    assert told["roles_without_work"] == ["role of cy"]
    with sqlite_lake.snapshot() as now:
        flow = flow_of(now, "big")
        assert [row["correlation_id"] for row in flows_of_day(now, TODAY)] == ["big"]
    assert flow is not None
    assert {(row["giver"], row["taker"]): row["times"] for row in flow.handovers} == {
        ("boss", "ann"): 117,
        ("boss", "bob"): 116,
    }


# -- sessions ------------------------------------------------------------------------------------------------------


def test_a_session_is_told_across_prompts_answers_and_events_in_order_with_gaps(lake: Warehouse) -> None:
    job = a_job(1, correlation_id="s-1")
    land(lake, job)
    sent, ended = NOW + timedelta(seconds=3), NOW + timedelta(seconds=6)
    finish(lake, (job, an_attempt(job, sent_at=sent, finished_at=ended)))
    land_events(
        lake,
        an_event(1, occurred_at="2026-12-01T09:30:04.5Z", published_at=NOW + timedelta(minutes=1)),
        an_event(2, occurred_at="2026-12-02T00:00:00Z", published_at=NOW + timedelta(seconds=8)),
        an_event(3, correlation_id="another"),
    )
    rows = lake.rows("select nth, moment, gap_s from session_timeline where correlation_id = 's-1' order by nth")
    assert [(row["moment"], row["gap_s"]) for row in rows] == [
        ("published", None),
        ("sent", 2.0),
        ("event", 1.5),
        ("ended", 1.5),
        ("event", 2.0),
    ]
    with lake.snapshot() as now:
        sessions = {row["correlation_id"]: row for row in sessions_of_day(now, TODAY)}
    assert sessions.keys() == {"s-1", "another"}
    assert (sessions["s-1"]["prompts"], sessions["s-1"]["attempts"], sessions["s-1"]["events"]) == (1, 1, 2)
    assert sessions["s-1"]["longest_gap_s"] == 2.0


def test_traffic_is_counted_a_minute_with_the_lag(lake: Warehouse) -> None:
    land_events(lake, *(an_event(seq, published_at=NOW + timedelta(seconds=seq)) for seq in (1, 2, 61)))
    rows = lake.rows("select minute, subject, events, p50_lag_s from event_volume order by minute")
    assert [(row["minute"], row["events"]) for row in rows] == [(NOW, 2), (NOW + timedelta(minutes=1), 1)]
    assert all(row["p50_lag_s"] is not None for row in rows)


@pytest.mark.parametrize(
    ("silent_s", "pause_s", "events", "configured", "quiet"),
    [
        (3601, 10, 20, {}, True),
        (3599, 10, 20, {}, False),
        (3601, 10, 19, {}, False),
        (3601, 1201, 20, {}, False),
        (61, 10, 1, {"llm.a": 60}, True),
        (59, 10, 1, {"llm.a": 60}, False),
        (9999, 10, 99, {"llm.a": 10_000}, False),
    ],
)
def test_a_subject_is_quiet_by_its_limit_or_by_its_own_pace(
    silent_s: float, pause_s: float, events: int, configured: dict[str, float], quiet: bool
) -> None:
    pace = [{"subject": "llm.a", "events": events, "silent_s": silent_s, "longest_pause_s": pause_s}]
    assert [row["subject"] for row in gone_quiet(pace, configured)] == (["llm.a"] if quiet else [])


def test_a_reject_stands_open_until_its_corrected_form_has_landed(lake: Warehouse) -> None:
    land_events(lake, a_reject(1), a_reject(2))
    land_events(lake, an_event(3, headers=(("Foundry-Replay-Of", f"EVENTS-{CREATED}-1"),)))
    assert [row["seq"] for row in lake.rows("select seq from open_rejects")] == [2]
