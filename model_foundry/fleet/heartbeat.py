"""What a worker's agent says about it every few seconds: its shape, its bytes, and reading those of any agent.

Belongs here: the models of a heartbeat, to bytes and back, the bucket it is put into. Does not belong here: making one
(``fleet.agent``), what the heartbeats of all mean together (``fleet.health``), any I/O.

On the wire it is one JSON object (RFC 8259) under the worker's name in the bucket ``<fleet.bucket>_workers``:
``{"name", "url", "api", "supports": [], "models": [], "slots", "gpu": {"index", "name", "util_percent",
"vram_used_mb", "vram_total_mb"}, "version"}`` and what newer agents add; only ``name``, ``url`` and ``api`` must be
there. Absent equals null: unknown. Everything else that can't be used costs that field and a line in ``notes``, never
the heartbeat; fields that we don't know are kept in ``extra``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeVar, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from model_foundry.config import Name
from model_foundry.envelopes.fields import json_type, parse_rfc3339, shown
from model_foundry.jetstream.buckets import BucketConfig
from model_foundry.strict_json import NotJson, loads
from model_foundry.text import well_formed

T = TypeVar("T")

DEFAULT_SUPPORTS = "cpu_inference"
"""What a worker can do whose agent does not say: agents did not, once, and all of them were CPU workers."""
MAX_BYTES = 256 * 1024
"""A longer value is no heartbeat; one with 500 models has about 60 KiB."""
MAX_SLOTS = 1024
REMEMBERED_S = 86_400.0
"""For so long a worker that fell silent can be told from one that never was."""

Api = Literal["ollama", "openai", "searxng"]
State = Literal["ready", "loading", "misconfigured", "down"]

_MAX_TEXT = 1024
_MAX_URL = 2048
_MAX_NUMBER = 2.0**53
_NAME: TypeAdapter[str] = TypeAdapter(Name)


def _in_utc(time: datetime) -> datetime:
    return time.astimezone(UTC)


_Text = Annotated[str, AfterValidator(well_formed), Field(min_length=1, max_length=_MAX_TEXT)]
_Amount = Annotated[float, Field(ge=0, le=_MAX_NUMBER, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0, le=int(_MAX_NUMBER))]
_Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Gpu(_Part):
    """One GPU as its driver shows it. Percent, MiB, degrees Celsius, watts; None is unknown (unified memory, MIG)."""

    index: _Count | None = None
    name: _Text | None = None
    uuid: _Text | None = None
    util_percent: _Percent | None = None
    vram_used_mb: _Amount | None = None
    vram_total_mb: _Amount | None = None
    temperature_c: _Amount | None = None
    power_w: _Amount | None = None


class ServedModel(_Part):
    """A model that the server has, by the server's name for it.

    Attributes:
        name: as requests name it.
        size_bytes: of the weights.
        quantization: as the server writes it, such as ``Q4_K_M``.
        context_length: tokens of prompt and answer that one request may have.
        loaded: whether it is in memory now.
        vram_bytes: of it in the GPU's memory; 0 when it runs on the CPU. An estimate of the server's.
    """

    name: Annotated[str, AfterValidator(well_formed), Field(min_length=1, max_length=256)]
    size_bytes: _Count | None = None
    quantization: _Text | None = None
    context_length: _Count | None = None
    loaded: bool | None = None
    vram_bytes: _Count | None = None


class Progress(_Part):
    """Whether work gets done, which a server that merely answers ``/health`` does not show.

    Attributes:
        generated_tokens_total: since the server started, all requests together.
        work_total: a counter that moves whenever the server computes (see ``inference.metrics``).
        stalled_s: for how long the server has had requests and moved nothing; 0 when it moves or has none.
    """

    generated_tokens_total: _Amount | None = None
    work_total: _Amount | None = None
    stalled_s: _Amount | None = None


class Heartbeat(_Part):
    """A worker now, in its agent's words. None is unknown everywhere.

    Attributes:
        name: the worker's; the key it is put under.
        url: where others reach its server.
        api: the dialect of the server.
        supports: capabilities, preferred first.
        models: what the server has; the agent's own list where the server does not tell.
        slots: requests that it takes at once.
        gpu: the GPU it runs on.
        gpus: every GPU of its host.
        running: requests being answered now, anybody's.
        waiting: requests that wait inside the server.
        version: the server's.
        agent_version: this project's.
        sent_at: the agent's clock, UTC.
        sequence: counts up from 0 for as long as an agent runs.
        interval_s: seconds between two of its heartbeats.
        reachable: whether the server answered the agent over HTTP.
        state_hint: what the agent makes of it.
        problem: what is wrong, to be read by a person.
        progress: whether work gets done.
        notes: what could not be read, or what the agent noticed.
        extra: fields that we don't know.
    """

    name: Name
    url: str
    api: Api
    supports: list[Name] = Field(default_factory=lambda: [DEFAULT_SUPPORTS], min_length=1)
    models: list[ServedModel] = Field(default_factory=list)
    slots: Annotated[int, Field(ge=1, le=MAX_SLOTS)] | None = None
    gpu: Gpu | None = None
    gpus: list[Gpu] = Field(default_factory=list)
    running: _Count | None = None
    waiting: _Count | None = None
    version: _Text | None = None
    agent_version: _Text | None = None
    sent_at: Annotated[AwareDatetime, AfterValidator(_in_utc)] | None = None
    sequence: _Count | None = None
    interval_s: _Amount | None = None
    reachable: bool | None = None
    state_hint: State | None = None
    problem: _Text | None = None
    progress: Progress = Progress()
    notes: tuple[_Text, ...] = ()
    extra: dict[str, Any] = Field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The heartbeat as JSON, without what is unknown, unknown fields among the others again."""
        known = self.model_dump(mode="json", exclude_none=True, exclude={"extra"})
        if not known["progress"]:
            del known["progress"]
        return json.dumps({**self.extra, **known}, ensure_ascii=False, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class BadHeartbeat:
    """A value in the bucket that is no heartbeat; ``reason`` says what it is and what is allowed."""

    key: str
    reason: str


def workers_bucket(bucket: str, replicas: int = 1) -> BucketConfig:
    """The bucket of heartbeats, the same for agents and readers.

    Args:
        bucket: ``fleet.bucket``.
        replicas: ``fleet.replicas``.
    """
    return BucketConfig(f"{bucket}_workers", max_age_s=REMEMBERED_S, replicas=replicas)


def name_problem(name: str) -> str | None:
    """Why this can't be a worker's name in heartbeats; None when it can."""
    try:
        _NAME.validate_python(name)
    except ValidationError:
        return f"name is {shown(name)}; allowed: 1 to 64 of letters, digits, dot, underscore, hyphen, no dot first"
    if ".." in name or name.endswith("."):
        return f"name is {shown(name)}; allowed: no dot at the end, nor two in a row (it is a key in NATS)"
    return None


def url_problem(url: str) -> str | None:
    """Why this can't be a model server's base URL; None when it can. A URL with credentials is not shown."""
    allowed = "allowed: http(s)://host[:port], without blanks"
    if len(url) > _MAX_URL:
        return f"url has {len(url)} characters; at most {_MAX_URL} are read"
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises when it is none
    except ValueError as error:
        return f"url is {shown(url)}, which is none ({error}); {allowed}"
    if "@" in parts.netloc:
        return "url holds credentials, which everybody who reads heartbeats would see; allowed: one without"
    if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"[\s\x00-\x1f\x7f]", url):
        return f"url is {shown(url)}; {allowed}"
    return None


