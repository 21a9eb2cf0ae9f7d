"""Whom to ask, and what.

Belongs here: the two values that every part of ``inference`` passes on, and writing a request's body as bytes. Does not
belong here: what a body holds (the dialects), how the values are made from the configuration (``runtime``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlencode

from pydantic import SecretStr

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
"""Content types of requests."""


def bearer(key: SecretStr | None) -> dict[str, str]:
    """The header that carries a key (RFC 6750); none without one."""
    return {"Authorization": f"Bearer {key.get_secret_value()}"} if key else {}


@dataclass(frozen=True, slots=True)
class WorkerTarget:
    """Where and how to reach one worker.

    Attributes:
        name: the worker's name in the configuration.
        url: base URL, with or without ``/v1`` for the dialect ``openai``.
        api: the dialect.
        slots: requests in flight at most.
        headers: sent with every request; they may hold a key and are left out of ``repr``.
        unusable: why it can't be asked now, when that is known beforehand; it is then never asked.
        load_s: seconds to load each model that can't stay in memory beside the others; see ``schedule``.
    """

    name: str
    url: str
    api: Literal["openai", "ollama", "searxng"]
    slots: int = 1
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    unusable: str | None = None
    load_s: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """One prompt for one server.

    Attributes:
        model: the server's name of the model.
        messages: chat messages as OpenAI writes them.
        params: OpenAI's names where they exist; forwarded, unknown ones too.
        default_max_tokens: when ``params`` names no bound; None leaves it to the server.
    """

    model: str
    messages: list[dict[str, Any]]
    params: Mapping[str, Any] = field(default_factory=dict)
    default_max_tokens: int | None = None


def encoded(value: Mapping[str, Any], content_type: str) -> bytes:
    """A request's body as it is sent.

    Raises:
        ValueError: for what JSON can't hold, such as NaN.
    """
    if content_type == FORM:
        return urlencode(value).encode()
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
