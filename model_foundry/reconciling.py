"""Reconciling: what a failed run, an outage or a crash left behind is found and asked for again.

Belongs here: comparing the stream with what was landed, and finding jobs that nobody finished. Does not belong here:
landing (``intake``) or answering (``answering``); runs do that, as for a sensor's tick.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from model_foundry.intake import Intake, Partition, missing_since_first, read_some
from model_foundry.jetstream.client import JetStream, with_jetstream
from model_foundry.jetstream.ranges import gaps
from model_foundry.prompt_intake import PromptIntake
from model_foundry.routing import partition_date
from model_foundry.runtime import Foundry


@dataclass(frozen=True, slots=True)
class Overdue:
    """A partition that a run should look after, with no range: it takes whatever is missing or pending there."""

    partition_date: date
    lane: str
    reason: str


def overdue(foundry: Foundry, kind: type[Intake[Any]], now: datetime) -> list[Overdue]:
    """A stream's partitions with messages that did not land, or jobs that did not end, in ``limits.reconcile_after_s``.

    Messages that the stream dropped before they were landed are asked for under today's partition of its rejects, whose
    run writes them off as lost.

    Args:
        foundry: the parts.
        kind: which stream.
        now: UTC.

    Raises:
        NatsUnavailableError, StreamError: when the stream can't be looked at.
        LakeError: when the lake can't.
    """
    foundry.warehouse.migrate()
    since = now - timedelta(seconds=foundry.config.limits.reconcile_after_s)
    found: dict[Partition, str] = {}
    intake = kind(foundry.config)
    if kind is PromptIntake:
        for row in foundry.warehouse.show("overdue_partitions", {"since": since}):
            reason = f"{row['pending']} jobs pending, {row['unpublished']} unpublished"
            found[row["partition_date"], row["lane"]] = reason

    async def look(js: JetStream) -> None:
        state = await js.ensure_stream(intake.stream)
        for first, last in missing_since_first(foundry.warehouse, state):
            messages, read_to = await read_some(js, state, first, last)
            old = [m for m in messages if m.published_at < since]
            for partition in intake.read_all(old):
                found.setdefault(partition, f"sequences {first} to {read_to} did not land")
            settled = old[-1].seq if old else min(read_to, state.first_seq - 1)
            if settled >= first and gaps(first, settled, [m.seq for m in messages if m.seq <= settled]):
                today = partition_date(now.astimezone(UTC), foundry.config.lake.first_date)
                reason = f"of sequences {first} to {read_to} some are not in the stream any more"
                found[today, intake.reject_lane] = reason

    with_jetstream(foundry.nats, look)
    return [Overdue(day, lane, reason) for (day, lane), reason in sorted(found.items())]
