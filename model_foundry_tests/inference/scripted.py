"""A model server that plays a script, raw bytes cut and timed as a test wants: what no real one does on demand."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qsl

HANG = object()
"""A step: say nothing more, keep the connection open until the client closes it."""

Step = bytes | float | asyncio.Event | object


@dataclass(slots=True)
class Received:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass(slots=True)
class ScriptedServer:
    """Plays the n-th script to the n-th request, and the last one to all that follow.

    A step of a script is bytes to send, seconds to pause, an event to wait for, or ``HANG``. ``in_flight`` counts
    requests from their last byte to the end of their script.
    """

    scripts: list[Sequence[Step]]
    received: list[Received] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0
    _server: asyncio.Server | None = None

    def __init__(self, *scripts: Sequence[Step]) -> None:
        self.scripts = list(scripts)
        self.received = []
        self.in_flight = self.most_in_flight = self.port = 0
        self.hung_up, self.arrived = asyncio.Event(), asyncio.Event()
        self._server = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=4096)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def wait_for_requests(self, number: int) -> None:
        """Until so many have arrived, those before included."""
        async with asyncio.timeout(10):
            while len(self.received) < number:
                self.arrived.clear()
                await self.arrived.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await self._read(reader)
        except asyncio.IncompleteReadError:
            writer.close()
            return
        self.received.append(request)
        self.arrived.set()
        script = self.scripts[min(len(self.received), len(self.scripts)) - 1]
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        gone = asyncio.ensure_future(reader.read())
        try:
            await self._play(script, writer, gone)
        finally:
            self.in_flight -= 1
            gone.cancel()
            with contextlib.suppress(ConnectionError):
                writer.close()

    async def _play(self, script: Sequence[Step], writer: asyncio.StreamWriter, gone: asyncio.Future[bytes]) -> None:
        for step in script:
            if isinstance(step, bytes):
                writer.write(step)
                with contextlib.suppress(ConnectionError):
                    await writer.drain()
            elif isinstance(step, float):
                await asyncio.sleep(step)
            elif isinstance(step, asyncio.Event):
                await step.wait()
            else:
                await gone
                self.hung_up.set()

    @staticmethod
    async def _read(reader: asyncio.StreamReader) -> Received:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        method, path, _ = first.split(" ")
        if "form-urlencoded" in headers.get("content-type", ""):
            return Received(method, path, headers, dict(parse_qsl(body.decode())))
        return Received(method, path, headers, json.loads(body) if body else None)


def http(status: int = 200, body: bytes = b"", *, headers: dict[str, str] | None = None) -> bytes:
    """A whole response."""
    lines = [f"HTTP/1.1 {status} Scripted", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{k}: {v}" for k, v in (headers or {}).items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def head(content_type: str = "text/event-stream") -> bytes:
    """The head of a response whose body ends with the connection."""
    return f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nConnection: close\r\n\r\n".encode()


def as_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def event(value: Any) -> bytes:
    """A server-sent event."""
    return b"data: " + as_json(value) + b"\n\n"


def delta(finish_reason: str | None = None, **parts: Any) -> bytes:
    """An OpenAI chunk."""
    return event({"choices": [{"index": 0, "delta": parts, "finish_reason": finish_reason}]})


def usage(prompt: int, completion: int, **more: Any) -> bytes:
    """OpenAI's usage chunk."""
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return event({"choices": [], "usage": counts, **more})


DONE = b"data: [DONE]\n\n"


def sse(*parts: Step) -> list[Step]:
    """A script: an event stream."""
    return [head(), *parts]


def sse_answer(text: str = "Canberra") -> list[Step]:
    """A script: one short, whole answer."""
    return sse(delta(content=text), delta("stop"), usage(5, 2), DONE)


def line(value: Any) -> bytes:
    """A line of newline-delimited JSON."""
    return as_json(value) + b"\n"


def said(content: str = "", **more: Any) -> bytes:
    """An Ollama chunk."""
    return line({"model": "m", "message": {"role": "assistant", "content": content, **more}, "done": False})


def done(reason: str = "stop", **statistics: Any) -> bytes:
    """Ollama's final object."""
    return line(
        {"model": "m", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": reason}
        | statistics
    )


def ndjson(*parts: Step) -> list[Step]:
    """A script: an Ollama stream."""
    return [head("application/x-ndjson"), *parts]


def refusal(status: int, body: Any = b"", **headers: str) -> list[Step]:
    """A script: an HTTP error."""
    raw = body if isinstance(body, bytes) else as_json(body)
    return [http(status, raw, headers={k.replace("_", "-"): v for k, v in headers.items()})]
