"""The records that travel between modules and end as rows of the lake.

Belongs here: frozen dataclasses and the closed sets of words they use (statuses, error kinds). Does not belong here:
how a message is read (``envelopes``), routed (``routing``), answered (``inference``) or stored (``warehouse``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from typing import Any

UNROUTABLE_LANE = "unroutable"
"""The static lane of jobs that were read but can't be used, and of runs that record rejects."""

EVENTS_LANE = "events"
"""What stands in the place of a lane where an event was landed: events have days only."""


class JobStatus(StrEnum):
    """Where a job stands. All but ``PENDING`` are final, unless a person asks for failed ones again."""

    PENDING = "pending"
    ANSWERED = "answered"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    REJECTED = "rejected"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Task(StrEnum):
    """What is done for a job: a model answers it, a search server searches, or a model translates it in parts."""

    ANSWER = "answer"
    SEARCH = "search"
    TRANSLATE = "translate"


GROUNDS = ("web", "notes")
"""Where sources can be searched for a job."""


class ErrorKind(StrEnum):
    """Why a job has no answer: a closed set, so that errors can be counted and compared."""

    INVALID_REQUEST = "invalid_request"
    UNKNOWN_MODEL = "unknown_model"
    UNKNOWN_ROLE = "unknown_role"
    UNKNOWN_CAPABILITY = "unknown_capability"
    NO_WORKER = "no_worker"
    DEADLINE = "deadline"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    CONNECTION = "connection"
    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    MODEL_NOT_FOUND = "model_not_found"
    CONTEXT_OVERFLOW = "context_overflow"
    TRUNCATED_STREAM = "truncated_stream"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """One message as the stream holds it, before anybody has tried to read it.

    Attributes:
        stream: name of the JetStream stream.
        stream_created: the stream's creation time in epoch seconds; sequences restart when a stream is recreated.
        seq: the stream sequence.
        subject: the subject; bytes that are not UTF-8 are backslash-escaped.
        published_at: the stream's timestamp, UTC, cut to microseconds.
        headers: name and value pairs in wire order, names as sent; empty when there were none.
        data: the body, untouched.
    """

    stream: str
    stream_created: int
    seq: int
    subject: str
    published_at: datetime
    headers: tuple[tuple[str, str], ...]
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Reject:
    """A message that could not be read, kept whole: bytes, reason, subject, sequence."""

    message: StreamMessage
    reason: str


@dataclass(frozen=True, slots=True)
class Translate:
    """What is to be translated into which languages, as codes (BCP 47); ``source`` None: whatever it is written in."""

    to: tuple[str, ...]
    source: str | None = None