def read_heartbeat(data: bytes, key: str) -> Heartbeat | BadHeartbeat:
    """A heartbeat from a value of the bucket. Never raises.

    Older agents are read too: no ``supports`` (or null, or ``[]``) means ``[cpu_inference]``, one name is read as a
    list, models may be names or objects, and only ``gpu`` may be there, not ``gpus``.

    Args:
        data: the value.
        key: the key it stands under; ``name`` must be the same.
    """
    if len(data) > MAX_BYTES:
        return BadHeartbeat(key, f"{len(data)} bytes; at most {MAX_BYTES} are read")
    try:
        raw = loads(data)
    except NotJson as error:
        return BadHeartbeat(key, f"no JSON: {error}")
    if not isinstance(raw, dict):
        return BadHeartbeat(key, f"{json_type(raw)}; allowed: an object")
    problem = _identity_problem(raw, key)
    return BadHeartbeat(key, problem) if problem else _Reader(raw).heartbeat()


def _identity_problem(raw: dict[str, Any], key: str) -> str | None:
    """What makes ``name``, ``url`` or ``api`` unusable; each is needed, so this costs the heartbeat."""
    for field in ("name", "url", "api"):
        if not isinstance(raw.get(field), str):
            found = "missing" if raw.get(field) is None else json_type(raw[field])
            return f"{field} is {found}; allowed: text"
    if problem := name_problem(raw["name"]) or url_problem(raw["url"]):
        return problem
    if raw["api"] not in get_args(Api):
        return f"api is {shown(raw['api'])}; allowed: {', '.join(get_args(Api))}"
    if raw["name"] != key:
        return f"name is {shown(raw['name'])}, its key {shown(key)}; allowed: the same"
    return None


