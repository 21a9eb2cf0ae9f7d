"""Reading an event message: from the bytes in the stream to an :class:`Event`, or to a reject with its reason.

Belongs here: the three envelopes (our own JSON, CloudEvents 1.0 structured and binary), identity, time, redaction. Does
not belong here: what a payload holds (``payloads``), JSON itself (``strict_json``).

    bytes -> size -> which envelope? -> fields by type -> id, time -> which payload?
      any of these fails: Reject                                      none: kept untyped, with the reason

Which envelope, first match wins: a content type of CloudEvents (structured; a batch is a reject), a ``ce-specversion``
header (binary), a body with ``specversion`` (structured), else our own.

CloudEvents 1.0: https://github.com/cloudevents/spec, its JSON event format, and its NATS binding, by which a binary
event's attributes are headers named ``ce-<attribute>`` with percent-encoded values. Where they leave room:

- A binary body without a content type is JSON if it can be read as JSON, else text, else base64. With a JSON content
  type it must be JSON.
- ``datacontenttype``, ``dataschema``, the CloudEvents attribute ``subject`` and extensions are kept in ``extra``.
- The correlation is ``correlationid``, else the ``Correlation-Id`` header, else the trace id of ``traceparent``.
- A percent-encoding that is none is kept as it was sent. One attribute in two headers is a reject, as a key that stands
  twice is.
- ``data_base64`` with a JSON content type is that JSON when it can be read as such.
- ``null`` as data is no data, in either mode.

Headers that none of this reads are kept in ``extra`` under ``headers``, unless they are NATS's own.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from typing import Any
from urllib.parse import unquote

from model_foundry.envelopes.fields import (
    UnreadableError,
    as_object,
    as_text,
    checked_size,
    default_id,
    given_id,
    header,
    id_of,
    json_type,
    shown,
    storable,
    time_of,
    without_nul,
    wrong_type,
)
from model_foundry.envelopes.payloads import payload_type
from model_foundry.records import Event, Reject, StreamMessage
from model_foundry.strict_json import NotJson, canonical, loads

REPLAY_HEADER = "Foundry-Replay-Of"
"""Names the reject, as ``<stream>-<created>-<seq>``, that a message is the corrected form of."""
CLOCK_TOLERANCE = timedelta(seconds=5)
"""Clocks of two machines may differ by so much before a time is called one of the future."""
SPEC_VERSION = "1.0"
READ_HEADERS = frozenset({"nats-msg-id", "correlation-id", "content-type", "traceparent", REPLAY_HEADER.lower()})
TEXTS_IN_TEXTS = 2
"""JSON in a text, in JSON in a text, is looked through for what to redact; what stands deeper is not kept."""


@dataclass(frozen=True, slots=True)
class EventReading:
    """How events are read.

    Attributes:
        max_message_bytes: a longer body is a reject, unread.
        former_subjects: a subject that is still accepted -> its name today.
        redact: names of fields, at any depth, whose values are not kept. With any, a payload that is one text is not
            kept either: it may hold them, and nobody could tell.
        role_kinds: a configured role -> orchestrator, worker or translator.
    """

    max_message_bytes: int
    former_subjects: Mapping[str, str] = field(default_factory=dict)
    redact: frozenset[str] = frozenset()
    role_kinds: Mapping[str, str] = field(default_factory=dict)


def read_event(message: StreamMessage, reading: EventReading) -> Event | Reject:
    """Reads one message of the event stream. Pure; raises nothing, whatever the bytes.

    Returns:
        The event, every text of which can be encoded as UTF-8; or the whole message with the reason why it can't be
        read.
    """
    try:
        checked_size(message, reading.max_message_bytes)
        return _event(message, _envelope(message), reading)
    except (UnreadableError, NotJson) as error:
        return Reject(message, str(error))


# -- the envelopes -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Envelope:
    """What an envelope says, whichever it is."""

    kind: str
    event_id: str | None
    source: str | None
    type: str | None
    correlation_id: str | None
    time: str | None
    time_name: str
    payload: Any
    encoding: str | None
    extra: dict[str, Any]
    traceparent: str | None
    headers: dict[str, Any] = field(default_factory=dict)


def _envelope(message: StreamMessage) -> _Envelope:
    if not message.headers:
        return _said(message, {})
    headers = {name.lower(): value for name, value in reversed(message.headers)}
    said = _said(message, headers)
    if headers.keys() - READ_HEADERS:
        said.headers = _other_headers(message, "ce-" if said.kind == "cloudevents_binary" else "nats-")
    return said


def _other_headers(message: StreamMessage, attributes: str) -> dict[str, Any]:
    """The headers that nothing else reads, by name in lower case; all values of one that was sent several times."""
    found: dict[str, list[str]] = {}
    for name, value in message.headers:
        known = storable(name.lower())
        if known not in READ_HEADERS and not known.startswith(("nats-", attributes)):
            found.setdefault(known, []).append(storable(value))
    return {name: values if len(values) > 1 else values[0] for name, values in found.items()}


def _said(message: StreamMessage, headers: Mapping[str, str]) -> _Envelope:
    media_type = _media_type(headers.get("content-type"))
    if media_type.startswith("application/cloudevents-batch"):
        raise UnreadableError("a batch of CloudEvents; send one event a message")
    if media_type.startswith("application/cloudevents"):
        if not media_type.endswith(("/cloudevents", "+json")):
            raise UnreadableError(f"CloudEvents as {shown(media_type)}; allowed: application/cloudevents+json")
        return _structured(message, _body(message))
    if "ce-specversion" in headers:
        return _binary(message, headers)
    body = _body(message)
    return _own(message, body) if body.get("specversion") is None else _structured(message, body)


def _body(message: StreamMessage) -> dict[str, Any]:
    body = loads(message.data)
    if not isinstance(body, dict):
        raise UnreadableError(f"the body is {json_type(body)}; allowed: an object")
    return body


_OWN_FIELDS: Mapping[str, Callable[[str, Any], Any]] = {
    "event_id": as_text,
    "correlation_id": as_text,
    "occurred_at": as_text,
    "source": as_text,
    "payload": as_object,
}


def _own(message: StreamMessage, body: dict[str, Any]) -> _Envelope:
    given = {name: read(name, body[name]) for name, read in _OWN_FIELDS.items() if body.get(name) is not None}
    payload = given.get("payload")
    return _Envelope(
        kind="own",
        event_id=given_id(message, "event_id", given.get("event_id"))
        or given_id(message, "Nats-Msg-Id", header(message, "Nats-Msg-Id")),
        source=id_of("source", given.get("source")),
        type=None,
        correlation_id=id_of("correlation_id", given.get("correlation_id")) or _correlation_header(message),
        time=given.get("occurred_at"),
        time_name="occurred_at",
        payload=payload,
        encoding=None if payload is None else "json",
        extra={name: value for name, value in body.items() if name not in _OWN_FIELDS}
        if len(body) > len(given)
        else {},
        traceparent=header(message, "traceparent") or None,
    )


def _structured(message: StreamMessage, body: dict[str, Any]) -> _Envelope:
    attributes = {name: value for name, value in body.items() if name not in ("data", "data_base64")}
    data, encoded = body.get("data"), body.get("data_base64")
    if data is not None and encoded is not None:
        raise UnreadableError("both data and data_base64 are given; allowed: one of them")
    content_type = attributes.get("datacontenttype")
    media_type = _media_type(content_type) if isinstance(content_type, str) else None
    encoding = "json"
    if encoded is not None:
        data, encoding = _of_base64(encoded, media_type)
    elif isinstance(data, str) and media_type is not None and not _is_json(media_type):
        encoding = "text"
    return _cloud_event(message, "cloudevents_structured", attributes, data, None if data is None else encoding)


def _of_base64(encoded: Any, media_type: str | None) -> tuple[Any, str]:
    """What ``data_base64`` holds: JSON when it is said to be and is, else the base64 as it came."""
    try:
        data = base64.b64decode(as_text("data_base64", encoded), validate=True)
    except (binascii.Error, ValueError):
        raise UnreadableError("data_base64 is no base64") from None
    if media_type is not None and _is_json(media_type):
        with contextlib.suppress(NotJson):
            return loads(data), "json"
    return encoded, "base64"


def _binary(message: StreamMessage, headers: Mapping[str, str]) -> _Envelope:
    attributes: dict[str, Any] = {}
    for name, value in message.headers:
        attribute = storable(name[3:].lower())
        if not attribute or name[:3].lower() != "ce-":
            continue
        if attribute in attributes:
            raise UnreadableError(f"header {shown('ce-' + attribute)} stands twice")
        attributes[attribute] = _decoded(value)
    if "content-type" in headers:
        attributes.setdefault("datacontenttype", storable(headers["content-type"]))
    if "traceparent" in headers:
        attributes.setdefault("traceparent", storable(headers["traceparent"]))
    payload, encoding = _data(message.data, _media_type(attributes.get("datacontenttype")))
    return _cloud_event(message, "cloudevents_binary", attributes, payload, encoding)


def _data(data: bytes, media_type: str) -> tuple[Any, str | None]:
    """A binary event's data, and how it is kept."""
    if not data:
        return None, None
    if not media_type or _is_json(media_type):
        try:
            value = loads(data)
            return value, None if value is None else "json"
        except NotJson:
            if media_type:
                raise
    try:
        return data.decode("utf-8"), "text"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode("ascii"), "base64"


