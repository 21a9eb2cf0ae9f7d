from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model_foundry.errors import LakeError
from model_foundry.records import ErrorKind, JobStatus
from model_foundry.warehouse.lake import Warehouse
from model_foundry.warehouse.sql_files import sql_folder, sql_text
from model_foundry_tests.builders import NOW
from model_foundry_tests.lake.rows import TODAY, a_job, a_reject, an_attempt, answered, finish, land

SQL_FILES = sorted(f for kind in ("views", "queries", "show", "checks") for f in (sql_folder() / kind).glob("*.sql"))
SECONDS = st.floats(0.001, 1000)
JOBS = st.lists(
    st.tuples(
        st.sampled_from(["code", "japanese"]),
        st.sampled_from(["moon", "card"]),
        SECONDS,
        st.sampled_from(["answered", "cold", "failed", "pending"]),
    ),
    min_size=1,
    max_size=150,
)
PARAMS = {
    "run_id": "run-1",
    "day": TODAY,
    "lane": "cpu_inference",
    "job_ids": ["job-1"],
    "stream": "PROMPTS",
    "seqs": [1, 2],
    "since": NOW,
    "now": NOW,
    "session": "session-1",
    "sessions": ["session-1"],
    "most": 10,
    "reject": "7",
    "stream_created": 1,
    "from_seq": 1,
    "to_seq": 100,
    "model": "nomic",
    "dimensions": 2,
    "query": [1.0, 2.0],
    "top": 3,
    "suite": "general",
    "sweep_id": "sweep-1",
    "request_ids": ["a moon c1 r0 t0 p"],
    "n": 20,
    "ids": ["job-1"],
    "sweep_ids": [],
    "models": ["a", "b"],
    "suite_digest": "0123456789ab",
    "judge_model": "j",
    "prompt_version": "1",
}


def latency(lake: Warehouse, level: str = "domain") -> dict[str, dict[str, Any]]:
    return {row["domain"]: row for row in lake.rows("from domain_latency where level = $level", {"level": level})}


def test_domain_latency_computes_its_figures_from_warm_answers(lake: Warehouse) -> None:
    answered(lake, [1.0, 2.0, 3.0, 4.0], domain="code")
    cold, failed = a_job(10, domain="code"), a_job(11, domain="code")
    land(lake, cold, failed, a_job(12, domain="code"))
    finish(
        lake,
        (cold, an_attempt(cold, e2e_s=60.0, cold=True)),
        (failed, an_attempt(failed, status=JobStatus.FAILED, error_kind=ErrorKind.TIMEOUT, e2e_s=None, ttft_s=None)),
    )
    row = latency(lake)["code"]
    assert (row["jobs"], row["answered"], row["failed"], row["pending"]) == (7, 5, 1, 1)
    assert (row["n"], row["cold"]) == (4, 1)
    assert row["error_rate"] == pytest.approx(1 / 6)
    assert (row["avg_e2e_s"], row["p50_e2e_s"], row["max_e2e_s"]) == (2.5, 2.5, 4.0)


@pytest.mark.parametrize(("n", "shown"), [(58, False), (59, True)])
def test_a_p95_is_shown_from_59_answers_on(lake: Warehouse, n: int, shown: bool) -> None:
    answered(lake, [float(i) for i in range(1, n + 1)], domain="code")
    row = latency(lake)["code"]
    assert (row["p95_e2e_s"] is not None) == shown
    assert (row["p95_note"] is None) == shown
    if not shown:
        assert row["p95_note"] == "n too small (58 < 59)"
    else:
        assert row["p95_e2e_s"] == pytest.approx(1 + 0.95 * 58)


def test_within_each_level_the_jobs_add_up_to_all_jobs(lake: Warehouse) -> None:
    answered(lake, [1.0, 1.0], domain="code")
    answered(lake, [2.0], domain="code", worker="card", first_seq=10)
    land(lake, a_job(20, domain="general"), a_job(21, model="nope"), a_reject(22))
    for level in ("domain", "domain_model", "domain_model_worker"):
        [total] = lake.rows("select sum(jobs) as n from domain_latency where level = $level", {"level": level})
        assert total["n"] == 5


def test_worker_mix_explains_a_bimodal_model(lake: Warehouse) -> None:
    """90 answers of 0.5 to 1.49 s on a GPU, 10 of 8 to 11.6 s on a CPU: the pooled p95 fits neither."""
    answered(lake, [0.5 + 0.99 * i / 89 for i in range(90)], worker="gpu")
    answered(lake, [8 + 3.6 * i / 9 for i in range(10)], worker="cpu", first_seq=200)
    rows = {row["worker"]: row for row in lake.rows("from worker_mix where level = 'model'")}
    assert rows["gpu"]["pooled_p50_e2e_s"] == pytest.approx(1.05, abs=0.02)
    assert rows["gpu"]["pooled_p95_e2e_s"] == pytest.approx(9.62, abs=0.1)
    assert (rows["cpu"]["share"], rows["cpu"]["slow_n"], rows["cpu"]["slow_share"]) == (0.1, 5, 1.0)
    assert (rows["gpu"]["slow_n"], rows["gpu"]["slow_share"]) == (0, 0.0)
    assert rows["gpu"]["max_e2e_s"] < 1.5 < 8 <= rows["cpu"]["p50_e2e_s"]
    assert rows["cpu"]["p95_e2e_s"] is None, "ten answers are too few for a p95"


