"""Results: the message that a finished job becomes, and publishing it.

Belongs here: the wire form on ``results.<job_id>``, and publish, then mark as published. Does not belong here: how a
job ends (``answering``, ``translating``), JetStream itself (``jetstream``).

The order is record, then publish, then mark. A run that dies in between leaves a finished job whose result is
unpublished; the partition's next run publishes it. A result can so arrive twice, never not at all.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from model_foundry.errors import StreamError
from model_foundry.jetstream.client import JetStream, PubAck
from model_foundry.jetstream.subjects import result_subject
from model_foundry.partition_run import PartitionRun
from model_foundry.records import Completion, Job, JobOutcome, Task
from model_foundry.text import well_formed
from model_foundry.warehouse.landing import finished_unpublished, mark_published
from model_foundry.warehouse.sources import sources_of
from model_foundry.warehouse.translations import translations_of

PUBLISH_AT_ONCE = 100
HEADER_BYTES = 4096
"""Room left for a result message's headers within the server's limit."""
LARGE = ("sources", "translations", "results")
"""What a message leaves out when it is too long; the lake has it."""

Finished = tuple[Job, JobOutcome, Completion | None]
"""A job, how it ended, and its last attempt."""


def result_payload(
    job: Job, outcome: JobOutcome, last: Completion | None, more: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The message on ``results.<job_id>``, as ``docs/messages.md`` documents it. Pure.

    Args:
        job: what was asked.
        outcome: how it ended.
        last: its last attempt.
        more: what only some jobs have: ``sources``, ``translations``, ``results``.
    """
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
        **(more or {}),
    }


def fitting(payload: dict[str, Any], max_bytes: int) -> bytes:
    """The payload as JSON of at most so many bytes. A text that is too long for the server's messages is cut and
    ``truncated`` says so: the whole answer is in the lake, and a result that can't be sent would be tried for ever.
    """
    body = _json_bytes(payload)
    if len(body) > max_bytes:
        left_out = dict.fromkeys(("reasoning", "tool_calls", *(key for key in LARGE if key in payload)))
        payload = {**payload, **left_out, "truncated": True}
        body = _json_bytes(payload)
    while len(body) > max_bytes and payload["text"]:
        payload["text"] = payload["text"][: len(payload["text"]) // 2]
        body = _json_bytes(payload)
    return body


def _json_bytes(payload: dict[str, Any]) -> bytes:
    return well_formed(json.dumps(payload, ensure_ascii=False)).encode()


class Results:
    """Publishes the results of one partition, and marks them.

    Args:
        js: connected.
        run: whose partition.
    """

    def __init__(self, js: JetStream, run: PartitionRun) -> None:
        self._js, self._run = js, run
        self.published = 0

    async def publish(self, finished: Sequence[Finished]) -> None:
        """Publishes results and marks them; one that is refused does not keep the others back.

        Raises:
            StreamError: when one was refused.
        """
        published: list[tuple[JobOutcome, int]] = []
        refused: StreamError | None = None
        more = await asyncio.to_thread(self._more, finished)
        for start in range(0, len(finished), PUBLISH_AT_ONCE):
            chunk = finished[start : start + PUBLISH_AT_ONCE]
            acks = await asyncio.gather(*(self._publish_one(f, more.get(f[0].job_id)) for f in chunk))
            for (_, outcome, _), ack in zip(chunk, acks, strict=True):
                if isinstance(ack, StreamError):
                    refused = ack
                else:
                    published.append((outcome, ack.seq))
        if published:
            await asyncio.to_thread(mark_published, self._run.warehouse, published, partition_date=self._run.day)
            self.published += len(published)
        if refused:
            raise refused

    async def publish_left(self) -> None:
        """Publishes what is finished and was not published, by whatever run."""
        run = self._run
        await self.publish(await asyncio.to_thread(finished_unpublished, run.warehouse, **run.partition))

    def _more(self, finished: Sequence[Finished]) -> dict[str, dict[str, Any]]:
        """By job, what of the lake its result has beside the answer."""
        more: dict[str, dict[str, Any]] = {}
        warehouse, partition = self._run.warehouse, self._run.partition
        grounded = [job.job_id for job, _, _ in finished if job.ground]
        given = sources_of(warehouse, grounded, **partition)
        for job_id in grounded:
            listed = [
                {"number": s.number, "kind": s.kind, "source": s.source, "title": s.title}
                for s in given.get(job_id, ())
            ]
            more[job_id] = {"sources": listed}
        searched = [job.job_id for job, _, _ in finished if job.task is Task.SEARCH]
        more |= {job_id: {"results": []} for job_id in searched}
        params = {"lane": self._run.lane, "day": self._run.day, "most": 1000}
        for row in warehouse.show("web_results_of", params | {"ids": searched}) if searched else ():
            more[row.pop("job_id")]["results"].append(row)
        articles = {job.job_id: job.prompt for job, _, _ in finished if job.task is Task.TRANSLATE}
        for job_id, texts in translations_of(warehouse, articles, **partition).items():
            more[job_id] = {"translations": texts}
        return more

    async def _publish_one(self, finished: Finished, more: Mapping[str, Any] | None) -> PubAck | StreamError:
        job, outcome, completion = finished
        payload = result_payload(job, outcome, completion, more)
        body = fitting(payload, self._js.max_payload_bytes - HEADER_BYTES)
        msg_id = f"{job.stream_created}-{job.seq}-{outcome.attempts}-{outcome.status}"
        try:
            ack = await self._js.publish(result_subject(job.job_id), body, msg_id=msg_id)
            if job.reply_to:
                await self._js.publish_core(job.reply_to, body)
        except StreamError as error:
            return error
        return ack