def _cloud_event(
    message: StreamMessage, kind: str, attributes: dict[str, Any], payload: Any, encoding: str | None
) -> _Envelope:
    def taken(name: str) -> str | None:
        value = attributes.pop(name, None)
        return None if value is None else id_of(name, as_text(name, value))

    version = attributes.pop("specversion", None)
    if not isinstance(version, str):
        raise wrong_type("specversion", version, f"'{SPEC_VERSION}'")
    if version != SPEC_VERSION:
        raise UnreadableError(f"specversion is {shown(version)}; allowed: '{SPEC_VERSION}'")
    event_id, source, type_ = given_id(message, "id", taken("id")), taken("source"), taken("type")
    missing = [name for name, value in (("id", event_id), ("source", source), ("type", type_)) if not value]
    if missing:
        raise UnreadableError(f"a CloudEvent without {', '.join(missing)}; all of id, source and type are needed")
    for name in ("subject", "datacontenttype", "dataschema"):
        if attributes.get(name) is not None:
            as_text(name, attributes[name])
    traceparent = taken("traceparent")
    time = attributes.pop("time", None)
    return _Envelope(
        kind=kind,
        event_id=event_id,
        source=source,
        type=type_,
        correlation_id=taken("correlationid") or _correlation_header(message) or _trace_id(traceparent),
        time=None if time is None else as_text("time", time),
        time_name="time",
        payload=payload,
        encoding=encoding,
        extra=attributes,
        traceparent=traceparent,
    )


