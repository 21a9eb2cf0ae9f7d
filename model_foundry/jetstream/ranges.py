"""The sensor's arithmetic: which sequences come next. Pure; nothing is read here."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from model_foundry.jetstream.client import StreamState


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a stream has been asked for. ``stream_created`` (epoch s) tells a recreated stream from the old one."""

    stream_created: int
    last_seq: int

    def to_text(self) -> str:
        """The cursor as Dagster stores it."""
        return json.dumps({"stream_created": self.stream_created, "last_seq": self.last_seq})

    @classmethod
    def from_text(cls, text: str | None) -> tuple[Cursor | None, str | None]:
        """The stored cursor and, when there is one that can't be read, why. Both None at the very first tick."""
        if not text:
            return None, None
        try:
            raw = json.loads(text)
            created, last = raw["stream_created"], raw["last_seq"]
        except (ValueError, KeyError, TypeError) as error:
            return None, f"{text[:80]!r} ({type(error).__name__})"
        if not all(isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in (created, last)):
            return None, f"{text[:80]!r} (whole numbers from 0 are allowed)"
        return cls(created, last), None


@dataclass(frozen=True, slots=True)
class NextRange:
    """A range to ask for, both ends included.

    Attributes:
        from_seq: first sequence.
        to_seq: last sequence.
        lost: sequences that the stream dropped before they were asked for, both ends included.
        recreated: the stream is not the one the cursor was about.
    """

    from_seq: int
    to_seq: int
    lost: tuple[int, int] | None = None
    recreated: bool = False


def next_range(cursor: Cursor | None, state: StreamState, max_messages: int) -> NextRange | None:
    """The next range after a cursor; None when the stream has nothing new.

    A stream created anew, or one whose last sequence lies before the cursor (restored from a backup), is read from its
    first sequence on: its numbers mean other messages now.
    """
    recreated = cursor is not None and (cursor.stream_created != state.created or state.last_seq < cursor.last_seq)
    after = 0 if cursor is None or recreated else cursor.last_seq
    first = max(after + 1, state.first_seq)
    if state.messages == 0 or state.last_seq < first:
        return None
    lost = (after + 1, first - 1) if cursor is not None and not recreated and first > after + 1 else None
    return NextRange(first, min(state.last_seq, first + max_messages - 1), lost, recreated)


def gaps(first: int, last: int, present: Iterable[int]) -> list[tuple[int, int]]:
    """The ranges between two sequences, both included, that are not among those present (in order). Pure."""
    found: list[tuple[int, int]] = []
    for seq in (*present, last + 1):
        if seq > first:
            found.append((first, seq - 1))
        first = seq + 1
    return found