@dataclass(frozen=True, slots=True)
class PromptEnvelope:
    """A prompt message that could be read. Nothing here has been checked against the configuration.

    ``messages`` is always there (a bare ``prompt`` becomes one user message); ``prompt`` is the last user text, which
    may be blank. ``problem`` is set when the message can be read but not used (it becomes a ``rejected`` job).
    """

    message: StreamMessage
    job_id: str
    correlation_id: str | None
    prompt: str
    messages: list[dict[str, Any]]
    domain: str | None = None
    domain_source: str | None = None
    model: str | None = None
    role: str | None = None
    capability: str | None = None
    params: dict[str, Any] = field(default_factory=dict)
    priority: int = 0
    deadline: datetime | None = None
    reply_to: str | None = None
    metadata: dict[str, Any] | None = None
    traceparent: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    problem: str | None = None
    ground: tuple[str, ...] = ()
    query: str | None = None
    translate: Translate | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One prompt to answer, routed: a row of ``jobs``. Times are UTC.

    ``ground`` names where sources for it are searched, ``query`` what is searched for (the prompt, when None).
    """

    stream: str
    stream_created: int
    seq: int
    subject: str
    published_at: datetime
    partition_date: date
    job_id: str
    correlation_id: str | None
    domain: str
    domain_source: str
    language: str
    lane: str
    model: str | None
    role: str | None
    capability: str | None
    prompt: str
    messages: list[dict[str, Any]]
    params: dict[str, Any]
    priority: int
    deadline: datetime | None
    reply_to: str | None
    metadata: dict[str, Any] | None
    traceparent: str | None
    extra: dict[str, Any]
    notes: tuple[str, ...]
    route_reason: str
    status: JobStatus
    error_kind: ErrorKind | None = None
    error_message: str | None = None
    task: Task = Task.ANSWER
    ground: tuple[str, ...] = ()
    query: str | None = None
    translate: Translate | None = None


@dataclass(slots=True)
class Event:
    """An event that could be read: a row of ``events``. Not frozen only because thousands are made at a time.

    Attributes:
        message: as the stream holds it.
        event_key: 32 hex digits that stand for source and id, which are an event's identity.
        event_id: the event's own id, else the ``Nats-Msg-Id`` header, else ``<stream>-<created>-<seq>``.
        source: who says so: the acting agent or system.
        subject: the NATS subject, a former name replaced by today's.
        envelope: ``own``, ``cloudevents_structured`` or ``cloudevents_binary``.
        type: a CloudEvent's type.
        happened_at: ``occurred_at``, or the stream's time where that is missing or later, UTC.
        payload: as JSON text, any value for a CloudEvent, else an object; None when there is none.
        payload_encoding: ``json``, ``text`` (a string), ``base64`` (a string); None when there is no payload.
        payload_type: which model of ``envelopes.payloads`` it fits.
        payload_problem: why it fits none, when its subject has one.
        derived: what was told from the payload before anything was redacted, as JSON text: ``role_kind`` of a flow node
            (orchestrator, worker, translator), ``arguments_digest`` of a tool call.
        replay_of: the reject that this message is the corrected form of.
        extra: fields, and under ``headers`` headers, that the envelope does not know, as JSON text.
        content_digest: tells a duplicate from a conflict.
    """

    message: StreamMessage
    event_key: str
    event_id: str
    source: str | None
    subject: str
    envelope: str
    type: str | None
    correlation_id: str | None
    occurred_at: datetime | None
    happened_at: datetime
    payload: str | None
    payload_encoding: str | None
    payload_type: str | None
    payload_problem: str | None
    derived: str
    traceparent: str | None
    replay_of: str | None
    extra: str
    notes: tuple[str, ...]
    content_digest: str


@dataclass(frozen=True, slots=True)
class Timings:
    """What one attempt took. Seconds from a monotonic clock; unknown is None, never NaN, never a guess.

    Formulas: ttft_s request sent -> first chunk with content, reasoning or a tool call; ttfo_s -> first non-reasoning
    output; tpot_s (last token - first token) / (completion tokens - 1); e2e_s request sent -> last token;
    load_s, prefill_s, decode_s as the server reports; unattributed_s = e2e_s - (those reported); prefill_tps and
    decode_tps are server tokens / server seconds.
    """

    ttft_s: float | None = None
    ttfo_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    load_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    unattributed_s: float | None = None
    prefill_tps: float | None = None
    decode_tps: float | None = None


@dataclass(frozen=True, slots=True)
class WebResult:
    """A result of a search server, as it gave it; ``content`` is its snippet."""

    url: str
    title: str
    content: str
    engine: str | None = None
    score: float | None = None
    published_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """The recorded outcome of one attempt at a job: a row of ``completions``.

    ``tokens_source`` says who counted the tokens: ``server`` or ``missing``. ``server_stats`` is the server's own
    final statistics, as received. ``sent_at`` is the wall clock at sending (UTC); ``queue_s`` is stream timestamp ->
    request sent, across two hosts' clocks, so it can be negative and is then kept as it is. ``not_sent``: there was no
    connection, so the worker never saw the request; not a column. ``results`` are those of a search; rows of
    ``web_results``.
    """

    job_id: str
    attempt: int
    worker: str | None
    api: str | None
    model: str | None
    status: JobStatus
    sent_at: datetime
    finished_at: datetime
    queue_s: float | None
    text: str = ""
    reasoning: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    tokens_source: str = "missing"
    chunks: int = 0
    cold: bool | None = None
    timings: Timings = Timings()
    error_kind: ErrorKind | None = None
    error_message: str | None = None
    http_status: int | None = None
    retry_after_s: float | None = None
    not_sent: bool = False
    server_stats: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()
    results: tuple[WebResult, ...] = ()


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """How a job ended: the last attempt's outcome, or why there was none. ``attempts`` counts all there ever were."""

    job_id: str
    status: JobStatus
    error_kind: ErrorKind | None
    error_message: str | None
    attempts: int
    finished_at: datetime
