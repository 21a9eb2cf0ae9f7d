"""What the fleet's buckets say now: heartbeats, slots that are held, jobs that were cancelled. I/O only.

Belongs here: reading and writing the three buckets. Does not belong here: what is in them means (``fleet.roster``,
``fleet.leases``), their wire format (``fleet.heartbeat``, ``jetstream.buckets``).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from model_foundry.config import FleetConfig, FoundryConfig
from model_foundry.errors import NatsUnavailableError, StreamError
from model_foundry.fleet.heartbeat import read_heartbeat, workers_bucket
from model_foundry.fleet.leases import Held, holders, slots_bucket
from model_foundry.fleet.roster import Beat, Roster, roster, without_beats
from model_foundry.jetstream.buckets import BucketConfig
from model_foundry.jetstream.client import JetStream

CANCELLED_S = 7 * 86400.0
"""A job that was cancelled before it was published, or while nothing runs, is still cancelled when it comes by then."""


@dataclass(frozen=True, slots=True)
class Board:
    """All of it at one moment. ``problem``: why the buckets could not be read; the rest is then the file's alone."""

    roster: Roster
    held: tuple[Held, ...]
    at: datetime
    problem: str | None = None


async def read_beats(js: JetStream, fleet: FleetConfig) -> Mapping[str, Beat]:
    """The heartbeats by key.

    Raises:
        NatsUnavailableError, StreamError: when the bucket can't be read.
    """
    entries = await (await js.bucket(workers_bucket(fleet.bucket, fleet.replicas))).entries()
    return {key: Beat(read_heartbeat(e.value or b"", key), e.at) for key, e in entries.items()}


async def read_board(js: JetStream, config: FoundryConfig) -> Board:
    """What the buckets say now.

    Raises:
        NatsUnavailableError, StreamError: when they can't be read.
    """
    beats, slots = await asyncio.gather(read_beats(js, config.fleet), js.bucket(slots_bucket(config.fleet)))
    now = datetime.now(UTC)
    return Board(roster(config, beats, now), tuple(holders(await slots.entries())), now)


async def read_board_if_any(js_of: JetStream, config: FoundryConfig) -> Board:
    """As :func:`read_board`, over a connection that is not open yet; without NATS, what the file says and why."""
    try:
        async with js_of as js:
            return await read_board(js, config)
    except (NatsUnavailableError, StreamError) as error:
        return Board(without_beats(config), (), datetime.now(UTC), str(error))


# -- cancelling -------------------------------------------------------------------------------------------------------


def cancellations_bucket(fleet: FleetConfig) -> BucketConfig:
    """The bucket of the jobs that were cancelled; each key is the SHA-256 of an id, since an id may hold anything."""
    return BucketConfig(f"{fleet.bucket}_cancelled", CANCELLED_S, fleet.replicas)


def cancellation_key(job_id: str) -> str:
    """The key under which a job's cancellation is put."""
    return hashlib.sha256(job_id.encode("utf-8", "surrogatepass")).hexdigest()


async def cancel_job(js: JetStream, fleet: FleetConfig, job_id: str) -> None:
    """Asks for a job to be cancelled: what is in flight is stopped, what waits ends, what has ended stays.

    Raises:
        NatsUnavailableError, StreamError: when it can't be said.
    """
    await (await js.bucket(cancellations_bucket(fleet))).put(cancellation_key(job_id), job_id.encode())