def _correlation_header(message: StreamMessage) -> str | None:
    return id_of("Correlation-Id", header(message, "Correlation-Id"))


_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


def _trace_id(traceparent: str | None) -> str | None:
    """The trace id in a W3C ``traceparent``; None when it is none."""
    match = _TRACEPARENT.fullmatch(traceparent or "")
    return match[1] if match and match[1].strip("0") else None


def _media_type(content_type: str | None) -> str:
    return (content_type or "").partition(";")[0].strip().lower()


def _is_json(media_type: str) -> bool:
    return media_type.endswith(("/json", "+json"))


def _decoded(value: str) -> str:
    """A header value, percent-decoded where it is percent-encoded UTF-8."""
    value = storable(value)
    if "%" not in value:
        return value
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        return value


# -- what all envelopes have in common -----------------------------------------------------------------------------


def _event(message: StreamMessage, said: _Envelope, reading: EventReading) -> Event:
    notes: list[str] = []
    occurred_at, happened_at = None, message.published_at
    if said.time is not None:
        occurred_at, notes = time_of(said.time_name, said.time)
        ahead = occurred_at - message.published_at
        if ahead > CLOCK_TOLERANCE:
            notes.append(f"{said.time_name} is {ahead.total_seconds():.0f} s later than the stream took the message")
        happened_at = min(occurred_at, message.published_at)
    received = without_nul("subject", storable(message.subject))
    subject = reading.former_subjects.get(received, received)
    type_, problem = payload_type(subject, said.payload)
    event_id = said.event_id or default_id(message)
    payload, extra, encoding = canonical(said.payload), canonical(said.extra), said.encoding
    said_all = "\0".join((subject, said.type or "", said.correlation_id or "", said.time or "", payload, extra))
    if encoding in ("text", "base64"):  # else a text and a base64 of the same letters were the same
        said_all = f"{said_all}\0{encoding}"
    derived = _derived(type_, said.payload, reading.role_kinds) if type_ else "{}"
    if reading.redact:
        kept, more = _without(reading.redact, said, notes)
        encoding = None if kept is None else encoding
        payload, extra = canonical(kept), canonical(more)
    elif said.headers:
        extra = canonical(_with_headers(said.extra, said.headers))
    return Event(
        message=message,
        event_key=sha256(f"{said.source or ''}\0{event_id}".encode()).hexdigest()[:32],
        event_id=event_id,
        source=said.source,
        subject=subject,
        envelope=said.kind,
        type=said.type,
        correlation_id=said.correlation_id,
        occurred_at=occurred_at,
        happened_at=happened_at,
        payload=None if encoding is None else payload,
        payload_encoding=encoding,
        payload_type=type_,
        payload_problem=problem,
        derived=derived,
        traceparent=said.traceparent,
        replay_of=header(message, REPLAY_HEADER) if message.headers else None,
        extra=extra,
        notes=tuple(notes),
        content_digest=sha256(said_all.encode()).hexdigest()[:32],
    )


