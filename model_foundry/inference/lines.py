"""Bytes as they come off the wire, cut into whole lines.

Belongs here: line ends and the bound on a line. Does not belong here: what a line means (``sse``, ``ndjson``). Pure:
any cutting of the same bytes into chunks gives the same lines, and a character is never decoded in halves, because
only whole lines are decoded.
"""

from __future__ import annotations

import re

BOM = b"\xef\xbb\xbf"
"""UTF-8's byte order mark, which some servers on Windows begin with."""


class LineTooLong(ValueError):  # noqa: N818 (says what the line is)
    """A line, or what belongs together over lines, is longer than the bound."""


class LineSplitter:
    """Cuts chunks of bytes into lines without their ends.

    Args:
        max_bytes: the longest line that is taken.
        lone_cr: whether a carriage return alone ends a line too, as in event streams.
    """

    def __init__(self, max_bytes: int, *, lone_cr: bool) -> None:
        self._max_bytes = max_bytes
        self._end = re.compile(rb"\r\n|\n|\r" if lone_cr else rb"\n")
        self._open = bytearray()
        self._skip_lf = False
        self._lone_cr = lone_cr

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk ends.

        Raises:
            LineTooLong: when a line is longer than the bound, ended or not.
        """
        if self._skip_lf and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._skip_lf = False
        # a CR at the very end has ended its line already; an LF that comes next belongs to it
        self._skip_lf = self._skip_lf or (self._lone_cr and chunk.endswith(b"\r"))
        *ended, rest = self._end.split(chunk)
        lines = []
        for piece in ended:
            self._open += piece
            lines.append(self._take())
        self._open += rest
        if len(self._open) > self._max_bytes + 1:  # one more, for a CR whose LF has not come yet
            raise LineTooLong(f"a line is longer than {self._max_bytes} bytes")
        return lines

    def close(self) -> list[bytes]:
        """The last line, when its end is missing."""
        return [self._take()] if self._open else []

    def _take(self) -> bytes:
        line = bytes(self._open)
        if not self._lone_cr:
            line = line.removesuffix(b"\r")
        self._open.clear()
        if len(line) > self._max_bytes:
            raise LineTooLong(f"a line is longer than {self._max_bytes} bytes")
        return line
