"""Sources in the lake: what searches found, and which of it jobs were given.

Belongs here: rows of ``web_searches``, ``web_results``, ``job_grounding`` and ``job_sources``, to the lake and back.
Does not belong here: searching (``searching``), choosing (``grounding``).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa

from model_foundry.records import Completion, ErrorKind, JobOutcome, JobStatus
from model_foundry.warehouse.engine import run_script, storable
from model_foundry.warehouse.lake import Warehouse
from model_foundry.warehouse.sql_files import sql_text


@dataclass(frozen=True, slots=True)
class Search:
    """What became of one job's web search. ``waiting``: nobody could search, and a later run tries again.

    Attributes:
        job_id: who asked.
        search_lane: whose workers searched.
        query: what was searched for.
        status: ``answered``, ``failed`` or ``waiting``.
        attempt: the last one; its results are those of the search. None when nobody was asked.
        reason: why it waits, or failed.
        kind: of what ended it without an answer.
    """

    job_id: str
    search_lane: str
    query: str
    status: str
    attempt: Completion | None = None
    reason: str | None = None
    kind: ErrorKind | None = None

    @classmethod
    def ended(
        cls, job_id: str, search_lane: str, query: str, outcome: JobOutcome, attempt: Completion | None
    ) -> Search:
        """A search that ended, by its outcome and its last attempt."""
        if outcome.status is JobStatus.ANSWERED:
            return cls(job_id, search_lane, query, "answered", attempt)
        return cls(job_id, search_lane, query, "failed", attempt, outcome.error_message, outcome.error_kind)


@dataclass(frozen=True, slots=True)
class Source:
    """A source that a job's answer is given. ``source`` is a URL, or a note's path; ``number`` is what is cited."""

    number: int
    kind: str
    source: str
    title: str | None
    text: str
    score: float | None = None
    chunk: int | None = None


@dataclass(frozen=True, slots=True)
class Grounding:
    """What became of one job's wish for sources.

    Attributes:
        job_id: whose.
        grounds: where they were searched.
        query: what was searched for.
        status: ``given``, ``waiting`` or ``failed``.
        sources: those that were chosen; none may be.
        error_kind: why it failed.
        error_message: why it failed or waits.
        notes: remarks, such as that nothing was found.
    """

    job_id: str
    grounds: tuple[str, ...]
    query: str
    status: str
    sources: tuple[Source, ...] = ()
    error_kind: ErrorKind | None = None
    error_message: str | None = None
    notes: tuple[str, ...] = ()


def record_searches(
    warehouse: Warehouse, searches: Sequence[Search], *, lane: str, partition_date: date, run_id: str
) -> None:
    """Records searches of one partition's jobs with their results, in place of earlier ones."""
    if not searches:
        return
    searched = pa.Table.from_pylist([_search_row(s) for s in searches], schema=SEARCHED)
    found = pa.Table.from_pylist([row for s in searches for row in _result_rows(s)], schema=FOUND)
    params = {"day": partition_date, "lane": lane, "run_id": run_id}
    with warehouse.writer(f"record {len(searches)} searches") as connection:
        connection.register("searched", searched)
        connection.register("found", found)
        run_script(connection, sql_text("landing", "record_searches"), params)


def record_grounding(
    warehouse: Warehouse, grounded: Sequence[Grounding], *, lane: str, partition_date: date, run_id: str
) -> None:
    """Records which sources one partition's jobs were given, in place of earlier ones."""
    if not grounded:
        return
    heads = pa.Table.from_pylist([_grounding_row(g) for g in grounded], schema=GROUNDED)
    rows = [storable(asdict(source)) | {"job_id": g.job_id} for g in grounded for source in g.sources]
    params = {"day": partition_date, "lane": lane, "run_id": run_id, "now": datetime.now(UTC)}
    with warehouse.writer(f"record the sources of {len(grounded)} jobs") as connection:
        connection.register("grounded", heads)
        connection.register("given", pa.Table.from_pylist(rows, schema=GIVEN))
        run_script(connection, sql_text("landing", "record_grounding"), params)


def sources_of(
    warehouse: Warehouse, job_ids: Sequence[str], *, lane: str, partition_date: date
) -> dict[str, tuple[Source, ...]]:
    """The sources of one partition's jobs, by job; jobs without any are left out."""
    if not job_ids:
        return {}
    found: dict[str, list[Source]] = {}
    params = {"lane": lane, "day": partition_date, "ids": list(job_ids)}
    for row in warehouse.show("sources_of", params):
        found.setdefault(row.pop("job_id"), []).append(Source(**row))
    return {job_id: tuple(sources) for job_id, sources in found.items()}


def _search_row(search: Search) -> dict[str, Any]:
    attempt = search.attempt
    answered = attempt is not None and attempt.status is JobStatus.ANSWERED
    stats = (attempt.server_stats if attempt else None) or {}
    return storable(
        {
            "job_id": search.job_id,
            "search_lane": search.search_lane,
            "query": search.query,
            "status": search.status,
            "results": len(attempt.results) if attempt and answered else 0,
            "worker": attempt.worker if attempt else None,
            "engines_failed": json.dumps(stats.get("unresponsive_engines") or [], ensure_ascii=False),
            "took_s": attempt.timings.e2e_s if attempt else None,
            "error_kind": search.kind or (attempt.error_kind if attempt else None),
            "error_message": search.reason or (attempt.error_message if attempt else None),
            "searched_at": attempt.finished_at if attempt else datetime.now(UTC),
        }
    )


def _result_rows(search: Search) -> list[dict[str, Any]]:
    attempt = search.attempt
    if attempt is None or search.status != "answered":
        return []
    shared = {"job_id": search.job_id, "query": search.query, "worker": attempt.worker}
    return [
        storable(asdict(result) | shared | {"rank": rank, "searched_at": attempt.finished_at})
        for rank, result in enumerate(attempt.results, 1)
    ]


def _grounding_row(grounding: Grounding) -> dict[str, Any]:
    return storable(
        {
            "job_id": grounding.job_id,
            "grounds": json.dumps(grounding.grounds),
            "query": grounding.query,
            "status": grounding.status,
            "sources": len(grounding.sources),
            "error_kind": grounding.error_kind,
            "error_message": grounding.error_message,
            "notes": json.dumps(grounding.notes, ensure_ascii=False),
        }
    )


_TEXT = pa.string()
_TIME = pa.timestamp("us", tz="UTC")

SEARCHED = pa.schema(
    [
        *((name, _TEXT) for name in ("job_id", "search_lane", "query", "status", "worker", "engines_failed")),
        *((name, _TEXT) for name in ("error_kind", "error_message")),
        ("results", pa.int32()),
        ("took_s", pa.float64()),
        ("searched_at", _TIME),
    ]
)
"""A search on its way in."""

FOUND = pa.schema(
    [
        *((name, _TEXT) for name in ("job_id", "query", "url", "title", "content", "engine", "worker")),
        ("rank", pa.int32()),
        ("score", pa.float64()),
        ("published_at", _TIME),
        ("searched_at", _TIME),
    ]
)
"""A result of a search on its way in."""

GROUNDED = pa.schema(
    [
        *((name, _TEXT) for name in ("job_id", "grounds", "query", "status", "error_kind", "error_message", "notes")),
        ("sources", pa.int32()),
    ]
)
"""What became of a wish for sources, on its way in."""

GIVEN = pa.schema(
    [
        *((name, _TEXT) for name in ("job_id", "kind", "source", "title", "text")),
        ("number", pa.int32()),
        ("score", pa.float64()),
        ("chunk", pa.int32()),
    ]
)
"""A source on its way in."""
