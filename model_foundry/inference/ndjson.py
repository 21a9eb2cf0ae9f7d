"""Newline-delimited JSON, as Ollama streams it: one object a line.

Belongs here: bytes in any chunking to one text a line. Does not belong here: what the objects mean (``ollama``).
"""

from __future__ import annotations

from model_foundry.inference.lines import BOM, LineSplitter


class NdjsonParser:
    """Incremental: feed it chunks as they come, close it at the end. Empty lines and a byte order mark are nothing.

    Args:
        max_bytes: the longest line that is taken.
    """

    def __init__(self, max_bytes: int) -> None:
        self._lines = LineSplitter(max_bytes, lone_cr=False)
        self._first = True

    def feed(self, chunk: bytes) -> list[str]:
        """The lines that this chunk ends.

        Raises:
            LineTooLong: when a line is longer than the bound.
        """
        return self._texts(self._lines.feed(chunk))

    def close(self) -> list[str]:
        """The last line, when its newline is missing."""
        return self._texts(self._lines.close())

    def _texts(self, lines: list[bytes]) -> list[str]:
        if self._first and lines:
            lines[0], self._first = lines[0].removeprefix(BOM), False
        return [line.decode("utf-8", errors="replace") for line in lines if line.strip()]
