from __future__ import annotations

import itertools
import math
import multiprocessing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model_foundry.config import LakeConfig
from model_foundry.records import ErrorKind, Job, JobOutcome, JobStatus, Reject
from model_foundry.warehouse.lake import Warehouse
from model_foundry.warehouse.landing import (
    attempts_so_far,
    claim_jobs,
    claimants,
    finished_unpublished,
    land_lost,
    mark_published,
    missing_ranges,
    put_off_jobs,
    record_completions,
)
from model_foundry.warehouse.sql_files import sql_text
from model_foundry_tests.builders import NOW, a_message
from model_foundry_tests.lake.rows import CREATED, TODAY, a_job, a_reject, an_attempt, finish, land

COUNTER = itertools.count(CREATED + 1)


def claim(lake: Warehouse, run_id: str = "run-1", **changes: Any) -> list[str]:
    asked: dict[str, Any] = {"lane": "cpu_inference", "partition_date": TODAY, "now": datetime.now(UTC)}
    return [job.job_id for job in claim_jobs(lake, run_id=run_id, **{**asked, **changes})]


def test_a_landed_message_is_a_job_a_duplicate_or_a_reject_and_the_ledger_counts_them(lake: Warehouse) -> None:
    report = land(lake, a_job(1), a_job(2, job_id="job-1"), a_reject(3))
    assert (report.messages, report.records, report.duplicates, report.rejects) == (3, 1, 1, 1)
    [ledger] = lake.rows("from ingest_ledger")
    assert (ledger["from_seq"], ledger["to_seq"], ledger["messages"]) == (1, 3, 3)


def test_landing_again_changes_nothing(lake: Warehouse) -> None:
    items = (a_job(1), a_job(2, job_id="job-1"), a_reject(3))
    land(lake, *items)
    before = [lake.rows(f"from {t} order by all") for t in ("jobs", "rejects", "stream_messages")]
    assert land(lake, *items, run_id="run-2").messages == 0
    assert [lake.rows(f"from {t} order by all") for t in ("jobs", "rejects", "stream_messages")] == before


MESSAGES = st.lists(st.sampled_from(["a", "b", "c", "reject"]), min_size=1, max_size=8)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kinds=MESSAGES, data=st.data())
def test_any_order_and_overlap_of_landings_gives_the_rows_of_one_clean_landing(
    shared_lake: Warehouse, kinds: list[str], data: st.DataObject
) -> None:
    created = next(COUNTER)
    items: list[Job | Reject] = [
        a_reject(seq, created=created) if kind == "reject" else a_job(seq, created=created, job_id=f"{created}-{kind}")
        for seq, kind in enumerate(kinds, start=1)
    ]
    spans = data.draw(st.lists(st.tuples(st.integers(1, len(items)), st.integers(1, len(items))), max_size=4))
    for first, last in [*(sorted(span) for span in spans), (1, len(items))]:
        land(shared_lake, *items[first - 1 : last])
    rows = shared_lake.rows("from stream_messages where stream_created = $created", {"created": created})
    jobs = shared_lake.rows("from jobs where stream_created = $created", {"created": created})
    rejects = shared_lake.rows("from rejects where stream_created = $created", {"created": created})
    assert sorted(r["seq"] for r in rows) == list(range(1, len(items) + 1))
    assert {j["job_id"].split("-")[1]: j["duplicates"] for j in jobs} == {
        kind: kinds.count(kind) - 1 for kind in set(kinds) - {"reject"}
    }
    assert len(rejects) == kinds.count("reject")
    assert len(rows) == len(jobs) + sum(j["duplicates"] for j in jobs) + len(rejects)


def test_the_first_message_of_a_job_id_wins_and_other_content_is_a_conflict(lake: Warehouse) -> None:
    land(lake, a_job(1, job_id="j", prompt="first"), a_job(2, job_id="j", prompt="first"))
    [job] = lake.rows("from jobs")
    assert (job["prompt"], job["duplicates"], job["conflict"]) == ("first", 1, False)
    land(lake, a_job(3, job_id="j", prompt="other"))
    [job] = lake.rows("from jobs")
    assert (job["prompt"], job["duplicates"], job["conflict"]) == ("first", 2, True)
    conflicts = lake.rows("select seq from stream_messages where conflict")
    assert conflicts == [{"seq": 3}]


def test_a_recreated_stream_is_another_stream(lake: Warehouse) -> None:
    land(lake, a_job(1, job_id="old"))
    land(lake, a_job(1, created=CREATED + 5, job_id="new"))
    assert len(lake.rows("from jobs")) == 2


