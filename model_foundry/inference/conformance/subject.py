"""A live server as it is tried: bounded requests in either dialect, and the answers as they came.

Belongs here: the requests' form, their bounds, and reading an answer without judging it. Does not belong here: what is
expected (``statements``), how answers are read in production (``inference.client``): the kit reads them by itself, so
that a fault of the one shows in the other.

Bounds: ``MAX_TOKENS`` tokens at temperature 0, ``REQUEST_S`` seconds and ``MAX_BODY_BYTES`` a request; the first one
has ``FIRST_ANSWER_S``, because it may load the model.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import httpx

from model_foundry.inference import openai
from model_foundry.inference.conformance.outcome import Api, excerpt
from model_foundry.inference.ndjson import NdjsonParser
from model_foundry.inference.probe import ProbeResult, Served, probe
from model_foundry.inference.sse import SseParser
from model_foundry.inference.target import WorkerTarget

MAX_TOKENS = 16
MAX_BODY_BYTES = 2**20
REQUEST_S = 60.0
FIRST_ANSWER_S = 300.0
PROBE_S = 10.0
PROMPT = "Count from 1 to 20, separated by commas."
REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")


class TooMuch(httpx.HTTPError):
    """An answer is longer than ``MAX_BODY_BYTES``."""


@dataclass(slots=True)
class Piece:
    """One object of an answer, and when it came: seconds of one monotonic clock."""

    at: float
    value: dict[str, Any]


@dataclass
class Reply:
    """One answer. ``objects`` are the JSON objects in it, ``ended`` whether the dialect's end mark came."""

    api: Api
    status: int
    headers: httpx.Headers
    body: bytes
    sent_at: float
    finished_at: float
    objects: list[Piece] = field(default_factory=list)
    ended: bool = False
    client_address: Any = None

    @property
    def ok(self) -> bool:
        """Whether it is a success that holds no error."""
        return 200 <= self.status < 300 and self.error is None

    @property
    def refused(self) -> bool:
        """Whether it says that the request was wrong."""
        return 400 <= self.status < 500

    @property
    def error(self) -> str | None:
        """The error in a body that came with a success."""
        for piece in self.objects:
            if piece.value.get("error"):
                return json.dumps(piece.value["error"], ensure_ascii=False)
        return None

    @property
    def content(self) -> str:
        """The body's text."""
        return self.body.decode("utf-8", errors="replace")

    @property
    def said(self) -> str:
        """Status and the body's beginning, as evidence."""
        return excerpt(f"HTTP {self.status}: {self.content}" if self.body else f"HTTP {self.status}")

    @property
    def took_s(self) -> float:
        """Request sent to body's end, seconds."""
        return self.finished_at - self.sent_at

    @cached_property
    def messages(self) -> list[tuple[float, dict[str, Any]]]:
        """The first choice's messages or deltas, with the moments they came."""
        found = []
        for piece in self.objects:
            if self.api == "ollama":
                message = piece.value.get("message")
            else:
                choice = next((c for c in _list(piece.value.get("choices")) if _index(c) == 0), {})
                message = choice.get("delta") or choice.get("message")
            if isinstance(message, dict):
                found.append((piece.at, message))
        return found

    @cached_property
    def output_moments(self) -> list[float]:
        """When output came: text, reasoning or a tool call."""
        return [at for at, m in self.messages if _text(m.get("content")) or thoughts(m) or m.get("tool_calls")]

    @cached_property
    def text(self) -> str:
        """The answer's text, reasoning left out."""
        return "".join(_text(m.get("content")) for _, m in self.messages)

    @cached_property
    def reasoning(self) -> str:
        """What the model thought."""
        return "".join(thoughts(m) for _, m in self.messages)

    @cached_property
    def calls_tools(self) -> bool:
        """Whether it asks for a tool."""
        return any(m.get("tool_calls") for _, m in self.messages)

    @cached_property
    def finish_reason(self) -> str | None:
        """Why it ended, as the server says."""
        if self.api == "ollama":
            found = [p.value.get("done_reason") for p in self.objects]
        else:
            found = [c.get("finish_reason") for p in self.objects for c in _list(p.value.get("choices"))]
        return next((r for r in reversed(found) if isinstance(r, str) and r), None)

    @cached_property
    def final(self) -> dict[str, Any]:
        """Ollama's last object; empty when it did not come."""
        return next((p.value for p in reversed(self.objects) if p.value.get("done") is True), {})

    @cached_property
    def usage(self) -> dict[str, Any]:
        """OpenAI's usage; empty when it did not come."""
        found = [p.value["usage"] for p in self.objects if isinstance(p.value.get("usage"), dict)]
        return found[-1] if found else {}

    @property
    def prompt_tokens(self) -> int | None:
        """The prompt's tokens as the server counts them."""
        return _count(self.final.get("prompt_eval_count") if self.api == "ollama" else self.usage.get("prompt_tokens"))

    @property
    def completion_tokens(self) -> int | None:
        """The answer's tokens as the server counts them."""
        return _count(self.final.get("eval_count") if self.api == "ollama" else self.usage.get("completion_tokens"))


