"""Searching the web: for jobs that are searches themselves, and for those that want sources from there.

Belongs here: which query is sent, asking the search servers of a lane, recording what they found. Does not belong here:
SearXNG's wire format (``inference.searxng``), choosing sources (``grounding``).

A job's own search goes by its own lane: the slots of the search servers, not of the models, and what is cooling or down
there does not count against a model server. It is made in the run of the job that asked, so that one run shows it all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Any

from model_foundry.asking import Claimed, asked_fleet
from model_foundry.config import GroundingConfig, SearchConfig
from model_foundry.inference.dispatch import WorkItem
from model_foundry.jetstream.client import JetStream
from model_foundry.records import Completion, ErrorKind, Job, JobOutcome, JobStatus, Task
from model_foundry.runtime import Foundry
from model_foundry.tasks import while_flushing
from model_foundry.warehouse.landing import claim_jobs
from model_foundry.warehouse.sources import Search, record_searches

FLUSH_EVERY_S = 1.0
MAX_QUERY_CHARS = 2000


@dataclass(slots=True)
class SearchReport:
    """What one run searched.

    Attributes:
        by_status: searches, by ``answered``, ``failed`` and ``waiting``.
        results: that were found.
        nothing_found: searches that were answered with no result.
        by_worker: searches answered.
        waiting: why searches wait, by job.
        failed: why searches failed, by job.
    """

    by_status: dict[str, int] = field(default_factory=dict)
    results: int = 0
    nothing_found: int = 0
    by_worker: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def count(self, search: Search) -> None:
        """Takes one search in."""
        self.by_status[search.status] = self.by_status.get(search.status, 0) + 1
        attempt = search.attempt
        if search.status == "waiting":
            self.waiting[search.job_id] = search.reason or "nobody can search now"
        elif search.status == "failed":
            self.failed[search.job_id] = search.reason or (attempt and attempt.error_message) or "no reason given"
        elif attempt is not None:
            self.results += len(attempt.results)
            self.nothing_found += not attempt.results
            if attempt.worker:
                self.by_worker[attempt.worker] = self.by_worker.get(attempt.worker, 0) + 1


def query_of(job: Job, config: GroundingConfig) -> str:
    """What is searched for on behalf of a job: its query, else the beginning of its prompt, as one line."""
    if job.query:
        return " ".join(job.query.split())[:MAX_QUERY_CHARS]
    text = " ".join(job.prompt.split())
    if len(text) <= config.query_chars:
        return text
    cut = text[: config.query_chars]
    return cut.rsplit(" ", 1)[0] if " " in cut[config.query_chars // 2 :] else cut


def as_search(job: Job, lane: str, config: SearchConfig, query: str | None = None) -> Job:
    """The search that a job is, or that is made for it.

    Args:
        job: who asks.
        lane: of the search.
        config: what goes with every search; the params of a job that is a search itself go before.
        query: what is searched for; by default the job's own query or prompt.
    """
    text = query or " ".join((job.query or job.prompt).split())[:MAX_QUERY_CHARS]
    params: dict[str, Any] = {k: v for k, v in config.model_dump(mode="json").items() if v not in (None, [])}
    if job.task is Task.SEARCH:
        params |= job.params
    return replace(
        job,
        task=Task.SEARCH,
        lane=lane,
        model=None,
        role=None,
        messages=[{"role": "user", "content": text}],
        params=params,
    )


def search_for_sources(
    foundry: Foundry,
    day: date,
    lane: str,
    *,
    run_id: str,
    dead_runs: Collection[str] = (),
    retry_failed: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> SearchReport:
    """Makes the web searches that the partition's pending jobs ask for and that have not been made.

    Args:
        foundry: the parts.
        day: the partition's date.
        lane: the partition's lane.
        run_id: who searches; the jobs are claimed under it.
        dead_runs: runs known to have ended; what they claimed is taken over.
        retry_failed: jobs that failed are pending again, and their failed searches are made again.
        on_progress: called with (done, total).

    Raises:
        NatsUnavailableError, StreamError: when slots can't be shared.
        LakeError: when the lake can't be used.
    """
    warehouse, report = foundry.warehouse, SearchReport()
    warehouse.migrate()
    jobs = claim_jobs(
        warehouse,
        lane=lane,
        partition_date=day,
        run_id=run_id,
        now=datetime.now(UTC),
        sourceless=True,
        dead_runs=dead_runs,
        retry_failed=retry_failed,
    )
    jobs = [job for job in jobs if "web" in job.ground]
    params = {"lane": lane, "day": day, "ids": [job.job_id for job in jobs]}
    made = {row["job_id"] for row in warehouse.show("searches_of", params) if row["status"] == "answered"}
    todo = [job for job in jobs if job.job_id not in made]
    if todo:
        asyncio.run(_search(foundry, day, lane, todo, run_id, report, on_progress))
    return report


async def _search(
    foundry: Foundry,
    day: date,
    lane: str,
    jobs: list[Job],
    run_id: str,
    report: SearchReport,
    on_progress: Callable[[int, int], None],
) -> None:
    config = foundry.config
    search_lane = config.search_lanes[0] if config.search_lanes else ""
    claimed = [Claimed(as_search(job, search_lane, config.search, query_of(job, config.grounding))) for job in jobs]
    queries = {c.job.job_id: str(c.job.messages[0]["content"]) for c in claimed}
    last: dict[str, Completion] = {}
    gathered: list[Search] = []
    done = 0

    def gather(job_id: str, status: str, reason: str | None = None, kind: ErrorKind | None = None) -> None:
        search = Search(job_id, search_lane, queries[job_id], status, last.get(job_id), reason, kind)
        gathered.append(search)
        report.count(search)

    def on_done(item: WorkItem, outcome: JobOutcome) -> None:
        if outcome.status is JobStatus.ANSWERED:
            gather(item.job.job_id, "answered")
        else:
            gather(item.job.job_id, "failed", outcome.error_message, outcome.error_kind)

    async def flush() -> None:
        nonlocal done
        taken = gathered[:]
        gathered.clear()
        if taken:
            await asyncio.to_thread(
                record_searches, foundry.warehouse, taken, lane=lane, partition_date=day, run_id=run_id
            )
            done += len(taken)
            on_progress(done, len(jobs))

    async with (
        JetStream(foundry.nats) as js,
        asked_fleet(js, foundry, {}, claimed, run_id) as fleet,
    ):
        work = fleet.dispatch(
            lambda item, completion: last.__setitem__(item.job.job_id, completion),
            on_done,
            lambda job_id, reason: gather(job_id, "waiting", reason),
        )
        await while_flushing(work, flush, FLUSH_EVERY_S)
