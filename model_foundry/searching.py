"""Searching the web: for jobs that are searches themselves, and for those that want sources from there.

Belongs here: which query is sent, asking the search servers of a lane, recording what they found. Does not belong here:
SearXNG's wire format (``inference.searxng``), choosing sources (``grounding``).

A job's own search goes by its own lane: the slots of the search servers, not of the models, and what is cooling or down
there does not count against a model server. It is made in the run of the job that asked, so that one run shows it all.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

from model_foundry.asking import Claimed, asked_fleet
from model_foundry.config import GroundingConfig, SearchConfig
from model_foundry.inference.dispatch import WorkItem
from model_foundry.jetstream.client import JetStream
from model_foundry.partition_run import PartitionRun
from model_foundry.records import Completion, Job, JobOutcome, Task
from model_foundry.tasks import while_flushing
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


def query_text(search: Job) -> str:
    """What a search, as :func:`as_search` makes it, is for."""
    return str(search.messages[-1]["content"])


def search_for_sources(run: PartitionRun) -> SearchReport:
    """Makes the web searches that the partition's pending jobs ask for and that have not been made.

    Args:
        run: which run, which partition. With ``retry_failed`` failed searches are made again.

    Raises:
        NatsUnavailableError, StreamError: when slots can't be shared.
        LakeError: when the lake can't be used.
    """
    report = SearchReport()
    jobs = [job for job in run.claim(sourceless=True) if "web" in job.ground]
    params = {"lane": run.lane, "day": run.day, "ids": [job.job_id for job in jobs]}
    made = {row["job_id"] for row in run.warehouse.show("searches_of", params) if row["status"] == "answered"}
    todo = [job for job in jobs if job.job_id not in made]
    if todo:
        asyncio.run(_search(run, todo, report))
    return report


async def _search(run: PartitionRun, jobs: list[Job], report: SearchReport) -> None:
    config = run.foundry.config
    search_lane = config.search_lanes[0] if config.search_lanes else ""
    claimed = [Claimed(as_search(job, search_lane, config.search, query_of(job, config.grounding))) for job in jobs]
    queries = {c.job.job_id: query_text(c.job) for c in claimed}
    last: dict[str, Completion] = {}
    gathered: list[Search] = []
    done = 0

    def gather(search: Search) -> None:
        gathered.append(search)
        report.count(search)

    def on_done(item: WorkItem, outcome: JobOutcome) -> None:
        job_id = item.job.job_id
        gather(Search.ended(job_id, search_lane, queries[job_id], outcome, last.get(job_id)))

    def put_off(job_id: str, reason: str) -> None:
        gather(Search(job_id, search_lane, queries[job_id], "waiting", last.get(job_id), reason))

    async def flush() -> None:
        nonlocal done
        taken = gathered[:]
        gathered.clear()
        if taken:
            await asyncio.to_thread(record_searches, run.warehouse, taken, **run.where)
            done += len(taken)
            run.on_progress(done, len(jobs))

    async with JetStream(run.foundry.nats) as js, asked_fleet(js, run.foundry, {}, claimed, run.run_id) as fleet:
        work = fleet.dispatch(
            lambda item, completion: last.__setitem__(item.job.job_id, completion),
            on_done,
            put_off,
        )
        await while_flushing(work, flush, FLUSH_EVERY_S)
