"""What every message has in common: headers, ids, times, and fields by type.

Belongs here: reading one value, or saying what was found and what is allowed. Does not belong here: which fields a
message has (``prompts``, ``events``).
"""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from model_foundry.records import StreamMessage

MAX_ID_BYTES = 512


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
    if _USUAL.fullmatch(text):
        with contextlib.suppress(ValueError):  # said below, in our words
            return datetime.fromisoformat(text), ()
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(f"{shown(text)} is no RFC 3339 time such as 2026-12-01T12:00:00Z")
    zone, is_leap = match["zone"], match["second"] == "60"
    offset = timedelta(0)
    if zone and zone not in "Zz":
        hours, minutes = int(zone[1:3]), int(zone[4:6])
        if hours > 23 or minutes > 59:
            raise ValueError(f"{shown(text)} has an offset beyond 23:59")
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
        raise ValueError(f"{shown(text)} is no time: {error}") from None
    return time, () if zone else ("no zone; read as UTC",)


_USUAL = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(?:\.[0-9]{3}|\.[0-9]{6})?Z")
"""What nearly every sender writes, and the standard library reads the same way, many times sooner."""

_RFC3339 = re.compile(
    r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})[Tt ]"
    r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]+))?"
    r"(?P<zone>[Zz]|[+-][0-9]{2}:[0-9]{2})?"
)


class UnreadableError(Exception):
    """Why this message is a reject."""


def checked_size(message: StreamMessage, max_message_bytes: int) -> bytes:
    """The message's body, once it is not too long to be read."""
    if len(message.data) > max_message_bytes:
        raise UnreadableError(
            f"{len(message.data)} bytes; at most {max_message_bytes} are read (limits.max_message_bytes)"
        )
    return message.data


def header(message: StreamMessage, name: str) -> str | None:
    """The first header of that name, in any case of letters."""
    found = next((value for key, value in message.headers if key.lower() == name.lower()), None)
    return None if found is None else without_nul(name, storable(found))


def without_nul(name: str, text: str) -> str:
    """The text. The lake cuts what it looks for at a NUL, and would find another's rows, or none."""
    if "\0" in text:
        raise UnreadableError(f"{name} holds a NUL character, which no id or name may")
    return text


def id_of(name: str, value: str | None) -> str | None:
    """The id or name as it is; None when absent or empty."""
    if value and len(without_nul(name, value).encode()) > MAX_ID_BYTES:
        raise UnreadableError(f"{name} has {len(value.encode())} bytes; at most {MAX_ID_BYTES} are read")
    return value or None


def given_id(message: StreamMessage, name: str, value: str | None) -> str | None:
    """The id that a message brings, which may not be the default id of another: that one would be its duplicate."""
    found = id_of(name, value)
    if found and found.startswith(f"{message.stream}-") and found != default_id(message):
        created, dash, seq = found[len(message.stream) + 1 :].partition("-")
        if dash and created.isdecimal() and seq.isdecimal():
            raise UnreadableError(f"{name} {shown(found)} is what another message of the stream is called by default")
    return found


def default_id(message: StreamMessage) -> str:
    """The id of a message that brings none."""
    return f"{message.stream}-{message.stream_created}-{message.seq}"


def time_of(name: str, text: str) -> tuple[datetime, list[str]]:
    """The time of a field, with notes on what was assumed."""
    try:
        time, notes = parse_rfc3339(text)
    except ValueError as error:
        raise UnreadableError(f"{name}: {error}") from None
    return time, [f"{name} has {note}" for note in notes]


# -- fields by type: each gives the value back, or says what it found and what is allowed ---------------------------


def as_text(name: str, value: Any) -> str:
    """Text."""
    if not isinstance(value, str):
        raise wrong_type(name, value, "text")
    return value


def as_object(name: str, value: Any) -> dict[str, Any]:
    """An object."""
    if not isinstance(value, dict):
        raise wrong_type(name, value, "an object")
    return value


def as_number(name: str, value: Any) -> int | float:
    """A number, which ``true`` is not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(name, value, "a number")
    return value


def as_whole_number(name: str, value: Any) -> int:
    """A whole number, written ``1`` or ``1.0``."""
    number = as_number(name, value)
    if isinstance(number, float) and not number.is_integer():
        raise UnreadableError(f"{name} is {number!r}; allowed: a whole number")
    return int(number)


# -- words ---------------------------------------------------------------------------------------------------------


def wrong_type(name: str, value: Any, allowed: str) -> UnreadableError:
    """The error of a value of another type."""
    return UnreadableError(f"{name} is {json_type(value)}; allowed: {allowed}")


def json_type(value: Any) -> str:
    """What a JSON value is, in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "text"
    if isinstance(value, int | float):
        return "a number"
    return "a list" if isinstance(value, list) else "an object"


def storable(text: str) -> str:
    """The text with what UTF-8 can't hold (bytes of a header or subject that were none) written as ``\\udcff``."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def shown(text: str) -> str:
    """Quoted and short."""
    return repr(text if len(text) <= 80 else text[:77] + "...")
