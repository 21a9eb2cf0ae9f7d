"""Searches of the notes, answered over NATS.

Belongs here: reading a request, answering it, saying in an event that it was made. Does not belong here: the search
(``search``), the connection (``jetstream``).

A request is a JSON object with ``query`` (and ``top``), bare or as an event's ``payload``, on
``obsidian.semantic_search`` or on ``search.notes``; the answer goes to the message's reply subject, or to the
``reply_to`` in it. On ``obsidian.semantic_search`` the stream of events answers first, with its acknowledgement: a
requester there takes the message that has ``hits`` or ``error``. On ``search.notes`` the answer is the only one.

An answer: ``{"query", "model", "worker", "hits": [{"source", "chunk", "heading", "text", "score"}], "latency_ms"}`` or
``{"query", "error": {"kind", "message", "do"}}``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from nats.aio.msg import Msg

from model_foundry.errors import ConfigError, FoundryError, NatsUnavailableError, StreamError
from model_foundry.jetstream.client import JetStream
from model_foundry.jetstream.subjects import subject_matches
from model_foundry.runtime import Foundry
from model_foundry.search import search_notes
from model_foundry.strict_json import NotJson, loads
from model_foundry.text import well_formed

EVENT_SUBJECT = "obsidian.semantic_search"
REQUEST_SUBJECT = "search.notes"
SOURCE = "model_foundry"
MAX_TOP = 100
MAX_QUERY_CHARS = 2000
AT_ONCE = 4
"""Searches that are made at once; more wait."""


class BadRequest(ValueError):  # noqa: N818 (says what it is)
    """A message that is no request for a search."""


@dataclass(frozen=True, slots=True)
class Request:
    """A search that is asked for."""

    query: str
    top: int = 5
    reply_to: str | None = None
    correlation_id: str | None = None


def read_request(data: bytes) -> Request | None:
    """A message's request; None when it is the report of a search that was made. Pure.

    Raises:
        BadRequest: when it is neither.
    """
    try:
        body = loads(data)
    except NotJson as error:
        raise BadRequest(str(error)) from None
    if not isinstance(body, dict):
        raise BadRequest("the message is no object")
    inner = body.get("payload")
    payload = inner if isinstance(inner, dict) else body
    if "hits" in payload:
        return None
    query, top = payload.get("query"), payload.get("top", 5)
    if not isinstance(query, str) or not query.strip():
        raise BadRequest("query is missing or blank; give words to search for")
    if len(query) > MAX_QUERY_CHARS:
        raise BadRequest(f"query has {len(query)} characters; at most {MAX_QUERY_CHARS} are searched for")
    if isinstance(top, bool) or not isinstance(top, int) or not 1 <= top <= MAX_TOP:
        raise BadRequest(f"top is {json.dumps(top)[:80]}; allowed: 1 to {MAX_TOP}")

    def text(name: str) -> str | None:
        value = payload.get(name, body.get(name))
        return value if isinstance(value, str) and value else None

    return Request(query, top, text("reply_to"), text("correlation_id"))


class SearchService:
    """Answers searches until it is stopped.

    Args:
        foundry: the parts.
        say: called with a line for people, without anybody's words.
    """

    def __init__(self, foundry: Foundry, say: Callable[[str], None]) -> None:
        self._foundry, self._say = foundry, say
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._working: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Listens, and connects again whenever the connection is lost, until ``stop`` is set."""
        while not stop.is_set():
            try:
                async with JetStream(self._foundry.nats) as js:
                    await self._listen(js, stop)
            except (NatsUnavailableError, StreamError, ConfigError) as error:
                self._say(f"not listening: {error}")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), 2.0)

    async def _listen(self, js: JetStream, stop: asyncio.Event) -> None:
        async def take(message: Msg) -> None:
            task = asyncio.create_task(self._answer(js, message))
            self._working.add(task)
            task.add_done_callback(self._working.discard)

        async with js.subscribed(EVENT_SUBJECT, take), js.subscribed(REQUEST_SUBJECT, take):
            self._say(f"answering searches on {EVENT_SUBJECT} and {REQUEST_SUBJECT}")
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), 5.0)
                await js.check()
            await asyncio.gather(*self._working, return_exceptions=True)

    async def _answer(self, js: JetStream, message: Msg) -> None:
        try:
            request = read_request(message.data)
        except BadRequest as error:
            # on the events' subject anything may come; only who waits for an answer is told
            if message.reply:
                await self._reply(js, message.reply, _problem("", "invalid_request", str(error), None))
            return
        if request is None:
            return
        to = self._where_to(message, request)
        if to is None:
            return
        began = time.monotonic()
        async with self._gate:
            answer = await self._search(request)
        answer["latency_ms"] = round(1000 * (time.monotonic() - began), 1)
        await self._reply(js, to, answer)
        if "hits" in answer:
            await self._report(js, request, len(answer["hits"]), answer["latency_ms"])
        self._say(f"{len(answer['hits'])} notes found" if "hits" in answer else answer["error"]["message"])

    def _where_to(self, message: Msg, request: Request) -> str | None:
        if message.reply:
            return str(message.reply)
        allowed = self._foundry.config.limits.reply_subjects
        if request.reply_to and any(subject_matches(request.reply_to, pattern) for pattern in allowed):
            return request.reply_to
        return None

    async def _search(self, request: Request) -> dict[str, Any]:
        try:
            found = await search_notes(self._foundry, request.query, request.top)
        except FoundryError as error:
            return _problem(request.query, type(error).__name__, str(error), error.hint)
        return {
            "query": found.query,
            "model": found.model,
            "worker": found.worker,
            "hits": [asdict(hit) for hit in found.hits],
        }

    async def _reply(self, js: JetStream, to: str, answer: dict[str, Any]) -> None:
        body = well_formed(json.dumps(answer, ensure_ascii=False)).encode()
        while len(body) > js.max_payload_bytes and len(answer.get("hits", ())) > 1:
            answer = {**answer, "hits": answer["hits"][: len(answer["hits"]) // 2], "truncated": True}
            body = well_formed(json.dumps(answer, ensure_ascii=False)).encode()
        with contextlib.suppress(NatsUnavailableError, StreamError):  # who asked may be gone
            await js.publish_core(to, body)

    async def _report(self, js: JetStream, request: Request, hits: int, latency_ms: float) -> None:
        """Says in an event that a search was made, so that it is on the session's timeline."""
        event = {
            "source": SOURCE,
            "correlation_id": request.correlation_id,
            "payload": {"query": request.query, "hits": hits, "latency_ms": latency_ms},
        }
        try:
            await js.publish(EVENT_SUBJECT, json.dumps(event, ensure_ascii=False).encode())
        except (NatsUnavailableError, StreamError) as error:
            self._say(f"a search was answered, and its event not published: {error}")


def _problem(query: str, kind: str, message: str, do: str | None) -> dict[str, Any]:
    return {"query": query, "error": {"kind": kind, "message": message, "do": do}}
