"""What a materialization of the prompt assets shows. No prompt or answer text, ever: only ids and figures."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import date
from typing import Any
from urllib.parse import quote

import dagster as dg

from model_foundry.answering import AnswerReport
from model_foundry.defs.tables import markdown_table, number, records_table
from model_foundry.warehouse.lake import Snapshot
from model_foundry.warehouse.landing import LandingReport

MAX_LINKS = 20
TAG_VALUE = "yes"
"""The same for every run: the runs page finds tags by key and value only."""


def inbox_metadata(lake: Snapshot, report: LandingReport, span: tuple[int, int] | None, run_id: str) -> dict[str, Any]:
    """Counts of a landing, where it came from, and the rejects with their reasons."""
    metadata: dict[str, Any] = {
        "status": "landed" if report.messages else "empty",
        "messages": report.messages,
        "jobs": report.records,
        "duplicates": report.duplicates,
        "rejects": report.rejects,
        "lost": report.lost,
        "range": f"{span[0]} to {span[1]}" if span else "whatever was missing",
        "dagster/row_count": report.records,
    }
    if report.records:
        metadata["jobs_by_domain"] = records_table(lake.show("run_jobs_by_domain", {"run_id": run_id}))
    if report.rejects:
        metadata["reject_reasons"] = records_table(lake.show("run_rejects", {"run_id": run_id}))
    return metadata


def completions_metadata(lake: Snapshot, report: AnswerReport, day: date, lane: str, run_id: str) -> dict[str, Any]:
    """Counts, tokens, rates, percentiles, slowest jobs, failed ones, why others wait, links by correlation id."""
    ids = {"job_ids": report.job_ids}
    pending = lake.show("partition_pending", {"day": day, "lane": lane})[0]["pending"]
    metadata: dict[str, Any] = {
        "status": report.status,
        "answered": report.by_status.get("answered", 0),
        "failed": sum(count for status, count in report.by_status.items() if status != "answered"),
        "pending": pending,
        "attempts": report.attempts,
        "results_published": report.published,
        "dagster/row_count": report.attempts,
    }
    if report.put_off:
        reasons = Counter(report.put_off.values())
        metadata["put_off"] = len(report.put_off)
        metadata["waits_because"] = records_table(
            [{"jobs": jobs, "reason": reason} for reason, jobs in reasons.most_common(MAX_LINKS)]
        )
    if not report.job_ids:
        return metadata
    summary = lake.show("run_summary", {"run_id": run_id})[0]
    summary["p95_e2e_s"] = summary.pop("p95_note") or summary["p95_e2e_s"]
    metadata |= {key: number(value) for key, value in summary.items() if value is not None}
    metadata["slowest_jobs"] = records_table(lake.show("run_slowest", {"run_id": run_id}))
    failed = lake.show("jobs_without_answer", ids)
    if failed:
        metadata["jobs_without_answer"] = records_table(failed)
    correlated = lake.show("jobs_by_correlation", ids)
    if correlated:
        rows = [
            (
                f"[{_escape(row['correlation_id'])}]({correlation_link(row['correlation_id'])})",
                row["jobs"],
                row["answered"],
            )
            for row in correlated[:MAX_LINKS]
        ]
        metadata["by_correlation_id"] = dg.MetadataValue.md(
            markdown_table(["correlation id (its runs)", "jobs", "answered"], rows)
        )
    return metadata


def correlation_tags(lake: Snapshot, job_ids: Sequence[str]) -> dict[str, str]:
    """Run tags that make a run findable by the correlation ids it worked for; the first twenty."""
    if not job_ids:
        return {}
    correlated = lake.show("jobs_by_correlation", {"job_ids": list(job_ids)})[:MAX_LINKS]
    return {correlation_tag(row["correlation_id"]): TAG_VALUE for row in correlated}


def correlation_tag(correlation_id: str) -> str:
    """The run tag's key for a correlation id: Dagster allows letters, digits, ``_ - .`` and 63 characters."""
    return "correlation/" + re.sub(r"[^A-Za-z0-9_.-]", "-", correlation_id)[:63]


def correlation_link(correlation_id: str) -> str:
    """The page of runs that carry a correlation id."""
    return f"/runs?q[0]={quote(f'tag:{correlation_tag(correlation_id)}={TAG_VALUE}', safe='')}"


def _escape(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]()<>#|!])", r"\\\1", text)
