"""Landing: rows go into the lake here, each function one transaction under the writer lock.

Belongs here: turning records into relations, running ``sql/landing``, rows back into records. Does not belong here:
reading messages (``intake``), asking workers (``answering``), the SQL itself.

Every function can be called again with the same arguments and leaves the same rows: what has landed is recognized by
its natural key, ``(stream, stream_created, seq)`` for messages and ``(job_id, attempt)`` for attempts.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from datetime import UTC, date, datetime
from hashlib import sha256
from operator import attrgetter
from typing import Any, Literal

import pyarrow as pa

from model_foundry.records import (
    EVENTS_LANE,
    Completion,
    ErrorKind,
    Event,
    Job,
    JobOutcome,
    JobStatus,
    Reject,
    StreamMessage,
    Task,
    Timings,
    Translate,
)
from model_foundry.text import well_formed
from model_foundry.warehouse.engine import Rows, rows_of, run_script, storable
from model_foundry.warehouse.lake import Warehouse
from model_foundry.warehouse.sql_files import sql_text

RecordKind = Literal["job", "event"]
"""What a message of a stream becomes when it can be read."""


@dataclass(frozen=True, slots=True)
class IngestRange:
    """A range of stream sequences, both ends included, landed for one partition."""

    stream: str
    stream_created: int
    lane: str
    partition_date: date
    from_seq: int
    to_seq: int


@dataclass(frozen=True, slots=True)
class LandingReport:
    """What a landing added; all zeros when it was all there already. ``lost`` counts sequences written off."""

    messages: int = 0
    records: int = 0
    duplicates: int = 0
    rejects: int = 0
    lost: int = 0

    def __add__(self, other: LandingReport) -> LandingReport:
        return LandingReport(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class Incoming:
    """Messages of one partition's range, ready to be landed: see :func:`incoming`."""

    kind: RecordKind
    table: pa.Table
    range_: IngestRange
    run_id: str
    config_digest: str
    now: datetime


def incoming_jobs(
    jobs: Sequence[Job], rejects: Sequence[Reject], *, range_: IngestRange, run_id: str, config_digest: str
) -> Incoming:
    """Prepares prompts for landing. Apart from it because this needs Python's lock, and the landing does not."""
    return _incoming("job", _jobs_table(jobs), rejects, range_, run_id, config_digest)


def incoming_events(
    events: Sequence[Event], rejects: Sequence[Reject], *, range_: IngestRange, run_id: str, config_digest: str
) -> Incoming:
    """Prepares events for landing."""
    return _incoming("event", _events_table(events, range_), rejects, range_, run_id, config_digest)


def _incoming(
    kind: RecordKind, records: pa.Table, rejects: Sequence[Reject], range_: IngestRange, run_id: str, digest: str
) -> Incoming:
    rejected = pa.Table.from_pylist([_reject_row(r, range_) for r in rejects], records.schema)
    return Incoming(kind, pa.concat_tables([records, rejected]), range_, run_id, digest, datetime.now(UTC))


def land(warehouse: Warehouse, batch: Incoming) -> LandingReport:
    """Lands messages of one partition and the ledger row of their range, together."""
    range_, kind = batch.range_, batch.kind
    params = asdict(range_) | {"run_id": batch.run_id, "now": batch.now, "config_digest": batch.config_digest}
    with warehouse.writer(f"land {range_.lane} {range_.from_seq}-{range_.to_seq}") as connection:
        connection.register("incoming", batch.table)
        run_script(connection, sql_text("landing", f"known_{kind}s"))
        [counts] = rows_of(run_script(connection, sql_text("landing", "land_messages"), params | {"kind": kind}))
        run_script(connection, sql_text("landing", f"land_{kind}s"), params)
    return LandingReport(**counts)


def land_lost(
    warehouse: Warehouse,
    stream: str,
    stream_created: int,
    spans: Sequence[tuple[int, int]],
    *,
    reason: str,
    run_id: str,
) -> int:
    """Writes off sequences that the stream no longer has, less those that were landed; gives how many were new."""
    missing = [gap for first, last in spans for gap in missing_ranges(warehouse, stream, stream_created, first, last)]
    if not missing:
        return 0
    params = {"stream": stream, "stream_created": stream_created, "reason": reason, "run_id": run_id}
    with warehouse.writer(f"write off {len(missing)} ranges") as connection:
        connection.register("gone", pa.Table.from_pylist([{"from_seq": a, "to_seq": b} for a, b in missing]))
        run_script(connection, sql_text("landing", "land_lost"), params | {"now": datetime.now(UTC)})
    return sum(last - first + 1 for first, last in missing)