def test_a_reject_is_kept_whole(lake: Warehouse) -> None:
    land(lake, a_reject(7))
    [row] = lake.rows("from rejects")
    assert (row["bytes"], row["subject"], row["reason"]) == (b"\xff\x00", "prompts.submit", "not UTF-8")
    assert row["headers"] == '[["A", "1"], ["A", "2"]]'


def test_a_job_comes_back_as_it_was_landed(lake: Warehouse) -> None:
    job = a_job(
        1,
        prompt="日本語 '\"\n\x00",
        messages=[{"role": "user", "content": "日本語 '\"\n\x00"}],
        params={"stop": ["a"], "temperature": 0.5},
        metadata={"k": [1, None]},
        extra={"unknown": True},
        notes=("a note",),
        deadline=datetime(2027, 1, 1, tzinfo=UTC),
    )
    land(lake, job)
    [back] = claim_jobs(lake, lane="cpu_inference", partition_date=TODAY, run_id="r", now=datetime.now(UTC))
    assert back == job


def test_jobs_are_claimed_by_priority_then_time(lake: Warehouse) -> None:
    land(lake, a_job(1), a_job(2, priority=5), a_job(3), a_job(4, priority=-1))
    assert claim(lake) == ["job-2", "job-1", "job-3", "job-4"]


def test_a_claim_leaves_what_a_living_run_holds_and_takes_over_what_a_dead_one_left(lake: Warehouse) -> None:
    where = {"lane": "cpu_inference", "partition_date": TODAY}
    land(lake, a_job(1), a_job(2))
    assert claim(lake, "run-1") == ["job-1", "job-2"]
    land(lake, a_job(3))
    assert claim(lake, "run-2") == ["job-3"]
    assert sorted(claimants(lake, **where)) == ["run-1", "run-2"]  # type: ignore[arg-type]
    assert claim(lake, "run-3", dead_runs=["run-1"]) == ["job-1", "job-2"]
    assert claim(lake, "run-2") == ["job-3"]


def test_a_finished_job_is_claimed_by_nobody(lake: Warehouse) -> None:
    job = a_job(1)
    land(lake, job)
    claim(lake)
    finish(lake, (job, an_attempt(job)))
    assert lake.rows("from job_claims") == []


def test_landing_a_range_again_adds_nothing_to_the_ledger_either(lake: Warehouse) -> None:
    for run_id in ("run-1", "run-2"):
        land(lake, a_job(1), a_job(2), run_id=run_id)
    [row] = lake.rows("from ingest_ledger")
    assert (row["messages"], row["run_id"]) == (2, "run-1")


def test_a_message_with_the_number_of_another_is_landed_when_its_stream_was_restored(lake: Warehouse) -> None:
    """A stream restored from a backup gives numbers again, with the same creation time."""
    land(lake, a_job(1), a_job(2, job_id="before"))
    later = a_message(seq=2, stream_created=CREATED, published_at=NOW + timedelta(days=1))
    land(lake, replace(a_job(2, job_id="after"), published_at=later.published_at))
    assert sorted(r["job_id"] for r in lake.rows("from jobs")) == ["after", "before", "job-1"]
    assert lake.rows(sql_text("checks", "every_message_is_accounted_for")) == []


def test_what_no_store_can_hold_is_made_storable(lake: Warehouse) -> None:
    job = a_job(1)
    land(lake, job)
    half = "\ud83d"
    attempt = an_attempt(job, text=half, reasoning="\ud83d\ude00 \x00", finish_reason=half, tool_calls=[{"name": half}])
    finish(lake, (job, replace(attempt, server_stats={"x": half}, error_message=half)))
    [row] = lake.rows("select text, reasoning, finish_reason, tool_calls from completions")
    assert (row["text"], row["reasoning"], row["finish_reason"]) == ("�", "😀 \x00", "�")


def test_lost_messages_are_written_off_once_and_are_missing_no_more(lake: Warehouse) -> None:
    land(lake, a_job(3), a_job(4))
    for _ in range(2):
        land_lost(lake, "PROMPTS", CREATED, [(1, 5)], reason="dropped", run_id="r")
    rows = lake.rows("select from_seq, to_seq, reason from lost_messages order by from_seq")
    assert [tuple(row.values()) for row in rows] == [(1, 2, "dropped"), (5, 5, "dropped")]
    assert missing_ranges(lake, "PROMPTS", CREATED, 1, 7) == [(6, 7)]
    assert len(lake.rows(sql_text("checks", "no_message_was_lost"))) == 2


def test_attempts_are_recorded_once_and_numbered_on(lake: Warehouse) -> None:
    job = a_job(1)
    land(lake, job)
    assert so_far(lake) == {}
    for _ in range(2):
        finish(lake, (job, an_attempt(job, 1)))
    assert len(lake.rows("from completions")) == 1
    assert so_far(lake) == {"job-1": (1, 1)}


