"""Answering: from pending jobs of one partition to recorded attempts and published results.

Belongs here: claiming, handing jobs to the dispatcher, telling it how the fleet changes, recording in small batches,
publishing. Does not belong here: who may get a job (``placing``), which worker gets it (``inference.dispatch``), the
HTTP dialects (``inference``), the SQL (``warehouse``).

The order is record, then publish, then mark as published. A run that dies in between leaves a finished job whose
result is unpublished; the partition's next run publishes it. A result can so arrive twice, never not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

from model_foundry.errors import NatsUnavailableError, StreamError
from model_foundry.fleet.board import cancellation_key, cancellations_bucket, read_board
from model_foundry.fleet.estimates import Rates, rates_from_rows
from model_foundry.fleet.leases import Slots, sharing_slots
from model_foundry.fleet.roster import without_beats
from model_foundry.inference.client import new_client
from model_foundry.inference.dispatch import Control, WorkerTarget, WorkItem, dispatch
from model_foundry.inference.probe import probe
from model_foundry.jetstream.client import JetStream, PubAck
from model_foundry.jetstream.subjects import result_subject
from model_foundry.placing import Placement
from model_foundry.records import Completion, Job, JobOutcome
from model_foundry.runtime import Foundry
from model_foundry.tasks import end, while_flushing
from model_foundry.text import well_formed
from model_foundry.warehouse.landing import (
    attempts_so_far,
    claim_jobs,
    finished_unpublished,
    mark_published,
    put_off_jobs,
    record_completions,
)

PUBLISH_AT_ONCE = 100
HEADER_BYTES = 4096
"""Room left for a result message's headers within the server's limit."""

Finished = tuple[Job, JobOutcome, Completion | None]
"""A job, how it ended, and its last attempt."""

RATES_DAYS = 7
LOOK_TIMEOUT_S = 5.0

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
    ids = [job.job_id for job in jobs]
    before = attempts_so_far(foundry.warehouse, ids, lane=lane, partition_date=day)
    claimed = [
        Claimed(job, last, 0 if retry_failed else spent)
        for job in jobs
        for last, spent in [before.get(job.job_id, (0, 0))]
    ]
    rates = measured_rates(foundry) if jobs else {}
    return asyncio.run(_answer(foundry, day, lane, claimed, rates, run_id, on_progress))


def measured_rates(foundry: Foundry) -> dict[tuple[str, str], Rates]:
    """What each worker has shown with each model in the last days."""
    since = datetime.now(UTC) - timedelta(days=RATES_DAYS)
    return rates_from_rows(foundry.warehouse.show("service_rates", {"since": since}))


@dataclass(frozen=True, slots=True)
class Claimed:
    """A job of this run, with the number of its last attempt and how many count against its budget."""

    job: Job
    last_attempt: int
    spent: int


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
            on_progress(len(report.job_ids), len(claimed))

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
            async with answering_fleet(js, foundry, rates, claimed, run_id) as fleet:
                work = fleet.dispatch(on_attempt, on_done, report.put_off.__setitem__)
                await while_flushing(work, flush, FLUSH_EVERY_S)
        if report.put_off:
            await asyncio.to_thread(
                put_off_jobs, foundry.warehouse, report.put_off, lane=lane, partition_date=day, run_id=run_id
            )
        left = await asyncio.to_thread(finished_unpublished, foundry.warehouse, lane=lane, partition_date=day)
        await publish(left)
    return report


class AnsweringFleet:
    """The fleet as one run uses it, kept up to date while it answers; see :func:`answering_fleet`."""

    def __init__(self, js: JetStream, foundry: Foundry, rates: Mapping[tuple[str, str], Rates], slots: Slots) -> None:
        self._js, self._foundry, self._rates, self._slots = js, foundry, rates, slots
        self._control = Control()
        self._items: list[WorkItem] = []
        self._placement = Placement(foundry, without_beats(foundry.config), rates)

    async def place(self, claimed: Sequence[Claimed]) -> None:
        """Reads the fleet and places the jobs in it."""
        self._placement = await self._look()
        self._items = [self._placement.item(c.job, c.last_attempt, c.spent) for c in claimed]

    async def _look(self) -> Placement:
        board = await read_board(self._js, self._foundry.config)
        return Placement(self._foundry, board.roster, self._rates)

    async def dispatch(
        self,
        on_attempt: Callable[[WorkItem, Completion], None],
        on_done: Callable[[WorkItem, JobOutcome], None],
        put_off: Callable[[str, str], None],
    ) -> None:
        """Answers what was placed."""
        async with new_client() as client:

            async def look(target: WorkerTarget) -> str | None:
                found = await probe(client, target, LOOK_TIMEOUT_S)
                return None if found.reachable and not found.loading else found.detail

            await dispatch(
                self._items,
                self._placement.targets,
                self._foundry.config.limits,
                on_attempt=on_attempt,
                on_done=on_done,
                on_put_off=lambda item, reason: put_off(item.job.job_id, reason),
                control=self._control,
                slots=self._slots,
                look=look,
                client=client,
            )

    async def keep_up(self) -> None:
        """Tells the dispatch of workers that come, go or change, and of jobs that are cancelled, until cancelled."""
        ours = {cancellation_key(item.job.job_id): item.job.job_id for item in self._items}

        def on_cancelled(key: str) -> None:
            if key in ours:
                self._control.cancel([ours[key]])

        while True:
            with contextlib.suppress(NatsUnavailableError, StreamError):  # it is looked at again in a moment
                bucket = await self._js.bucket(cancellations_bucket(self._foundry.config.fleet))
                async with bucket.changes(">", on_cancelled):
                    while True:
                        for key in await bucket.entries():
                            on_cancelled(key)
                        self._renew(await self._look())
                        await asyncio.sleep(self._foundry.config.fleet.heartbeat_s / 2)
            await asyncio.sleep(1.0)

    def _renew(self, placement: Placement) -> None:
        """Tells the dispatch of the fleet, if it is not what it was."""
        was, self._placement = self._placement, placement
        if was.targets != placement.targets or was.roster.config.workers != placement.roster.config.workers:
            self._control.renew(placement.targets, placement.again)


@contextlib.asynccontextmanager
async def answering_fleet(
    js: JetStream, foundry: Foundry, rates: Mapping[tuple[str, str], Rates], claimed: Sequence[Claimed], run_id: str
) -> AsyncIterator[AnsweringFleet]:
    """The fleet, with slots of its own, while it is open.

    Raises:
        NatsUnavailableError, StreamError: when the fleet's buckets can't be used.
    """
    async with sharing_slots(js, foundry.config.fleet, run_id) as slots:
        fleet = AnsweringFleet(js, foundry, rates, slots)
        await fleet.place(claimed)
        news = asyncio.create_task(fleet.keep_up())
        try:
            yield fleet
        finally:
            await end(news)