def thoughts(message: Mapping[str, Any]) -> str:
    """The reasoning in a message, under any of its names."""
    return next((v for k in REASONING_FIELDS if isinstance(v := message.get(k), str) and v), "")


@dataclass
class Subject:
    """A server that is tried.

    Attributes:
        client: one that uses no connection twice, as production's does; see decision 0002.
        target: where and how to ask it. ``slots`` is what the user declares.
        model: the server's name of the model to ask for.
        slots_declared: whether ``target.slots`` is the user's word; else the server's own figure counts.
        state: what the probe said, last time.
    """

    client: httpx.AsyncClient
    target: WorkerTarget
    model: str
    state: ProbeResult
    slots_declared: bool = False
    _kept: dict[str, Reply] = field(default_factory=dict)

    @property
    def api(self) -> Api:
        """The dialect it is asked in."""
        return cast(Api, self.target.api)

    @property
    def root(self) -> str:
        """The URL without ``/v1``."""
        url = self.target.url.rstrip("/")
        return url.removesuffix("/v1") if self.api == "openai" else url

    @property
    def slots(self) -> int | None:
        """Requests at once: the user's word, else the server's, else unknown."""
        return self.target.slots if self.slots_declared else self.state.slots

    @property
    def models_url(self) -> str:
        """Where its models are listed."""
        return f"{openai.base_url(self.root)}/models" if self.api == "openai" else f"{self.root}/api/tags"

    @property
    def chat_url(self) -> str:
        """Where chats are asked for."""
        return openai.endpoint(self.root) if self.api == "openai" else f"{self.root}/api/chat"

    @property
    def served(self) -> Served | None:
        """What the server says of the model."""
        return next((s for s in self.state.served if s.name == self.model), None)

    async def look_again(self) -> ProbeResult:
        """Probes again: what was loaded meanwhile may be known now."""
        self.state = await probe(self.client, self.target, PROBE_S)
        return self.state

    async def request(
        self,
        method: str,
        url: str,
        content: bytes | None = None,
        *,
        timeout_s: float = REQUEST_S,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Sends one request and takes the whole answer.

        Raises:
            httpx.HTTPError: when the connection fails or breaks.
            TimeoutError: when the answer has not ended in time.
        """
        async with asyncio.timeout(timeout_s):
            sent_at = time.monotonic()
            async with self.client.stream(
                method, url, content=content, headers=self._headers(headers), timeout=None
            ) as response:
                stream = response.extensions.get("network_stream")
                reply = Reply(self.api, response.status_code, response.headers, b"", sent_at, sent_at)
                reply.client_address = stream.get_extra_info("client_addr") if stream else None
                await self._read(response, reply)
                reply.finished_at = time.monotonic()
        return reply

    async def chat(self, prompt: str = PROMPT, *, timeout_s: float = REQUEST_S, **changes: Any) -> Reply:
        """Asks for a chat; see :meth:`body` for ``changes``. Raises as :meth:`request` does."""
        ascii_only = changes.pop("ascii_only", False)
        content = json.dumps(self.body(prompt, **changes), ensure_ascii=ascii_only).encode()
        return await self.request("POST", self.chat_url, content, timeout_s=timeout_s)

    def body(
        self,
        prompt: str = PROMPT,
        *,
        max_tokens: int = MAX_TOKENS,
        stream: bool = True,
        usage: bool = True,
        stop: str | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """A chat request's JSON: temperature 0, a seed, a bound on tokens.

        Args:
            prompt: the user's words.
            max_tokens: for the answer.
            stream: whether it is to come in pieces.
            usage: whether a stream's counts are asked for, where the dialect wants to be asked.
            stop: where the answer is to stop.
            more: put over the rest, at the top.
        """
        given: dict[str, Any] = {"model": self.model, "messages": [{"role": "user", "content": prompt}]}
        given["stream"] = stream
        if self.api == "ollama":
            options = {"num_predict": max_tokens, "temperature": 0, "seed": 1}
            return {**given, "options": options | ({"stop": [stop]} if stop else {}), **more}
        given |= {"max_tokens": max_tokens, "temperature": 0, "seed": 1}
        if stream and usage:
            given["stream_options"] = {"include_usage": True}
        return {**given, **({"stop": [stop]} if stop else {}), **more}

    async def streamed(self) -> Reply:
        """The usual question's streamed answer; asked once. Raises as :meth:`request` does."""
        if "streamed" not in self._kept:
            self._kept["streamed"] = await self.chat(timeout_s=FIRST_ANSWER_S)
        return self._kept["streamed"]

    async def whole(self) -> Reply:
        """The usual question's answer in one piece; asked once. Raises as :meth:`request` does."""
        if "whole" not in self._kept:
            self._kept["whole"] = await self.chat(stream=False)
        return self._kept["whole"]

    def _headers(self, headers: Mapping[str, str] | None) -> dict[str, str]:
        given = self.target.headers if headers is None else headers
        return {"Content-Type": "application/json", "Accept-Encoding": "identity", **given}

    async def _read(self, response: httpx.Response, reply: Reply) -> None:
        body = bytearray()
        events = _Objects(self.api, response.headers.get("content-type", ""))
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise TooMuch(f"an answer of more than {MAX_BODY_BYTES} bytes")
            reply.objects += [Piece(time.monotonic(), value) for value in events.feed(chunk)]
        reply.objects += [Piece(time.monotonic(), value) for value in events.close(bytes(body))]
        reply.body = bytes(body)
        reply.ended = events.done or any(p.value.get("done") is True for p in reply.objects if self.api == "ollama")


class _Objects:
    """The JSON objects of a body, as it comes: an event stream, lines, or one object."""

    def __init__(self, api: Api, content_type: str) -> None:
        self.done = False
        self._sse = SseParser(MAX_BODY_BYTES) if "event-stream" in content_type else None
        self._lines = NdjsonParser(MAX_BODY_BYTES) if api == "ollama" and self._sse is None else None

    def feed(self, chunk: bytes) -> list[dict[str, Any]]:
        if self._sse:
            return list(self._of(e.data for e in self._sse.feed(chunk)))
        return list(self._of(self._lines.feed(chunk))) if self._lines else []

    def close(self, body: bytes) -> list[dict[str, Any]]:
        if self._sse:
            return list(self._of(e.data for e in self._sse.close()))
        return list(self._of(self._lines.close() if self._lines else [body.decode("utf-8", errors="replace")]))

    def _of(self, texts: Any) -> Iterator[dict[str, Any]]:
        for text in texts:
            if text.strip() == "[DONE]":
                self.done = True
                continue
            try:
                value = json.loads(text)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                yield value


def number(value: Any) -> float | None:
    """A finite number at or above zero, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**63:
        return None
    return float(value) if math.isfinite(value) else None


def _count(value: Any) -> int | None:
    found = number(value)
    return None if found is None else int(found)


def _text(content: Any) -> str:
    """The text in a message's content: text itself, or the text parts of a list."""
    if isinstance(content, list):
        return "".join(p["text"] for p in content if isinstance(p, dict) and isinstance(p.get("text"), str))
    return content if isinstance(content, str) else ""


def _list(value: Any) -> list[dict[str, Any]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def _index(choice: Mapping[str, Any]) -> Any:
    return choice.get("index") or 0