def claim_jobs(
    warehouse: Warehouse,
    *,
    lane: str,
    partition_date: date,
    run_id: str,
    now: datetime,
    tasks: Collection[Task] = (Task.ANSWER,),
    sourceless: bool = False,
    dead_runs: Collection[str] = (),
    retry_failed: bool = False,
) -> list[Job]:
    """Claims a partition's waiting jobs for a run, in the order to answer them.

    Args:
        warehouse: the lake.
        lane: the partition's lane.
        partition_date: the partition's date.
        run_id: who claims. Jobs that this run has claimed before are among the result.
        now: the time of the claim, UTC.
        tasks: what the run does.
        sourceless: those that ask for sources and have none yet, instead of all others.
        dead_runs: runs that have ended; what they left claimed is taken over.
        retry_failed: jobs that failed, are incomplete or were cancelled wait again.
    """
    params = {
        "lane": lane,
        "day": partition_date,
        "run_id": run_id,
        "now": now,
        "tasks": [str(task) for task in tasks],
        "sourceless": sourceless,
        "dead_runs": list(dead_runs),
        "retry_failed": retry_failed,
    }
    with warehouse.writer(f"claim jobs of {lane}") as connection:
        return [_job(row) for row in rows_of(run_script(connection, sql_text("landing", "claim_jobs"), params))]


def claimants(warehouse: Warehouse, *, lane: str, partition_date: date) -> list[str]:
    """The runs that hold claims on a partition's jobs."""
    found = warehouse.rows(
        "select distinct run_id from job_claims where lane = $lane and partition_date = $day",
        {"lane": lane, "day": partition_date},
    )
    return [row["run_id"] for row in found]


def record_completions(
    warehouse: Warehouse,
    attempts: Sequence[tuple[Job, Completion]],
    outcomes: Sequence[JobOutcome],
    *,
    lane: str,
    partition_date: date,
    run_id: str,
) -> None:
    """Records attempts of one partition, and the outcomes of the jobs that are finished, together."""
    if not attempts and not outcomes:
        return
    rows = [_completion_row(job, completion) | {"run_id": run_id} for job, completion in attempts]
    with warehouse.writer(f"record {len(attempts)} attempts") as connection:
        connection.register("attempted", pa.Table.from_pylist(rows, schema=ATTEMPTED))
        connection.register("outcomes", pa.Table.from_pylist([storable(asdict(o)) for o in outcomes], schema=OUTCOMES))
        run_script(connection, sql_text("landing", "record_completions"), {"lane": lane, "day": partition_date})


def mark_published(warehouse: Warehouse, results: Sequence[tuple[JobOutcome, int]], *, partition_date: date) -> None:
    """Records the sequence, in the stream of results, of each outcome's result."""
    rows = [
        {"job_id": o.job_id, "partition_date": partition_date, "finished_at": o.finished_at, "result_seq": seq}
        for o, seq in results
    ]
    with warehouse.writer(f"mark {len(rows)} results as published") as connection:
        connection.register("published", pa.Table.from_pylist(rows, schema=PUBLISHED))
        params = {"day": partition_date, "now": datetime.now(UTC)}
        run_script(connection, sql_text("landing", "mark_published"), params)


def finished_unpublished(
    warehouse: Warehouse, *, lane: str, partition_date: date
) -> list[tuple[Job, JobOutcome, Completion | None]]:
    """A partition's finished jobs whose result nobody has published yet, with their last attempt."""
    with warehouse.reader() as connection:
        query = connection.execute(sql_text("landing", "finished_unpublished"), {"lane": lane, "day": partition_date})
        return [(_job(row), _outcome(row), _completion(row)) for row in rows_of(query)]


def attempts_so_far(
    warehouse: Warehouse, job_ids: Sequence[str], *, lane: str, partition_date: date
) -> dict[str, tuple[int, int]]:
    """Of each of a partition's jobs that was attempted: the last attempt's number, and how many count."""
    if not job_ids:
        return {}
    params = {"ids": list(job_ids), "lane": lane, "day": partition_date}
    found = warehouse.rows(sql_text("landing", "attempts_so_far"), params)
    return {row["job_id"]: (row["last_attempt"], row["spent"]) for row in found}


