"""Is a worker there, and what does it offer, hold in memory, and do now?

Belongs here: the few GET requests that answer it for each dialect. Does not belong here: what a server's figures mean
over time (``fleet``), its metrics page (``metrics``), showing the result.

Read are, from Ollama ``/api/tags``, ``/api/ps``, ``/api/version`` (its ``api/types.go``); from OpenAI's dialect
``/v1/models``, where vLLM adds ``max_model_len`` and llama.cpp ``meta``; from llama.cpp ``/props`` and ``/slots``
(``tools/server/README.md``); from vLLM ``/version``; from both ``/metrics``; from SearXNG ``/config``. Only the list of
models, and SearXNG's ``/config``, must be there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import httpx

from model_foundry.inference import failures, openai
from model_foundry.inference.metrics import ServerMetrics, read_metrics
from model_foundry.inference.target import WorkerTarget
from model_foundry.inference.values import count, loads
from model_foundry.text import well_formed

Kind = Literal["ollama", "vllm", "llama.cpp", "openai", "searxng"]

_MAX_BODY_BYTES = 8 * 2**20
_MAX_SLOTS = 4096
_OPTIONAL_SHARE = 0.9
"""Of the time for a probe; what only some servers have must be there by then, or it is unknown."""


@dataclass(frozen=True, slots=True)
class Served:
    """A model that the server has. None is unknown.

    Attributes:
        name: the server's.
        size_bytes: of the weights.
        quantization: as the server writes it.
        context_length: tokens, of prompt and answer together, that one request may have.
        loaded: whether it is in memory now.
        vram_bytes: of it in the GPU's memory; 0 when it runs on the CPU. An estimate (ollama#16637).
    """

    name: str
    size_bytes: int | None = None
    quantization: str | None = None
    context_length: int | None = None
    loaded: bool | None = None
    vram_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What a worker said. Two are equal when they say the same of who is there; figures of the moment don't count.

    Attributes:
        reachable: it answered over HTTP, be it with a refusal.
        ok: it answered what was asked.
        detail: ``ok``, or what is wrong, to be read by a person.
        models: the server's names of the models it can serve.
        version: the server's, where it says.
        slots: how many requests it takes at once, where it says (llama.cpp).
        loaded: the models in memory, where it says (Ollama).
        served: the models with what is known of each; those in memory too that ``models`` does not list.
        status: HTTP status of the answer about its models; None when there was none. 401, 403 or 404 is a server that
            is up, and asked in the wrong way.
        kind: which server it is, by what it answers.
        loading: it is there, and still loads its model (llama.cpp).
        running: requests being answered now, anybody's.
        waiting: requests that wait inside the server.
        kv_cache_usage: share of the KV cache in use, 0 to 1 (vLLM).
        generated_tokens_total: since the server started, see ``metrics.ServerMetrics``.
        work_total: a counter that moves whenever it computes, see ``metrics.ServerMetrics``.
        late: the optional paths that gave no answer in time. llama.cpp answers some only between two steps of its
            work, so a long prompt makes them late; a server that hangs makes them late for good.
    """

    reachable: bool
    ok: bool
    detail: str
    models: list[str] = field(default_factory=list)
    version: str | None = None
    slots: int | None = None
    loaded: list[str] = field(default_factory=list)
    served: list[Served] = field(default_factory=list, compare=False)
    status: int | None = field(default=None, compare=False)
    kind: Kind = field(default="openai", compare=False)
    loading: bool = field(default=False, compare=False)
    running: int | None = field(default=None, compare=False)
    waiting: int | None = field(default=None, compare=False)
    kv_cache_usage: float | None = field(default=None, compare=False)
    generated_tokens_total: float | None = field(default=None, compare=False)
    work_total: float | None = field(default=None, compare=False)
    late: tuple[str, ...] = field(default=(), compare=False)


def listed_as(model: str, listed: Collection[str]) -> str | None:
    """The name under which a server lists a model: as it is, or as Ollama names one without a tag; else None."""
    return next((name for name in (model, f"{model}:latest") if name in listed), None)


async def probe(client: httpx.AsyncClient, target: WorkerTarget, timeout_s: float) -> ProbeResult:
    """Asks a worker what it offers. A worker that does not answer is a result, not an exception.

    Args:
        client: see ``client.new_client``.
        target: whom to ask.
        timeout_s: for all of it together.
    """
    result = await _probe(client, target, timeout_s)
    return result if target.api == "openai" else replace(result, kind=target.api)


