"""Reading a prompt message: from the bytes in the stream to a :class:`PromptEnvelope`, or to a reject with its reason.

Belongs here: the wire form of a prompt (fields, headers, subject, times) and the one rule of reading: what can't be
read is a :class:`Reject`; what can be read but not used is an envelope with a ``problem``; nothing is dropped and
nothing raises. Does not belong here: what the configuration knows (models, roles, capabilities, reply subjects: that
is ``routing``), what a prompt is about (``domains``), JSON itself (``strict_json``).

    bytes -> size -> subject -> JSON object -> fields by type -> ids, times -> usable?
      any of these fails: Reject                                                no: problem set

Where the wire form leaves room, this is how it is read:

- A whole number may be written ``1`` or ``1.0`` (as in JSON Schema) and is kept as an integer; ``1.5`` and ``true``
  are other types.
- Names (domain, model, role, capability, reply_to) are absent when empty, as ids are.
- An unknown param whose value is null is forwarded; a known or reserved one is absent.
- The last user message decides whether there is a prompt: it has text that is not blank, or a part other than text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from model_foundry.jetstream.subjects import PROMPT_SUBJECT
from model_foundry.records import PromptEnvelope, Reject, StreamMessage
from model_foundry.strict_json import NotJson, loads

MAX_ID_BYTES = 512
PRIORITY_MIN, PRIORITY_MAX = -10, 10
RESERVED_PARAMS = ("model", "messages", "prompt", "stream", "base_url", "api_key")
"""Keys in ``params`` that would override what routing and the wire form decide."""


def read_prompt(message: StreamMessage, *, max_message_bytes: int) -> PromptEnvelope | Reject:
    """Reads one message of the prompt stream. Pure; raises nothing, whatever the bytes.

    Args:
        message: as the stream holds it.
        max_message_bytes: a longer body is a reject, unread.

    Returns:
        An envelope, with ``problem`` set when it can't be used; or the whole message with the reason why it can't be
        read. Every text in an envelope can be encoded as UTF-8.
    """
    try:
        return _read(message, max_message_bytes)
    except (_ReadError, NotJson) as error:
        return Reject(message, str(error))


def parse_rfc3339(text: str) -> tuple[datetime, tuple[str, ...]]:
    """An RFC 3339 date-time as UTC.

    Any form of section 5.6 is read: ``t`` and ``z`` in lower case, a space between date and time, a fraction of any
    length (cut off below a microsecond), offsets, and a leap second, which is the second after 23:59:59 UTC on a
    month's last day and, as POSIX counts, the first of the next day. A missing zone is read as UTC.

    Returns:
        The time, and notes on what was assumed (empty when nothing was).

    Raises:
        ValueError: unreadable, or outside the years 1 to 9999; the message says which.
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(f"{_shown(text)} is no RFC 3339 time such as 2026-12-01T12:00:00Z")
    zone, is_leap = match["zone"], match["second"] == "60"
    offset = timedelta(0)
    if zone and zone not in "Zz":
        hours, minutes = int(zone[1:3]), int(zone[4:6])
        if hours > 23 or minutes > 59:
            raise ValueError(f"{_shown(text)} has an offset beyond 23:59")
        offset = timedelta(hours=hours, minutes=minutes) * (-1 if zone[0] == "-" else 1)
    try:
        time = datetime(
            year=int(match["year"]),
            month=int(match["month"]),
            day=int(match["day"]),
            hour=int(match["hour"]),
            minute=int(match["minute"]),
            second=59 if is_leap else int(match["second"]),
            microsecond=int((match["fraction"] or "0")[:6].ljust(6, "0")),
            tzinfo=timezone(offset),
        ).astimezone(UTC)
        if is_leap:
            next_second = time + timedelta(seconds=1)
            if (next_second.day, next_second.hour, next_second.minute) != (1, 0, 0):
                raise ValueError("second 60 is only there at a month's end, 23:59:60 UTC")
            time = next_second
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{_shown(text)} is no time: {error}") from None
    return time, () if zone else ("no zone; read as UTC",)


_RFC3339 = re.compile(
    r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})[Tt ]"
    r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]+))?"
    r"(?P<zone>[Zz]|[+-][0-9]{2}:[0-9]{2})?"
)


# -- the steps, in the order in which they are taken ---------------------------------------------------------------


