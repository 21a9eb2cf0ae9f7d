"""Builders of lake rows with valid defaults."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from model_foundry.event_intake import EventIntake
from model_foundry.records import (
    EVENTS_LANE,
    Completion,
    Event,
    Job,
    JobOutcome,
    JobStatus,
    PromptEnvelope,
    Reject,
    Timings,
)
from model_foundry.routing import route
from model_foundry.warehouse import landing
from model_foundry.warehouse.lake import Warehouse
from model_foundry.warehouse.landing import (
    IngestRange,
    LandingReport,
    incoming_events,
    incoming_jobs,
    record_completions,
)
from model_foundry_tests.builders import NOW, a_config, a_message, an_envelope

TODAY = date(2026, 12, 1)
CREATED = 1_700_000_000
CONFIG = a_config()


def a_job(seq: int = 1, *, created: int = CREATED, **changes: Any) -> Job:
    """A pending job of the CPU lane; fields of the envelope or of the job can be changed."""
    message = a_message(seq=seq, stream_created=created, published_at=NOW + timedelta(seconds=seq))
    envelope_fields = {k: changes.pop(k) for k in list(changes) if k in PromptEnvelope.__dataclass_fields__}
    envelope = an_envelope(message=message, **{"job_id": f"job-{seq}", "model": "small", **envelope_fields})
    return replace(route(CONFIG, envelope), **changes)


def a_reject(seq: int, *, created: int = CREATED) -> Reject:
    """A message that could not be read."""
    headers = (("A", "1"), ("A", "2"))
    return Reject(a_message(b"\xff\x00", seq=seq, stream_created=created, headers=headers), "not UTF-8")


def an_event(seq: int = 1, payload: Any = None, *, created: int = CREATED, **fields: Any) -> Event:
    """An event of session ``s-1``, a second after the one before; fields of the body or of the message."""
    message = {k: fields.pop(k) for k in list(fields) if k in ("subject", "headers", "published_at")}
    body = {"event_id": f"event-{seq}", "correlation_id": "s-1", "payload": payload, **fields}
    sent = a_message(
        json.dumps(body).encode(),
        **{
            "stream": "EVENTS",
            "seq": seq,
            "stream_created": created,
            "subject": "llm.other",
            "published_at": NOW + timedelta(seconds=seq),
            **message,
        },
    )
    read = EventIntake(CONFIG).read(sent)
    assert isinstance(read, Event), read
    return read


def land_events(warehouse: Warehouse, *items: Event | Reject, run_id: str = "run-1") -> LandingReport:
    """Lands events and rejects under a range that spans them."""
    seqs = [item.message.seq for item in items] or [1]
    created = items[0].message.stream_created if items else CREATED
    batch = incoming_events(
        [item for item in items if isinstance(item, Event)],
        [item for item in items if isinstance(item, Reject)],
        range_=IngestRange("EVENTS", created, EVENTS_LANE, TODAY, min(seqs), max(seqs)),
        run_id=run_id,
        config_digest="digest",
    )
    return landing.land(warehouse, batch)


def a_range(first: int, last: int, *, created: int = CREATED, lane: str = "cpu_inference") -> IngestRange:
    """A range of the stream."""
    return IngestRange("PROMPTS", created, lane, TODAY, first, last)


def land(warehouse: Warehouse, *items: Job | Reject, run_id: str = "run-1") -> LandingReport:
    """Lands items under a range that spans them."""
    seqs = [item.seq if isinstance(item, Job) else item.message.seq for item in items] or [1]
    created = next((i.stream_created if isinstance(i, Job) else i.message.stream_created for i in items), CREATED)
    batch = incoming_jobs(
        [item for item in items if isinstance(item, Job)],
        [item for item in items if isinstance(item, Reject)],
        range_=a_range(min(seqs), max(seqs), created=created),
        run_id=run_id,
        config_digest="digest",
    )
    return landing.land(warehouse, batch)


def an_attempt(job: Job, attempt: int = 1, **changes: Any) -> Completion:
    """A warm answer by ``moon`` in one second."""
    timings = {"ttft_s": 0.1, "e2e_s": 1.0}
    timings |= {k: changes.pop(k) for k in list(changes) if k in Timings.__dataclass_fields__}
    fields: dict[str, Any] = {
        "job_id": job.job_id,
        "attempt": attempt,
        "worker": "moon",
        "api": "openai",
        "model": job.model,
        "status": JobStatus.ANSWERED,
        "sent_at": NOW,
        "finished_at": NOW,
        "queue_s": 0.5,
        "text": "an answer",
        "prompt_tokens": 10,
        "completion_tokens": 20,
        "tokens_source": "server",
        "chunks": 20,
        "timings": Timings(**timings),
    }
    return Completion(**{**fields, **changes})


def finish(warehouse: Warehouse, *attempts: tuple[Job, Completion], run_id: str = "run-1") -> None:
    """Records attempts as the last ones of their jobs."""
    outcomes = [
        JobOutcome(job.job_id, c.status, c.error_kind, c.error_message, c.attempt, datetime.now(UTC))
        for job, c in attempts
    ]
    for day, lane in {(job.partition_date, job.lane) for job, _ in attempts}:
        where = [(job.partition_date, job.lane) == (day, lane) for job, _ in attempts]
        record_completions(
            warehouse,
            list(itertools.compress(attempts, where)),
            list(itertools.compress(outcomes, where)),
            lane=lane,
            partition_date=day,
            run_id=run_id,
        )


def answered(
    warehouse: Warehouse, seconds: Sequence[float], *, worker: str = "moon", first_seq: int = 1, **job: Any
) -> None:
    """Lands and answers one job for each duration."""
    jobs = [a_job(first_seq + i, **job) for i in range(len(seconds))]
    land(warehouse, *jobs)
    finish(warehouse, *((j, an_attempt(j, worker=worker, e2e_s=s)) for j, s in zip(jobs, seconds, strict=True)))
