"""What a server's refusal means: from an HTTP status and a body to one of the closed set of error kinds.

Belongs here: the texts and codes that Ollama, llama.cpp and vLLM refuse with. Does not belong here: which failure is
worth another worker (``dispatch``), failures of the connection itself (``client``). Pure.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from model_foundry.records import ErrorKind

MAX_MESSAGE_CHARS = 500
CREDENTIALS_REFUSED = (401, 403, 407)
"""HTTP statuses of a server that will not have us."""

_CONTEXT_OVERFLOW = re.compile(
    "|".join(
        (
            r"exceeds? the available context size",  # llama.cpp, exceed_context_size_error
            r"exceed_context_size_error",
            r"context size has been exceeded",  # llama.cpp
            r"input is too (large|long)|prompt is too long",  # llama.cpp, older
            r"input length exceeds (the|maximum) context length",  # Ollama
            r"maximum (context|model) length|max_model_len|context_length_exceeded",  # vLLM, OpenAI
            r"longer than the maximum (model|context) length",  # vLLM
        )
    ),
    re.IGNORECASE,
)
_QUEUE_FULL = re.compile(
    r"maximum pending requests exceeded|server busy|too many requests|queue is full", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt has no answer, or not a whole one. ``retry_after_s`` is the server's own wish."""

    kind: ErrorKind
    message: str
    http_status: int | None = None
    retry_after_s: float | None = None


def of_response(
    status: int,
    headers: Mapping[str, str],
    body: str,
    *,
    worker: str,
    model: str,
    forbidden: str | None = None,
    now: datetime | None = None,
) -> Failure:
    """The meaning of an answer that is no success.

    Args:
        status: the HTTP status.
        headers: the response's headers, names in lower case or looked up without case.
        body: the body's text, or its beginning.
        worker: the worker's name, for the message.
        model: the server's name of the model, for the message.
        forbidden: what a 403 means for this dialect, when not a key that is refused.
        now: the wall clock, for a Retry-After that is a date.
    """
    said = message_of(body) or "no reason given"
    wait_s = retry_after_s(headers.get("retry-after"), now or datetime.now(UTC))

    def failure(kind: ErrorKind, message: str) -> Failure:
        return Failure(kind, message, http_status=status, retry_after_s=wait_s)

    if status == 403 and forbidden:
        return failure(ErrorKind.INVALID_REQUEST, f"worker {worker} refuses us (HTTP 403); {forbidden}")
    if status in CREDENTIALS_REFUSED:
        return failure(
            ErrorKind.INVALID_REQUEST,
            f"worker {worker} refuses our credentials (HTTP {status}): {said}; "
            f"check workers.{worker}.api_key_env or api_key_file",
        )
    if status == 404:
        return failure(
            ErrorKind.MODEL_NOT_FOUND,
            f"worker {worker} does not serve {model or 'this'!r} (HTTP 404): {said}; "
            f"check workers.{worker}.models and url",
        )
    if status == 429 or (status == 503 and _QUEUE_FULL.search(body)):
        return failure(ErrorKind.RATE_LIMITED, f"worker {worker} is full (HTTP {status}): {said}")
    if status == 408:
        return failure(ErrorKind.TIMEOUT, f"worker {worker} gave up waiting (HTTP 408): {said}")
    if status < 400:
        return failure(
            ErrorKind.SERVER_ERROR,
            f"worker {worker} answers HTTP {status} to {headers.get('location') or 'nowhere'}; "
            f"set workers.{worker}.url to where the server really is",
        )
    if _CONTEXT_OVERFLOW.search(body):  # some servers say it with a 500
        return failure(ErrorKind.CONTEXT_OVERFLOW, f"prompt and answer do not fit {model}'s context: {said}")
    if status >= 499:  # 499 is Ollama's "canceled", which was not us when we can read it
        return failure(ErrorKind.SERVER_ERROR, f"worker {worker} failed (HTTP {status}): {said}")
    return failure(ErrorKind.INVALID_REQUEST, f"worker {worker} refuses the request (HTTP {status}): {said}")


def in_stream(error: Any) -> Failure:
    """The meaning of an error object or text that came inside a stream which had begun well.

    A status in it counts as HTTP's would, whether a number or a text: ``code``, ``status`` or ``status_code``, in the
    object or in the one it wraps.
    """
    text = error if isinstance(error, str) else json.dumps(error, ensure_ascii=False, default=str)
    inner = error.get("error") if isinstance(error, dict) else None
    said = [
        d[k] for d in (error, inner) if isinstance(d, dict) for k in ("code", "status", "status_code", "type") if k in d
    ]
    codes = {str(value) for value in said if isinstance(value, str | int)}
    kind = ErrorKind.SERVER_ERROR
    if codes & {"400", "context_length_exceeded", "exceed_context_size_error"} and _CONTEXT_OVERFLOW.search(text):
        kind = ErrorKind.CONTEXT_OVERFLOW
    elif codes & {"429", "rate_limit_exceeded"} or _QUEUE_FULL.search(text):
        kind = ErrorKind.RATE_LIMITED
    return Failure(kind, f"the server failed while it answered: {message_of(text) or 'no reason given'}")


def message_of(body: str) -> str:
    """The server's own words in an error body, of any of the usual shapes; else the body's text. Bounded."""
    found: Any = body
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(body)
    for _ in range(3):
        if not isinstance(found, dict):
            break
        found = next((found[k] for k in ("error", "message", "detail") if found.get(k)), body)
    text = found if isinstance(found, str) else body
    text = " ".join(text.split())
    return text if len(text) <= MAX_MESSAGE_CHARS else text[: MAX_MESSAGE_CHARS - 1] + "…"


def retry_after_s(value: str | None, now: datetime) -> float | None:
    """Seconds that a Retry-After header asks for (RFC 9110, 10.2.3): a number, or a date. None when unreadable."""
    if value is None:
        return None
    if re.fullmatch(r"\s*\d{1,9}(\.\d{1,9})?\s*", value, re.ASCII):
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, ((date if date.tzinfo else date.replace(tzinfo=UTC)) - now).total_seconds())
