"""The two flows, landing and answering, on real NATS and a real lake."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from model_foundry.answering import answer_partition
from model_foundry.errors import StreamError
from model_foundry.intake import land_partition, plan_tick
from model_foundry.jetstream.client import JetStream
from model_foundry.partition_run import PartitionRun
from model_foundry.prompt_intake import PromptIntake
from model_foundry.reconciling import overdue
from model_foundry.records import UNROUTABLE_LANE
from model_foundry.warehouse.landing import claim_jobs
from model_foundry_tests.flows.conftest import Scene, Servers
from model_foundry_tests.inference.scripted import DONE, delta, refusal, sse, sse_answer, usage
from model_foundry_tests.parts import NatsServer, wait_for

TODAY = datetime.now(UTC).date()


def land(scene: Scene, lane: str, run_id: str = "run-1") -> None:
    land_partition(scene.foundry, PromptIntake, (TODAY, lane), run_id=run_id)


def statuses(scene: Scene) -> dict[str, str]:
    return {row["job_id"]: row["status"] for row in scene.foundry.warehouse.rows("select job_id, status from jobs")}


def test_a_tick_asks_for_one_run_a_lane_and_moves_the_cursor_behind_what_it_asked_for(scene: Scene) -> None:
    scene.worker("w", "http://127.0.0.1:9", supports=["cpu_inference", "gpu_inference"])
    scene.publish({"prompt": "hi", "model": "small"}, {"prompt": "hi", "model": "big"}, b"no json", {"prompt": " "})
    tick = plan_tick(scene.foundry, PromptIntake, None)
    assert tick is not None
    assert sorted(ask.lane for ask in tick.asks) == ["cpu_inference", "gpu_inference", UNROUTABLE_LANE]
    assert {(ask.from_seq, ask.to_seq) for ask in tick.asks} == {(1, 4)}
    assert plan_tick(scene.foundry, PromptIntake, tick.cursor.to_text()) is None


def test_a_cursor_that_can_not_be_read_starts_over_and_says_so(scene: Scene) -> None:
    scene.publish({"prompt": "hi"})
    tick = plan_tick(scene.foundry, PromptIntake, "{garbage")
    assert tick is not None
    assert tick.cursor.last_seq == 1
    assert "unreadable cursor" in tick.notes[0]


def test_every_message_of_a_range_lands_in_exactly_one_lane(scene: Scene) -> None:
    scene.publish(
        {"prompt": "hi", "model": "small"}, b"\xff", {"prompt": "hi", "model": "nope"}, {"prompt": "b", "model": "big"}
    )
    for lane in scene.foundry.config.lanes:
        land_partition(scene.foundry, PromptIntake, (TODAY, lane), run_id="r", span=(1, 4))
    [row] = scene.foundry.warehouse.rows("from accounting")
    assert (row["messages"], row["records"], row["duplicates"], row["rejects"]) == (4, 3, 0, 1)
    lanes = scene.foundry.warehouse.rows("select lane, count(*) as n from stream_messages group by lane order by lane")
    assert [(r["lane"], r["n"]) for r in lanes] == [("cpu_inference", 1), ("gpu_inference", 1), (UNROUTABLE_LANE, 2)]


def test_a_run_routes_by_the_configuration_it_was_asked_with_even_if_the_file_has_changed(scene: Scene) -> None:
    scene.worker("w", "http://127.0.0.1:9", supports=["cpu_inference", "gpu_inference"])
    scene.publish({"prompt": "hi", "model": "small"})
    tick = plan_tick(scene.foundry, PromptIntake, None)
    assert tick is not None
    [ask] = tick.asks
    scene.raw["models"]["small"] = "gpu_inference"
    report = land_partition(
        scene.foundry, PromptIntake, (TODAY, ask.lane), run_id="r", span=(1, 1), config_digest=ask.config_digest
    )
    assert (ask.lane, report.records) == ("cpu_inference", 1)


def test_a_range_of_a_stream_that_was_recreated_is_written_off(scene: Scene) -> None:
    scene.publish({"prompt": "hi"})
    report = land_partition(
        scene.foundry, PromptIntake, (TODAY, "cpu_inference"), run_id="r", span=(1, 3), stream_created=12345
    )
    assert (report.messages, report.lost) == (0, 3)
    [lost] = scene.foundry.warehouse.rows("select stream_created, from_seq, to_seq, reason from lost_messages")
    assert tuple(lost.values()) == (12345, 1, 3, "recreated")


def test_what_the_stream_dropped_before_it_landed_is_written_off_and_said(scene: Scene) -> None:
    scene.publish(*({"prompt": "hi", "model": "small"} for _ in range(5)))
    first = plan_tick(scene.foundry, PromptIntake, None)
    assert first is not None
    scene.publish(*({"prompt": "hi", "model": "small"} for _ in range(5)))
    scene.purge(below=8)
    land_partition(scene.foundry, PromptIntake, (TODAY, "cpu_inference"), run_id="r", span=(1, 5))
    tick = plan_tick(scene.foundry, PromptIntake, first.cursor.to_text())
    assert tick is not None
    assert {(ask.lane, ask.from_seq, ask.to_seq) for ask in tick.asks} == {
        ("cpu_inference", 8, 10),
        (UNROUTABLE_LANE, 6, 7),
    }
    for ask in tick.asks:
        land_partition(scene.foundry, PromptIntake, (TODAY, ask.lane), run_id="r", span=(ask.from_seq, ask.to_seq))
    lost = scene.foundry.warehouse.rows("select from_seq, to_seq from lost_messages order by from_seq")
    assert [tuple(row.values()) for row in lost] == [(1, 5), (6, 7)]
    assert len(scene.foundry.warehouse.rows("from jobs")) == 3


def test_a_message_that_was_deleted_before_it_landed_is_written_off(scene: Scene) -> None:
    scene.publish(*({"prompt": "hi", "model": "small"} for _ in range(5)))
    scene.delete(3)
    report = land_partition(scene.foundry, PromptIntake, (TODAY, "cpu_inference"), run_id="r")
    assert (report.records, report.lost) == (4, 1)


def test_a_read_that_lacks_what_the_stream_has_is_no_loss(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a replica that lags behind answers."""
    scene.publish(*({"prompt": "hi", "model": "small"} for _ in range(3)))
    read = JetStream.read_range

    async def lagging(*args: Any, **kwargs: Any) -> Any:
        return (await read(*args, **kwargs))[:-1]

    monkeypatch.setattr(JetStream, "read_range", lagging)
    with pytest.raises(StreamError, match="sequence 3"):
        land_partition(scene.foundry, PromptIntake, (TODAY, "cpu_inference"), run_id="r")
    assert scene.foundry.warehouse.rows("from lost_messages") == []