def test_throughput_is_tokens_over_seconds(lake: Warehouse) -> None:
    jobs = [a_job(1), a_job(2)]
    land(lake, *jobs)
    finish(
        lake,
        (jobs[0], an_attempt(jobs[0], decode_s=1.0, decode_tps=100.0, prefill_s=0.1, prefill_tps=1000.0)),
        (jobs[1], an_attempt(jobs[1], decode_s=3.0, decode_tps=20.0)),
    )
    [row] = lake.rows("from model_throughput")
    assert row["decode_tps"] == pytest.approx((100 + 60) / 4)
    assert row["prefill_tps"] == pytest.approx(1000)
    assert row["p50_decode_tps"] == pytest.approx(60)


def test_job_overview_has_one_row_a_job_with_its_last_attempt(lake: Warehouse) -> None:
    job = a_job(1)
    land(lake, job, a_job(2))
    bad = an_attempt(job, 1, worker="bad", status=JobStatus.FAILED, error_kind=ErrorKind.CONNECTION, text="")
    finish(lake, (job, bad), (job, an_attempt(job, 2, worker="good", text="fine")))
    rows = {row["job_id"]: row for row in lake.rows("from job_overview")}
    assert len(rows) == 2
    assert (rows["job-1"]["worker"], rows["job-1"]["text"], rows["job-1"]["attempts"]) == ("good", "fine", 2)


def test_accounting_adds_up(lake: Warehouse) -> None:
    land(lake, a_job(1), a_job(2, job_id="job-1"), a_reject(3))
    [row] = lake.rows("from accounting")
    assert row["messages"] == row["records"] + row["duplicates"] + row["rejects"] == 3


@pytest.mark.parametrize("file", SQL_FILES, ids=lambda f: f"{f.parent.name}/{f.stem}")
def test_every_query_says_its_question_and_runs_on_an_empty_and_on_a_filled_lake(
    file: Path, shared_lake: Warehouse
) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.startswith("-- ")
    assert "?" in text.split("\nselect")[0].split("\nwith")[0], "the comment says which question it answers"
    shared_lake.rows(text, PARAMS)
    if not shared_lake.rows("from jobs"):
        answered(shared_lake, [1.0, 2.0], correlation_id="session")
        land(shared_lake, a_reject(50))
    shared_lake.rows(text, PARAMS)


def test_a_message_that_is_not_accounted_for_is_found(lake: Warehouse) -> None:
    check = sql_text("checks", "every_message_is_accounted_for")
    land(lake, a_job(1), a_job(2, job_id="job-1"), a_reject(3))
    assert lake.rows(check) == []
    with lake.writer() as writing:
        writing.execute("delete from rejects")
        writing.execute("insert into stream_messages from stream_messages where seq = 1")
    assert sorted(row["outcome"] for row in lake.rows(check)) == ["landed 2 times", "reject"]


@pytest.mark.parametrize(
    "damage", ["e2e_s = 'nan'", "ttft_s = 5", "ttft_s = null", "decode_tps = -1", "tpot_s = 'inf'"]
)
def test_a_figure_that_can_not_be_is_found(lake: Warehouse, damage: str) -> None:
    check = sql_text("checks", "figures_are_finite_and_ordered")
    answered(lake, [1.0, 2.0])
    assert lake.rows(check) == []
    with lake.writer() as writing:
        writing.execute(f"update completions set {damage} where job_id = 'job-1'")
    assert [row["job_id"] for row in lake.rows(check)] == ["job-1"]