def so_far(lake: Warehouse) -> dict[str, tuple[int, int]]:
    return attempts_so_far(lake, ["job-1", "other"], lane=a_job(1).lane, partition_date=TODAY)


def test_a_worker_that_could_not_be_reached_costs_a_job_none_of_its_budget(lake: Warehouse) -> None:
    job = a_job(1)
    land(lake, job)
    for number, kind in enumerate((ErrorKind.CONNECTION, ErrorKind.STALLED, ErrorKind.CONNECTION), start=1):
        finish(lake, (job, an_attempt(job, number, status=JobStatus.FAILED, error_kind=kind)))
    assert so_far(lake) == {"job-1": (3, 1)}


def test_why_a_job_waits_is_kept_until_a_run_takes_it_up_again(lake: Warehouse) -> None:
    land(lake, a_job(1), a_job(2))
    where: dict[str, Any] = {"lane": a_job(1).lane, "partition_date": TODAY}
    for reason in ("nobody", "still nobody"):
        put_off_jobs(lake, {"job-1": reason}, **where, run_id="run-1")
    rows = lake.rows("select job_id, reason from waiting_jobs order by job_id")
    assert [tuple(r.values()) for r in rows] == [("job-1", "still nobody"), ("job-2", None)]
    claim_jobs(lake, **where, run_id="run-2", now=NOW)
    assert {r["reason"] for r in lake.rows("from waiting_jobs")} == {None}


def test_nan_and_infinity_become_unknown(lake: Warehouse) -> None:
    job = a_job(1)
    land(lake, job)
    finish(lake, (job, an_attempt(job, tpot_s=math.nan, prefill_tps=math.inf, queue_s=-math.inf)))
    [row] = lake.rows("select tpot_s, prefill_tps, queue_s, e2e_s from completions")
    assert row == {"tpot_s": None, "prefill_tps": None, "queue_s": None, "e2e_s": 1.0}


def test_an_outcome_without_an_attempt_is_recorded_too(lake: Warehouse) -> None:
    land(lake, a_job(1))
    outcome = JobOutcome("job-1", JobStatus.EXPIRED, None, "too late", 0, datetime.now(UTC))
    record_completions(lake, [], [outcome], lane="cpu_inference", partition_date=TODAY, run_id="r")
    [job] = lake.rows("from jobs")
    assert (job["status"], job["error_message"]) == ("expired", "too late")


def test_a_finished_job_is_unpublished_until_its_result_has_a_sequence(lake: Warehouse) -> None:
    job = a_job(1)
    land(lake, job, a_job(2))
    finish(lake, (job, an_attempt(job, text="hello", e2e_s=2.5)))
    where = {"lane": "cpu_inference", "partition_date": TODAY}
    [(found, outcome, last)] = finished_unpublished(lake, **where)  # type: ignore[arg-type]
    assert (found.job_id, outcome.status, outcome.attempts) == ("job-1", JobStatus.ANSWERED, 1)
    assert last is not None
    assert (last.text, last.timings.e2e_s, last.worker) == ("hello", 2.5, "moon")
    mark_published(lake, [(outcome, 41)], partition_date=TODAY)
    assert finished_unpublished(lake, **where) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("landed", "missing"),
    [([], [(1, 9)]), ([1, 2, 9], [(3, 8)]), ([5], [(1, 4), (6, 9)]), (list(range(1, 10)), [])],
)
def test_missing_ranges_are_what_nobody_has_landed(
    lake: Warehouse, landed: list[int], missing: list[tuple[int, int]]
) -> None:
    land(lake, *(a_job(seq) for seq in landed))
    assert missing_ranges(lake, "PROMPTS", CREATED, 1, 9) == missing
    assert missing_ranges(lake, "PROMPTS", CREATED + 1, 1, 9) == [(1, 9)]


def _land_hundred(folder: Any, config: LakeConfig, run_id: str) -> None:
    warehouse = Warehouse(folder, config.model_copy(update={"writer_lock_timeout_s": 60}))
    for first in range(1, 101, 20):
        land(warehouse, *(a_job(seq) for seq in range(first, first + 20)), run_id=run_id)


def test_two_processes_that_land_the_same_at_once_land_it_once(lake: Warehouse) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_land_hundred, args=(lake.data_dir, lake.config, f"run-{n}")) for n in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    [counts] = lake.rows("select count(*) as n, count(distinct job_id) as jobs from jobs")
    assert counts == {"n": 100, "jobs": 100}
    assert len(lake.rows("from ingest_ledger")) == 5
