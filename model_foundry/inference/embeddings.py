"""One request for the embeddings of a batch of texts: Ollama's ``/api/embed``, OpenAI's ``/v1/embeddings``.

Belongs here: both dialects' requests and answers, their I/O, and every way such a request can end. Does not belong
here: which worker is asked, and another attempt (``embedding_pool``), what the texts are (``embedding``).

Nothing is truncated silently: Ollama is told so (``truncate: false``; without it a text of 180 kB is answered with the
embedding of its beginning), and a text that a server calls too long ends as ``context_overflow``. A batch that is
refused for one text's sake is asked for again in halves, so that only that text fails.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import math
import re
import sys
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import httpx

from model_foundry.config import LimitsConfig
from model_foundry.inference import failures
from model_foundry.inference.client import utc_now
from model_foundry.inference.failures import Failure
from model_foundry.inference.target import WorkerTarget
from model_foundry.records import ErrorKind

Vector = tuple[float, ...]
"""Finite, not all zero, as 32-bit floats hold it."""

RESERVED_PARAMS = frozenset({"model", "input", "encoding_format", "truncate", "stream", "prompt", "messages"})
"""What a model's parameters can't say here."""
_BYTES_A_TEXT = 2**20
"""Room in an answer for one text's vector: 16,384 dimensions of 64 characters."""
_TOO_LONG = re.compile(r"input \(\d+ tokens\) is too (large|long)|physical batch size", re.IGNORECASE)
"""llama.cpp's words, with a 500, beside those that ``failures`` knows."""
_NO_NUMBER = re.compile(r"unsupported value: ?(NaN|[+-]?Inf)", re.IGNORECASE)
"""Ollama's words, with a 500, when it can't write one of the vectors."""


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """Texts for one server.

    Attributes:
        model: the server's name of the model.
        texts: what to embed, none of them blank.
        params: sent with it (``dimensions``, ``keep_alive``, Ollama's ``options``); those reserved are left out.
    """

    model: str
    texts: tuple[str, ...]
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Embeddings:
    """What became of each text of a batch, in order, and what it took.

    Attributes:
        worker: who was asked.
        outcomes: a vector, or why there is none.
        dimensions: of every vector; None when there is none.
        prompt_tokens: as the server counts, over the answered requests; None when it does not say.
        requests: how many were sent; more than one when the batch was split.
        sent_at: the wall clock at the first request, UTC.
        finished_at: and at the end of the last.
        e2e_s: seconds from sending to the answer's end, over all requests.
        load_s: seconds that the server took to load the model, as it reports.
        worker_failure: why the worker could not do the rest; the outcome of each text that it is to blame for. What is
            no such failure is the text's own.
        not_sent: there was no connection, so the worker never saw it.
    """

    worker: str
    outcomes: tuple[Vector | Failure, ...]
    dimensions: int | None
    prompt_tokens: int | None
    requests: int
    sent_at: datetime
    finished_at: datetime
    e2e_s: float
    load_s: float | None = None
    worker_failure: Failure | None = None
    not_sent: bool = False

    @property
    def vectors(self) -> list[Vector]:
        """Those that there are."""
        return [o for o in self.outcomes if not isinstance(o, Failure)]


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer, read. ``outcomes`` has one entry a text."""

    outcomes: tuple[Vector | Failure, ...]
    prompt_tokens: int | None = None
    load_s: float | None = None


class _UnusableAnswerError(Exception):
    """The answer as a whole can't be used."""


