"""Is a worker there, and what does it offer?

Belongs here: the few GET requests that answer it for each dialect. Does not belong here: whether the worker makes
progress (only an answer shows that), showing the result.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import httpx

from model_foundry.inference import failures, openai
from model_foundry.inference.answer import count, loads
from model_foundry.inference.target import WorkerTarget

_MAX_BODY_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What a worker said.

    Attributes:
        reachable: it answered over HTTP, be it with a refusal.
        ok: it answered what was asked.
        detail: ``ok``, or what is wrong, to be read by a person.
        models: the server's names of the models it can serve.
        version: the server's, where it says.
        slots: how many requests it takes at once, where it says (llama.cpp).
        loaded: the models in memory, where it says (Ollama).
    """

    reachable: bool
    ok: bool
    detail: str
    models: list[str] = field(default_factory=list)
    version: str | None = None
    slots: int | None = None
    loaded: list[str] = field(default_factory=list)


async def probe(client: httpx.AsyncClient, target: WorkerTarget, timeout_s: float) -> ProbeResult:
    """Asks a worker what it offers. A worker that does not answer is a result, not an exception.

    Args:
        client: see ``client.new_client``.
        target: whom to ask.
        timeout_s: for all of it together.
    """
    if target.unusable:
        return ProbeResult(False, False, target.unusable)
    try:
        async with asyncio.timeout(timeout_s):
            return await (_ollama(client, target) if target.api == "ollama" else _openai(client, target))
    except TimeoutError:
        return ProbeResult(False, False, f"no answer from {target.url} within {timeout_s:g} s")
    except (httpx.LocalProtocolError, UnicodeEncodeError):  # their texts may hold the key
        return ProbeResult(
            False, False, f"the headers can't be sent; check workers.{target.name}.api_key_env or api_key_file"
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return ProbeResult(False, False, f"{target.url} can't be reached: {str(error) or type(error).__name__}")
    except _Refused as error:
        return ProbeResult(True, False, str(error))


class _Refused(Exception):  # noqa: N818 (says what happened)
    """It answered, but not with what was asked for."""


async def _openai(client: httpx.AsyncClient, target: WorkerTarget) -> ProbeResult:
    base = openai.base_url(target.url)
    listed = await _json(client, target, f"{base}/models")
    models = _names(listed.get("data"), "id")
    root = base.removesuffix("/v1")
    # neither is part of the dialect: /props is llama.cpp's, /version vLLM's
    props, version = await asyncio.gather(
        _json_or_nothing(client, target, f"{root}/props"), _json_or_nothing(client, target, f"{root}/version")
    )
    found = version.get("version") or props.get("build_info")
    return ProbeResult(
        True, True, "ok", models, found if isinstance(found, str) else None, count(props.get("total_slots"))
    )


async def _ollama(client: httpx.AsyncClient, target: WorkerTarget) -> ProbeResult:
    root = target.url.rstrip("/")
    listed = await _json(client, target, f"{root}/api/tags")
    version, running = await asyncio.gather(
        _json_or_nothing(client, target, f"{root}/api/version"), _json_or_nothing(client, target, f"{root}/api/ps")
    )
    found = version.get("version")
    return ProbeResult(
        True,
        True,
        "ok",
        _names(listed.get("models"), "name"),
        found if isinstance(found, str) else None,
        loaded=_names(running.get("models"), "name"),
    )


def _names(entries: Any, key: str) -> list[str]:
    if not isinstance(entries, list):
        return []
    return [e[key] for e in entries if isinstance(e, dict) and isinstance(e.get(key), str)]


async def _json(client: httpx.AsyncClient, target: WorkerTarget, url: str) -> dict[str, Any]:
    async with client.stream("GET", url, headers=dict(target.headers), timeout=None) as response:
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > _MAX_BODY_BYTES:
                raise _Refused(f"{url} answers with more than {_MAX_BODY_BYTES} bytes; is it a model server?")
    text = body.decode("utf-8", errors="replace")
    if response.status_code in (401, 403):
        raise _Refused(
            f"{url} refuses our credentials (HTTP {response.status_code}); "
            f"check workers.{target.name}.api_key_env or api_key_file"
        )
    if not response.is_success:
        said = failures.message_of(text)
        raise _Refused(f"{url} answers HTTP {response.status_code}{': ' + said if said else ''}")
    try:
        value = loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise _Refused(f"{url} does not answer with a JSON object; is it a model server with api {target.api!r}?")
    return value


async def _json_or_nothing(client: httpx.AsyncClient, target: WorkerTarget, url: str) -> dict[str, Any]:
    """For what only some servers have."""
    try:
        return await _json(client, target, url)
    except (_Refused, httpx.HTTPError):
        return {}
