"""A response's body to events, whatever shape it has: the stream that was asked for, one JSON, a page of HTML.

Belongs here: compression, and telling the shapes apart. Does not belong here: lines and events (``sse``, ``ndjson``),
what they mean (``openai``, ``ollama``), the I/O (``client``). Pure: any cutting of the same bytes gives the same.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from enum import Enum, auto
from typing import Any, Protocol

from model_foundry.inference.lines import BOM, LineTooLong

INFLATED_PIECE_BYTES = 64 * 1024
"""Compressed bodies are inflated in pieces of this size, so that a small one can't fill the memory."""
_BEGINNING_BYTES = 2000
_SPACE = b" \t\r\n"
_SSE_FIELDS = (b"data", b"event", b"id", b"retry", b"error")


class Unreadable(ValueError):  # noqa: N818 (says what the body is)
    """A body that is compressed in a way that can't be undone."""


class Parser(Protocol):
    """Bytes to events: ``SseParser`` or ``NdjsonParser``."""

    def feed(self, chunk: bytes) -> list[Any]:
        """The events that this chunk ends."""

    def close(self) -> list[Any]:
        """What is left at the end."""


class Inflater:
    """Undoes ``Content-Encoding`` (RFC 9110, 8.4.1) as bytes come; servers compress though ``identity`` was asked for.

    Args:
        encoding: the header's value; empty or ``identity`` for none.

    Raises:
        Unreadable: for another encoding than gzip and deflate (with zlib's wrapper or, as some write it, without).
    """

    def __init__(self, encoding: str) -> None:
        names = [n for n in (part.strip().lower() for part in encoding.split(",")) if n not in ("", "identity")]
        if len(names) > 1 or not set(names) <= {"gzip", "x-gzip", "deflate"}:
            raise Unreadable(f"the body is compressed as {encoding!r}, though identity was asked for")
        self._name = names[0] if names else None
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)  # zlib's and gzip's heads are told apart
        self._head = b""
        self._got = self._ended = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The bytes that this chunk gives, in pieces.

        Raises:
            Unreadable: when it is not what the header says.
        """
        if self._name is None:
            yield chunk
            return
        if self._ended and not chunk.startswith(b"\x1f"):
            return  # padding after the end
        piece = b""
        while chunk or len(piece) == INFLATED_PIECE_BYTES:  # a full piece may have left more inside
            piece = self._decompress(chunk)
            chunk = self._inflate.unconsumed_tail
            if self._inflate.eof:  # gzip may have several members
                chunk, self._ended = self._inflate.unused_data, True
                self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
                chunk = chunk if chunk.startswith(b"\x1f") else b""
            if piece:
                yield piece

    def _decompress(self, chunk: bytes) -> bytes:
        if not self._got:
            self._head += chunk
        try:
            piece = self._inflate.decompress(chunk, INFLATED_PIECE_BYTES)
        except zlib.error as error:
            if self._got or self._name != "deflate":
                raise Unreadable(f"the body is not the {self._name} that its header says: {error}") from None
            self._inflate, self._got = zlib.decompressobj(-zlib.MAX_WBITS), True
            return self._decompress(self._head)
        if len(self._head) > 2 or piece:
            self._got = True
        return piece


class Shape(Enum):
    """What a body is."""

    UNKNOWN = auto()
    STREAM = auto()
    WHOLE = auto()
    MARKUP = auto()


class Body:
    """Takes a body's bytes, tells its shape by how it begins, and gives a stream's events.

    An event stream can't begin with a brace, and no answer of a model server with ``<``, whatever the content type
    says. A stream of JSON lines begins with a brace too; when the line ends behind it, it is one JSON, indented.

    Args:
        parser: for a stream.
        max_bytes: the longest body that is taken whole.
        is_sse: whether the stream is one of server-sent events.
    """

    def __init__(self, parser: Parser, max_bytes: int, *, is_sse: bool) -> None:
        self.shape = Shape.UNKNOWN
        self.whole = bytearray()
        self.events = 0
        self._parser, self._max_bytes, self._is_sse = parser, max_bytes, is_sse
        self._head = bytearray()
        self._at_start = True
        self._beginning = b""

    def feed(self, chunk: bytes) -> list[Any]:
        """The events that this chunk ends; none while it is no stream.

        Raises:
            LineTooLong: when a body that is no stream is longer than the bound.
        """
        if self.shape is Shape.UNKNOWN:
            self._head += chunk
            self._tell()
            if self.shape is Shape.UNKNOWN:
                return []
            chunk = bytes(self._head)
            self._head.clear()
        if len(self._beginning) < _BEGINNING_BYTES:
            self._beginning += chunk[: _BEGINNING_BYTES - len(self._beginning)]
        if self.shape is Shape.STREAM:
            return self._counted(self._parser.feed(chunk))
        if self.shape is Shape.WHOLE:
            self.whole += chunk
            if len(self.whole) > self._max_bytes:
                raise LineTooLong(f"a body that is not streamed is longer than {self._max_bytes} bytes")
        return []

    def close(self) -> list[Any]:
        """What a stream still holds at its end."""
        if self.shape is Shape.UNKNOWN and self._head:  # a brace, and no more
            self.shape = Shape.WHOLE
            self.whole += self._head
        return self._counted(self._parser.close()) if self.shape is Shape.STREAM else []

    @property
    def has_enough(self) -> bool:
        """Whether no more of it is of use: a page of HTML whose beginning is there."""
        return self.shape is Shape.MARKUP and len(self._beginning) >= _BEGINNING_BYTES

    @property
    def no_answer(self) -> str | None:
        """Why the whole body is no answer of a model server; None when it is one, or nothing."""
        beginning = " ".join(self._beginning.decode("utf-8", errors="replace").split())
        if self.shape is Shape.MARKUP:
            title = re.search(r"<title[^>]*>([^<]{1,200})", beginning, re.IGNORECASE)
            return f"a page of HTML or XML came, not an answer: {(title[1] if title else beginning)[:200].strip()}"
        if self.shape is Shape.STREAM and self._is_sse and not self.events and not self._begins_as_sse():
            return f"no event stream came, but: {beginning[:200]}"
        return None

    def _counted(self, events: list[Any]) -> list[Any]:
        self.events += len(events)
        return events

    def _begins_as_sse(self) -> bool:
        name = re.split(rb"[:\r\n]", self._beginning, maxsplit=1)[0]
        was_cut = len(name) == len(self._beginning)
        return name in (b"", *_SSE_FIELDS) or (was_cut and any(f.startswith(name) for f in _SSE_FIELDS))

    def _tell(self) -> None:
        if self._at_start:
            if len(self._head) < len(BOM) and BOM.startswith(self._head):
                return
            self._at_start = False
            self._head[:] = self._head.removeprefix(BOM)
        self._head[:] = self._head.lstrip(_SPACE)
        first = self._head[:1]
        if not first:
            return
        if first == b"<":
            self.shape = Shape.MARKUP
        elif first == b"[" or (first == b"{" and self._is_sse):
            self.shape = Shape.WHOLE
        elif first == b"{":
            after = self._head[1:].lstrip(b" \t\r")
            if after:
                self.shape = Shape.WHOLE if after.startswith(b"\n") else Shape.STREAM
            elif len(self._head) > _BEGINNING_BYTES:
                self.shape = Shape.STREAM
        else:
            self.shape = Shape.STREAM
