"""The events' Dagster skin in process: the inbox, what is told from it, its checks and schedules."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import dagster as dg

from model_foundry.event_inbox import EventRef, InboxRecord
from model_foundry_tests.flows.conftest import Scene
from model_foundry_tests.flows.skin import Skin, metadata

TODAY = datetime.now(UTC).date().isoformat()
INBOX = "pipeline_event_inbox_record"


def record_of(result: dg.ExecuteInProcessResult) -> InboxRecord:
    output = result.output_for_node(INBOX)
    assert isinstance(output, InboxRecord)
    return output


def cells(value: Any) -> list[dict[str, Any]]:
    return [dict(record.data) for record in value]


def test_an_empty_queue_is_a_record_of_the_same_type_and_what_is_told_from_it_is_empty_too(
    skin: Skin,
) -> None:
    run = skin.run("record_events", key=TODAY)
    assert record_of(run) == InboxRecord(status="empty", partition_date=datetime.now(UTC).date())
    shown = metadata(run, INBOX)
    assert (shown["status"], shown["events"], shown["rejects"], shown["sequences"]) == ("empty", 0, 0, "none")
    told = skin.run("refresh_sessions", key=TODAY)
    assert [metadata(told, name)["status"] for name in ("event_flow", "session_timeline", "event_volume")] == [
        "empty"
    ] * 3


def test_events_are_shown_as_structured_data_with_counts_and_range(skin: Skin, scene: Scene) -> None:
    scene.publish(
        {"event_id": "a", "correlation_id": "s-1", "payload": {}},
        {"event_id": "a", "correlation_id": "s-1", "payload": {}},
        b"no json",
        subject="llm.other",
    )
    scene.publish({"event_id": "b"}, subject="knowledge.embedding")
    run = skin.run("record_events", key=TODAY)
    record = record_of(run)
    assert record.events == (
        EventRef(event_id="a", subject="llm.other", correlation_id="s-1"),
        EventRef(event_id="b", subject="obsidian.semantic_search"),
    )
    assert (record.status, record.event_count, record.duplicates, record.rejects) == ("landed", 2, 1, 1)
    assert [(span.from_seq, span.to_seq) for span in record.sequences] == [(1, 4)]
    shown = metadata(run, INBOX)
    assert cells(shown["inbox"].records) == [
        {"event_id": "a", "subject": "llm.other", "correlation_id": "s-1"},
        {"event_id": "b", "subject": "obsidian.semantic_search", "correlation_id": None},
    ]
    assert cells(shown["by_subject"].records)[0] == {
        "subject": "llm.other",
        "messages": 3,
        "events": 1,
        "duplicates": 1,
        "rejects": 1,
    }
    assert "Expecting value" in cells(shown["reject_reasons"].records)[0]["reason"]


def test_a_range_that_is_run_again_gives_the_same_record(skin: Skin, scene: Scene) -> None:
    scene.publish(*({"event_id": f"e{i}"} for i in range(5)), subject="llm.other")
    span = {"ops": {INBOX: {"config": {"from_seq": 2, "to_seq": 4}}}}
    first = record_of(skin.run("record_events", key=TODAY, config=span))
    assert [ref.event_id for ref in first.events] == ["e1", "e2", "e3"]
    assert record_of(skin.run("record_events", key=TODAY, config=span)) == first
    pending = record_of(skin.run("record_events", key=TODAY))
    assert [ref.event_id for ref in pending.events] == ["e0", "e4"]
    assert record_of(skin.run("record_events", key=TODAY)).status == "empty"


def test_the_sensor_asks_for_one_run_a_day_with_the_range(skin: Skin, scene: Scene) -> None:
    scene.publish({"event_id": "a"}, b"\xff", subject="llm.other")
    requests, cursor = skin.sense("event_sensor")
    [request] = requests
    assert request.partition_key == TODAY
    config = request.run_config["ops"][INBOX]["config"]
    assert (config["from_seq"], config["to_seq"]) == (1, 2)
    assert skin.sense("event_sensor", cursor)[0] == []
    record = record_of(skin.run("record_events", key=TODAY, config=request.run_config))
    assert (record.event_count, record.rejects) == (1, 1)


FLOW = "llm.flow.lineage"


def node(node_id: str, node_type: str, state: str = "declared", **more: str) -> dict[str, Any]:
    payload = {"kind": "node", "node_id": node_id, "node_type": node_type, "state": state, **more}
    return {"correlation_id": "s-7", "payload": payload}


def edge(from_id: str, to_id: str) -> dict[str, Any]:
    payload = {"kind": "edge", "edge_id": f"{from_id}-{to_id}", "from": from_id, "to": to_id, "relation": "assigned"}
    return {"correlation_id": "s-7", "payload": payload}


def publish_a_session(scene: Scene) -> None:
    scene.publish(
        node("boss", "agent", role="orchestrator"),
        node("ann", "agent", role="worker"),
        node("bob", "agent", role="translator"),
        node("t1", "task", name="plan"),
        edge("boss", "ann"),
        edge("ann", "t1"),
        node("t1", "task", "started"),
        node("t1", "task", "finished"),
        subject=FLOW,
    )
    call = {"call_id": "c1", "task": "t1", "tool": "grep", "duration_ms": 3, "ok": True}
    scene.publish({"correlation_id": "s-7", "source": "ann", "payload": call}, subject="llm.tool_call")


def test_a_session_is_told_as_tables_and_a_picture(skin: Skin, scene: Scene) -> None:
    publish_a_session(scene)
    scene.publish({"prompt": "hi", "model": "small", "correlation_id": "s-7"})
    skin.run("record_events", key=TODAY)
    skin.run("answer_prompts", "cpu_inference")
    told = skin.run("refresh_sessions", key=TODAY)
    flow = metadata(told, "event_flow")
    assert (flow["status"], flow["session"], flow["roles_without_work"]) == ("done", "s-7", "translator")
    assert flow["picture"].startswith("![flow of s-7](data:image/png")
    [row] = cells(flow["flows"].records)
    assert (row["tasks"], row["finished"], row["max_parallel"], row["depth"]) == (1, 1, 1, 2)
    timeline = metadata(told, "session_timeline")
    assert timeline["sessions"] == 1
    moments = [row["moment"] for row in cells(timeline["timeline"].records)]
    assert moments == ["event"] * 9 + ["published", "sent", "ended"]
    volume = metadata(told, "event_volume")
    assert volume["events"] == 9
    assert volume["chart"].startswith("![events a minute](data:image/png")


def test_no_payload_text_is_written_to_the_event_log(skin: Skin, scene: Scene) -> None:
    turn = {"task": "t1", "role": "user", "content": "my secret diary"}
    scene.publish({"correlation_id": "s-8", "payload": turn}, subject="llm.chat.persist")
    scene.publish(
        {"correlation_id": "s-8", "payload": {"query": "my secret diary"}}, subject="obsidian.semantic_search"
    )
    runs = [skin.run("record_events", key=TODAY), skin.run("refresh_sessions", key=TODAY)]
    assert all("secret diary" not in str(event) for run in runs for event in skin.instance.all_logs(run.run_id))
    assert scene.foundry.warehouse.rows("select content from chat_turns") == [{"content": "my secret diary"}]


def test_sessions_are_told_again_when_something_came_in_since(skin: Skin, scene: Scene) -> None:
    assert skin.tick("sessions") == []
    scene.publish({"correlation_id": "s-1"}, subject="llm.other")
    skin.run("record_events", key=TODAY)
    assert [request.partition_key for request in skin.tick("sessions")] == [TODAY]
    skin.run("refresh_sessions", key=TODAY)
    assert skin.tick("sessions") == []


def test_what_did_not_land_is_asked_for_again(skin: Skin, scene: Scene) -> None:
    assert skin.tick("event_reconciliation") == []
    scene.publish({"event_id": "a"}, subject="llm.other")
    assert [request.partition_key for request in skin.tick("event_reconciliation")] == [TODAY]
    skin.run("record_events", key=TODAY)
    assert skin.tick("event_reconciliation") == []


def checks(skin: Skin) -> dict[str, bool]:
    found = skin.run("watch_events").get_asset_check_evaluations()
    return {check.check_name: check.passed for check in found}


def test_the_checks_see_rejects_losses_lag_and_silence(skin: Skin, scene: Scene) -> None:
    all_well = dict.fromkeys(
        ("no_rejects_today", "no_message_was_lost", "events_land_in_time", "no_subject_is_quiet"), True
    )
    assert checks(skin) == all_well
    scene.publish(b"no json", {"event_id": "a"}, {"event_id": "b"}, subject="llm.other")
    skin.run("record_events", key=TODAY, config={"ops": {INBOX: {"config": {"from_seq": 1, "to_seq": 1}}}})
    scene.purge(below=3, stream="events")
    skin.run("record_events", key=TODAY)
    assert checks(skin) == all_well | {"no_rejects_today": False, "no_message_was_lost": False}


def test_an_event_that_does_not_land_and_a_subject_that_is_expected_make_the_checks_warn(
    scene: Scene, instance: dg.DagsterInstance
) -> None:
    scene.raw["events"] = {"max_lag_s": 0.001, "quiet_after_s": {"llm.heartbeat": 60}}
    scene.publish({"event_id": "a"}, subject="llm.other")
    skin = Skin(scene, instance)
    found = skin.run("watch_events").get_asset_check_evaluations()
    shown = {check.check_name: check for check in found}
    assert not shown["events_land_in_time"].passed
    assert shown["events_land_in_time"].metadata["pending"].value == 1
    assert shown["events_land_in_time"].severity == dg.AssetCheckSeverity.WARN
    [quiet] = cells(shown["no_subject_is_quiet"].metadata["quiet"].value.records)  # type: ignore[union-attr]
    assert quiet == {"subject": "llm.heartbeat", "silent_s": None, "allowed_s": 60.0}
