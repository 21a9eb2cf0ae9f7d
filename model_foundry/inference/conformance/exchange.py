"""Exchanges with a model server, as text files: what was asked, and the raw bytes that came back.

Belongs here: the files' form, reading them, the bytes of an answer. Does not belong here: serving them (``player``).

A file begins with YAML: ``server``, ``api``, ``model``, and what the answer to its first POST must be read as
(``status``, ``text``, ``reasoning``, ``finish_reason``, ``prompt_tokens``, ``completion_tokens``; left out is not
compared). Then come pairs:

    >>> POST /v1/chat/completions
    {"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": true}
    <<<
    HTTP/1.1 200 OK
    Content-Type: text/event-stream
    Transfer-Encoding: chunked

    data: {"choices": []}

What comes between the head's blank line and the next ``>>>`` is the body, byte for byte. ``<<< crlf`` ends the body's
lines in CRLF, ``<<< bom`` puts a byte order mark before it, ``<<< bare`` leaves out its last newline. A body with
``Content-Length: auto`` has its length counted, one that is ``chunked`` is framed event by event, and any other ends
with the connection.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from model_foundry.errors import FoundryError

_ASKED = re.compile(rb"^>>> ([A-Z]+) (\S+)\s*$")
_ANSWERED = re.compile(rb"^<<<((?: (?:crlf|bom|bare))*)\s*$")
_BOM = b"\xef\xbb\xbf"


class ExchangeError(FoundryError):
    """An exchange file can't be read; the message names the file, the line, and what is expected there."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A request, and the answer to it.

    Attributes:
        method: of the request.
        path: of the request, without a query.
        asked: the request's JSON; None when it has no body.
        head: the answer's status line and header lines.
        body: the answer's body, before any framing.
    """

    method: str
    path: str
    asked: Any
    head: tuple[str, ...]
    body: bytes

    @property
    def closes(self) -> bool:
        """Whether only the connection's end ends the body."""
        return not (self._has("content-length") or self._chunked)

    @property
    def raw(self) -> bytes:
        """The answer as it goes over the wire."""
        return b"".join(self.frames)

    @property
    def frames(self) -> list[bytes]:
        """The answer in the pieces in which a server sends it: the head, then an event, a line or the whole body."""
        lines = [f"Content-Length: {len(self.body)}" if _is_auto(line) else line for line in self.head]
        if self.closes:
            lines.append("Connection: close")
        pieces = [p for p in re.split(rb"(?<=\n\n)|(?<=\r\n\r\n)", self.body) if p]
        if len(pieces) < 2:
            pieces = self.body.splitlines(keepends=True) if self._chunked else [self.body]
        if self._chunked:
            pieces = [b"%x\r\n%b\r\n" % (len(p), p) for p in pieces] + [b"0\r\n\r\n"]
        return ["\r\n".join(lines).encode() + b"\r\n\r\n", *pieces]

    @property
    def _chunked(self) -> bool:
        return any(re.match(r"transfer-encoding:\s*chunked\s*$", line, re.IGNORECASE) for line in self.head)

    def _has(self, name: str) -> bool:
        return any(line.lower().startswith(f"{name}:") for line in self.head)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A file's content: facts about it, and its pairs in order."""

    name: str
    facts: Mapping[str, Any]
    pairs: tuple[Pair, ...] = field(repr=False)

    @property
    def main(self) -> Pair:
        """The first POST, whose answer the facts describe."""
        return next(p for p in self.pairs if p.method == "POST")

    def answer_to(self, method: str, path: str, asked: Any) -> Pair | None:
        """The pair whose request is most like this one: the same method and path, and the most top-level keys equal.

        Of several that are alike the first; None when no pair has the method and path. HEAD is answered as GET.
        """
        method = "GET" if method == "HEAD" else method
        there = [p for p in self.pairs if (p.method, p.path) == (method, path.partition("?")[0])]
        given = asked if isinstance(asked, dict) else {}

        def likeness(pair: Pair) -> int:
            recorded = pair.asked if isinstance(pair.asked, dict) else {}
            return sum(k in given and given[k] == v for k, v in recorded.items())

        return max(there, key=likeness, default=None)


