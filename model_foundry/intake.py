"""Intake: from stream sequences to jobs and rejects in the lake.

Belongs here: what one sensor tick asks for, and what one ``prompt_inbox`` run lands. Does not belong here: the cursor
arithmetic (``jetstream.ranges``), reading one message (``envelopes``), routing it (``routing``), the SQL
(``warehouse.landing``).

Nothing here acknowledges anything. A tick reads a range only to learn which partitions it touches; the runs read the
same range again and land it. A range can be read any number of times and gives the same rows, so a failed run is
simply run again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

from model_foundry.config import FoundryConfig
from model_foundry.envelopes.prompts import read_prompt
from model_foundry.errors import StreamError
from model_foundry.jetstream.client import JetStream, StreamState, with_jetstream
from model_foundry.jetstream.ranges import Cursor, gaps, next_range
from model_foundry.records import UNROUTABLE_LANE, Job, Reject, StreamMessage
from model_foundry.routing import partition_date, route
from model_foundry.runtime import Foundry
from model_foundry.warehouse.lake import Warehouse
from model_foundry.warehouse.landing import (
    Incoming,
    IngestRange,
    LandingReport,
    incoming,
    land_lost,
    land_prompts,
    missing_ranges,
    retired_up_to,
)

ENOUGH_BYTES = 16 * 2**20
"""Message bodies read into memory at once, about: prompts may have megabytes each."""


Looked = tuple[StreamState, list[StreamMessage], tuple[int, int] | None, tuple[str, ...]]
"""What a tick found: the stream with the range to ask for as its ends, its messages, what was lost before it, notes."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages, read and routed: every message is exactly one of these."""

    jobs: tuple[Job, ...]
    rejects: tuple[Reject, ...]


@dataclass(frozen=True, slots=True)
class RunAsk:
    """One run that a tick asks for: a partition, and the range of sequences it should land."""

    partition_date: date
    lane: str
    stream: str
    stream_created: int
    from_seq: int
    to_seq: int
    config_digest: str

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


def read_batch(config: FoundryConfig, messages: Iterable[StreamMessage]) -> Batch:
    """Reads and routes messages. Pure; nothing stops it and nothing is left out."""
    jobs: list[Job] = []
    rejects: list[Reject] = []
    for message in messages:
        read = read_prompt(message, max_message_bytes=config.limits.max_message_bytes)
        if isinstance(read, Reject):
            rejects.append(read)
        else:
            jobs.append(route(config, read))
    return Batch(tuple(jobs), tuple(rejects))


def partitions_of(config: FoundryConfig, batch: Batch) -> list[tuple[date, str]]:
    """The (date, lane) partitions that a batch touches; rejects belong to the lane ``unroutable``. Pure."""
    touched = {(job.partition_date, job.lane) for job in batch.jobs}
    touched |= {
        (partition_date(r.message.published_at, config.lake.first_date), UNROUTABLE_LANE) for r in batch.rejects
    }
    return sorted(touched)


def part_of(config: FoundryConfig, batch: Batch, day: date, lane: str) -> Batch:
    """The part of a batch that belongs to one partition. Pure."""
    return Batch(
        tuple(j for j in batch.jobs if (j.partition_date, j.lane) == (day, lane)),
        tuple(
            r
            for r in batch.rejects
            if lane == UNROUTABLE_LANE and partition_date(r.message.published_at, config.lake.first_date) == day
        ),
    )


def plan_tick(foundry: Foundry, cursor_text: str | None) -> Tick | None:
    """Waits a while for new prompts and says which runs would land them; None when there is nothing new.

    Args:
        foundry: the parts.
        cursor_text: the sensor's cursor as stored, or None at the very first tick.

    Raises:
        NatsUnavailableError, StreamError: an outage is an error, so that it never looks like an empty queue.
    """
    config = foundry.config
    cursor, unreadable = Cursor.from_text(cursor_text)

    async def look(js: JetStream) -> Looked | None:
        state = await js.ensure_stream(config.streams.prompts)
        after = cursor.last_seq if cursor and cursor.stream_created == state.created else 0
        state = await js.wait_for_messages(state.name, after, config.limits.sensor_long_poll_s)
        span = next_range(cursor, state, config.limits.sensor_batch_messages)
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
        RunAsk(day, lane, span.name, span.created, span.first_seq, span.last_seq, digest)
        for day, lane in partitions_of(config, read_batch(config, messages))
    ]
    if lost is not None:  # a run must say so: a tick's log is soon gone
        today = partition_date(datetime.now(UTC), config.lake.first_date)
        asks.append(RunAsk(today, UNROUTABLE_LANE, span.name, span.created, *lost, digest))
    return Tick(tuple(asks), Cursor(span.created, span.last_seq), notes)


def land_partition(
    foundry: Foundry,
    day: date,
    lane: str,
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
        day: the partition's date.
        lane: the partition's lane.
        run_id: who lands.
        span: first and last sequence, both included.
        stream_created: creation time (epoch s) of the stream the range belongs to.
        config_digest: the routing configuration the range was asked for with.

    Returns:
        What was landed; all zeros when there was nothing, which is a normal outcome.
    """
    config = foundry.routing_config(config_digest)
    foundry.warehouse.migrate()

    def write_off(spans: Sequence[tuple[int, int]], created: int, reason: str) -> LandingReport:
        name = foundry.config.streams.prompts.name
        return LandingReport(lost=land_lost(foundry.warehouse, name, created, spans, reason=reason, run_id=run_id))

    def land(batch: Incoming, gone: Sequence[tuple[int, int]]) -> LandingReport:
        return land_prompts(foundry.warehouse, batch) + write_off(gone, batch.range_.stream_created, "dropped")

    async def read_and_land(js: JetStream) -> LandingReport:
        state = await js.ensure_stream(foundry.config.streams.prompts)
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
                mine = part_of(config, read_batch(config, messages), day, lane)
                batch = incoming(
                    mine.jobs,
                    mine.rejects,
                    range_=IngestRange(state.name, state.created, lane, day, first, read_to),
                    run_id=run_id,
                    config_digest=config.routing_digest(),
                )
                if landing is not None:
                    landed += await landing
                landing = asyncio.create_task(asyncio.to_thread(land, batch, gone))
                first = read_to + 1
        return landed if landing is None else landed + await landing

    return with_jetstream(foundry.nats, read_and_land)


async def read_some(js: JetStream, state: StreamState, first: int, last: int) -> tuple[list[StreamMessage], int]:
    """A range's messages as far as memory allows, and the sequence up to which they were read."""
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