@given(JOBS)
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_the_figures_are_those_that_numpy_computes(
    shared_lake: Warehouse, found: list[tuple[str, str, float, str]]
) -> None:
    """domain_latency and worker_mix against the same numbers computed with pandas and numpy from the raw input."""
    with shared_lake.writer() as writing:
        for table in ("jobs", "completions", "stream_messages", "ingest_ledger", "rejects"):
            writing.execute(f"delete from {table}")
    jobs = [a_job(seq, domain=domain) for seq, (domain, *_) in enumerate(found, 1)]
    land(shared_lake, *jobs)
    attempts = []
    for job, (_, worker, seconds, outcome) in zip(jobs, found, strict=True):
        if outcome == "failed":
            attempts.append((job, an_attempt(job, worker=worker, status=JobStatus.FAILED, e2e_s=None)))
        elif outcome != "pending":
            attempts.append((job, an_attempt(job, worker=worker, e2e_s=seconds, cold=outcome == "cold")))
    finish(shared_lake, *attempts)

    table = pd.DataFrame(found, columns=["domain", "worker", "seconds", "outcome"])
    for domain, rows in table.groupby("domain"):
        row = latency(shared_lake)[str(domain)]
        warm = rows.seconds[rows.outcome == "answered"].to_numpy()
        ended = (rows.outcome != "pending").sum()
        assert (row["jobs"], row["n"], row["pending"]) == (len(rows), len(warm), (rows.outcome == "pending").sum())
        failed = (rows.outcome == "failed").sum()
        assert row["error_rate"] == (pytest.approx(failed / ended) if ended else None)
        assert row["p50_e2e_s"] == (pytest.approx(np.quantile(warm, 0.5)) if len(warm) else None)
        assert row["avg_e2e_s"] == (pytest.approx(warm.mean()) if len(warm) else None)
        assert row["p95_e2e_s"] == (pytest.approx(np.quantile(warm, 0.95)) if len(warm) >= 59 else None)
    warm_rows = table[table.outcome == "answered"].sort_values("seconds", ascending=False)
    slowest = warm_rows.seconds.to_numpy()[: math.ceil(len(warm_rows) / 20)]
    for row in shared_lake.rows("from worker_mix where level = 'all'"):
        own = warm_rows[warm_rows.worker == row["worker"]].seconds
        assert (row["n"], row["pooled_n"]) == (len(own), len(warm_rows))
        assert row["slow_n"] <= (own >= slowest.min()).sum()
        assert row["p50_e2e_s"] == pytest.approx(np.quantile(own, 0.5))


def test_latency_over_a_window_takes_what_was_published_in_it(lake: Warehouse) -> None:
    """Job n was published n seconds after half past nine."""
    answered(lake, [1.0, 2.0, 3.0, 4.0], domain="code")
    window = {"a": NOW + timedelta(seconds=2), "b": NOW + timedelta(seconds=4)}
    query = "from domain_latency_between($a, $b) where level = 'domain'"
    [row] = lake.rows(query, window)
    assert (row["n"], row["avg_e2e_s"]) == (2, 2.5)


def test_the_lake_can_be_read_as_it_was(lake: Warehouse) -> None:
    answered(lake, [1.0, 1.0], domain="code")
    [then] = lake.rows("select max(snapshot_id) as n from ducklake_snapshots(current_database())")
    moment = datetime.now(UTC)
    answered(lake, [9.0, 9.0], domain="code", first_seq=10)
    query = "select n, p50_e2e_s from domain_latency where level = 'domain'"
    assert lake.rows(query) == [{"n": 4, "p50_e2e_s": 5.0}]
    assert lake.rows(query, at=then["n"]) == lake.rows(query, at=moment) == [{"n": 2, "p50_e2e_s": 1.0}]
    for never in (99_999, datetime(2020, 1, 1, tzinfo=UTC)):
        with pytest.raises(LakeError, match="no snapshot"):
            lake.rows(query, at=never)


def test_a_timeline_is_in_order_and_names_the_gaps(lake: Warehouse) -> None:
    job = a_job(1, correlation_id="s")
    land(lake, job)
    sent, ended = job.published_at + timedelta(seconds=3), job.published_at + timedelta(seconds=8)
    finish(lake, (job, an_attempt(job, sent_at=sent, finished_at=ended)))
    rows = lake.rows("from session_timeline where correlation_id = 's' order by happened_at")
    assert [(r["moment"], r["gap_s"]) for r in rows] == [("published", None), ("sent", 3.0), ("ended", 5.0)]


def test_a_day_is_compared_with_that_domains_day_before(lake: Warehouse) -> None:
    answered(lake, [1.0, 1.0], domain="code", partition_date=TODAY - timedelta(days=3))
    answered(lake, [1.1], domain="code", first_seq=10)
    first, second = lake.rows("from day_over_day where domain = 'code' order by partition_date")
    assert (first["jobs_change"], second["jobs_change"]) == (None, -1)
    assert second["p50_change"] == pytest.approx(0.1)


def test_models_are_compared_over_all_and_by_worker(lake: Warehouse) -> None:
    answered(lake, [1.0, 3.0])
    answered(lake, [5.0], worker="card", first_seq=10)
    rows = {(r["level"], r["worker"]): r for r in lake.rows("from model_usage")}
    assert rows["model", None]["p50_e2e_s"] == 3.0
    assert (rows["model_worker", "moon"]["n"], rows["model_worker", "card"]["p50_e2e_s"]) == (2, 5.0)
