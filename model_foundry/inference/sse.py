"""Server-sent events, as OpenAI-compatible servers stream them.

Belongs here: bytes in any chunking to events, after the WHATWG HTML standard, section 9.2.6. Does not belong here: what
an event's data means (``openai``).

Two leniencies: an event whose closing blank line is missing at the end of the stream is still an event, and a line
``error: {…}`` is an event named ``error``, because older llama.cpp servers report a failure so.
"""

from __future__ import annotations

from typing import NamedTuple

from model_foundry.inference.lines import BOM, LineSplitter, LineTooLong


class SseEvent(NamedTuple):
    """One event: its data, lines joined by a newline, and its name."""

    data: str
    event: str = "message"


class SseParser:
    """Incremental: feed it chunks as they come, close it at the end. Comments and unknown fields are nothing.

    Args:
        max_bytes: the longest line, and the most data of one event, that is taken.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lines = LineSplitter(max_bytes, lone_cr=True)
        self._first = True
        self._data: list[str] = []
        self._size = 0
        self._event = ""

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that this chunk ends.

        Raises:
            LineTooLong: when a line or an event is longer than the bound.
        """
        return self._events(self._lines.feed(chunk))

    def close(self) -> list[SseEvent]:
        """What is left at the end of the stream: at most one event."""
        return [*self._events(self._lines.close()), *self._dispatch()]

    def _events(self, lines: list[bytes]) -> list[SseEvent]:
        events: list[SseEvent] = []
        for line in lines:
            if self._first:
                line, self._first = line.removeprefix(BOM), False
            if line:
                self._field(line)
            else:
                events += self._dispatch()
        return events

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name in (b"data", b"error"):
            self._size += len(value) + 1
            if self._size > self._max_bytes:
                raise LineTooLong(f"an event is longer than {self._max_bytes} bytes")
            self._data.append(value.decode("utf-8", errors="replace"))
        if name == b"error":
            self._event = "error"
        elif name == b"event":
            self._event = value.decode("utf-8", errors="replace")

    def _dispatch(self) -> list[SseEvent]:
        events = [SseEvent("\n".join(self._data), self._event or "message")] if self._data else []
        self._data, self._size, self._event = [], 0, ""
        return events
