"""Answering: from pending jobs of one partition to recorded attempts and published results.

Belongs here: claiming, handing jobs to the dispatcher, recording in small batches, publishing. Does not belong here:
which worker gets which job (``inference.dispatch``), the HTTP dialects (``inference``), the SQL (``warehouse``).

The order is record, then publish, then mark as published. A run that dies in between leaves a finished job whose
result is unpublished; the partition's next run publishes it. A result can so arrive twice, never not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime
from typing import Any

from model_foundry.config import FoundryConfig
from model_foundry.errors import ConfigError, StreamError
from model_foundry.inference.dispatch import WorkerTarget, WorkItem, dispatch
from model_foundry.jetstream.client import JetStream, PubAck
from model_foundry.jetstream.subjects import result_subject
from model_foundry.records import Completion, Job, JobOutcome
from model_foundry.routing import worker_ranks, workers_for
from model_foundry.runtime import Foundry
from model_foundry.text import well_formed
from model_foundry.warehouse.landing import (
    claim_jobs,
    finished_unpublished,
    last_attempts,
    mark_published,
    record_completions,
)

PUBLISH_AT_ONCE = 100
HEADER_BYTES = 4096
"""Room left for a result message's headers within the server's limit."""

Finished = tuple[Job, JobOutcome, Completion | None]
"""A job, how it ended, and its last attempt."""

FLUSH_EVERY_S = 1.0
"""How long a finished job waits, at most, before it is recorded and its result published."""


@dataclass(slots=True)
class AnswerReport:
    """What one run did. ``status`` is ``empty`` when there was nothing to do: a normal outcome.

    ``published`` counts results, also of jobs that were finished before: a rejected one is when it lands.
    """

    by_status: dict[str, int] = field(default_factory=dict)
    attempts: int = 0
    published: int = 0
    job_ids: list[str] = field(default_factory=list)

    @property
    def status(self) -> str:
        """``empty`` or ``done``."""
        return "done" if self.job_ids or self.published else "empty"


def work_item(config: FoundryConfig, job: Job, attempts_before: int) -> WorkItem:
    """A claimed job with the workers that may answer it, by today's configuration. Pure."""
    workers = workers_for(config, job.model, job.lane, job.role) if job.model in config.models else ()
    names = {w: (config.workers[w].models or {}).get(job.model or "", job.model or "") for w in workers}
    return WorkItem(
        job=job,
        workers=workers,
        ranks=worker_ranks(config, workers, job.lane, job.role),
        served_names=names,
        attempts_before=attempts_before,
        params={**config.models[job.model].params, **job.params} if job.model in config.models else job.params,
    )


def result_payload(job: Job, outcome: JobOutcome, last: Completion | None) -> dict[str, Any]:
    """The message on ``results.<job_id>``, as the README documents it. Pure."""
    timings = asdict(last.timings) | {"queue_s": last.queue_s} if last else {}
    error = {"kind": outcome.error_kind, "message": outcome.error_message} if outcome.error_kind else None
    return {
        "job_id": job.job_id,
        "correlation_id": job.correlation_id,
        "status": outcome.status,
        "text": last.text if last else None,
        "reasoning": (last.reasoning or None) if last else None,
        "tool_calls": (last.tool_calls or None) if last else None,
        "finish_reason": last.finish_reason if last else None,
        "domain": job.domain,
        "lane": job.lane,
        "model": job.model,
        "worker": last.worker if last else None,
        "attempt": outcome.attempts,
        "usage": {
            "prompt_tokens": last.prompt_tokens if last else None,
            "completion_tokens": last.completion_tokens if last else None,
        },
        "timings": timings,
        "error": error,
    }


