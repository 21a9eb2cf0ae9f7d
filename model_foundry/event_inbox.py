"""The inbox of events: what a run took from the stream, and what a day holds, as one typed record.

Belongs here: the record, and making it. Does not belong here: how messages are read (``envelopes.events``), how they
land (``intake``), how a record is shown (``defs.events``).

Nothing to take is a normal outcome: the same type, with no events and the status ``empty``.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from model_foundry.event_intake import EventIntake
from model_foundry.intake import land_partition, missing_since_first
from model_foundry.jetstream.client import JetStream, with_jetstream
from model_foundry.records import EVENTS_LANE, StreamMessage
from model_foundry.runtime import Foundry
from model_foundry.warehouse.lake import Snapshot, Warehouse
from model_foundry.warehouse.landing import LandingReport

MAX_LISTED = 10_000
"""Events that a record lists; all of them are in the lake."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class EventRef(_Model):
    """One event, by what a person looks for. ``correlation_id`` is None when the sender gave none."""

    event_id: str
    subject: str
    correlation_id: str | None = None


class SubjectCount(_Model):
    """What came on one subject. ``messages`` = ``events`` + ``duplicates`` + ``rejects``."""

    subject: str
    messages: int
    events: int
    duplicates: int
    rejects: int


class SequenceRange(_Model):
    """First and last sequence of the messages, both included."""

    from_seq: int
    to_seq: int


class InboxRecord(_Model):
    """What was taken from the stream of events.

    Attributes:
        status: ``empty`` when there was nothing to take.
        partition_date: the UTC day.
        events: the events, in the stream's order; the first ``MAX_LISTED`` of ``event_count``.
        event_count: how many there are.
        by_subject: counts, most messages first; a duplicate counts under its event's subject.
        duplicates: messages whose event was there already.
        rejects: messages that could not be read.
        lost: messages that the stream dropped before they were read.
        sequences: the range of sequences; none when the status is empty.
    """

    status: Literal["landed", "empty"]
    partition_date: date
    events: tuple[EventRef, ...] = ()
    event_count: int = 0
    by_subject: tuple[SubjectCount, ...] = ()
    duplicates: int = 0
    rejects: int = 0
    lost: int = 0
    sequences: tuple[SequenceRange, ...] = ()

    def count(self, subject: str) -> int:
        """Events of one subject."""
        return sum(row.events for row in self.by_subject if row.subject == subject)


def take_events(
    foundry: Foundry,
    day: date,
    *,
    run_id: str,
    span: tuple[int, int] | None = None,
    stream_created: int | None = None,
    config_digest: str | None = None,
) -> InboxRecord:
    """Lands a day's events: of the given range, else whatever of the stream nobody has landed; see ``land_partition``.

    Returns:
        What the range holds, whoever landed it, so that running it again gives the same; with no range, what this run
        landed.
    """
    report = land_partition(
        foundry,
        EventIntake,
        (day, EVENTS_LANE),
        run_id=run_id,
        span=span,
        stream_created=stream_created,
        config_digest=config_digest,
    )
    which: dict[str, Any] = {"run_id": run_id}
    if span is not None and report.lost == 0:
        which = {"stream_created": stream_created, "from_seq": span[0], "to_seq": span[1]}
    with foundry.warehouse.snapshot() as now:
        return _record(now, day, which, report)


def record_of_day(warehouse: Warehouse, day: date) -> InboxRecord:
    """All that has landed of a day.

    Raises:
        LakeError: when the lake can't be read.
    """
    warehouse.migrate()
    with warehouse.snapshot() as now:
        return _record(now, day, {}, LandingReport())


def _record(lake: Snapshot, day: date, which: dict[str, Any], report: LandingReport) -> InboxRecord:
    params = dict.fromkeys(("run_id", "stream_created", "from_seq", "to_seq")) | which | {"day": day}
    rows = lake.show("inbox_messages", params)
    if not rows:
        return InboxRecord(status="empty", partition_date=day, lost=report.lost)
    counts = tuple(SubjectCount(**{name: row[name] for name in SubjectCount.model_fields}) for row in rows)
    refs = lake.show("inbox_events", params | {"most": MAX_LISTED})
    return InboxRecord(
        status="landed",
        partition_date=day,
        events=tuple(EventRef(**ref) for ref in refs),
        event_count=sum(row.events for row in counts),
        by_subject=counts,
        duplicates=sum(row.duplicates for row in counts),
        rejects=sum(row.rejects for row in counts),
        lost=report.lost,
        sequences=(
            SequenceRange(
                from_seq=min(row["from_seq"] for row in rows),
                to_seq=max(row["to_seq"] for row in rows),
            ),
        ),
    )


# -- how far behind ------------------------------------------------------------------------------------------------


class Lag(_Model):
    """How far the lake is behind the stream. ``oldest_s`` is the age of the oldest message that has not landed; 0 when
    all have."""

    pending: int
    oldest_s: float


def lag(foundry: Foundry, now: datetime) -> Lag:
    """How far the lake is behind the stream of events, now.

    Raises:
        NatsUnavailableError, StreamError: when the stream can't be looked at.
        LakeError: when the lake can't.
    """
    foundry.warehouse.migrate()

    async def look(js: JetStream) -> Lag:
        state = await js.ensure_stream(foundry.config.streams.events)
        missing = missing_since_first(foundry.warehouse, state)
        pending = sum(last - first + 1 for first, last in missing)
        oldest: list[StreamMessage] = []
        for first, last in missing:
            oldest = await js.read_range(state, first, min(last, first + 99), enough_bytes=1)
            if oldest:
                break
        age_s = max((now - oldest[0].published_at).total_seconds(), 0.0) if oldest else 0.0
        return Lag(pending=pending, oldest_s=age_s)

    return with_jetstream(foundry.nats, look)
