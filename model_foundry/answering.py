"""Answering: from pending jobs of one partition to recorded attempts and published results.

Belongs here: claiming, giving jobs their sources, recording in small batches. Does not belong here: the fleet
(``asking``), who may get a job (``placing``), which worker gets it (``inference.dispatch``), the HTTP dialects
(``inference``), the message of a result (``results``), the SQL (``warehouse``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from model_foundry.asking import Claimed, asked_fleet, measured_rates
from model_foundry.fleet.estimates import Rates
from model_foundry.grounding import with_sources
from model_foundry.inference.dispatch import WorkItem
from model_foundry.jetstream.client import JetStream
from model_foundry.partition_run import PartitionRun
from model_foundry.records import Completion, Job, JobOutcome, Task
from model_foundry.results import Finished, Results
from model_foundry.searching import as_search, query_text
from model_foundry.tasks import while_flushing
from model_foundry.warehouse.landing import attempts_so_far, put_off_jobs, record_completions
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


def answer_partition(run: PartitionRun, task: Task = Task.ANSWER) -> AnswerReport:
    """Answers the partition's pending jobs, records every attempt, publishes every result.

    Args:
        run: which run, which partition.
        task: ``ANSWER``, or ``SEARCH`` for the jobs that are searches; their results are then recorded too.

    Returns:
        Counts and the ids of the jobs that were handled.
    """
    config, jobs = run.foundry.config, run.claim(task)
    before = attempts_so_far(run.warehouse, [job.job_id for job in jobs], **run.partition)
    sources = sources_of(run.warehouse, [job.job_id for job in jobs if job.ground], **run.partition)
    claimed = []
    for job in jobs:
        last, spent = before.get(job.job_id, (0, 0))
        asked = as_search(job, run.lane, config.search) if task is Task.SEARCH else job
        if job.ground:
            asked = replace(job, messages=with_sources(job.messages, sources.get(job.job_id, ()), config.grounding))
        claimed.append(Claimed(asked, last, 0 if run.retry_failed else spent))
    rates = measured_rates(run.foundry) if jobs else {}
    return asyncio.run(_answer(run, claimed, rates))


async def _answer(
    run: PartitionRun, claimed: Sequence[Claimed], rates: Mapping[tuple[str, str], Rates]
) -> AnswerReport:
    report = AnswerReport()
    attempts: list[tuple[Job, Completion]] = []
    finished: list[Finished] = []
    last: dict[str, Completion] = {}

    async with JetStream(run.foundry.nats) as js:
        await js.ensure_stream(run.foundry.config.streams.results)
        results = Results(js, run)

        async def flush() -> None:
            """Records what has gathered, then publishes it. The lake is written off the loop: answers stream on."""
            taken, done = attempts[:], finished[:]
            attempts.clear()
            finished.clear()
            if not taken and not done:
                return
            await asyncio.to_thread(record_searches, run.warehouse, _searches(done), **run.where)
            outcomes = [outcome for _, outcome, _ in done]
            await asyncio.to_thread(record_completions, run.warehouse, taken, outcomes, **run.where)
            await results.publish(done)
            run.on_progress(len(report.job_ids), len(claimed))

        def on_attempt(item: WorkItem, completion: Completion) -> None:
            attempts.append((item.job, completion))
            last[item.job.job_id] = completion
            report.attempts += 1

        def on_done(item: WorkItem, outcome: JobOutcome) -> None:
            finished.append((item.job, outcome, last.pop(item.job.job_id, None)))
            report.job_ids.append(item.job.job_id)
            report.by_status[outcome.status] = report.by_status.get(outcome.status, 0) + 1

        run.on_progress(0, len(claimed))
        if claimed:
            async with asked_fleet(js, run.foundry, rates, claimed, run.run_id) as fleet:
                work = fleet.dispatch(on_attempt, on_done, report.put_off.__setitem__)
                await while_flushing(work, flush, FLUSH_EVERY_S)
        if report.put_off:
            await asyncio.to_thread(put_off_jobs, run.warehouse, report.put_off, **run.where)
        await results.publish_left()
        report.published = results.published
    return report


def _searches(finished: Sequence[Finished]) -> list[Search]:
    """Those of the finished jobs that were searches, as they are recorded."""
    return [
        Search.ended(job.job_id, job.lane, query_text(job), outcome, attempt)
        for job, outcome, attempt in finished
        if job.task is Task.SEARCH
    ]
