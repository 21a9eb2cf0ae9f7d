"""Intake: from stream sequences to records and rejects in the lake.

Belongs here: what one sensor tick asks for and what one inbox run lands, whatever the stream holds. Does not belong
here: what prompts and events are made into (``prompt_intake``, ``event_intake``), the cursor arithmetic
(``jetstream.ranges``), reading one message (``envelopes``), the SQL (``warehouse.landing``).

Nothing here acknowledges anything. A tick reads a range only to learn which partitions it touches; the runs read the
same range again and land it. A range can be read any number of times and gives the same rows, so a failed run is
simply run again.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Generic, TypeVar

from model_foundry.config import FoundryConfig, StreamConfig
from model_foundry.errors import StreamError
from model_foundry.jetstream.client import JetStream, StreamState, with_jetstream
from model_foundry.jetstream.ranges import Cursor, gaps, next_range
from model_foundry.records import Event, Job, Reject, StreamMessage
from model_foundry.routing import partition_date
from model_foundry.runtime import Foundry
from model_foundry.warehouse.lake import Warehouse
from model_foundry.warehouse.landing import (
    Incoming,
    IngestRange,
    LandingReport,
    land,
    land_lost,
    missing_ranges,
    retired_up_to,
)

ENOUGH_BYTES = 16 * 2**20
"""Message bodies read into memory at once, about: messages may have megabytes each."""
ENOUGH_MESSAGES = 20_000
"""Messages that land together, at most: a run that is killed loses no more of its work than these few seconds of it."""

Partition = tuple[date, str]
"""A UTC day and a lane."""

Record = TypeVar("Record", Job, Event)

Looked = tuple[StreamState, list[StreamMessage], tuple[int, int] | None, tuple[str, ...]]
"""What a tick found: the stream with the range to ask for as its ends, its messages, what was lost before it, notes."""


@dataclass(frozen=True, slots=True)
class Batch(Generic[Record]):
    """Messages of one partition, read: every message is exactly one of these."""

    records: list[Record] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)


class Intake(ABC, Generic[Record]):
    """One stream's way into the lake: what its messages are made into. Pure; reads no stream and no lake.

    Args:
        config: the configuration to read by.
    """

    reject_lane: str
    """The lane under which messages land that can't be read."""

    def __init__(self, config: FoundryConfig) -> None:
        self.config = config

    @property
    @abstractmethod
    def stream(self) -> StreamConfig:
        """The stream."""

    @property
    @abstractmethod
    def batch_messages(self) -> int:
        """Messages that one tick asks runs to land, at most."""

    @abstractmethod
    def read(self, message: StreamMessage) -> Record | Reject:
        """One message, read; raises nothing."""

    @abstractmethod
    def partition_of(self, record: Record) -> Partition:
        """Where a record belongs."""

    def wants(self, batch: Batch[Record]) -> tuple[str, ...]:
        """What a batch's records ask for beside being landed, in words of the stream's own; sorted."""
        return ()

    @abstractmethod
    def incoming(self, batch: Batch[Record], range_: IngestRange, run_id: str) -> Incoming:
        """A batch, prepared for landing."""

    def read_all(self, messages: Iterable[StreamMessage]) -> dict[Partition, Batch[Record]]:
        """Every message, read, by partition; nothing stops it and nothing is left out."""
        found: dict[Partition, Batch[Record]] = {}
        for message in messages:
            read = self.read(message)
            if isinstance(read, Reject):
                partition = partition_date(message.published_at, self.config.lake.first_date), self.reject_lane
            else:
                partition = self.partition_of(read)
            batch = found.get(partition)
            if batch is None:
                batch = found[partition] = Batch()
            if isinstance(read, Reject):
                batch.rejects.append(read)
            else:
                batch.records.append(read)
        return found


@dataclass(frozen=True, slots=True)
class RunAsk:
    """One run that a tick asks for: a partition, the range of sequences it should land, what those want beside."""

    partition_date: date
    lane: str
    stream: str
    stream_created: int
    from_seq: int
    to_seq: int
    config_digest: str
    wants: tuple[str, ...] = ()

    @property
    def run_key(self) -> str:
        """Names this ask for ever. Only a belt: the cursor is what keeps a range from being asked for twice."""
        return f"{self.stream}-{self.stream_created}-{self.from_seq}-{self.to_seq}-{self.lane}-{self.partition_date}"


@dataclass(frozen=True, slots=True)
class Tick:
    """What one look at the stream found: the runs to ask for, the new cursor, and what a person should know."""

    asks: tuple[RunAsk, ...]
    cursor: Cursor
    notes: tuple[str, ...] = ()