def test_a_range_beyond_the_streams_end_is_not_written_off(scene: Scene) -> None:
    scene.publish({"prompt": "hi", "model": "small"})
    assert land_partition(scene.foundry, PromptIntake, (TODAY, "cpu_inference"), run_id="r", span=(1, 9)).lost == 0


def test_what_is_overdue_is_asked_for_again_and_what_is_fresh_is_left_alone(scene: Scene, servers: Servers) -> None:
    scene.worker("w", servers.start(sse_answer()).url)
    scene.publish({"prompt": "hi", "model": "small"}, b"no json", {"prompt": "hi", "model": "small"})
    now, later = datetime.now(UTC), datetime.now(UTC) + timedelta(hours=1)
    assert overdue(scene.foundry, PromptIntake, now) == []
    assert {(o.lane) for o in overdue(scene.foundry, PromptIntake, later)} == {"cpu_inference", UNROUTABLE_LANE}
    land(scene, "cpu_inference")
    assert {(o.lane, o.reason) for o in overdue(scene.foundry, PromptIntake, later)} == {
        ("cpu_inference", "2 jobs pending, 0 unpublished"),
        (UNROUTABLE_LANE, "sequences 2 to 2 did not land"),
    }
    land(scene, UNROUTABLE_LANE)
    answer_partition(PartitionRun(scene.foundry, TODAY, "cpu_inference", run_id="run-1"))
    assert overdue(scene.foundry, PromptIntake, later) == []


