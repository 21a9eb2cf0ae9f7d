"""The events that ``foundry demo`` publishes: one session in which an orchestrator has two workers do the same plan.

Belongs here: what is sent, as bytes, and what should become of it. Does not belong here: sending it (``cli``).

It has a little of everything: the project's own envelope and both of CloudEvents, a former subject, an event that comes
twice, one that can't be read, a role that never gets a task, and two workers that go about one plan differently.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

from model_foundry.demo.message import DemoMessage

FLOW, TOOL, CHAT, SEARCH = "llm.flow.lineage", "llm.tool_call", "llm.chat.persist", "obsidian.semantic_search"
_AGENTS = {"opus": "orchestrator", "kimi": "coder", "glm": "coder", "plamo": "translator"}
_TASKS = {"t-1": "kimi", "t-2": "glm"}
_TOOLS = {"kimi": ("grep", "read_file", "edit"), "glm": ("grep", "grep", "read_file", "run_tests", "edit")}


def demo_session(run_tag: str) -> str:
    """The correlation id of the demo's session."""
    return f"demo-session-{run_tag}" if run_tag else "demo-session"


def demo_events(run_tag: str, ended_at: datetime) -> list[DemoMessage]:
    """The session's messages, in order; the last thing in it happened at ``ended_at``.

    Args:
        run_tag: part of the session's name and of each id, so that another demo run is another session.
        ended_at: an aware time.
    """
    session, number = demo_session(run_tag), 0
    started_at = ended_at - timedelta(seconds=60)

    def at(second: float) -> str:
        return (started_at + timedelta(seconds=second)).isoformat(timespec="milliseconds")

    def own(second: float, subject: str, source: str, payload: dict[str, Any]) -> DemoMessage:
        nonlocal number
        number += 1
        event_id = f"{session}-{number:02d}"
        body = {"event_id": event_id, "correlation_id": session, "occurred_at": at(second), "source": source}
        return DemoMessage(subject, _json(body | {"payload": payload}), None, "event")

    def cloud_event(second: float, event_id: str, type_: str, source: str) -> dict[str, str]:
        told = {"specversion": "1.0", "id": event_id, "type": type_, "source": source, "time": at(second)}
        return told | {"correlationid": session}

    messages = [own(0, FLOW, "opus", _agent(agent, role)) for agent, role in _AGENTS.items()]
    messages.append(own(1, CHAT, "opus", {"task": "t-0", "role": "assistant", "tokens": 210}))
    ask = cloud_event(2, f"{session}-search", "notes.search", "notes") | {"datacontenttype": "application/json"}
    found = {"query": "where are partitions made", "hits": 4, "latency_ms": 38.5}
    structured = {"Content-Type": "application/cloudevents+json"}
    messages.append(DemoMessage(SEARCH, _json({**ask, "data": found}), None, "event", structured))
    for task, agent in _TASKS.items():
        messages.append(own(3, FLOW, "opus", _edge(f"opus-{task}", "opus", task)))
        messages.append(own(3, FLOW, "opus", _edge(f"{agent}-{task}", agent, task)))
        messages.append(own(4, FLOW, agent, _task(task, agent, "started")))
        for nth, tool in enumerate(_TOOLS[agent]):
            call = {"call_id": f"{task}-{nth}", "task": task, "tool": tool, "duration_ms": 120 + 90 * nth, "ok": True}
            subject = "knowledge.tool_call" if nth == 0 else TOOL
            messages.append(own(6 + 5 * nth, subject, agent, call))
    messages.append(own(24, FLOW, "kimi", _task("t-1", "kimi", "finished")))
    call = {"call_id": "t-2-5", "task": "t-2", "tool": "run_tests", "duration_ms": 5400, "ok": False}
    told = {f"ce-{name}": value for name, value in cloud_event(52, f"{session}-tests", "tool.called", "glm").items()}
    messages.append(DemoMessage(TOOL, _json(call), None, "event", told | {"Content-Type": "application/json"}))
    messages.append(own(58, FLOW, "glm", _task("t-2", "glm", "failed")))
    messages.append(own(60, CHAT, "opus", {"task": "t-0", "role": "assistant", "tokens": 95}))
    again = DemoMessage(messages[0].subject, messages[0].data, None, "duplicate")
    unreadable = DemoMessage(TOOL, b'{"event_id": "%s", "event_id": "twice"}' % session.encode(), None, "reject")
    return [*messages, again, unreadable]


def _agent(agent: str, role: str) -> dict[str, Any]:
    return {"kind": "node", "node_id": agent, "node_type": "agent", "state": "declared", "role": role}


def _task(task: str, agent: str, state: str) -> dict[str, Any]:
    node = {"kind": "node", "node_id": task, "node_type": "task", "state": state}
    return node | {"agent": agent, "plan": "find the slow query"}


def _edge(edge_id: str, from_: str, to: str) -> dict[str, Any]:
    return {"kind": "edge", "edge_id": edge_id, "from": from_, "to": to, "relation": "assigned"}


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8")