class _Reader:
    """Reads the optional fields of one object; what can't be used becomes None (or is left out) and a note."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw
        self.notes: list[str] = []

    def heartbeat(self) -> Heartbeat:
        raw = self.raw
        return Heartbeat(
            name=raw["name"],
            url=raw["url"],
            api=raw["api"],
            supports=self.supports(raw.get("supports")),
            models=self.models(raw.get("models")),
            slots=self.whole("slots", raw.get("slots"), least=1, most=MAX_SLOTS),
            gpu=self.gpu("gpu", raw.get("gpu")),
            gpus=[g for i, v in enumerate(self.entries("gpus", raw.get("gpus"))) if (g := self.gpu(f"gpus[{i}]", v))],
            running=self.whole("running", raw.get("running")),
            waiting=self.whole("waiting", raw.get("waiting")),
            version=self.text("version", raw.get("version")),
            agent_version=self.text("agent_version", raw.get("agent_version")),
            sent_at=self.time("sent_at", raw.get("sent_at")),
            sequence=self.whole("sequence", raw.get("sequence")),
            interval_s=self.number("interval_s", raw.get("interval_s")),
            reachable=self.truth("reachable", raw.get("reachable")),
            state_hint=self.one_of("state_hint", raw.get("state_hint"), get_args(State)),
            problem=self.text("problem", raw.get("problem")),
            progress=self.progress(raw.get("progress")),
            extra={k: v for k, v in raw.items() if k not in Heartbeat.model_fields or k == "extra"},
            notes=(*self.texts("notes", raw.get("notes")), *self.notes),  # last: reading the others adds notes
        )

    # -- parts ------------------------------------------------------------------------------------------------------

    def supports(self, value: Any) -> list[str]:
        """Capabilities without repetition, in their order."""
        named = [value] if isinstance(value, str) else self.entries("supports", value)
        usable = [self.capability(f"supports[{i}]", v) for i, v in enumerate(named)]
        return list(dict.fromkeys(c for c in usable if c is not None)) or [DEFAULT_SUPPORTS]

    def capability(self, where: str, value: Any) -> str | None:
        try:
            return _NAME.validate_python(value, strict=True)
        except ValidationError:
            found = shown(value) if isinstance(value, str) else json_type(value)
            self.unusable(where, found, "the name of a capability")
            return None

    def models(self, value: Any) -> list[ServedModel]:
        """Models by name; of two with the same name the first."""
        named = [value] if isinstance(value, str) else self.entries("models", value)
        found: dict[str, ServedModel] = {}
        for i, entry in enumerate(named):
            model = self.model(f"models[{i}]", entry)
            if model is not None:
                found.setdefault(model.name, model)
        return list(found.values())

    def model(self, where: str, value: Any) -> ServedModel | None:
        entry = {"name": value} if isinstance(value, str) else value
        if not isinstance(entry, dict):
            self.unusable(where, json_type(value), "a name, or an object with one")
            return None
        name = entry.get("name")
        if not isinstance(name, str) or not 1 <= len(name) <= 256:
            found = "missing" if name is None else (json_type(name) if name != "" else "empty")
            self.unusable(f"{where}.name", found, "text of 1 to 256 characters")
            return None
        return ServedModel(
            name=name,
            size_bytes=self.whole(f"{where}.size_bytes", entry.get("size_bytes")),
            quantization=self.text(f"{where}.quantization", entry.get("quantization")),
            context_length=self.whole(f"{where}.context_length", entry.get("context_length")),
            loaded=self.truth(f"{where}.loaded", entry.get("loaded")),
            vram_bytes=self.whole(f"{where}.vram_bytes", entry.get("vram_bytes")),
        )

    def gpu(self, where: str, value: Any) -> Gpu | None:
        if not (entry := self.fields(where, value)):
            return None
        numbers = ("vram_used_mb", "vram_total_mb", "temperature_c", "power_w")
        found = Gpu(
            index=self.whole(f"{where}.index", entry.get("index")),
            name=self.text(f"{where}.name", entry.get("name")),
            uuid=self.text(f"{where}.uuid", entry.get("uuid")),
            util_percent=self.number(f"{where}.util_percent", entry.get("util_percent"), most=100),
            **{field: self.number(f"{where}.{field}", entry.get(field)) for field in numbers},
        )
        return None if found == Gpu() else found  # one of which nothing is known is none

    def progress(self, value: Any) -> Progress:
        entry = self.fields("progress", value)
        return Progress(**{f: self.number(f"progress.{f}", entry.get(f)) for f in Progress.model_fields})

    # -- values by type ---------------------------------------------------------------------------------------------

    def unusable(self, where: str, found: str, allowed: str) -> None:
        self.notes.append(f"{where} is {found}; allowed: {allowed}")

    def checked(
        self, where: str, value: Any, allowed: str, fits: Callable[[Any], bool], give: Callable[[Any], T]
    ) -> T | None:
        """The value when it fits; None without a note when it is absent, with one when it is something else."""
        if value is None:
            return None
        if fits(value):
            return give(value)
        long = isinstance(value, dict | list | str | bool) and not (isinstance(value, str) and len(value) <= 80)
        self.unusable(where, json_type(value) if long else repr(value), allowed)
        return None

    def entries(self, where: str, value: Any) -> list[Any]:
        return self.checked(where, value, "a list", lambda v: isinstance(v, list), lambda v: list(v)) or []

    def fields(self, where: str, value: Any) -> dict[str, Any]:
        return self.checked(where, value, "an object", lambda v: isinstance(v, dict), lambda v: dict(v)) or {}

    def text(self, where: str, value: Any) -> str | None:
        """Text, its blanks at both ends off, cut at a thousand characters; blank text is absent."""
        found = self.checked(where, value, "text", lambda v: isinstance(v, str), lambda v: str(v).strip()[:_MAX_TEXT])
        return found or None

    def texts(self, where: str, value: Any) -> list[str]:
        named = [value] if isinstance(value, str) else self.entries(where, value)
        return [t for i, v in enumerate(named) if (t := self.text(f"{where}[{i}]", v))]

    def truth(self, where: str, value: Any) -> bool | None:
        return self.checked(where, value, "true or false", lambda v: isinstance(v, bool), bool)

    def one_of(self, where: str, value: Any, allowed: tuple[str, ...]) -> Any:
        return self.checked(where, value, ", ".join(allowed), lambda v: isinstance(v, str) and v in allowed, str)

    def number(self, where: str, value: Any, *, most: float = _MAX_NUMBER) -> float | None:
        allowed = f"a number from 0 to {most:g}" if most != _MAX_NUMBER else "a number, not below 0"
        return self.checked(where, value, allowed, lambda v: _is_number(v) and 0 <= v <= most, float)

    def whole(self, where: str, value: Any, *, least: int = 0, most: int = int(_MAX_NUMBER)) -> int | None:
        allowed = f"a whole number from {least}" + (f" to {most}" if most != int(_MAX_NUMBER) else "")
        return self.checked(
            where, value, allowed, lambda v: _is_number(v) and least <= v <= most and v == int(v), lambda v: int(v)
        )

    def time(self, where: str, value: Any) -> datetime | None:
        if (text := self.text(where, value)) is None:
            return None
        try:
            return parse_rfc3339(text)[0].astimezone(UTC)
        except (ValueError, OverflowError):
            self.unusable(where, shown(text), "a time such as 2026-12-01T12:00:00Z")
            return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
