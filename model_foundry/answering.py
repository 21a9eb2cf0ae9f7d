"""Answering: from pending jobs of one partition to recorded attempts and published results.

Belongs here: claiming, giving jobs their sources, recording in small batches. Does not belong here: the fleet
(``asking``), who may get a job (``placing``), which worker gets it (``inference.dispatch``), the HTTP dialects
(``inference``), the message of a result (``results``), the SQL (``warehouse``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Any

from model_foundry.asking import Claimed, asked_fleet, measured_rates
from model_foundry.fleet.estimates import Rates
from model_foundry.grounding import with_sources
from model_foundry.inference.dispatch import WorkItem
from model_foundry.jetstream.client import JetStream
from model_foundry.records import Completion, Job, JobOutcome, JobStatus, Task
from model_foundry.results import Finished, Results
from model_foundry.runtime import Foundry
from model_foundry.searching import as_search
from model_foundry.tasks import while_flushing
from model_foundry.warehouse.landing import attempts_so_far, claim_jobs, put_off_jobs, record_completions
from model_foundry.warehouse.sources import Search, record_searches, sources_of

FLUSH_EVERY_S = 1.0
"""How long a finished job waits, at most, before it is recorded and its result published."""


@dataclass(slots=True)
class AnswerReport:
    """What one run did. ``status`` is ``empty`` when there was nothing to do: a normal outcome.

    ``published`` counts results, also of jobs that were finished before: a rejected one is when it lands. ``put_off``
    says of each job that waits because nobody can answer it now, why.
    """

    by_status: dict[str, int] = field(default_factory=dict)
    attempts: int = 0
    published: int = 0
    job_ids: list[str] = field(default_factory=list)
    put_off: dict[str, str] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """``empty``, ``done``, or ``waiting`` when all there was to do could not be done."""
        if self.job_ids or self.published:
            return "done"
        return "waiting" if self.put_off else "empty"


def answer_partition(
    foundry: Foundry,
    day: date,
    lane: str,
    *,
    run_id: str,
    task: Task = Task.ANSWER,
    dead_runs: Collection[str] = (),
    retry_failed: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> AnswerReport:
    """Answers the partition's pending jobs, records every attempt, publishes every result.

    Args:
        foundry: the parts.
        day: the partition's date.
        lane: the partition's lane.
        run_id: who answers; jobs are claimed under it.
        task: ``ANSWER``, or ``SEARCH`` for the jobs that are searches; their results are then recorded too.
        dead_runs: runs known to have ended; jobs that they claimed and left are taken over.
        retry_failed: also ask again for jobs that failed.
        on_progress: called with (done, total) as jobs finish.

    Returns:
        Counts and the ids of the jobs that were handled.
    """
    warehouse = foundry.warehouse
    warehouse.migrate()
    jobs = claim_jobs(
        warehouse,
        lane=lane,
        partition_date=day,
        run_id=run_id,
        now=datetime.now(UTC),
        tasks=[task],
        dead_runs=dead_runs,
        retry_failed=retry_failed,
    )
    ids = [job.job_id for job in jobs]
    before = attempts_so_far(warehouse, ids, lane=lane, partition_date=day)
    sources = sources_of(warehouse, [j.job_id for j in jobs if j.ground], lane=lane, partition_date=day)
    claimed = []
    for job in jobs:
        last, spent = before.get(job.job_id, (0, 0))
        asked = as_search(job, lane, foundry.config.search) if task is Task.SEARCH else job
        if job.ground:
            asked = replace(
                job, messages=with_sources(job.messages, sources.get(job.job_id, ()), foundry.config.grounding)
            )
        claimed.append(Claimed(asked, last, 0 if retry_failed else spent))
    rates = measured_rates(foundry) if jobs else {}
    return asyncio.run(_answer(foundry, day, lane, claimed, rates, run_id, on_progress))


async def _answer(
    foundry: Foundry,
    day: date,
    lane: str,
    claimed: Sequence[Claimed],
    rates: Mapping[tuple[str, str], Rates],
    run_id: str,
    on_progress: Callable[[int, int], None],
) -> AnswerReport:
    report = AnswerReport()
    attempts: list[tuple[Job, Completion]] = []
    finished: list[Finished] = []
    last: dict[str, Completion] = {}
    where: dict[str, Any] = {"lane": lane, "partition_date": day, "run_id": run_id}

    async with JetStream(foundry.nats) as js:
        await js.ensure_stream(foundry.config.streams.results)
        results = Results(js, foundry, day, lane)

        async def flush() -> None:
            """Records what has gathered, then publishes it. The lake is written off the loop: answers stream on."""
            taken, done = attempts[:], finished[:]
            attempts.clear()
            finished.clear()
            if not taken and not done:
                return
            await asyncio.to_thread(record_searches, foundry.warehouse, _searches(done), **where)
            outcomes = [outcome for _, outcome, _ in done]
            await asyncio.to_thread(record_completions, foundry.warehouse, taken, outcomes, **where)
            await results.publish(done)
            on_progress(len(report.job_ids), len(claimed))

        def on_attempt(item: WorkItem, completion: Completion) -> None:
            attempts.append((item.job, completion))
            last[item.job.job_id] = completion
            report.attempts += 1

        def on_done(item: WorkItem, outcome: JobOutcome) -> None:
            finished.append((item.job, outcome, last.pop(item.job.job_id, None)))
            report.job_ids.append(item.job.job_id)
            report.by_status[outcome.status] = report.by_status.get(outcome.status, 0) + 1

        on_progress(0, len(claimed))
        if claimed:
            async with asked_fleet(js, foundry, rates, claimed, run_id) as fleet:
                work = fleet.dispatch(on_attempt, on_done, report.put_off.__setitem__)
                await while_flushing(work, flush, FLUSH_EVERY_S)
        if report.put_off:
            await asyncio.to_thread(put_off_jobs, foundry.warehouse, report.put_off, **where)
        await results.publish_left()
        report.published = results.published
    return report


def _searches(finished: Sequence[Finished]) -> list[Search]:
    """Those of the finished jobs that were searches, as they are recorded."""
    return [
        Search(
            job.job_id,
            job.lane,
            str(job.messages[-1]["content"]),
            "answered" if outcome.status is JobStatus.ANSWERED else "failed",
            attempt,
            None if attempt else outcome.error_message,
        )
        for job, outcome, attempt in finished
        if job.task is Task.SEARCH
    ]
