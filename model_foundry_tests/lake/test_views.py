from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from model_foundry.records import ErrorKind, JobStatus
from model_foundry.warehouse.lake import Warehouse
from model_foundry.warehouse.sql_files import sql_folder, sql_text
from model_foundry_tests.builders import NOW
from model_foundry_tests.lake.rows import TODAY, a_job, a_reject, an_attempt, answered, finish, land

SQL_FILES = sorted(f for kind in ("views", "queries", "show", "checks") for f in (sql_folder() / kind).glob("*.sql"))
PARAMS = {
    "run_id": "run-1",
    "day": TODAY,
    "lane": "cpu_inference",
    "job_ids": ["job-1"],
    "stream": "PROMPTS",
    "seqs": [1, 2],
    "since": NOW,
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
    assert row["messages"] == row["jobs"] + row["duplicates"] + row["rejects"] == 3


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
