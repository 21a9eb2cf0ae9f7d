"""Sending a rejected event again, corrected: what was wrong is a person's to say, the rest stays as it was.

Belongs here: making the corrected message, making sure that it can be read now, publishing it. Does not belong here:
reading messages (``envelopes``), asking a person (``cli``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from model_foundry.envelopes.events import REPLAY_HEADER
from model_foundry.errors import FoundryError
from model_foundry.event_intake import EventIntake
from model_foundry.jetstream.client import JetStream, PubAck, with_jetstream
from model_foundry.records import Reject, StreamMessage
from model_foundry.runtime import Foundry


class ReplayError(FoundryError):
    """There is no such reject, or its corrected form can't be read or stored."""


@dataclass(frozen=True, slots=True)
class StoredReject:
    """A reject as the lake keeps it."""

    message: StreamMessage
    reason: str

    @property
    def name(self) -> str:
        """By which it is asked for: ``<stream>-<created>-<seq>``."""
        return f"{self.message.stream}-{self.message.stream_created}-{self.message.seq}"


def find_reject(foundry: Foundry, name: str) -> StoredReject:
    """The reject of an event with this name, or the newest with this sequence.

    Raises:
        ReplayError: when there is none.
    """
    stream = foundry.config.streams.events.name
    rows = foundry.warehouse.show("reject", {"stream": stream, "reject": name})
    if not rows:
        raise ReplayError(f"there is no reject {name!r} of stream {stream}", hint="List them: foundry events rejects")
    [row] = rows
    message = StreamMessage(
        stream=row["stream"],
        stream_created=row["stream_created"],
        seq=row["seq"],
        subject=row["subject"],
        published_at=row["published_at"],
        headers=tuple((key, value) for key, value in json.loads(row["headers"])),
        data=bytes(row["bytes"]),
    )
    return StoredReject(message, row["reason"])


def corrected(
    reject: StoredReject, data: bytes | None, subject: str | None, headers: Mapping[str, str]
) -> StreamMessage:
    """The message with another body, subject or headers (an empty value takes a header away). Pure.

    The first of repeated headers stays; those by which NATS itself is told what to do are left out, the id aside.
    """
    kept: dict[str, tuple[str, str]] = {}
    for name, value in (*reject.message.headers, *headers.items()):
        if name in headers:
            kept[name.lower()] = (name, headers[name])
        else:
            kept.setdefault(name.lower(), (name, value))
    chosen = [
        (name, value)
        for name, value in kept.values()
        if value and (not name.lower().startswith("nats-") or name.lower() == "nats-msg-id")
    ]
    chosen = [pair for pair in chosen if pair[0].lower() != REPLAY_HEADER.lower()]
    return replace(
        reject.message,
        data=reject.message.data if data is None else data,
        subject=subject or reject.message.subject,
        headers=(*chosen, (REPLAY_HEADER, reject.name)),
    )


def replay(foundry: Foundry, message: StreamMessage) -> PubAck:
    """Publishes a corrected message, once it can be read.

    Raises:
        ReplayError: when it still can't be read, or the stream took it for one that it has already.
        NatsUnavailableError, StreamError: when it can't be published.
    """
    read = EventIntake(foundry.config).read(message)
    if isinstance(read, Reject):
        raise ReplayError(
            f"it still can't be read: {read.reason}", hint="Nothing was published. Correct it, and try again."
        )

    async def publish(js: JetStream) -> PubAck:
        await js.ensure_stream(foundry.config.streams.events)
        return await js.publish(message.subject, message.data, headers=dict(message.headers))

    ack = with_jetstream(foundry.nats, publish)
    if ack.duplicate:
        raise ReplayError(
            f"the stream took it for a repetition: it still remembers the Nats-Msg-Id of {message.subject}",
            hint="Try again in two minutes, or give it another id: --header Nats-Msg-Id=…",
        )
    return ack