class _ReadError(Exception):
    """Why this message is a reject."""


def _read(message: StreamMessage, max_message_bytes: int) -> PromptEnvelope | Reject:
    if len(message.data) > max_message_bytes:
        raise _ReadError(f"{len(message.data)} bytes; at most {max_message_bytes} are read (limits.max_message_bytes)")
    subject_domain = _domain_of_subject(message.subject)
    body = loads(message.data)
    if not isinstance(body, dict):
        raise _ReadError(f"the body is {_json_type(body)}; allowed: an object")
    given: dict[str, Any] = {
        name: read(name, body[name]) for name, read in _FIELDS.items() if body.get(name) is not None
    }

    job_id = _id("job_id", given.get("job_id")) or _id("Nats-Msg-Id", _header(message, "Nats-Msg-Id"))
    correlation_id = _id("correlation_id", given.get("correlation_id")) or _id(
        "Correlation-Id", _header(message, "Correlation-Id")
    )
    notes: list[str] = []
    deadline: datetime | None = None
    if "deadline" in given:
        deadline, time_notes = _time("deadline", given["deadline"])
        notes.extend(time_notes)
    domain, model, role, capability, reply_to = (
        _id(name, given.get(name)) for name in ("domain", "model", "role", "capability", "reply_to")
    )
    if domain and subject_domain and domain != subject_domain:
        notes.append(f"the subject says domain {_shown(subject_domain)}; the message's own wins")

    prompt, messages, no_prompt = _conversation(given.get("prompt"), given.get("messages"))
    wrong_priority = _priority_problem(given.get("priority", 0))
    problems = [no_prompt, wrong_priority, _params_problem(given.get("params", {}))]
    return PromptEnvelope(
        message=message,
        job_id=job_id or f"{message.stream}-{message.stream_created}-{message.seq}",
        correlation_id=correlation_id,
        prompt=prompt,
        messages=messages,
        domain=domain or subject_domain,
        domain_source="message" if domain else "subject" if subject_domain else None,
        model=model,
        role=role,
        capability=capability,
        params=given.get("params", {}),
        priority=0 if wrong_priority else given.get("priority", 0),
        deadline=deadline,
        reply_to=reply_to,
        metadata=given.get("metadata"),
        traceparent=_header(message, "traceparent") or None,
        extra={name: value for name, value in body.items() if name not in _FIELDS},
        notes=tuple(notes),
        problem="; ".join(p for p in problems if p) or None,
    )


def _domain_of_subject(subject: str) -> str | None:
    """The domain in ``prompts.submit.<domain>``; None for ``prompts.submit``."""
    if subject == PROMPT_SUBJECT:
        return None
    domain = subject.removeprefix(PROMPT_SUBJECT + ".")
    if domain == subject or not domain or "." in domain:
        raise _ReadError(f"subject {_shown(subject)}; prompts are {PROMPT_SUBJECT} and {PROMPT_SUBJECT}.<domain>")
    return _storable(domain)


def _header(message: StreamMessage, name: str) -> str | None:
    """The first header of that name, in any case of letters."""
    return next((_storable(value) for key, value in message.headers if key.lower() == name.lower()), None)


def _id(name: str, value: str | None) -> str | None:
    """The id as it is; None when absent or empty."""
    if value and len(value.encode()) > MAX_ID_BYTES:
        raise _ReadError(f"{name} has {len(value.encode())} bytes; at most {MAX_ID_BYTES} are read")
    return value or None


def _time(name: str, text: str) -> tuple[datetime, list[str]]:
    try:
        time, notes = parse_rfc3339(text)
    except ValueError as error:
        raise _ReadError(f"{name}: {error}") from None
    return time, [f"{name} has {note}" for note in notes]


# -- fields by type: each reader gives the value back, or says what it found and what is allowed --------------------


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong_type(name, value, "text")
    return value


