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
- ``ground``, and ``translate.to``, may be one text instead of a list; an empty list is absent. What they name is looked
  at by ``routing``.
- The last user message decides whether there is a prompt: it has text that is not blank, or a part other than text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from model_foundry.envelopes.fields import (
    UnreadableError,
    as_number,
    as_object,
    as_text,
    as_whole_number,
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
from model_foundry.jetstream.subjects import PROMPT_SUBJECT
from model_foundry.records import PromptEnvelope, Reject, StreamMessage, Translate
from model_foundry.strict_json import NotJson, loads

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
    except (UnreadableError, NotJson) as error:
        return Reject(message, str(error))


# -- the steps, in the order in which they are taken ---------------------------------------------------------------


def _read(message: StreamMessage, max_message_bytes: int) -> PromptEnvelope | Reject:
    data = checked_size(message, max_message_bytes)
    subject_domain = _domain_of_subject(message.subject)
    body = loads(data)
    if not isinstance(body, dict):
        raise UnreadableError(f"the body is {json_type(body)}; allowed: an object")
    given: dict[str, Any] = {
        name: read(name, body[name]) for name, read in _FIELDS.items() if body.get(name) is not None
    }

    job_id = given_id(message, "job_id", given.get("job_id")) or given_id(
        message, "Nats-Msg-Id", header(message, "Nats-Msg-Id")
    )
    correlation_id = id_of("correlation_id", given.get("correlation_id")) or id_of(
        "Correlation-Id", header(message, "Correlation-Id")
    )
    notes: list[str] = []
    deadline: datetime | None = None
    if "deadline" in given:
        deadline, time_notes = time_of("deadline", given["deadline"])
        notes.extend(time_notes)
    domain, model, role, capability, reply_to = (
        id_of(name, given.get(name)) for name in ("domain", "model", "role", "capability", "reply_to")
    )
    if domain and subject_domain and domain != subject_domain:
        notes.append(f"the subject says domain {shown(subject_domain)}; the message's own wins")

    prompt, messages, no_prompt = _conversation(given.get("prompt"), given.get("messages"))
    wrong_priority = _priority_problem(given.get("priority", 0))
    problems = [no_prompt, wrong_priority, _params_problem(given.get("params", {})), _tasks_problem(given)]
    return PromptEnvelope(
        message=message,
        job_id=job_id or default_id(message),
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
        traceparent=header(message, "traceparent") or None,
        extra={name: value for name, value in body.items() if name not in _FIELDS},
        notes=tuple(notes),
        problem="; ".join(p for p in problems if p) or None,
        ground=given.get("ground", ()),
        query=without_nul("query", given.get("query", "").strip()) or None,
        translate=given.get("translate"),
    )


def _domain_of_subject(subject: str) -> str | None:
    """The domain in ``prompts.submit.<domain>``; None for ``prompts.submit``."""
    if subject == PROMPT_SUBJECT:
        return None
    domain = subject.removeprefix(PROMPT_SUBJECT + ".")
    if domain == subject or not domain or "." in domain:
        raise UnreadableError(f"subject {shown(subject)}; prompts are {PROMPT_SUBJECT} and {PROMPT_SUBJECT}.<domain>")
    return without_nul("subject", storable(domain))


# -- fields by type: each reader gives the value back, or says what it found and what is allowed --------------------


def _stop(name: str, value: Any) -> str | list[str]:
    if isinstance(value, str) or (isinstance(value, list) and all(isinstance(v, str) for v in value)):
        return value
    raise wrong_type(name, value, "text or a list of texts")


_KNOWN_PARAMS: Mapping[str, Callable[[str, Any], Any]] = {
    "max_tokens": as_whole_number,
    "temperature": as_number,
    "seed": as_whole_number,
    "stop": _stop,
}


def _params(name: str, value: Any) -> dict[str, Any]:
    """The known four by type, the reserved ones kept to be reported, all others as they came."""
    params: dict[str, Any] = {}
    for key, param in as_object(name, value).items():
        if param is None and (key in _KNOWN_PARAMS or key in RESERVED_PARAMS):
            continue
        read = _KNOWN_PARAMS.get(key)
        params[key] = read(f"{name}.{key}", param) if read else param
    return params


def _messages(name: str, value: Any) -> list[dict[str, Any]]:
    """Messages as they came, once each has a text role and content that is text, parts (objects) or null."""
    if not isinstance(value, list):
        raise wrong_type(name, value, "a list of messages")
    for index, item in enumerate(value):
        where = f"{name}[{index}]"
        content = as_object(where, item).get("content")
        as_text(f"{where}.role", item.get("role"))
        if isinstance(content, list):
            for part_index, part in enumerate(content):
                as_object(f"{where}.content[{part_index}]", part)
        elif content is not None:
            _content(f"{where}.content", content)
    return value


def _content(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise wrong_type(name, value, "text, a list of parts or null")
    return value


def _texts(name: str, value: Any) -> tuple[str, ...]:
    """A text or a list of texts, each once, in their order."""
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(v, str) for v in listed):
        raise wrong_type(name, value, "text or a list of texts")
    return tuple(dict.fromkeys(storable(v.strip()) for v in listed if v.strip()))


def _translate(name: str, value: Any) -> Translate:
    """``{"to": …, "from": …}``; what else is in it is not read."""
    asked = as_object(name, value)
    source = asked.get("from")
    return Translate(
        to=() if asked.get("to") is None else _texts(f"{name}.to", asked["to"]),
        source=None if source is None else storable(as_text(f"{name}.from", source).strip()) or None,
    )


_FIELDS: Mapping[str, Callable[[str, Any], Any]] = {
    "prompt": as_text,
    "messages": _messages,
    "job_id": as_text,
    "correlation_id": as_text,
    "domain": as_text,
    "model": as_text,
    "role": as_text,
    "capability": as_text,
    "params": _params,
    "priority": as_whole_number,
    "deadline": as_text,
    "reply_to": as_text,
    "metadata": as_object,
    "ground": _texts,
    "query": as_text,
    "translate": _translate,
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


def _tasks_problem(given: Mapping[str, Any]) -> str | None:
    if "translate" not in given:
        return None
    if given.get("ground"):
        return "both translate and ground are given; a translation has no sources but its text"
    if not given["translate"].to:
        return "translate.to names no language; give one or more, such as ja or de"
    return None


def _priority_problem(priority: int) -> str | None:
    if PRIORITY_MIN <= priority <= PRIORITY_MAX:
        return None
    return f"priority is {shown(str(priority))}; allowed: {PRIORITY_MIN} to {PRIORITY_MAX}"


def _params_problem(params: Mapping[str, Any]) -> str | None:
    reserved = [key for key in RESERVED_PARAMS if key in params]
    return f"params holds {', '.join(reserved)}, which can't be set there" if reserved else None