def plan_tick(foundry: Foundry, kind: type[Intake[Record]], cursor_text: str | None) -> Tick | None:
    """Waits a while for new messages and says which runs would land them; None when there is nothing new.

    Args:
        foundry: the parts.
        kind: which stream.
        cursor_text: the sensor's cursor as stored, or None at the very first tick.

    Raises:
        NatsUnavailableError, StreamError: an outage is an error, so that it never looks like an empty queue.
    """
    config, intake = foundry.config, kind(foundry.config)
    cursor, unreadable = Cursor.from_text(cursor_text)

    async def look(js: JetStream) -> Looked | None:
        state = await js.ensure_stream(intake.stream)
        after = cursor.last_seq if cursor and cursor.stream_created == state.created else 0
        state = await js.wait_for_messages(state.name, after, config.limits.sensor_long_poll_s)
        span = next_range(cursor, state, intake.batch_messages)
        if span is None:
            return None
        notes = [f"unreadable cursor, reading from the start: {unreadable}"] if unreadable else []
        if span.recreated:
            notes.append(f"stream {state.name} was recreated; reading it from its first sequence")
        if span.lost:
            notes.append(
                f"stream {state.name} dropped sequences {span.lost[0]} to {span.lost[1]} before they were read"
            )
        messages, read_to = await read_some(js, state, span.from_seq, span.to_seq)
        return replace(state, first_seq=span.from_seq, last_seq=read_to), messages, span.lost, tuple(notes)

    found = with_jetstream(foundry.nats, look)
    if found is None:
        return None
    span, messages, lost, notes = found
    digest = foundry.remember_routing()
    asks = [
        RunAsk(day, lane, span.name, span.created, span.first_seq, span.last_seq, digest, intake.wants(batch))
        for (day, lane), batch in sorted(intake.read_all(messages).items(), key=lambda found: found[0])
    ]
    if lost is not None:  # a run must say so: a tick's log is soon gone
        today = partition_date(datetime.now(UTC), config.lake.first_date)
        asks.append(RunAsk(today, intake.reject_lane, span.name, span.created, *lost, digest))
    return Tick(tuple(asks), Cursor(span.created, span.last_seq), notes)


def land_partition(
    foundry: Foundry,
    kind: type[Intake[Record]],
    partition: Partition,
    *,
    run_id: str,
    span: tuple[int, int] | None = None,
    stream_created: int | None = None,
    config_digest: str | None = None,
) -> LandingReport:
    """Lands one partition's messages: of the given range, else of every range of the stream not landed yet.

    Sequences that the stream no longer has, and that nobody landed, are written off as lost: a row, and an alarm. So
    are those of a stream that was recreated since they were asked for, for its numbers mean other messages now.

    Args:
        foundry: the parts.
        kind: which stream.
        partition: which day and lane of it.
        run_id: who lands.
        span: first and last sequence, both included.
        stream_created: creation time (epoch s) of the stream the range belongs to.
        config_digest: the configuration the range was asked for with.

    Returns:
        What was landed; all zeros when there was nothing, which is a normal outcome.
    """
    intake = kind(foundry.routing_config(config_digest))
    stream = kind(foundry.config).stream  # where it is and how it is made is no matter of reading
    foundry.warehouse.migrate()
    day, lane = partition

    def write_off(spans: Sequence[tuple[int, int]], created: int, reason: str) -> LandingReport:
        lost = land_lost(foundry.warehouse, stream.name, created, spans, reason=reason, run_id=run_id)
        return LandingReport(lost=lost)

    def land_chunk(batch: Incoming, gone: Sequence[tuple[int, int]]) -> LandingReport:
        return land(foundry.warehouse, batch) + write_off(gone, batch.range_.stream_created, "dropped")

    async def read_and_land(js: JetStream) -> LandingReport:
        state = await js.ensure_stream(stream)
        if span is not None and stream_created not in (None, state.created):
            return write_off([span], stream_created or 0, "recreated")
        if span is not None:
            floor = retired_up_to(foundry.warehouse, state.name, state.created)
            spans = [(max(span[0], floor + 1), min(span[1], state.last_seq))]
        else:
            spans = missing_since_first(foundry.warehouse, state)
        landed = LandingReport()
        landing: asyncio.Task[LandingReport] | None = None
        for first, last in spans:
            while first <= last:
                messages, read_to = await read_some(js, state, first, last)
                gone = await _gone(js, state, gaps(first, read_to, (m.seq for m in messages)))
                # this chunk lands in a thread while the next one is read: DuckDB does not hold Python's lock
                mine = intake.read_all(messages).get(partition, Batch())
                range_ = IngestRange(state.name, state.created, lane, day, first, read_to)
                batch = intake.incoming(mine, range_, run_id)
                if landing is not None:
                    landed += await landing
                landing = asyncio.create_task(asyncio.to_thread(land_chunk, batch, gone))
                first = read_to + 1
        return landed if landing is None else landed + await landing

    return with_jetstream(foundry.nats, read_and_land)


async def read_some(js: JetStream, state: StreamState, first: int, last: int) -> tuple[list[StreamMessage], int]:
    """A range's messages, as many as one landing takes, and the sequence up to which they were read."""
    last = min(last, first + ENOUGH_MESSAGES - 1)
    messages = await js.read_range(state, first, last, enough_bytes=ENOUGH_BYTES)
    full = sum(len(m.data) for m in messages) >= ENOUGH_BYTES
    return messages, messages[-1].seq if full else last


async def _gone(js: JetStream, state: StreamState, spans: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
    """The ranges that a read left out, once the stream's leader says that they are not there.

    Raises:
        StreamError: when it has them: what was read came from a replica that lags behind.
    """
    for first, last in spans:
        for seq in {first, last}:
            if seq >= state.first_seq and await js.holds(state.name, seq):
                raise StreamError(
                    f"sequence {seq} of stream {state.name} was not read, although the stream has it",
                    hint="A replica lags behind. It is tried again by itself.",
                )
    return spans


def missing_since_first(warehouse: Warehouse, state: StreamState) -> list[tuple[int, int]]:
    """The ranges that nobody landed or wrote off, from the first sequence ever asked for to the stream's last."""
    [found] = warehouse.rows(
        "select min(from_seq) as first_seq from ingest_ledger where stream = $stream and stream_created = $created",
        {"stream": state.name, "created": state.created},
    )
    first = state.first_seq if found["first_seq"] is None else min(found["first_seq"], state.first_seq)
    first = max(first, retired_up_to(warehouse, state.name, state.created) + 1)
    return missing_ranges(warehouse, state.name, state.created, first, state.last_seq)