def _object(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong_type(name, value, "an object")
    return value


def _number(name: str, value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong_type(name, value, "a number")
    return value


def _whole_number(name: str, value: Any) -> int:
    number = _number(name, value)
    if isinstance(number, float) and not number.is_integer():
        raise _ReadError(f"{name} is {number!r}; allowed: a whole number")
    return int(number)


def _stop(name: str, value: Any) -> str | list[str]:
    if isinstance(value, str) or (isinstance(value, list) and all(isinstance(v, str) for v in value)):
        return value
    raise _wrong_type(name, value, "text or a list of texts")


_KNOWN_PARAMS: Mapping[str, Callable[[str, Any], Any]] = {
    "max_tokens": _whole_number,
    "temperature": _number,
    "seed": _whole_number,
    "stop": _stop,
}


def _params(name: str, value: Any) -> dict[str, Any]:
    """The known four by type, the reserved ones kept to be reported, all others as they came."""
    params: dict[str, Any] = {}
    for key, param in _object(name, value).items():
        if param is None and (key in _KNOWN_PARAMS or key in RESERVED_PARAMS):
            continue
        read = _KNOWN_PARAMS.get(key)
        params[key] = read(f"{name}.{key}", param) if read else param
    return params


def _messages(name: str, value: Any) -> list[dict[str, Any]]:
    """Messages as they came, once each has a text role and content that is text, parts (objects) or null."""
    if not isinstance(value, list):
        raise _wrong_type(name, value, "a list of messages")
    for index, item in enumerate(value):
        where = f"{name}[{index}]"
        content = _object(where, item).get("content")
        _text(f"{where}.role", item.get("role"))
        if isinstance(content, list):
            for part_index, part in enumerate(content):
                _object(f"{where}.content[{part_index}]", part)
        elif content is not None:
            _content(f"{where}.content", content)
    return value


def _content(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong_type(name, value, "text, a list of parts or null")
    return value


_FIELDS: Mapping[str, Callable[[str, Any], Any]] = {
    "prompt": _text,
    "messages": _messages,
    "job_id": _text,
    "correlation_id": _text,
    "domain": _text,
    "model": _text,
    "role": _text,
    "capability": _text,
    "params": _params,
    "priority": _whole_number,
    "deadline": _text,
    "reply_to": _text,
    "metadata": _object,
}
"""Every known field and how its value is read; any other field is ``extra``."""


# -- usable? -------------------------------------------------------------------------------------------------------


def _conversation(
    prompt: str | None, messages: list[dict[str, Any]] | None
) -> tuple[str, list[dict[str, Any]], str | None]:
    """The last user text, the messages to send, and what is wrong with them."""
    if prompt is not None and messages is not None:
        return prompt, messages, "both prompt and messages are given; give one of them"
    if prompt is not None:
        asked = [{"role": "user", "content": prompt}]
        return prompt, asked, None if prompt.strip() else "the prompt is blank"
    if messages is None:
        return "", [], "neither prompt nor messages is given"
    of_user = [m for m in messages if m["role"] == "user"]
    if not of_user:
        return "", messages, "messages holds no user message"
    texts = [_text_of(m) for m in of_user]
    if texts[-1].strip():
        return texts[-1], messages, None
    if _has_other_parts(of_user[-1]):
        return next((text for text in reversed(texts) if text.strip()), ""), messages, None
    return texts[-1], messages, "the last user message is blank"


def _text_of(message: Mapping[str, Any]) -> str:
    """A message's text; the text parts of a list, one a line."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(p["text"] for p in content if _is_text(p) and isinstance(p.get("text"), str))
    return content or ""


def _has_other_parts(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    return isinstance(content, list) and not all(_is_text(part) for part in content)


def _is_text(part: Mapping[str, Any]) -> bool:
    return part.get("type") in ("text", "input_text") or ("type" not in part and "text" in part)


def _priority_problem(priority: int) -> str | None:
    if PRIORITY_MIN <= priority <= PRIORITY_MAX:
        return None
    return f"priority is {_shown(str(priority))}; allowed: {PRIORITY_MIN} to {PRIORITY_MAX}"


def _params_problem(params: Mapping[str, Any]) -> str | None:
    reserved = [key for key in RESERVED_PARAMS if key in params]
    return f"params holds {', '.join(reserved)}, which can't be set there" if reserved else None


# -- words ---------------------------------------------------------------------------------------------------------


def _wrong_type(name: str, value: Any, allowed: str) -> _ReadError:
    return _ReadError(f"{name} is {_json_type(value)}; allowed: {allowed}")


def _json_type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "text"
    if isinstance(value, int | float):
        return "a number"
    return "a list" if isinstance(value, list) else "an object"


def _storable(text: str) -> str:
    """The text with what UTF-8 can't hold (bytes of a header or subject that were none) written as ``\\udcff``."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