def _derived(type_: str, payload: dict[str, Any], role_kinds: Mapping[str, str]) -> str:
    """What a payload says beside its words; see :class:`Event`."""
    if type_ == "flow_node" and (role := payload.get("role")) is not None:
        named = role if role in ("orchestrator", "translator") else "worker"
        return canonical({"role_kind": role_kinds.get(role, named)})
    if type_ == "tool_call" and payload.get("arguments") is not None and payload.get("arguments_digest") is None:
        return canonical({"arguments_digest": sha256(canonical(payload["arguments"]).encode()).hexdigest()[:16]})
    return "{}"


def _with_headers(extra: dict[str, Any], headers: dict[str, Any]) -> dict[str, Any]:
    """Unknown fields and headers; the headers step aside for a field of the same name."""
    return extra | {"headers" if "headers" not in extra else "message_headers": headers}


# -- redaction -----------------------------------------------------------------------------------------------------


def _without(names: frozenset[str], said: _Envelope, notes: list[str]) -> tuple[Any, dict[str, Any]]:
    """The payload, and the unknown fields and headers, without what stands under these names."""
    gone: set[str] = set()
    in_headers = names | {name.lower() for name in names}  # a header's name has no case
    extra = _redacted(said.extra, in_headers if said.kind == "cloudevents_binary" else names, gone)
    if said.headers:
        extra = _with_headers(extra, _redacted(said.headers, in_headers, gone))
    name = "payload" if said.kind == "own" else "data"
    kept = said.payload
    if isinstance(kept, str) and name not in names:
        kept = None
        notes.append("payload not kept: it can't be redacted")
    kept = _redacted({name: kept}, names, gone)[name]
    if gone:
        notes.append(f"redacted: {', '.join(sorted(gone))}")
    return kept, extra


def _redacted(value: Any, names: frozenset[str], gone: set[str], texts: int = 0) -> Any:
    """The value without what stands under these names; ``gone`` gathers the names that were there."""
    if isinstance(value, str):
        return _redacted_text(value, names, gone, texts)
    if isinstance(value, list):
        return [_redacted(item, names, gone, texts) for item in value]
    if not isinstance(value, dict):
        return value
    gone |= {name for name in value.keys() & names if value[name] is not None}
    return {name: None if name in names else _redacted(item, names, gone, texts) for name, item in value.items()}


def _redacted_text(text: str, names: frozenset[str], gone: set[str], texts: int) -> str | None:
    """A text as it is, unless it is JSON itself: then without what stands in it under these names."""
    first = text.lstrip(" \t\r\n\ufeff")[:1]
    if not first or first not in '{["':
        return text
    try:
        value = loads(text.encode())
    except NotJson:  # several in a row, say; a quoted word is no JSON, and stays
        unsafe = first != '"' and ("\\u" in text or any(name in text for name in names))
    else:
        found: set[str] = set()
        unsafe = texts == TEXTS_IN_TEXTS
        kept = None if unsafe else _redacted(value, names, found, texts + 1)
        gone |= found
        if found:
            return canonical(kept)
    if unsafe:
        gone.add("a text like JSON")
    return None if unsafe else text
