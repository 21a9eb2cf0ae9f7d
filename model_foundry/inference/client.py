"""One attempt at one prompt: the HTTP request, its time limits, and how it ended.

Belongs here: the I/O of both dialects, and every way an attempt can end. Does not belong here: what the bytes mean
(``openai``, ``ollama``, ``failures``), another attempt (``dispatch``).

Time limits, all from ``limits``: connecting; up to the first token (model load and prefill included); between two
events after it (comments that only keep the line open don't count); and the whole attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import httpx

from model_foundry.config import LimitsConfig
from model_foundry.inference import doubts, failures, ollama, openai, searxng
from model_foundry.inference.answer import NOT_STREAMED, Answer, AnswerTooLong
from model_foundry.inference.bodies import Body, Inflater, Shape, Unreadable
from model_foundry.inference.failures import Failure
from model_foundry.inference.lines import LineTooLong
from model_foundry.inference.target import InferenceRequest, WorkerTarget, encoded
from model_foundry.inference.values import loads
from model_foundry.records import Completion, ErrorKind, JobStatus

ANSWER_TOO_LONG = "max_answer_bytes"
"""The ``finish_reason`` of an answer that we cut off, because it was beyond ``limits.max_answer_bytes``."""

_DIALECTS: dict[str, ModuleType] = {"openai": openai, "ollama": ollama, "searxng": searxng}
_MAX_ERROR_BODY_BYTES = 64 * 1024
_END_OF_BODY_S = 0.25
"""How long we wait, after the answer's end mark, for the body to end too; then the connection can be used again."""


def utc_now() -> datetime:
    """The wall clock, UTC."""
    return datetime.now(UTC)