def test_a_gap_that_the_stream_has_dropped_is_asked_for_so_that_a_run_writes_it_off(scene: Scene) -> None:
    scene.publish(*({"prompt": "hi", "model": "small"} for _ in range(6)))
    land_partition(scene.foundry, PromptIntake, (TODAY, "cpu_inference"), run_id="r", span=(1, 2))
    scene.purge(below=5)
    [first, second] = overdue(scene.foundry, PromptIntake, datetime.now(UTC) + timedelta(hours=1))
    assert (first.lane, second.lane) == ("cpu_inference", UNROUTABLE_LANE)
    assert land_partition(scene.foundry, PromptIntake, (TODAY, UNROUTABLE_LANE), run_id="r").lost == 2
    assert {o.lane for o in overdue(scene.foundry, PromptIntake, datetime.now(UTC) + timedelta(hours=1))} == {
        "cpu_inference"
    }


def test_an_outage_of_nats_while_a_batch_is_answered_ends_nothing(tmp_path: Path, servers: Servers) -> None:
    with NatsServer(tmp_path / "nats") as nats, ThreadPoolExecutor() as pool:
        scene = Scene(tmp_path, nats.url)
        server = servers.start(sse(delta(content="x"), 3.0, delta("stop"), usage(1, 1), DONE))
        scene.worker("w", server.url)
        scene.publish({"prompt": "hi", "job_id": "j", "model": "small"})
        land(scene, "cpu_inference")
        run = pool.submit(answer_partition, PartitionRun(scene.foundry, TODAY, "cpu_inference", run_id="run-1"))
        wait_for("the request", lambda: server.received)
        nats.kill()
        wait_for("the answer, recorded", lambda: statuses(scene)["j"] == "answered")
        nats.start()
        assert run.result(60).published == 1
        assert scene.results()["j"]["text"] == "x"


def test_a_partition_without_a_range_lands_what_is_missing_and_nothing_twice(scene: Scene) -> None:
    scene.publish({"prompt": "a", "model": "small"}, {"prompt": "b", "model": "small"})
    land_partition(scene.foundry, PromptIntake, (TODAY, "cpu_inference"), run_id="r", span=(2, 2))
    assert land_partition(scene.foundry, PromptIntake, (TODAY, "cpu_inference"), run_id="r2").records == 1
    assert land_partition(scene.foundry, PromptIntake, (TODAY, "cpu_inference"), run_id="r3").messages == 0