def put_off_jobs(
    warehouse: Warehouse, reasons: Mapping[str, str], *, lane: str, partition_date: date, run_id: str
) -> None:
    """Records why jobs of one partition wait.

    Args:
        warehouse: the lake.
        reasons: by job id.
        lane: the partition's lane.
        partition_date: the partition's date.
        run_id: the run that could not answer them.
    """
    rows = [{"job_id": job_id, "reason": well_formed(reason)} for job_id, reason in reasons.items()]
    params = {"lane": lane, "day": partition_date, "run_id": run_id, "now": datetime.now(UTC)}
    with warehouse.writer(f"put off {len(rows)} jobs") as connection:
        connection.register("incoming", pa.Table.from_pylist(rows, schema=PUT_OFF))
        run_script(connection, sql_text("landing", "put_off_jobs"), params)


def record_fleet(warehouse: Warehouse, rows: Rows) -> None:
    """Records the fleet as it was found at one moment; rows as in ``fleet_snapshots``."""
    with warehouse.writer("record the fleet") as connection:
        table = pa.Table.from_pylist([storable(row) for row in rows], schema=FLEET)
        connection.register("incoming", table)
        run_script(connection, sql_text("landing", "record_fleet"))


def retired_up_to(warehouse: Warehouse, stream: str, stream_created: int) -> int:
    """The sequence up to which a stream's messages were forgotten on purpose; 0 when none were."""
    params = {"stream": stream, "stream_created": stream_created}
    return warehouse.rows(sql_text("landing", "retired_up_to"), params)[0]["to_seq"] or 0


def missing_ranges(
    warehouse: Warehouse, stream: str, stream_created: int, first_seq: int, last_seq: int
) -> list[tuple[int, int]]:
    """The ranges between two sequences, both included, of which nothing has landed."""
    if last_seq < first_seq:
        return []
    span = {"stream": stream, "stream_created": stream_created, "first_seq": first_seq, "last_seq": last_seq}
    found = warehouse.rows(sql_text("landing", "missing_ranges"), span)
    return [(row["from_seq"], row["to_seq"]) for row in found]


# -- records to rows and back, pure --------------------------------------------------------------------------------


_JOB_FIELDS = tuple(Job.__dataclass_fields__)
_job_values = attrgetter(*_JOB_FIELDS)
_JSON_FIELDS = ("messages", "params", "metadata", "extra", "notes")


_event_values = attrgetter(*(name for name in Event.__slots__ if name != "message"))
_EVENT_FIELDS = tuple(name for name in Event.__slots__ if name != "message")
_MESSAGE_FIELDS = ("stream", "stream_created", "seq", "subject", "published_at", "data")
_message_values = attrgetter(*(f"message.{name}" for name in _MESSAGE_FIELDS))


def _jobs_table(jobs: Sequence[Job]) -> pa.Table:
    """The jobs as rows of ``INCOMING_JOBS``, built by columns: a thousand at a time, that is three times as fast."""
    if not jobs:
        return INCOMING_JOBS.empty_table()
    columns = _columns(_JOB_FIELDS, map(_job_values, jobs))
    for name in _JSON_FIELDS:
        columns[name] = [None if value is None else _json(value) for value in columns[name]]
    columns["ground"] = [_json(job.ground) if job.ground else None for job in jobs]
    columns["translate"] = [None if job.translate is None else _json(asdict(job.translate)) for job in jobs]
    columns["content_digest"] = [
        _content_digest(job, messages, params)
        for job, messages, params in zip(jobs, columns["messages"], columns["params"], strict=True)
    ]
    columns["record_id"] = columns.pop("job_id")
    return _table(columns, len(jobs), INCOMING_JOBS)


def _events_table(events: Sequence[Event], range_: IngestRange) -> pa.Table:
    """The events as rows of ``INCOMING_EVENTS``."""
    if not events:
        return INCOMING_EVENTS.empty_table()
    columns = _columns(_EVENT_FIELDS, map(_event_values, events))
    columns["record_id"], columns["current_subject"] = columns.pop("event_key"), columns.pop("subject")
    columns["notes"] = [_json(notes) for notes in columns["notes"]]
    columns |= _columns(_MESSAGE_FIELDS, map(_message_values, events))
    columns["size_bytes"] = [len(data) for data in columns.pop("data")]
    columns["partition_date"] = [range_.partition_date] * len(events)
    columns["lane"] = [EVENTS_LANE] * len(events)
    return _table(columns, len(events), INCOMING_EVENTS)


