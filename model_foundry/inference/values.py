"""What servers write, read so that nothing they write breaks anything: JSON, numbers, counts, texts.

Belongs here: the leniencies that both dialects share. Does not belong here: which field means what (``openai``,
``ollama``). Pure. What can't be read is None: unknown, which is not zero.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

MAX_COUNT = 2**53
"""No server has counted so far; beyond it JSON numbers are not exact either."""
_MAX_DIGITS = 400
_REASONING = ("thinking", "reasoning")
_DECIMAL = re.compile(r"\s*\d{1,30}(\.\d{1,30})?([eE][+-]?\d{1,3})?\s*", re.ASCII)


def loads(text: str) -> Any:
    """JSON from a server. NaN and Infinity, which JSON does not have, are read as null, and so is ``1e999``.

    Raises:
        ValueError: when it is not JSON.
    """
    try:
        return json.loads(text, parse_constant=lambda _: None, parse_float=_finite, parse_int=_whole)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None


def number(value: Any) -> float | None:
    """A finite number at or above zero as the server gave it, some write it as a text; else None."""
    if isinstance(value, str):
        value = float(value) if _DECIMAL.fullmatch(value) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) and found >= 0 else None


def count(value: Any) -> int | None:
    """A count as the server gave it; half a token is none, so it is unknown too."""
    found = number(value)
    return None if found is None or found > MAX_COUNT or not found.is_integer() else int(found)


def per_second(tokens: float | None, seconds: float | None) -> float | None:
    """Tokens a second; None when either is unknown, no time has passed, or nothing was there to do."""
    rate = tokens / seconds if tokens and seconds else None
    return rate if rate is not None and math.isfinite(rate) else None


def text_of(content: Any) -> str:
    """The text in a message's content: text itself, or the text parts of a part or a list of parts."""
    parts = [p for p in _parts(content) if isinstance(p, str) or p.get("type") not in _REASONING]
    return "".join(p if isinstance(p, str) else first_text(p.get("text"), p.get("refusal")) for p in parts)


def reasoning_of(content: Any) -> str:
    """The reasoning among a content's parts, such as Mistral's ``{"type": "thinking", "thinking": text or parts}``."""
    parts = [p for p in _parts(content) if isinstance(p, dict) and p.get("type") in _REASONING]
    return "".join(text_of(p.get("thinking")) or first_text(p.get("text"), p.get("reasoning")) for p in parts)


def first_text(*values: Any) -> str:
    """The first text that is not empty: servers that give one thing under two names are not counted twice."""
    return next((v for v in values if isinstance(v, str) and v), "")


def bounded(value: Any, max_bytes: int) -> tuple[Any, bool]:
    """The value when its JSON is within the bound, else an object's short parts; and whether that is all of it."""
    if size_of(value) <= max_bytes:
        return value, True
    kept: dict[str, Any] = {}
    for key, item in value.items() if isinstance(value, dict) else ():
        short = bounded(item, 8 * 1024)[0] if isinstance(item, dict) else item
        if len(kept) < 64 and len(key) <= 64 and size_of(short) <= 8 * 1024:
            kept[key] = short
    return kept, False


def size_of(value: Any) -> int:
    """Bytes of a value's JSON, near enough for a bound."""
    try:
        return len(json.dumps(value, ensure_ascii=True))
    except RecursionError:
        return 2**62


def _parts(content: Any) -> Iterator[Any]:
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str | dict):
            yield part


def _finite(text: str) -> float | None:
    found = float(text)
    return found if math.isfinite(found) else None


def _whole(text: str) -> int | None:
    return int(text) if len(text) <= _MAX_DIGITS else None