def fitting(payload: dict[str, Any], max_bytes: int) -> bytes:
    """The payload as JSON of at most so many bytes. A text that is too long for the server's messages is cut and
    ``truncated`` says so: the whole answer is in the lake, and a result that can't be sent would be tried for ever.
    """
    body = _json_bytes(payload)
    if len(body) > max_bytes:
        payload = {**payload, "reasoning": None, "tool_calls": None, "truncated": True}
        body = _json_bytes(payload)
    while len(body) > max_bytes and payload["text"]:
        payload["text"] = payload["text"][: len(payload["text"]) // 2]
        body = _json_bytes(payload)
    return body


def _json_bytes(payload: dict[str, Any]) -> bytes:
    return well_formed(json.dumps(payload, ensure_ascii=False)).encode()


def answer_partition(
    foundry: Foundry,
    day: date,
    lane: str,
    *,
    run_id: str,
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
        dead_runs: runs known to have ended; jobs that they claimed and left are taken over.
        retry_failed: also ask again for jobs that failed.
        on_progress: called with (done, total) as jobs finish.

    Returns:
        Counts and the ids of the jobs that were handled.
    """
    foundry.warehouse.migrate()
    jobs = claim_jobs(
        foundry.warehouse,
        lane=lane,
        partition_date=day,
        run_id=run_id,
        now=datetime.now(UTC),
        dead_runs=dead_runs,
        retry_failed=retry_failed,
    )
    before = last_attempts(foundry.warehouse, [j.job_id for j in jobs])
    items = [work_item(foundry.config, job, before.get(job.job_id, 0)) for job in jobs]
    return asyncio.run(_answer(foundry, day, lane, items, run_id, on_progress))


async def _answer(
    foundry: Foundry,
    day: date,
    lane: str,
    items: Sequence[WorkItem],
    run_id: str,
    on_progress: Callable[[int, int], None],
) -> AnswerReport:
    report = AnswerReport()
    attempts: list[tuple[Job, Completion]] = []
    finished: list[Finished] = []
    last: dict[str, Completion] = {}

    async with JetStream(foundry.nats) as js:
        await js.ensure_stream(foundry.config.streams.results)

        async def flush() -> None:
            """Records what has gathered, then publishes it. The lake is written off the loop: answers stream on."""
            taken, done = attempts[:], finished[:]
            attempts.clear()
            finished.clear()
            if not taken and not done:
                return
            await asyncio.to_thread(
                record_completions,
                foundry.warehouse,
                taken,
                [outcome for _, outcome, _ in done],
                lane=lane,
                partition_date=day,
                run_id=run_id,
            )
            await publish(done)
            on_progress(len(report.job_ids), len(items))

        async def publish(results: Sequence[Finished]) -> None:
            """Publishes results and marks them; one that is refused does not keep the others back."""
            published: list[tuple[JobOutcome, int]] = []
            refused: StreamError | None = None
            for start in range(0, len(results), PUBLISH_AT_ONCE):
                chunk = results[start : start + PUBLISH_AT_ONCE]
                for (_, outcome, _), ack in zip(chunk, await asyncio.gather(*map(publish_one, chunk)), strict=True):
                    if isinstance(ack, StreamError):
                        refused = ack
                    else:
                        published.append((outcome, ack.seq))
            if published:
                await asyncio.to_thread(mark_published, foundry.warehouse, published, partition_date=day)
                report.published += len(published)
            if refused:
                raise refused

        async def publish_one(result: Finished) -> PubAck | StreamError:
            job, outcome, completion = result
            body = fitting(result_payload(job, outcome, completion), js.max_payload_bytes - HEADER_BYTES)
            msg_id = f"{job.stream_created}-{job.seq}-{outcome.attempts}-{outcome.status}"
            try:
                ack = await js.publish(result_subject(job.job_id), body, msg_id=msg_id)
                if job.reply_to:
                    await js.publish_core(job.reply_to, body)
            except StreamError as error:
                return error
            return ack

        async def flush_until(stop: asyncio.Event) -> None:
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), FLUSH_EVERY_S)
                await flush()
            await flush()  # what ended while the last one was being written

        def on_attempt(item: WorkItem, completion: Completion) -> None:
            attempts.append((item.job, completion))
            last[item.job.job_id] = completion
            report.attempts += 1

        def on_done(item: WorkItem, outcome: JobOutcome) -> None:
            finished.append((item.job, outcome, last.pop(item.job.job_id, None)))
            report.job_ids.append(item.job.job_id)
            report.by_status[outcome.status] = report.by_status.get(outcome.status, 0) + 1

        on_progress(0, len(items))
        stop = asyncio.Event()
        flusher = asyncio.create_task(flush_until(stop))
        work = asyncio.create_task(
            dispatch(items, _targets(foundry, items), foundry.config.limits, on_attempt=on_attempt, on_done=on_done)
        )
        try:
            # a flush that fails must end the run now, and not be found after the last answer
            await asyncio.wait({flusher, work}, return_when=asyncio.FIRST_COMPLETED)
            if flusher.done():
                work.cancel()
        finally:
            await asyncio.gather(work, return_exceptions=True)
            stop.set()
            await flusher
        await work
        left = await asyncio.to_thread(finished_unpublished, foundry.warehouse, lane=lane, partition_date=day)
        await publish(left)
    return report


def _targets(foundry: Foundry, items: Sequence[WorkItem]) -> Mapping[str, WorkerTarget]:
    """The targets of every worker that some item may go to; one that can't be used now is left out."""
    targets: dict[str, WorkerTarget] = {}
    for name in {worker for item in items for worker in item.workers}:
        try:
            targets[name] = foundry.worker_target(name)
        except ConfigError as error:
            targets[name] = WorkerTarget(
                name=name, url="", api=foundry.config.workers[name].api, slots=1, headers={}, unusable=str(error)
            )
    return targets