def _columns(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> dict[str, Sequence[Any]]:
    return dict(zip(names, zip(*rows, strict=True), strict=True))


def _table(columns: Mapping[str, Sequence[Any]], length: int, schema: pa.Schema) -> pa.Table:
    """A table of these columns; those of the schema that are not among them are empty."""
    arrays = [pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(length, f.type) for f in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _content_digest(job: Job, messages: str, params: str) -> str:
    """What must be the same for two messages of one job id not to be in conflict: what is asked, and of whom."""
    model = job.model if job.error_kind is None else None
    parts = [messages, params, model or "", job.role or "", job.capability or "", job.reply_to or ""]
    if job.ground or job.query or job.translate:  # only then, or what landed before would be in conflict with itself
        parts += [*job.ground, job.query or "", "" if job.translate is None else str(job.translate)]
    content = "\0".join(parts)
    return sha256(content.encode()).hexdigest()[:32]


def _reject_row(reject: Reject, range_: IngestRange) -> dict[str, Any]:
    message: StreamMessage = reject.message
    return {
        "stream": message.stream,
        "stream_created": message.stream_created,
        "seq": message.seq,
        "subject": message.subject,
        "published_at": message.published_at,
        "partition_date": range_.partition_date,
        "lane": range_.lane,
        "headers": _json([list(pair) for pair in message.headers]),
        "bytes": message.data,
        "reason": reject.reason,
    }


def _completion_row(job: Job, completion: Completion) -> dict[str, Any]:
    row = {name: getattr(completion, name) for name in Completion.__dataclass_fields__}
    row |= {name: getattr(job, name) for name in ATTEMPT_JOB_COLUMNS}
    row |= asdict(completion.timings)
    for name in ("tool_calls", "notes", "server_stats"):
        row[name] = None if row[name] is None else _json(row[name])
    return storable({key: value for key, value in row.items() if key in ATTEMPTED.names})


def _json(value: Any) -> str:
    if not value and isinstance(value, dict | list | tuple):  # most are
        return "{}" if isinstance(value, dict) else "[]"
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def _job(row: Mapping[str, Any]) -> Job:
    fields = {name: row[name] for name in Job.__dataclass_fields__}
    for name in ("messages", "params", "metadata", "extra", "notes"):
        fields[name] = None if fields[name] is None else json.loads(fields[name])
    fields["notes"] = tuple(fields["notes"] or ())
    fields["status"] = JobStatus(fields["status"])
    fields["error_kind"] = ErrorKind(fields["error_kind"]) if fields["error_kind"] else None
    fields["task"] = Task(fields["task"])
    fields["ground"] = tuple(json.loads(fields["ground"])) if fields["ground"] else ()
    if fields["translate"]:
        asked = json.loads(fields["translate"])
        fields["translate"] = Translate(tuple(asked["to"]), asked["source"])
    for name in ("published_at", "deadline"):
        fields[name] = fields[name] and fields[name].astimezone(UTC)
    return Job(**fields)


def _outcome(row: Mapping[str, Any]) -> JobOutcome:
    return JobOutcome(
        job_id=row["job_id"],
        status=JobStatus(row["status"]),
        error_kind=ErrorKind(row["error_kind"]) if row["error_kind"] else None,
        error_message=row["error_message"],
        attempts=row["attempts"],
        finished_at=row["finished_at"],
    )


def _completion(row: Mapping[str, Any]) -> Completion | None:
    """As much of the last attempt as a result message shows."""
    if row["text"] is None:
        return None
    return Completion(
        job_id=row["job_id"],
        attempt=row["attempts"],
        worker=row["worker"],
        api=None,
        model=row["model"],
        status=JobStatus(row["status"]),
        sent_at=row["finished_at"],
        finished_at=row["finished_at"],
        queue_s=row["queue_s"],
        text=row["text"],
        reasoning=row["reasoning"],
        tool_calls=json.loads(row["tool_calls"]),
        finish_reason=row["finish_reason"],
        prompt_tokens=row["prompt_tokens"],
        completion_tokens=row["completion_tokens"],
        timings=Timings(**{name: row[name] for name in Timings.__dataclass_fields__}),
    )


_TIME = pa.timestamp("us", tz="UTC")
_TEXT = pa.string()

_MESSAGE_COLUMNS = [
    ("stream", _TEXT),
    ("stream_created", pa.int64()),
    ("seq", pa.int64()),
    ("partition_date", pa.date32()),
]

_INCOMING_COLUMNS = [
    *_MESSAGE_COLUMNS,
    ("lane", _TEXT),
    ("subject", _TEXT),
    ("published_at", _TIME),
    ("record_id", _TEXT),
    ("content_digest", _TEXT),
    ("headers", _TEXT),
    ("bytes", pa.binary()),
    ("reason", _TEXT),
]
"""What every stream message has on its way in. The last three are a reject's, the two before a record's."""

INCOMING_JOBS = pa.schema(
    [
        *_INCOMING_COLUMNS,
        *((name, _TEXT) for name in ("correlation_id", "domain", "domain_source", "language")),
        *((name, _TEXT) for name in ("model", "role", "capability", "prompt", "messages", "params")),
        ("priority", pa.int32()),
        ("deadline", _TIME),
        *((name, _TEXT) for name in ("reply_to", "metadata", "traceparent", "extra", "notes", "route_reason")),
        *((name, _TEXT) for name in ("status", "error_kind", "error_message", "task", "ground", "query", "translate")),
    ]
)
"""A prompt on its way in."""

INCOMING_EVENTS = pa.schema(
    [
        *_INCOMING_COLUMNS,
        *((name, _TEXT) for name in ("event_id", "source", "current_subject", "envelope", "type", "correlation_id")),
        ("occurred_at", _TIME),
        ("happened_at", _TIME),
        *((name, _TEXT) for name in ("payload", "payload_encoding", "payload_type", "payload_problem", "derived")),
        *((name, _TEXT) for name in ("traceparent", "replay_of", "extra", "notes")),
        ("size_bytes", pa.int64()),
    ]
)
"""An event on its way in."""

ATTEMPT_JOB_COLUMNS = ("stream", "stream_created", "seq", "partition_date", "correlation_id", "domain", "lane", "role")

ATTEMPTED = pa.schema(
    [
        *_MESSAGE_COLUMNS,
        *((name, _TEXT) for name in ("job_id", "correlation_id", "domain", "lane", "role", "model", "worker", "api")),
        ("attempt", pa.int32()),
        *((name, _TEXT) for name in ("status", "text", "reasoning", "tool_calls", "finish_reason", "tokens_source")),
        *((name, _TEXT) for name in ("error_kind", "error_message", "server_stats", "notes", "run_id")),
        ("sent_at", _TIME),
        ("finished_at", _TIME),
        ("queue_s", pa.float64()),
        *((name, pa.float64()) for name in Timings.__dataclass_fields__),
        ("cold", pa.bool_()),
        *((name, pa.int64()) for name in ("prompt_tokens", "completion_tokens", "cached_tokens")),
        *((name, pa.int32()) for name in ("chunks", "http_status")),
    ]
)
"""An attempt on its way in."""

OUTCOMES = pa.schema(
    [
        *((name, _TEXT) for name in ("job_id", "status", "error_kind", "error_message")),
        ("attempts", pa.int32()),
        ("finished_at", _TIME),
    ]
)
"""The end of a job on its way in."""

FLEET = pa.schema(
    [
        ("taken_at", _TIME),
        *((name, _TEXT) for name in ("worker", "state", "previous_state", "reasons", "url", "api", "supports")),
        *((name, _TEXT) for name in ("models", "loaded", "version", "gpu_name", "run_id")),
        *((name, pa.bool_()) for name in ("in_file", "has_agent")),
        *((name, pa.int32()) for name in ("slots", "server_slots", "slots_held", "running", "waiting", "gpu_index")),
        *((name, pa.float64()) for name in ("generated_tokens_total", "stalled_s", "heartbeat_age_s")),
        *((name, pa.float64()) for name in ("gpu_util_percent", "vram_used_mb", "vram_total_mb")),
        *((name, pa.float64()) for name in ("temperature_c", "power_w")),
    ]
)
"""A worker at one moment, on its way in."""

PUT_OFF = pa.schema([("job_id", _TEXT), ("reason", _TEXT)])
"""Why a job waits, on its way in."""

PUBLISHED = pa.schema(
    [("job_id", _TEXT), ("partition_date", pa.date32()), ("finished_at", _TIME), ("result_seq", pa.int64())]
)
"""A result that is in the stream of results."""