async def embed(
    client: httpx.AsyncClient,
    target: WorkerTarget,
    request: EmbeddingRequest,
    limits: LimitsConfig,
    *,
    clock: Callable[[], float] = time.monotonic,
    wall_clock: Callable[[], datetime] = utc_now,
) -> Embeddings:
    """Asks one worker for the embeddings of a batch, one request at a time. A failure is a result, no exception.

    Args:
        client: see ``client.new_client``.
        target: whom to ask.
        request: what to ask.
        limits: the time limits: connecting, up to the answer's first byte, between two pieces of it, all of it.
        clock: monotonic seconds.
        wall_clock: UTC.
    """
    sent_at, started = wall_clock(), clock()
    outcomes: dict[int, Vector | Failure] = {}
    tokens: list[int | None] = []
    loads: list[float | None] = []
    todo: list[tuple[int, ...]] = [tuple(range(len(request.texts)))] if request.texts else []
    requests, not_sent = 0, False
    worker_failure: Failure | None = None
    while todo and worker_failure is None:
        part = todo.pop(0)
        texts = tuple(request.texts[n] for n in part)
        requests += 1
        found, unsent = await _once(client, target, replace(request, texts=texts), limits)
        if isinstance(found, Answered):
            outcomes.update(zip(part, found.outcomes, strict=True))
            tokens.append(found.prompt_tokens)
            loads.append(found.load_s)
            continue
        not_sent = unsent
        if not _is_of_one_text(found):  # the rest is another worker's
            worker_failure = found
            outcomes.update((n, found) for others in [part, *todo] for n in others)
        elif len(part) > 1:
            todo[:0] = [part[: len(part) // 2], part[len(part) // 2 :]]
        else:
            outcomes[part[0]] = found
    ordered = tuple(outcomes[n] for n in range(len(request.texts)))
    lengths = sorted({len(o) for o in ordered if not isinstance(o, Failure)})
    if len(lengths) > 1:  # the parts of a split batch
        text = f"worker {target.name} gives embeddings of {' and '.join(map(str, lengths))} dimensions"
        worker_failure = Failure(ErrorKind.SERVER_ERROR, text, 200)
        ordered = tuple(o if isinstance(o, Failure) else worker_failure for o in ordered)
    return Embeddings(
        worker=target.name,
        outcomes=ordered,
        dimensions=next((len(o) for o in ordered if not isinstance(o, Failure)), None),
        prompt_tokens=_sum(tokens),
        requests=requests,
        sent_at=sent_at,
        finished_at=max(sent_at, wall_clock()),
        e2e_s=clock() - started,
        load_s=_sum(loads),
        worker_failure=worker_failure,
        not_sent=not_sent,
    )


def _is_of_one_text(failure: Failure) -> bool:
    """Whether the refusal is about one text of the batch, and not about all of them or the worker."""
    return failure.kind is ErrorKind.CONTEXT_OVERFLOW or bool(_NO_NUMBER.search(failure.message))


def _sum(values: Sequence[Any]) -> Any:
    known = [v for v in values if v is not None]
    return sum(known) if known else None


# -- the dialects, pure -----------------------------------------------------------------------------------------------


def endpoint(target: WorkerTarget) -> str:
    """Where embeddings are asked for."""
    url = target.url.rstrip("/")
    if target.api == "ollama":
        return f"{url}/api/embed"
    return f"{url if url.endswith('/v1') else f'{url}/v1'}/embeddings"


def body(target: WorkerTarget, request: EmbeddingRequest) -> bytes:
    """The request's JSON.

    Raises:
        ValueError: when a parameter can't be written as JSON.
    """
    params = {key: value for key, value in request.params.items() if key not in RESERVED_PARAMS}
    own = {"truncate": False} if target.api == "ollama" else {"encoding_format": "float"}
    whole = {**params, "model": request.model, "input": list(request.texts), **own}
    return json.dumps(whole, ensure_ascii=False, allow_nan=False).encode()


def read_answer(target: WorkerTarget, data: bytes, texts: int) -> Answered | Failure:
    """What a successful answer's body holds for so many texts. A vector that can't be used is that text's failure."""
    name = target.name

    def unusable(reason: str) -> Failure:
        return Failure(ErrorKind.SERVER_ERROR, f"worker {name} answered what can't be used: {reason}", 200)

    try:
        answer = json.loads(data)
    except (ValueError, RecursionError) as error:
        return unusable(f"no JSON: {error}")
    if not isinstance(answer, dict):
        return unusable("no JSON object")
    if answer.get("error"):
        return failures.in_stream(answer["error"])
    try:
        raw = _of_ollama(answer) if target.api == "ollama" else _of_openai(answer)
    except _UnusableAnswerError as error:
        return unusable(str(error))
    if len(raw) != texts:
        return unusable(f"{len(raw)} embeddings for {texts} texts")
    outcomes = [_vector(value) for value in raw]
    lengths = {len(o) for o in outcomes if not isinstance(o, str)}
    if len(lengths) > 1:
        return unusable(f"embeddings of {' and '.join(map(str, sorted(lengths)))} dimensions in one answer")
    usage = answer.get("usage")
    counted = answer if target.api == "ollama" else (usage if isinstance(usage, dict) else {})
    load_ns = _count(answer.get("load_duration")) if target.api == "ollama" else None
    return Answered(
        tuple(
            Failure(ErrorKind.SERVER_ERROR, f"worker {name} gave an embedding that can't be used: {o}", 200)
            if isinstance(o, str)
            else o
            for o in outcomes
        ),
        _count(counted.get("prompt_eval_count" if target.api == "ollama" else "prompt_tokens")),
        None if load_ns is None else load_ns / 1e9,
    )


def _of_ollama(answer: Mapping[str, Any]) -> list[Any]:
    found = answer.get("embeddings")
    if not isinstance(found, list):
        raise _UnusableAnswerError("no list 'embeddings'")
    return found


def _of_openai(answer: Mapping[str, Any]) -> list[Any]:
    """The embeddings by their ``index``; servers that give none are taken at their order."""
    data = answer.get("data")
    if not isinstance(data, list) or not all(isinstance(entry, dict) for entry in data):
        raise _UnusableAnswerError("no list of objects 'data'")
    if all("index" not in entry for entry in data):
        return [entry.get("embedding") for entry in data]
    by_index = {entry.get("index"): entry.get("embedding") for entry in data if type(entry.get("index")) is int}
    if sorted(by_index) != list(range(len(data))):
        raise _UnusableAnswerError("'index' does not number the embeddings from 0")
    return [by_index[n] for n in range(len(data))]


def _vector(value: Any) -> Vector | str:
    """A vector, or what is wrong with it."""
    if isinstance(value, str):
        try:
            packed = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            return "text that is not base64"
        if len(packed) % 4:
            return "base64 that holds no 32-bit floats"
        numbers = array("f")
        numbers.frombytes(packed)
        if sys.byteorder == "big":
            numbers.byteswap()
    elif isinstance(value, list):
        if not all(type(x) in (int, float) for x in value):
            return "it holds what is no number"
        try:
            numbers = array("f", value)
        except OverflowError:
            return "it holds a number that is too large"
    else:
        return "it is no list"
    if not numbers:
        return "it is empty"
    if not all(map(math.isfinite, numbers)):
        return "it holds NaN or infinity"
    if not any(numbers):
        return "all of it is zero"
    return tuple(numbers)


def _count(value: Any) -> int | None:
    """A count, or None for what is none."""
    return value if type(value) is int and value >= 0 else None


# -- the I/O ----------------------------------------------------------------------------------------------------------


async def _once(
    client: httpx.AsyncClient, target: WorkerTarget, request: EmbeddingRequest, limits: LimitsConfig
) -> tuple[Answered | Failure, bool]:
    """One request. The second value: there was no connection, so that nothing was sent."""
    name = target.name
    try:
        content = body(target, request)
    except ValueError as error:
        text = f"the request can't be written for worker {name}: {error}"
        return Failure(ErrorKind.INVALID_REQUEST, text), True
    loop = asyncio.get_running_loop()
    hard = loop.time() + limits.request_hard_timeout_s
    reading = _Reading()
    try:
        async with asyncio.timeout_at(min(hard, loop.time() + limits.request_first_token_timeout_s)) as bound:
            return await _exchange(client, target, request, content, limits, bound, hard, reading), False
    except TimeoutError:
        return _timed_out(name, limits, loop.time() >= hard, reading), False
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        text = f"worker {name} can't be reached at {target.url}: {str(error) or type(error).__name__}"
        return Failure(ErrorKind.CONNECTION, text), True
    except httpx.InvalidURL as error:
        return Failure(ErrorKind.CONNECTION, f"worker {name}: url {target.url!r} can't be used: {error}"), True
    except (httpx.LocalProtocolError, UnicodeEncodeError):  # their texts may hold the key
        text = f"worker {name}: its headers can't be sent; check workers.{name}.api_key_env or api_key_file"
        return Failure(ErrorKind.CONNECTION, text), True
    except httpx.HTTPError as error:
        reason = str(error) or type(error).__name__
        if reading.status is None:
            text = f"worker {name} closed the connection without an answer: {reason}"
            return Failure(ErrorKind.CONNECTION, text), False
        text = f"worker {name} broke off its answer: {reason}"
        return Failure(ErrorKind.TRUNCATED_STREAM, text, reading.status), False


@dataclass(slots=True)
class _Reading:
    """How far an answer has come."""

    status: int | None = None
    data: bytearray = field(default_factory=bytearray)


def _timed_out(name: str, limits: LimitsConfig, is_hard: bool, reading: _Reading) -> Failure:
    if is_hard:
        text = f"no end after {limits.request_hard_timeout_s:g} s (limits.request_hard_timeout_s)"
    elif reading.data:
        text = f"nothing more for {limits.request_idle_timeout_s:g} s (limits.request_idle_timeout_s)"
        return Failure(ErrorKind.STALLED, f"worker {name}: {text}", reading.status)
    else:
        text = f"no answer within {limits.request_first_token_timeout_s:g} s (limits.request_first_token_timeout_s)"
    return Failure(ErrorKind.TIMEOUT, f"worker {name}: {text}", reading.status)


async def _exchange(
    client: httpx.AsyncClient,
    target: WorkerTarget,
    request: EmbeddingRequest,
    content: bytes,
    limits: LimitsConfig,
    bound: asyncio.Timeout,
    hard: float,
    reading: _Reading,
) -> Answered | Failure:
    loop = asyncio.get_running_loop()
    room = _BYTES_A_TEXT * (len(request.texts) + 1)
    async with client.stream(
        "POST",
        endpoint(target),
        content=content,
        headers={"Content-Type": "application/json", "Accept-Encoding": "identity", **target.headers},
        timeout=httpx.Timeout(None, connect=limits.request_connect_timeout_s),
    ) as response:
        reading.status = response.status_code
        async for chunk in response.aiter_bytes():
            reading.data += chunk
            if len(reading.data) > room:
                text = f"worker {target.name} answered more than {room} bytes for {len(request.texts)} texts"
                return Failure(ErrorKind.SERVER_ERROR, text, reading.status)
            bound.reschedule(min(hard, loop.time() + limits.request_idle_timeout_s))
        if response.is_success:
            return read_answer(target, bytes(reading.data), len(request.texts))
        said = reading.data.decode("utf-8", errors="replace")
        found = failures.of_response(
            response.status_code, response.headers, said, worker=target.name, model=request.model
        )
        if found.kind in (ErrorKind.SERVER_ERROR, ErrorKind.INVALID_REQUEST) and _TOO_LONG.search(said):
            return replace(found, kind=ErrorKind.CONTEXT_OVERFLOW)
        return found
