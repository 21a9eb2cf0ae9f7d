"""Key-value buckets of JetStream: what is true now, and is forgotten when nobody says it again.

Belongs here: putting, taking by revision, reading everything, being told of changes. Does not belong here: what a key
means (``fleet``).

A bucket is the stream ``KV_<bucket>`` on the subjects ``$KV.<bucket>.>`` with one message a key, as NATS's own tools
make and read it (ADR-8); a deleted key is a message with the header ``KV-Operation``. Everything is read with one
direct get of the last message of each key (``multi_last``, ADR-31), which leaves no consumer behind. Changes come over
plain NATS, since a put is a publish.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import nats.errors
import nats.js.errors
from nats.aio.msg import Msg
from nats.js.api import DiscardPolicy, StorageType
from nats.js.api import StreamConfig as JsStreamConfig

from model_foundry.errors import StreamError

if TYPE_CHECKING:
    from model_foundry.jetstream.client import JetStream

OPERATION = "KV-Operation"
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
_WRONG_LAST_SEQUENCE = 10071


@dataclass(frozen=True, slots=True)
class BucketConfig:
    """A bucket. What is not put again within ``max_age_s`` is gone; 0 keeps it. ``memory``: lost with the server."""

    name: str
    max_age_s: float
    replicas: int = 1
    memory: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """A key as it is now. ``value`` is None after a deletion; ``at`` is the server's time of the last change."""

    key: str
    value: bytes | None
    revision: int
    at: datetime


class Bucket:
    """One bucket over a connection; see :meth:`JetStream.bucket`.

    Raises (all methods):
        NatsUnavailableError: when the server does not answer.
        StreamError: when it refuses.
    """

    def __init__(self, js: JetStream, name: str, created: int) -> None:
        self._js, self.name, self._created = js, name, created

    @property
    def stream(self) -> str:
        """The stream that holds it."""
        return f"KV_{self.name}"

    def _subject(self, key: str) -> str:
        return f"$KV.{self.name}.{key}"

    async def put(self, key: str, data: bytes) -> int:
        """Sets a key, whatever it was; gives its revision."""
        return await self._publish(key, data, {}) or 0  # without an expectation it is never refused

    async def put_if(self, key: str, data: bytes, revision: int) -> int | None:
        """Sets a key only if its last change is of this revision (0: there is none); None when it is not."""
        return await self._publish(key, data, {EXPECTED: str(revision)})

    async def delete(self, key: str) -> None:
        """Deletes a key."""
        await self._publish(key, b"", {OPERATION: "DEL"})

    async def delete_if(self, key: str, revision: int) -> int | None:
        """Deletes a key only if its last change is of this revision; None when it is not."""
        return await self._publish(key, b"", {OPERATION: "DEL", EXPECTED: str(revision)})

    async def _publish(self, key: str, data: bytes, headers: dict[str, str]) -> int | None:
        try:
            ack = await self._js.publish(self._subject(key), data, headers=headers)
        except StreamError as error:
            if isinstance(error.__cause__, nats.js.errors.APIError) and (
                error.__cause__.err_code == _WRONG_LAST_SEQUENCE
            ):
                return None
            raise
        return ack.seq

    async def entries(self, keys: str = ">", *, deleted: bool = False) -> dict[str, Entry]:
        """Every key that fits the pattern (as subjects do), by key; deleted ones too when asked for."""
        messages = await self._js.last_messages(self.stream, self._created, self._subject(keys))
        found = {}
        for message in messages:
            key = message.subject.removeprefix(self._subject(""))
            gone = any(name == OPERATION for name, _ in message.headers)
            if deleted or not gone:
                found[key] = Entry(key, None if gone else message.data, message.seq, message.published_at)
        return found

    @contextlib.asynccontextmanager
    async def changes(self, keys: str, on_change: Callable[[str], None]) -> AsyncIterator[None]:
        """Calls with the key of each change while it is open. Expiry is no change: look from time to time as well."""

        async def take(message: Msg) -> None:
            on_change(message.subject.removeprefix(self._subject("")))

        async with self._js.subscribed(self._subject(keys), take):
            yield


def stream_config(config: BucketConfig) -> JsStreamConfig:
    """The stream of a bucket, as NATS's own clients make it."""
    return JsStreamConfig(
        name=f"KV_{config.name}",
        subjects=[f"$KV.{config.name}.>"],
        max_age=config.max_age_s,
        max_msgs_per_subject=1,
        discard=DiscardPolicy.NEW,
        allow_rollup_hdrs=True,
        deny_delete=True,
        allow_direct=True,
        num_replicas=config.replicas,
        storage=StorageType.MEMORY if config.memory else StorageType.FILE,
        duplicate_window=min(120.0, config.max_age_s or 120.0),
    )
