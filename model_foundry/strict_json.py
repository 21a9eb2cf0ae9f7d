"""JSON as RFC 8259 writes it: what the standard library reads beyond the standard is refused here.

Belongs here: bytes to Python values, the reason when that can't be, and values to canonical text. Does not belong here:
what the values mean (``envelopes``).

Python's ``json`` is the parser; around it stand the checks that it lacks. Refused, each with a reason a sender can act
on: NaN and Infinity, raw control characters in strings, lone surrogates (escaped ones too), duplicate keys, invalid
UTF-8, a byte order mark (RFC 8259, 8.1: senders MUST NOT add one; a parser may refuse it, and this one does), numbers
that a double can't hold (RFC 8259, 6: a parser may set limits) and more levels than asked for.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

import orjson

MAX_LEVELS = 64

_BRACKETS_AND_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
"""A string, so that brackets in it don't count, or a bracket. Possessive, and a string may stay open: linear time."""

_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

_MAX_INTEGER_DIGITS = 308
"""Every integer of so many digits fits a double; more digits are counted and refused without being converted."""


class NotJson(ValueError):  # noqa: N818 (says what the bytes are)
    """The bytes are not JSON; the message says why, and where when that is known."""


def loads(data: bytes, *, max_levels: int = MAX_LEVELS) -> Any:
    """The value of a JSON text.

    Args:
        data: the whole text, UTF-8.
        max_levels: arrays and objects inside one another at most; a text without any has none.

    Returns:
        ``dict``, ``list``, ``str``, ``int``, ``float`` (always finite), ``bool`` or ``None``. Every ``str``, keys too,
        can be encoded as UTF-8.

    Raises:
        NotJson: for anything else, in time linear in the length.
    """
    if data.startswith(b"\xef\xbb\xbf"):
        raise NotJson("starts with a byte order mark, which RFC 8259 forbids; send UTF-8 without one")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotJson(f"not UTF-8: {error.reason} at byte {error.start}") from None
    if not text.strip(" \t\r\n"):
        raise NotJson("empty")
    _check_levels(data, max_levels)
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" at")  # "Unterminated string starting at"
        raise NotJson(f"{what} at line {error.lineno}, column {error.colno}") from None
    if _ESCAPED_SURROGATE.search(data):
        _check_surrogates(value)
    return value


def canonical(value: Any) -> str:
    """The value as JSON: the same for equal values. Keys sorted, no blanks, characters as they are.

    Args:
        value: what ``loads`` may give.
    """
    if not value and isinstance(value, dict):  # most extras are
        return "{}"
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:  # a whole number of more than 64 bits
        return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _check_levels(data: bytes, max_levels: int) -> None:
    """Counts brackets before anything recursive sees them."""
    if data.count(b"[") + data.count(b"{") <= max_levels:
        return
    level = 0
    for match in _BRACKETS_AND_STRINGS.finditer(data):
        first = data[match.start()]
        if first in b"[{":
            level += 1
            if level > max_levels:
                raise NotJson(f"more than {max_levels} levels at byte {match.start()}")
        elif first in b"]}":
            level -= 1


def _check_surrogates(value: Any) -> None:
    """Pairs have become one character by now; what is left of surrogates can't be written as UTF-8."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise NotJson(f"lone surrogate \\u{ord(error.object[error.start]):04x}, which is no character") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise NotJson(f"key {_shown(twice)} stands twice in one object")
    return result


def _refuse_constant(name: str) -> NoReturn:
    raise NotJson(f"{name} is no JSON number")


def _float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise NotJson(f"number {_shown(text)} is beyond what a double holds")
    return value


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > _MAX_INTEGER_DIGITS:
        raise NotJson(f"integer of {len(text.lstrip('-'))} digits; at most {_MAX_INTEGER_DIGITS} are read")
    return int(text)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=_float, parse_int=_integer
)
"""Made once: that is a third of the time of a small message."""


def _shown(text: str) -> str:
    """Quoted and short; ``repr`` escapes what can't be printed or stored, surrogates among it."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