def shipped() -> list[str]:
    """Names of the exchanges that come with the package."""
    folder = resources.files("model_foundry.inference.conformance") / "exchanges"
    return sorted(f.name.removesuffix(".txt") for f in folder.iterdir() if f.name.endswith(".txt"))


def load(name_or_file: str | Path) -> Exchange:
    """An exchange by the name of a shipped one, or from a file.

    Raises:
        ExchangeError: when there is none, or it can't be read.
    """
    file = Path(name_or_file)
    if str(name_or_file) in shipped():
        raw = (
            resources.files("model_foundry.inference.conformance") / "exchanges" / f"{name_or_file}.txt"
        ).read_bytes()
        return parse(str(name_or_file), raw)
    try:
        return parse(file.stem, file.read_bytes())
    except OSError as error:
        raise ExchangeError(
            f"no exchange {str(name_or_file)!r}: {error.strerror or error}",
            hint=f"Give a file, or one of {', '.join(shipped())}.",
        ) from None


def parse(name: str, raw: bytes) -> Exchange:
    """An exchange from a file's bytes.

    Raises:
        ExchangeError: when they are not one.
    """
    lines = raw.split(b"\n")
    starts = [i for i, line in enumerate(lines) if _ASKED.match(line)]
    if not starts:
        raise ExchangeError(f"{name}: no line '>>> METHOD /path'", hint="See docs/conformance.md for the form.")
    try:
        facts = yaml.safe_load(b"\n".join(lines[: starts[0]])) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ExchangeError(f"{name}: its beginning is not YAML: {error}") from None
    if not isinstance(facts, dict):
        raise ExchangeError(f"{name}: its beginning is no YAML mapping")
    ends = [*starts[1:], len(lines)]
    pairs = tuple(_pair(name, a + 1, lines[a:b], b == len(lines)) for a, b in zip(starts, ends, strict=True))
    if not any(p.method == "POST" for p in pairs):
        raise ExchangeError(f"{name}: no POST in it", hint="Add the exchange of a chat.")
    return Exchange(name, facts, pairs)


def _pair(name: str, number: int, lines: list[bytes], last: bool) -> Pair:
    asked, marks = _ASKED.match(lines[0]), [i for i, line in enumerate(lines) if _ANSWERED.match(line)]
    if asked is None or not marks:
        raise ExchangeError(f"{name}, line {number}: no line '<<<' after this request")
    mark = marks[0]
    text = b"\n".join(lines[1:mark]).strip()
    try:
        body = json.loads(text) if text else None
    except ValueError as error:
        raise ExchangeError(f"{name}, line {number + 1}: the request is not JSON: {error}") from None
    blank = next((i for i in range(mark + 1, len(lines)) if not lines[i].strip()), len(lines))
    head = tuple(line.decode("latin-1").strip() for line in lines[mark + 1 : blank])
    if not head or not head[0].startswith("HTTP/1.1 "):
        raise ExchangeError(f"{name}, line {number + mark + 1}: expected 'HTTP/1.1 <status> <reason>'")
    content = lines[blank + 1 :]
    if not last:
        content = [*content, b""]  # the newline before the next request is the body's
    options = (_ANSWERED.match(lines[mark]) or [b"", b""])[1].split()
    answer = (b"\r\n" if b"crlf" in options else b"\n").join(content)
    if b"bare" in options:
        answer = answer.rstrip(b"\r\n")
    method, path = asked[1].decode(), asked[2].decode()
    return Pair(method, path.partition("?")[0], body, head, (_BOM if b"bom" in options else b"") + answer)


def _is_auto(line: str) -> bool:
    return re.fullmatch(r"content-length:\s*auto", line, re.IGNORECASE) is not None
