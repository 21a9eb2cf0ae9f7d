"""The commands about events, on a real stream and a real lake."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

from model_foundry.event_inbox import InboxRecord, take_events
from model_foundry_tests.flows.conftest import Scene


def foundry(scene: Scene, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    _ = scene.foundry  # writes the file
    argv = [sys.executable, "-m", "model_foundry.cli.main", *arguments]
    return subprocess.run(argv, cwd=scene.folder, capture_output=True, check=False, input=stdin, timeout=60)


def told(done: subprocess.CompletedProcess[bytes]) -> Any:
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def take(scene: Scene) -> InboxRecord:
    return take_events(scene.foundry, datetime.now(UTC).date(), run_id="r")


def words(done: subprocess.CompletedProcess[bytes]) -> str:
    return " ".join((done.stdout + done.stderr).decode().replace("│", " ").split())


def test_an_event_that_is_published_lands_as_it_was_given(scene: Scene) -> None:
    payload = '{"ok":true,"tool":"grep"}'
    options = ["--correlation-id", "s-1", "--source", "sonnet", "--event-id", "e-1"]
    [row] = told(foundry(scene, "publish", "llm.tool_call", payload, *options, "--json"))
    assert (row["event_id"], row["seq"], row["duplicate"]) == ("e-1", 1, False)
    [again] = told(foundry(scene, "publish", "llm.tool_call", payload, *options, "--json"))
    assert again["duplicate"]
    [ref] = take(scene).events
    assert (ref.event_id, ref.subject, ref.correlation_id) == ("e-1", "llm.tool_call", "s-1")
    assert scene.foundry.warehouse.rows("select source, payload from events") == [
        {"source": "sonnet", "payload": payload}
    ]


def test_a_file_of_events_is_published_line_by_line(scene: Scene) -> None:
    (scene.folder / "events.jsonl").write_text('{"event_id": "a"}\n\n{"event_id": "b"}\n{}\n', encoding="utf-8")
    assert len(told(foundry(scene, "publish", "obsidian.note", "--file", "events.jsonl", "--json"))) == 3
    record = take(scene)
    assert [ref.event_id for ref in record.events][:2] == ["a", "b"]
    assert record.event_count == 3


def test_what_is_no_event_is_not_published(scene: Scene) -> None:
    wrong_subject = foundry(scene, "publish", "prompts.submit", "{}")
    assert wrong_subject.returncode == 2
    assert "allowed: llm.>, obsidian.>, knowledge.>" in words(wrong_subject)
    for text, said in (("[1]", "no JSON object"), ("{", "not JSON")):
        done = foundry(scene, "publish", "llm.x", text)
        assert done.returncode == 2
        assert said in words(done)


def test_a_reject_is_listed_looked_at_corrected_and_sent_again(scene: Scene) -> None:
    body = (
        b'{"event_id": "e-9", "payload": {"call_id": "c", "task": "t", "tool": "grep", "ok": true, "duration_ms": NaN}}'
    )
    scene.publish(body, subject="llm.tool_call")
    assert take(scene).rejects == 1
    [listed] = told(foundry(scene, "events", "rejects", "--json"))
    assert (listed["seq"], listed["subject"], listed["bytes"]) == (1, "llm.tool_call", len(body))
    assert "NaN" in listed["reason"]
    looked_at = foundry(scene, "events", "rejects", "1")
    assert looked_at.stdout == body, "byte for byte"

    still = foundry(scene, "events", "replay", "1", "--with", "-", stdin=body)
    assert still.returncode != 0
    assert "still can't be read" in words(still)
    nothing_said = foundry(scene, "events", "replay", "1")
    assert nothing_said.returncode == 2
    assert "NaN" in words(nothing_said)

    (scene.folder / "body").write_bytes(looked_at.stdout.replace(b"NaN", b"17"))
    told(foundry(scene, "events", "replay", "1", "--with", "body", "--json"))
    [ref] = take(scene).events
    assert (ref.event_id, ref.subject) == ("e-9", "llm.tool_call")
    assert told(foundry(scene, "events", "rejects", "--json")) == [], "it was sent again"
    assert len(scene.foundry.warehouse.rows("from rejects")) == 1, "and is kept"
    assert scene.foundry.warehouse.rows("select duration_ms from tool_calls") == [{"duration_ms": 17.0}]


def test_headers_of_a_reject_can_be_corrected(scene: Scene) -> None:
    scene.publish(b"{}", subject="llm.x", **{"ce-specversion": "9.9", "ce-id": "c", "ce-source": "s", "ce-type": "t"})
    assert take(scene).rejects == 1
    wrong = foundry(scene, "events", "replay", "1", "--header", "ce-specversion")
    assert wrong.returncode == 2
    assert "name=value" in words(wrong)
    told(foundry(scene, "events", "replay", "1", "--header", "ce-specversion=1.0", "--json"))
    [ref] = take(scene).events
    assert ref.event_id == "c"


def test_a_reject_that_is_not_there_is_said(scene: Scene) -> None:
    take(scene)
    done = foundry(scene, "events", "rejects", "77")
    assert done.returncode != 0
    assert "no reject '77'" in words(done)


def test_a_session_is_told_in_order_with_its_flow(scene: Scene) -> None:
    def at(second: int) -> str:
        return f"2026-11-30T10:00:{second:02d}Z"

    def node(number: int, second: int, node_id: str, kind: str, state: str, **more: str) -> dict[str, Any]:
        payload = {"kind": "node", "node_id": node_id, "node_type": kind, "state": state, **more}
        return {"event_id": f"n{number}", "correlation_id": "s-1", "occurred_at": at(second), "payload": payload}

    edge = {"kind": "edge", "edge_id": "x", "from": "opus", "to": "t-1", "relation": "assigned"}
    scene.publish(
        node(1, 0, "opus", "agent", "declared", role="orchestrator"),
        node(2, 0, "kimi", "agent", "declared", role="worker"),
        node(3, 2, "t-1", "task", "started", agent="kimi"),
        {"event_id": "e1", "correlation_id": "s-1", "occurred_at": at(2), "payload": edge},
        node(4, 30, "t-1", "task", "finished", agent="kimi"),
        subject="llm.flow.lineage",
    )
    take(scene)
    seen = told(foundry(scene, "session", "s-1", "--json"))
    assert [row["event_id"] for row in seen["timeline"]] == ["n1", "n2", "n3", "e1", "n4"]
    assert seen["timeline"][-1]["gap_s"] == 28.0
    assert {row["agent_id"] for row in seen["flow"]["agents"]} == {"opus", "kimi"}
    listed = told(foundry(scene, "session", "--json"))
    assert [row["correlation_id"] for row in listed] == ["s-1"]
    shown = foundry(scene, "session", "s-1")
    assert "+28 s" in words(shown)
    assert "Who did what" in words(shown)
    assert all(len(line) <= 80 for line in shown.stdout.decode().splitlines())
    missing = foundry(scene, "session", "nope")
    assert missing.returncode == 1
    assert "nothing carries the correlation id 'nope'" in words(missing)


def test_doctor_says_when_events_do_not_land(scene: Scene) -> None:
    def events() -> dict[str, Any]:
        found = json.loads(foundry(scene, "doctor", "--json").stdout)
        [finding] = [f for f in found if f["part"] == "events"]
        return finding

    take(scene)
    scene.raw["events"] = {"max_lag_s": 0.001}
    scene.publish({"event_id": "a"}, subject="llm.x")
    assert events()["state"] == "warn"
    assert "not landed: 1," in events()["detail"]
    take(scene)
    assert events()["state"] == "ok"