class _OneUse(httpx.AsyncBaseTransport):
    """A connection for every request, and a pool for every connection.

    httpcore's pool looks at all its connections whenever one begins or ends: with 2,000 streams that alone kept the
    loop busy for seconds, which the first tokens' times then had in them. Nothing is reused, so nothing is shared.
    """

    def __init__(self) -> None:
        self._ssl = httpx.create_ssl_context(trust_env=False)
        self._limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Sends it. Its connection is closed with the response, or with whatever ends it before there is one."""
        transport = httpx.AsyncHTTPTransport(verify=self._ssl, limits=self._limits, trust_env=False)
        return await transport.handle_async_request(request)


def new_client() -> httpx.AsyncClient:
    """A client for model servers: as many connections as slots ask for, no proxy or ``.netrc`` of the environment.

    No connection is used twice. A server may close an idle one at the very moment when the next request goes out on
    it; llama.cpp's did so for 3 of 43 requests in a row, each a failed attempt for no fault of the worker. A new
    connection costs a fraction of a millisecond beside an answer's seconds.
    """
    return httpx.AsyncClient(transport=_OneUse(), trust_env=False, follow_redirects=False)


async def ask(
    client: httpx.AsyncClient,
    target: WorkerTarget,
    request: InferenceRequest,
    limits: LimitsConfig,
    *,
    cancel: asyncio.Event | None = None,
    on_text: Callable[[str, str], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
    wall_clock: Callable[[], datetime] = utc_now,
) -> Completion:
    """Asks one worker once. A failure is a result, never an exception.

    Args:
        client: see :func:`new_client`.
        target: whom to ask.
        request: what to ask.
        limits: the bounds.
        cancel: when set, the upstream connection is closed and the result is ``cancelled``, partial text kept.
        on_text: called with each piece of text, and of reasoning, as it comes; must not block.
        clock: monotonic seconds, of which the timings are differences. Connecting counts as part of the request.
        wall_clock: for ``sent_at`` and ``finished_at``.

    Returns:
        A completion whose ``job_id`` is empty, ``attempt`` 1, ``model`` the server's name and ``queue_s`` None: a
        caller that knows better replaces them.
    """
    attempt = _Attempt(target, request, limits, clock, on_text)
    sent_at = wall_clock()
    attempt.sent_at = clock()
    await _until_cancelled(client, cancel, attempt)
    status, failure = attempt.conclusion()
    answer = attempt.answer
    doubts.examine(answer, attempt.sent_at, request.messages)
    server_stats = answer.kept_stats()
    cold = None if answer.figures.load_s is None else answer.figures.load_s > limits.cold_load_s
    return Completion(
        job_id="",
        attempt=1,
        worker=target.name,
        api=target.api,
        model=request.model,
        status=status,
        sent_at=sent_at,
        finished_at=max(sent_at, wall_clock()),
        queue_s=None,
        text=answer.text,
        reasoning=answer.reasoning,
        tool_calls=answer.tool_calls,
        finish_reason=answer.finish_reason,
        prompt_tokens=answer.prompt_tokens,
        completion_tokens=answer.completion_tokens,
        cached_tokens=answer.cached_tokens,
        tokens_source=answer.tokens_source,
        chunks=answer.chunks,
        cold=cold,
        timings=answer.timings(attempt.sent_at),
        error_kind=failure.kind if failure else None,
        error_message=failure.message if failure else None,
        http_status=attempt.http_status,
        retry_after_s=failure.retry_after_s if failure else None,
        not_sent=attempt.not_sent,
        server_stats=server_stats,
        notes=tuple(answer.notes),
        results=answer.results,
    )


@dataclass(slots=True)
class _Attempt:
    """The state of one attempt, which outlives whatever ends it. ``ended`` is set by what cut the answer short."""

    target: WorkerTarget
    request: InferenceRequest
    limits: LimitsConfig
    clock: Callable[[], float]
    on_text: Callable[[str, str], None] | None = None
    answer: Answer = field(init=False)
    sent_at: float = 0.0
    http_status: int | None = None
    ended: tuple[JobStatus, Failure] | None = None
    not_sent: bool = False

    def __post_init__(self) -> None:
        self.answer = Answer(
            self.limits.max_answer_bytes, asks_nothing=not self.request.messages, on_output=self.on_text
        )

    def conclusion(self) -> tuple[JobStatus, Failure | None]:
        """How it ended. An answer that was complete stays so, whatever came after its end."""
        if self.answer.failure is None and self.answer.terminal:
            return self.answer.conclude()
        return self.ended or self.answer.conclude()

    def fail(self, kind: ErrorKind, message: str) -> None:
        """Notes what ended the attempt."""
        self.ended = JobStatus.FAILED, Failure(kind, message, http_status=self.http_status)

    async def run(self, client: httpx.AsyncClient) -> None:
        """The whole exchange; every foreseen end is noted, not raised."""
        dialect, name = _DIALECTS[self.target.api], self.target.name
        try:
            body = encoded(dialect.body(self.request), dialect.CONTENT_TYPE)
        except ValueError as error:
            self.fail(ErrorKind.INVALID_REQUEST, f"the request can't be written for worker {name}: {error}")
            return
        now = asyncio.get_running_loop().time()
        hard = now + self.limits.request_hard_timeout_s
        first = now + self.limits.request_first_token_timeout_s
        try:
            async with asyncio.timeout_at(min(hard, first)) as bound:
                await self._exchange(client, dialect, body, bound, hard)
        except TimeoutError:
            self._timed_out(hard)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            reason = str(error) or type(error).__name__
            self.not_sent = True
            self.fail(ErrorKind.CONNECTION, f"worker {name} can't be reached at {self.target.url}: {reason}")
        except httpx.InvalidURL as error:
            self.fail(ErrorKind.CONNECTION, f"worker {name}: url {self.target.url!r} can't be used: {error}")
        except (httpx.LocalProtocolError, UnicodeEncodeError):  # their texts may hold the key
            text = f"its headers can't be sent; check workers.{name}.api_key_env or api_key_file"
            self.fail(ErrorKind.CONNECTION, f"worker {name}: {text}")
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            if self.http_status is None:
                self.fail(ErrorKind.CONNECTION, f"worker {name} closed the connection without an answer: {reason}")
            elif not self.answer.terminal:  # ends as a body that merely stops: by what had come, see Answer.conclude
                self.answer.note(f"the connection broke: {reason}")
        except Unreadable as error:
            if not self.answer.terminal:
                self.fail(ErrorKind.SERVER_ERROR, f"worker {name} answered what can't be read: {error}")
        except (AnswerTooLong, LineTooLong) as error:
            self.answer.finish_reason = ANSWER_TOO_LONG
            self.ended = JobStatus.INCOMPLETE, Failure(ErrorKind.TRUNCATED_STREAM, f"cut off by us: {error}")

    def _timed_out(self, hard: float) -> None:
        limits, name = self.limits, self.target.name
        if asyncio.get_running_loop().time() >= hard:
            text = f"no end after {limits.request_hard_timeout_s:g} s (limits.request_hard_timeout_s)"
            self.fail(ErrorKind.TIMEOUT, f"worker {name}: {text}")
        elif self.answer.first_token_at is None:
            seconds = limits.request_first_token_timeout_s
            text = f"no first token within {seconds:g} s (limits.request_first_token_timeout_s)"
            self.fail(ErrorKind.TIMEOUT, f"worker {name}: {text}")
        else:
            text = f"nothing more for {limits.request_idle_timeout_s:g} s (limits.request_idle_timeout_s)"
            self.fail(ErrorKind.STALLED, f"worker {name}: {text}")

    async def _exchange(
        self, client: httpx.AsyncClient, dialect: ModuleType, body: bytes, bound: asyncio.Timeout, hard: float
    ) -> None:
        loop = asyncio.get_running_loop()
        async with client.stream(
            "POST",
            dialect.endpoint(self.target.url, self.request),
            content=body,
            headers={"Content-Type": dialect.CONTENT_TYPE, "Accept-Encoding": "identity", **self.target.headers},
            timeout=httpx.Timeout(None, connect=self.limits.request_connect_timeout_s),
        ) as response:
            self.http_status = response.status_code
            if not response.is_success:
                self.ended = JobStatus.FAILED, await self._refusal(response, dialect)
                return
            async for events in self._events(response, dialect):
                at = self.clock()
                moved = False
                for event in events:
                    moved |= dialect.absorb(self.answer, event, at)
                    if self.answer.terminal or self.answer.failure:
                        break
                if self.answer.failure:
                    return
                if self.answer.terminal:
                    bound.reschedule(loop.time() + _END_OF_BODY_S)
                elif self.answer.first_token_at is not None and moved:
                    bound.reschedule(min(hard, loop.time() + self.limits.request_idle_timeout_s))

    async def _events(self, response: httpx.Response, dialect: ModuleType) -> AsyncIterator[list[Any]]:
        """The events of each piece of the body, as it comes. A body that is one JSON is absorbed whole."""
        max_bytes = 6 * self.limits.max_answer_bytes + 2**20  # JSON escapes may need six bytes for one
        body = Body(dialect.Parser(max_bytes), max_bytes, is_sse=dialect is openai)
        async for chunk in _inflated(response):
            if self.answer.terminal:
                continue  # only the body's end is of interest now
            yield body.feed(chunk)
            if body.has_enough:
                break
        if not self.answer.terminal:
            yield body.close()
        if body.shape is Shape.WHOLE:
            self._absorb_whole(dialect, body.whole.decode("utf-8", errors="replace"))
        elif body.no_answer and not self.answer.terminal:
            text = f"worker {self.target.name}: {body.no_answer}; check workers.{self.target.name}.url and api"
            self.fail(ErrorKind.SERVER_ERROR, text)

    def _absorb_whole(self, dialect: ModuleType, text: str) -> None:
        """Takes an answer that came whole, although a stream was asked for: one JSON, a list, or one a line."""
        at, answer = self.clock(), self.answer
        try:
            found = loads(text)
        except ValueError:
            found = []
            for line in filter(None, (part.strip() for part in text.split("\n"))):
                with contextlib.suppress(ValueError):
                    found.append(loads(line))
                    continue
                break  # cut short, and then without an end
        for chunk in found if isinstance(found, list) else [found]:
            if isinstance(chunk, dict) and not answer.failure:
                dialect.absorb_object(answer, chunk, at)
        if answer.failure is None:
            answer.terminal = answer.finish_reason is not None
            answer.note(NOT_STREAMED)

    async def _refusal(self, response: httpx.Response, dialect: ModuleType) -> Failure:
        body = bytearray()
        with contextlib.suppress(httpx.HTTPError, Unreadable):  # half a reason is better than none
            async for chunk in _inflated(response):
                body += chunk
                if len(body) >= _MAX_ERROR_BODY_BYTES:
                    break
        return failures.of_response(
            response.status_code,
            response.headers,
            body[:_MAX_ERROR_BODY_BYTES].decode("utf-8", errors="replace"),
            worker=self.target.name,
            model=self.request.model,
            forbidden=searxng.JSON_IS_OFF if dialect is searxng else None,
        )


async def _inflated(response: httpx.Response) -> AsyncIterator[bytes]:
    """The body's bytes, uncompressed in small pieces: httpx would give all that a chunk inflates to at once."""
    inflater = Inflater(response.headers.get("content-encoding", ""))
    async for chunk in response.aiter_raw():
        for piece in inflater.feed(chunk):
            yield piece


async def _until_cancelled(client: httpx.AsyncClient, cancel: asyncio.Event | None, attempt: _Attempt) -> None:
    """Runs the exchange; when ``cancel`` is set first, it is stopped, which closes its connection."""
    exchange = asyncio.create_task(attempt.run(client))
    waiter = asyncio.create_task(cancel.wait()) if cancel else None
    tasks: set[asyncio.Task[Any]] = {exchange, waiter} if waiter else {exchange}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not exchange.done():
            attempt.ended = JobStatus.CANCELLED, Failure(ErrorKind.CANCELLED, "cancelled while it was being answered")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    if not exchange.cancelled():
        exchange.result()