async def _probe(client: httpx.AsyncClient, target: WorkerTarget, timeout_s: float) -> ProbeResult:
    if target.unusable:
        return ProbeResult(False, False, target.unusable)
    asked = _Asked(client, target, asyncio.get_running_loop().time() + timeout_s * _OPTIONAL_SHARE)
    try:
        async with asyncio.timeout(timeout_s):
            return await _ASKS[target.api](asked)
    except TimeoutError:
        return ProbeResult(False, False, f"no answer from {target.url} within {timeout_s:g} s")
    except (httpx.LocalProtocolError, UnicodeEncodeError):  # their texts may hold the key
        return ProbeResult(
            False, False, f"the headers can't be sent; check workers.{target.name}.api_key_env or api_key_file"
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return ProbeResult(False, False, f"{target.url} can't be reached: {str(error) or type(error).__name__}")
    except _Refused as error:
        return ProbeResult(True, False, str(error), status=error.status, loading=error.loading)


class _Refused(Exception):  # noqa: N818 (says what happened)
    """It answered, but not with what was asked for."""

    def __init__(self, message: str, status: int, *, loading: bool = False) -> None:
        super().__init__(message)
        self.status, self.loading = status, loading


# -- the dialects ---------------------------------------------------------------------------------------------------


async def _openai(asked: _Asked) -> ProbeResult:
    base = openai.base_url(asked.target.url)
    listed = await asked.must(f"{base}/models")
    entries = _objects(listed.get("data"))
    root = base.removesuffix("/v1")
    # none of these is part of the dialect; a server whose name is known is not asked for what it does not have
    owners = {_text(e.get("owned_by")) for e in entries}
    props, slots, version, metrics = await asyncio.gather(
        asked.may(f"{root}/props", unless="vllm" in owners),
        asked.may(f"{root}/slots", unless="vllm" in owners),
        asked.may(f"{root}/version", unless="llamacpp" in owners),
        asked.may(f"{root}/metrics"),
    )
    figures = read_metrics(metrics.text) if metrics is not None and metrics.status == 200 else ServerMetrics()
    told = _object(props)
    kind = _kind_of(owners, told, figures)
    loading = any(r is not None and r.loading for r in (props, slots, metrics))
    busy = _busy_slots(slots)
    return ProbeResult(
        True,
        True,
        "ok",
        _names(listed.get("data"), "id"),
        _text(_object(version).get("version")) or _text(told.get("build_info")),
        count(told.get("total_slots")),
        served=[_openai_model(e, kind, told, loading) for e in entries if _text(e.get("id"))],
        status=200,
        kind=kind,
        loading=loading,
        running=figures.running if busy is None else busy,
        waiting=figures.waiting,
        kv_cache_usage=figures.kv_cache_usage,
        generated_tokens_total=figures.generated_tokens_total,
        work_total=figures.work_total,
        late=tuple(asked.late),
    )


def _kind_of(owners: set[str | None], props: dict[str, Any], figures: ServerMetrics) -> Kind:
    if "vllm" in owners or figures.kind == "vllm":
        return "vllm"
    if "llamacpp" in owners or figures.kind == "llama.cpp" or count(props.get("total_slots")) is not None:
        return "llama.cpp"
    return "openai"


def _openai_model(entry: dict[str, Any], kind: Kind, props: dict[str, Any], loading: bool) -> Served:
    """A model of ``/v1/models``. vLLM and llama.cpp hold what they list, unless llama.cpp says otherwise of each."""
    meta = _mapping(entry.get("meta"))
    per_slot = _mapping(props.get("default_generation_settings")).get("n_ctx")
    # not meta.n_ctx_train: what the model was trained for is no promise of the server
    context = (entry.get("max_model_len"), meta.get("n_ctx"), per_slot)
    state = _mapping(entry.get("status")).get("value")  # llama.cpp as a router of several models
    loaded = None if kind == "openai" else not loading
    if isinstance(state, str):
        loaded = state == "loaded"
    return Served(
        name=_text(entry.get("id")) or "",
        size_bytes=count(meta.get("size")),
        quantization=_text(meta.get("ftype")) or _text(props.get("model_ftype")),
        context_length=next((c for v in context if (c := count(v))), None),
        loaded=loaded,
    )


def _busy_slots(reply: _Reply | None) -> int | None:
    """How many of llama.cpp's slots work: ``is_processing``, or ``state`` other than 0 once (llama.cpp#9291)."""
    slots = None if reply is None or reply.status != 200 else reply.value
    if not isinstance(slots, list) or not 1 <= len(slots) <= _MAX_SLOTS:
        return None
    busy = 0
    for slot in slots:
        at_work, state = _mapping(slot).get("is_processing"), count(_mapping(slot).get("state"))
        if not isinstance(at_work, bool) and state is None:
            return None
        busy += at_work if isinstance(at_work, bool) else state != 0
    return busy


async def _ollama(asked: _Asked) -> ProbeResult:
    root = asked.target.url.rstrip("/")
    listed = await asked.must(f"{root}/api/tags")
    version, running = await asyncio.gather(asked.may(f"{root}/api/version"), asked.may(f"{root}/api/ps"))
    in_memory = _object(running).get("models")
    return ProbeResult(
        True,
        True,
        "ok",
        _names(listed.get("models"), "name"),
        _text(_object(version).get("version")),
        loaded=_names(in_memory, "name"),
        served=_ollama_models(listed.get("models"), in_memory),
        status=200,
        late=tuple(asked.late),
    )


async def _searxng(asked: _Asked) -> ProbeResult:
    """``/config`` (its ``webapp.py``), which does not search. It does not say whether JSON is allowed."""
    root = asked.target.url.rstrip("/").removesuffix("/search")
    told = await asked.must(f"{root}/config")
    return ProbeResult(True, True, "ok", [], _text(told.get("version")), status=200)


_ASKS = {"openai": _openai, "ollama": _ollama, "searxng": _searxng}


def _ollama_models(listed: Any, in_memory: Any) -> list[Served]:
    """The models of ``/api/tags``, and with what ``/api/ps`` says of those in memory; None there: it did not say."""
    held = {name: e for e in _objects(in_memory) if (name := _text(e.get("name")))}
    models = {name: e for e in _objects(listed) if (name := _text(e.get("name")))}
    return [
        _ollama_model(name, models.get(name, {}), held.get(name), isinstance(in_memory, list))
        for name in [*models, *(name for name in held if name not in models)]
    ]


def _ollama_model(name: str, tag: dict[str, Any], held: dict[str, Any] | None, told: bool) -> Served:
    here = held or {}
    details = {**_mapping(here.get("details")), **_mapping(tag.get("details"))}
    # left out by the server when it is 0 (ollama#4840)
    vram = None if held is None else count(here.get("size_vram", 0))
    return Served(
        name=name,
        size_bytes=count(tag.get("size")),
        quantization=_text(details.get("quantization_level")),
        context_length=count(here.get("context_length")) or None,
        loaded=(held is not None) if told else None,
        vram_bytes=vram,
    )


# -- odd JSON -------------------------------------------------------------------------------------------------------


def _objects(entries: Any) -> list[dict[str, Any]]:
    return [e for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []


def _names(entries: Any, key: str) -> list[str]:
    return [e[key] for e in _objects(entries) if isinstance(e.get(key), str)]


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return (well_formed(value) or None) if isinstance(value, str) else None


def _object(reply: _Reply | None) -> dict[str, Any]:
    return _mapping(reply.value) if reply is not None and reply.status < 300 else {}


# -- asking ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    text: str

    @property
    def value(self) -> Any:
        """The JSON in it; None when it holds none."""
        try:
            return loads(self.text)
        except ValueError:
            return None

    @property
    def loading(self) -> bool:
        """Whether it is llama.cpp's word that it still loads: 503 and ``Loading model``."""
        return self.status == 503 and "loading model" in failures.message_of(self.text).lower()


@dataclass(slots=True)
class _Asked:
    """One worker being asked. ``optional_until`` is a moment of the loop's clock."""

    client: httpx.AsyncClient
    target: WorkerTarget
    optional_until: float
    late: list[str] = field(default_factory=list)

    async def must(self, url: str) -> dict[str, Any]:
        """The object at a URL that every server of the dialect has.

        Raises:
            _Refused: when it answers with something else.
        """
        reply, target = await self._get(url), self.target
        value = reply.value
        if reply.status in (401, 403):
            raise _Refused(
                f"{url} refuses our credentials (HTTP {reply.status}); "
                f"check workers.{target.name}.api_key_env or api_key_file",
                reply.status,
            )
        if not 200 <= reply.status < 300:
            said = failures.message_of(reply.text)
            raise _Refused(
                f"{url} answers HTTP {reply.status}{': ' + said if said else ''}", reply.status, loading=reply.loading
            )
        if not isinstance(value, dict):
            raise _Refused(
                f"{url} does not answer with a JSON object; is it a model server with api {target.api!r}?", reply.status
            )
        return value

    async def may(self, url: str, *, unless: bool = False) -> _Reply | None:
        """The answer at a URL that only some servers have; None when there is none in time."""
        if unless:
            return None
        try:
            async with asyncio.timeout_at(self.optional_until):
                return await self._get(url)
        except TimeoutError:
            self.late.append(httpx.URL(url).path)
            return None
        except (_Refused, httpx.HTTPError):
            return None

    async def _get(self, url: str) -> _Reply:
        async with self.client.stream("GET", url, headers=dict(self.target.headers), timeout=None) as response:
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > _MAX_BODY_BYTES:
                    raise _Refused(
                        f"{url} answers with more than {_MAX_BODY_BYTES} bytes; is it a model server?",
                        response.status_code,
                    )
        return _Reply(response.status_code, body.decode("utf-8", errors="replace"))
