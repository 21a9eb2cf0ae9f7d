"""Grounding: the sources that a job's answer is given, and how they are put before the model.

Belongs here: choosing among what searches found, the words around it. Does not belong here: searching (``searching``,
``search``), asking the model (``answering``).

A job that asks for sources waits until every search that it needs was made. Nothing found is an outcome: the model is
told so, and the result has an empty list. A search that failed for good fails the job: an answer without the sources
that were asked for is another answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from model_foundry.config import GroundingConfig
from model_foundry.embedding import embed_queries
from model_foundry.inference.worker_state import COOLS
from model_foundry.partition_run import PartitionRun
from model_foundry.records import ErrorKind, Job, JobOutcome, JobStatus
from model_foundry.runtime import Foundry
from model_foundry.search import EMBED_AGAIN, EMBED_FIRST, Hit, similar_notes
from model_foundry.searching import query_of
from model_foundry.warehouse.engine import Rows
from model_foundry.warehouse.landing import put_off_jobs, record_completions
from model_foundry.warehouse.sources import Grounding, Source, record_grounding
from model_foundry.warehouse.vectors import embedded_dimensions

NOTHING_FOUND = "nothing_found: the search for sources found nothing"
NOTHING_FOUND_TEXT = "A search for sources was made and found nothing; say so if the question needs them."

_ENDS = {ErrorKind.CANCELLED: JobStatus.CANCELLED, ErrorKind.DEADLINE: JobStatus.EXPIRED}
"""How a job ends whose search ended for these reasons."""


@dataclass(slots=True)
class GroundingReport:
    """What one run gave jobs.

    Attributes:
        given: jobs that were given sources.
        without: of them, those for which nothing was found.
        sources: given, by kind.
        waiting: why jobs wait for their sources.
        failed: why jobs failed for want of them.
    """

    given: int = 0
    without: int = 0
    sources: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """``empty``, ``done``, or ``waiting`` when no job could be given any."""
        if self.given or self.failed:
            return "done"
        return "waiting" if self.waiting else "empty"


@dataclass(frozen=True, slots=True)
class Found:
    """What a search in one place gave a job: sources, or why there are none; ``final`` when it will not be retried."""

    sources: tuple[Source, ...] = ()
    problem: str | None = None
    kind: ErrorKind | None = None
    final: bool = False


def give_sources(run: PartitionRun) -> GroundingReport:
    """Gives the partition's pending jobs the sources that they ask for.

    Args:
        run: which run, which partition.

    Raises:
        NatsUnavailableError, StreamError: when slots can't be shared.
        LakeError: when the lake can't be used.
    """
    report, config, jobs = GroundingReport(), run.foundry.config.grounding, run.claim(sourceless=True)
    if not jobs:
        return report
    found = {
        "web": _from_web(run, [j for j in jobs if "web" in j.ground]),
        "notes": _from_notes(run.foundry, [j for j in jobs if "notes" in j.ground]),
    }
    grounded = [decide(job, {g: found[g][job.job_id] for g in job.ground}, config) for job in jobs]
    record_grounding(run.warehouse, grounded, **run.where)
    outcomes = []
    for grounding in grounded:
        if grounding.status == "given":
            report.given += 1
            report.without += not grounding.sources
            for source in grounding.sources:
                report.sources[source.kind] = report.sources.get(source.kind, 0) + 1
        elif grounding.status == "waiting":
            report.waiting[grounding.job_id] = f"for its sources: {grounding.error_message}"
        else:
            report.failed[grounding.job_id] = grounding.error_message or ""
            message = f"no sources, which it asks for: {grounding.error_message}"
            kind, now = grounding.error_kind, datetime.now(UTC)
            status = _ENDS.get(kind, JobStatus.FAILED) if kind else JobStatus.FAILED
            outcomes.append(JobOutcome(grounding.job_id, status, kind, message, 0, now))
    if report.waiting:
        put_off_jobs(run.warehouse, report.waiting, **run.where)
    record_completions(run.warehouse, [], outcomes, **run.where)
    return report


def decide(job: Job, found: Mapping[str, Found], config: GroundingConfig) -> Grounding:
    """Which sources a job is given, or why none yet, or never. Pure.

    Args:
        job: who asks.
        found: by where it was searched.
        config: how much is given.
    """
    query = query_of(job, config)

    def grounding(status: str, **more: Any) -> Grounding:
        return Grounding(job.job_id, job.ground, query, status, **more)

    problems = [f for f in found.values() if f.problem is not None]
    final = [f for f in problems if f.final]
    if problems:
        kind = next((f.kind for f in final), None)
        message = "; ".join(f.problem or "" for f in (final or problems))
        return grounding("failed" if final else "waiting", error_kind=kind, error_message=message)
    chosen = fitting([s for g in job.ground for s in found[g].sources], config.max_chars)
    return grounding("given", sources=chosen, notes=() if chosen else (NOTHING_FOUND,))


def fitting(sources: Sequence[Source], max_chars: int) -> tuple[Source, ...]:
    """The sources, numbered from 1, their texts cut so that all together keep the bound. Pure.

    Each gets an equal share; what a short one leaves is the others'.
    """
    left, lengths = max_chars, {}
    for n, index in enumerate(sorted(range(len(sources)), key=lambda i: len(sources[i].text))):
        share = left // (len(sources) - n)
        lengths[index] = min(len(sources[index].text), share)
        left -= lengths[index]
    return tuple(
        Source(n, s.kind, s.source, s.title, _cut(s.text, lengths[n - 1]), s.score, s.chunk)
        for n, s in enumerate(sources, 1)
    )


def with_sources(
    messages: Sequence[Mapping[str, Any]], sources: Sequence[Source], config: GroundingConfig
) -> list[dict[str, Any]]:
    """The messages with the sources put before the last user message's text. Pure.

    Not as a system message: some models' templates have none, and take no second one.
    """
    lines = [config.instruction, ""] if sources else [NOTHING_FOUND_TEXT, ""]
    for source in sources:
        title = " ".join((source.title or "").split())
        lines += [f"[{source.number}] {title} ({source.source})" if title else f"[{source.number}] {source.source}"]
        lines += [source.text.strip(), ""]
    block = "\n".join(lines) + "\n---\n\n"
    result = [dict(message) for message in messages]
    last = next((m for m in reversed(result) if m.get("role") == "user"), None)
    if last is None:
        return [*result, {"role": "user", "content": block}]
    content = last.get("content")
    if isinstance(content, list):
        last["content"] = [{"type": "text", "text": block}, *content]
    else:
        last["content"] = block + (content or "")
    return result


def _from_web(run: PartitionRun, jobs: Sequence[Job]) -> dict[str, Found]:
    """What the web search found for each job, as ``searching`` recorded it."""
    if not jobs:
        return {}
    params = {"lane": run.lane, "day": run.day, "ids": [job.job_id for job in jobs]}
    searches = {row["job_id"]: row for row in run.warehouse.show("searches_of", params)}
    results: dict[str, Rows] = {}
    most = run.foundry.config.grounding.web_results
    for row in run.warehouse.show("web_results_of", params | {"most": most}):
        results.setdefault(row["job_id"], []).append(row)
    found = {}
    for job in jobs:
        search = searches.get(job.job_id)
        if search is None:
            found[job.job_id] = Found(problem="the web was not searched yet; materialize web_results")
        elif search["status"] == "answered":
            found[job.job_id] = Found(tuple(_web_source(row) for row in results.get(job.job_id, ())))
        else:
            kind = ErrorKind(search["error_kind"]) if search["error_kind"] else ErrorKind.SERVER_ERROR
            text = f"web search: {search['error_message'] or 'no reason given'}"
            found[job.job_id] = Found(problem=text, kind=kind, final=search["status"] == "failed")
    return found


def _web_source(row: Mapping[str, Any]) -> Source:
    text = row["content"].strip() or row["title"].strip() or row["url"]
    return Source(0, "web", row["url"], row["title"] or None, text, row["score"])


def _from_notes(foundry: Foundry, jobs: Sequence[Job]) -> dict[str, Found]:
    """The notes that are nearest to each job's query."""
    if not jobs:
        return {}
    config, grounding = foundry.config.notes, foundry.config.grounding
    if config is None:
        text = "the configuration has no section 'notes' any more"
        return {job.job_id: Found(problem=text, kind=ErrorKind.INVALID_REQUEST, final=True) for job in jobs}
    known = embedded_dimensions(foundry.warehouse, config.model)
    if not known:
        text = f"none of the notes is embedded by {config.model} yet. {EMBED_FIRST}"
        return {job.job_id: Found(problem=text) for job in jobs}
    vectors = asyncio.run(embed_queries(foundry, [query_of(job, grounding) for job in jobs]))
    found = {}
    for job, asked in zip(jobs, vectors, strict=True):
        if asked.vector is None:
            waits = asked.kind is None or asked.kind in COOLS
            found[job.job_id] = Found(problem=f"notes: {asked.problem}", kind=asked.kind, final=not waits)
        elif len(asked.vector) not in known:
            found[job.job_id] = Found(problem=f"notes: the model's vectors have another length now. {EMBED_AGAIN}")
        else:
            hits = similar_notes(foundry, asked.vector, grounding.note_chunks)
            found[job.job_id] = Found(tuple(_note_source(h) for h in hits if h.score >= grounding.min_score))
    return found


def _note_source(hit: Hit) -> Source:
    return Source(0, "notes", hit.source, hit.heading, hit.text, hit.score, hit.chunk)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: max(0, length - 1)].rstrip() + "…"