def test_a_range_with_more_bytes_than_memory_should_hold_is_asked_for_and_landed_in_parts(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model_foundry.intake.ENOUGH_BYTES", 100_000)
    monkeypatch.setattr("model_foundry.jetstream.client.BATCH_MESSAGES", 2)
    scene.publish(*({"prompt": "x" * 40_000, "model": "small"} for _ in range(9)))
    tick = plan_tick(scene.foundry, PromptIntake, None)
    assert tick is not None
    assert [(ask.from_seq, ask.to_seq) for ask in tick.asks] == [(1, 4)]
    assert tick.cursor.last_seq == 4
    report = land_partition(scene.foundry, PromptIntake, (TODAY, "cpu_inference"), run_id="r")
    assert (report.messages, report.records) == (9, 9)
    ranges = scene.foundry.warehouse.rows("select from_seq, to_seq from ingest_ledger order by from_seq")
    assert [tuple(row.values()) for row in ranges] == [(1, 4), (5, 8), (9, 9)]


def test_an_answer_larger_than_the_servers_messages_is_published_cut_and_kept_whole(
    tmp_path: Path, servers: Servers
) -> None:
    with NatsServer(tmp_path / "nats", max_payload_bytes=20_000) as nats:
        scene = Scene(tmp_path, nats.url)
        scene.worker("w", servers.start(sse_answer("é" * 30_000)).url)
        scene.publish({"prompt": "hi", "job_id": "j", "model": "small"})
        land(scene, "cpu_inference")
        answer_partition(PartitionRun(scene.foundry, TODAY, "cpu_inference", run_id="run-1"))
        result = scene.results()["j"]
        assert result["truncated"] is True
        assert 3_000 < len(result["text"]) < 30_000
        [row] = scene.foundry.warehouse.rows("select text from completions")
        assert len(row["text"]) == 30_000


def test_an_answer_is_recorded_and_published_with_the_servers_own_token_counts(scene: Scene, servers: Servers) -> None:
    server = servers.start(sse(delta(content="Can"), delta(content="berra"), delta("stop"), usage(5, 2), DONE))
    scene.worker("w", server.url)
    scene.publish({"prompt": "Capital?", "job_id": "j.1 ü", "correlation_id": "s-1", "model": "small"})
    land(scene, "cpu_inference")
    report = answer_partition(PartitionRun(scene.foundry, TODAY, "cpu_inference", run_id="run-1"))
    assert report.by_status == {"answered": 1}
    [row] = scene.foundry.warehouse.rows("from completions")
    assert (row["text"], row["prompt_tokens"], row["completion_tokens"], row["tokens_source"]) == (
        "Canberra",
        5,
        2,
        "server",
    )
    assert 0 < row["ttft_s"] <= row["e2e_s"]
    assert row["queue_s"] > 0
    result = scene.results()["j.1 ü"]
    assert (result["status"], result["text"], result["correlation_id"]) == ("answered", "Canberra", "s-1")
    assert result["usage"] == {"prompt_tokens": 5, "completion_tokens": 2}
    assert result["timings"]["e2e_s"] == pytest.approx(row["e2e_s"])


def test_a_failing_worker_is_an_attempt_of_its_own_and_another_worker_answers(scene: Scene, servers: Servers) -> None:
    bad, good = servers.start(refusal(500, b"out of memory")), servers.start(sse_answer("fine"))
    scene.worker("bad", bad.url).worker("good", good.url, supports=["gpu_inference", "cpu_inference"])
    scene.raw["workers"]["good"]["models"] = ["small"]
    scene.publish({"prompt": "hi", "job_id": "j", "model": "small"})
    land(scene, "cpu_inference")
    answer_partition(PartitionRun(scene.foundry, TODAY, "cpu_inference", run_id="run-1"))
    rows = scene.foundry.warehouse.rows("select attempt, worker, status, error_kind from completions order by attempt")
    assert [tuple(row.values()) for row in rows] == [
        (1, "bad", "failed", "server_error"),
        (2, "good", "answered", None),
    ]
    assert statuses(scene) == {"j": "answered"}


def test_what_can_not_be_used_gets_a_result_that_says_why(scene: Scene) -> None:
    scene.publish({"prompt": "hi", "job_id": "j", "model": "gemma3:270b"})
    land(scene, UNROUTABLE_LANE)
    answer_partition(PartitionRun(scene.foundry, TODAY, UNROUTABLE_LANE, run_id="run-1"))
    result = scene.results()["j"]
    assert (result["status"], result["error"]["kind"]) == ("rejected", "unknown_model")
    assert "gemma3:270b" in result["error"]["message"]
    assert "small" in result["error"]["message"]


def test_a_job_past_its_deadline_is_never_sent(scene: Scene, servers: Servers) -> None:
    server = servers.start(sse_answer())
    scene.worker("w", server.url)
    scene.publish({"prompt": "hi", "job_id": "j", "model": "small", "deadline": "2020-01-01T00:00:00Z"})
    land(scene, "cpu_inference")
    answer_partition(PartitionRun(scene.foundry, TODAY, "cpu_inference", run_id="run-1"))
    assert statuses(scene) == {"j": "expired"}
    assert server.received == []


def test_a_failed_job_is_asked_again_only_when_a_person_says_so(scene: Scene, servers: Servers) -> None:
    server = servers.start(refusal(400, {"error": {"message": "bad"}}), sse_answer("better"))
    scene.worker("w", server.url)
    scene.publish({"prompt": "hi", "job_id": "j", "model": "small"})
    land(scene, "cpu_inference")
    answer_partition(PartitionRun(scene.foundry, TODAY, "cpu_inference", run_id="run-1"))
    assert statuses(scene) == {"j": "failed"}
    assert answer_partition(PartitionRun(scene.foundry, TODAY, "cpu_inference", run_id="run-2")).status == "empty"
    answer_partition(PartitionRun(scene.foundry, TODAY, "cpu_inference", run_id="run-3", retry_failed=True))
    assert statuses(scene) == {"j": "answered"}
    rows = scene.foundry.warehouse.rows("select attempt, status from completions order by attempt")
    assert [(row["attempt"], row["status"]) for row in rows] == [(1, "failed"), (2, "answered")]


def test_jobs_that_a_dead_run_left_claimed_are_taken_over_and_a_living_runs_are_not(
    scene: Scene, servers: Servers
) -> None:
    server = servers.start(sse_answer())
    scene.worker("w", server.url)
    scene.publish({"prompt": "hi", "job_id": "j", "model": "small"})
    land(scene, "cpu_inference")
    claim = {"lane": "cpu_inference", "partition_date": TODAY, "now": datetime.now(UTC)}
    assert len(claim_jobs(scene.foundry.warehouse, run_id="dead", **claim)) == 1  # type: ignore[arg-type]
    assert answer_partition(PartitionRun(scene.foundry, TODAY, "cpu_inference", run_id="new")).status == "empty"
    report = answer_partition(PartitionRun(scene.foundry, TODAY, "cpu_inference", run_id="new", dead_runs=["dead"]))
    assert report.by_status == {"answered": 1}


def test_a_result_that_was_recorded_but_not_published_is_published_by_the_next_run(
    scene: Scene, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = servers.start(sse_answer("late"))
    scene.worker("w", server.url)
    scene.publish({"prompt": "hi", "job_id": "j", "model": "small"})
    land(scene, "cpu_inference")

    def broken(job_id: str) -> str:
        raise RuntimeError("died before publishing")

    with monkeypatch.context() as patched:
        patched.setattr("model_foundry.results.result_subject", broken)
        with pytest.raises(RuntimeError, match="died before publishing"):
            answer_partition(PartitionRun(scene.foundry, TODAY, "cpu_inference", run_id="run-1"))
    assert statuses(scene) == {"j": "answered"}
    assert scene.results() == {}
    answer_partition(PartitionRun(scene.foundry, TODAY, "cpu_inference", run_id="run-2"))
    assert scene.results()["j"]["text"] == "late"
    assert len(server.received) == 1


def test_the_same_job_id_twice_is_answered_once(scene: Scene, servers: Servers) -> None:
    server = servers.start(sse_answer())
    scene.worker("w", server.url)
    scene.publish(*[{"prompt": "hi", "job_id": "j", "model": "small"}] * 3)
    land(scene, "cpu_inference")
    answer_partition(PartitionRun(scene.foundry, TODAY, "cpu_inference", run_id="run-1"))
    assert len(server.received) == 1
    [job] = scene.foundry.warehouse.rows("select duplicates, conflict from jobs")
    assert (job["duplicates"], job["conflict"]) == (2, False)


def test_fifty_answers_are_all_recorded_and_published_and_never_exceed_the_slots(
    scene: Scene, servers: Servers
) -> None:
    server = servers.start(sse(delta(content="x"), 0.02, delta("stop"), usage(1, 1), DONE))
    scene.worker("w", server.url, slots=4)
    scene.publish(*({"prompt": f"p{i}", "job_id": f"j{i}", "model": "small"} for i in range(50)))
    land(scene, "cpu_inference")
    answer_partition(PartitionRun(scene.foundry, TODAY, "cpu_inference", run_id="run-1"))
    assert set(statuses(scene).values()) == {"answered"}
    assert len(scene.results()) == 50
    assert server.most_in_flight == 4
    [left] = scene.foundry.warehouse.rows(
        "select count(*) as n from jobs anti join job_results using (job_id, finished_at) "
        "union all select count(*) from job_claims order by n desc limit 1"
    )
    assert left["n"] == 0


def test_the_reply_subject_gets_the_result_too(scene: Scene, servers: Servers) -> None:
    server = servers.start(sse_answer("here"))
    scene.worker("w", server.url)
    scene.publish({"prompt": "hi", "job_id": "j", "model": "small", "reply_to": "results.for.me"})
    land(scene, "cpu_inference")
    answer_partition(PartitionRun(scene.foundry, TODAY, "cpu_inference", run_id="run-1"))
    [row] = scene.foundry.warehouse.rows("select result_seq from job_results")
    assert row["result_seq"] == 1
    assert scene.results()["j"]["text"] == "here"


def test_model_parameters_are_sent_and_the_prompts_own_win(scene: Scene, servers: Servers) -> None:
    server = servers.start(sse_answer())
    scene.worker("w", server.url, models={"small": "org/small-v2"})
    scene.raw["models"]["small"] = {"capability": "cpu_inference", "params": {"temperature": 0.7, "top_k": 5}}
    scene.publish({"prompt": "hi", "model": "small", "params": {"temperature": 0}})
    land(scene, "cpu_inference")
    answer_partition(PartitionRun(scene.foundry, TODAY, "cpu_inference", run_id="run-1"))
    body = server.received[0].body
    assert (body["model"], body["temperature"], body["top_k"]) == ("org/small-v2", 0, 5)
    assert re.search("hi", json.dumps(body["messages"]))
