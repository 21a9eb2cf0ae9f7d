"""Traces: recorded arrivals with token counts, and prompts of such lengths.

Belongs here: reading a trace, a suite that stands in for one. Does not belong here: sending at those times
(the sweep), telling the forms apart (``importers``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, get_args

from model_foundry.benchmarks.entries import Problem, Unfit, json_entries, nothing_usable, table_rows
from model_foundry.benchmarks.suite import Suite, SuitePrompt

TraceForm = Literal["azure-trace", "burstgpt-trace", "mooncake-trace"]
TRACES: Final[tuple[TraceForm, ...]] = get_args(TraceForm)
GO_ON = "\n\nGo on with this text."
GO_ON_TOKENS = 7


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of a trace.

    Attributes:
        at_s: seconds after the first one.
        prompt_tokens: of its prompt.
        completion_tokens: of its answer.
    """

    at_s: float
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Trace:
    """Recorded arrivals, by time.

    Attributes:
        form: as it was read.
        arrivals: at least one.
        problems: what was not taken.
    """

    form: TraceForm
    arrivals: list[Arrival]
    problems: list[Problem] = field(default_factory=list)


def parse_trace(data: bytes, form: TraceForm, file: Path) -> Trace:
    """A trace from its bytes.

    Raises:
        ConfigError: when no line can be used.
    """
    problems: list[Problem] = []
    time, prompt, answer, seconds = _COLUMNS[form]
    rows: Iterable[tuple[int, Any]] = json_entries(data) if form == "mooncake-trace" else table_rows(data, str(file))
    found: list[tuple[float, int, int]] = []
    for line, row in rows:
        if isinstance(row, Problem):
            problems.append(row)
            continue
        try:
            if not isinstance(row, dict):
                raise Unfit(f"holds {type(row).__name__}; allowed: an object")
            lower = {str(k).lower(): v for k, v in row.items()}
            missing = [n for n in (time, prompt, answer) if n.lower() not in lower]
            if missing:
                raise Unfit(f"{missing[0]} is missing")
            found.append(
                (
                    seconds(lower[time.lower()]),
                    _tokens(lower[prompt.lower()], prompt),
                    _tokens(lower[answer.lower()], answer),
                )
            )
        except Unfit as error:
            problems.append(Problem(line, str(error)))
    if not found:
        raise nothing_usable(file, form, problems)
    found.sort()
    start = found[0][0]
    return Trace(form, [Arrival(round(at - start, 6), p, c) for at, p, c in found], problems)


def _tokens(value: Any, name: str) -> int:
    number = _plain_number(value)
    if number != int(number) or not 1 <= number <= 10_000_000:
        raise Unfit(f"{name} is {str(value)[:40]!r}; allowed: a whole number from 1 to 10000000")
    return int(number)


def _plain_number(value: Any) -> float:
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise Unfit(f"{str(value)[:40]!r} is no number")
    return number


def _epoch_s(value: Any) -> float:
    """A moment such as ``2023-11-16 18:17:03.9799600``: seconds since 1970, below a microsecond cut off."""
    text = re.sub(r"(\.\d{6})\d+", r"\1", str(value).strip())
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Unfit(f"TIMESTAMP is {text[:40]!r}; allowed: such as 2023-11-16 18:17:03.979960") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


_COLUMNS: Final[dict[TraceForm, tuple[str, str, str, Callable[[Any], float]]]] = {
    "azure-trace": ("TIMESTAMP", "ContextTokens", "GeneratedTokens", _epoch_s),
    "burstgpt-trace": ("Timestamp", "Request tokens", "Response tokens", _plain_number),
    "mooncake-trace": ("timestamp", "input_length", "output_length", lambda ms: _plain_number(ms) / 1000),
}
"""The names of arrival, prompt's and answer's length, and the arrival's seconds."""


def trace_suite(
    trace: Trace, name: str, *, limit: int | None = None, domain: str = "general", seed: int = 0
) -> dict[str, Any]:
    """A suite of prompts of about the trace's lengths, as its file holds it.

    Each is text about nothing from a seed of its own, so no two share a prefix, and asks for at most as many tokens as
    the trace's answer had. When each one came is in its metadata; :func:`arrivals` reads it back.
    """
    prompts = [
        {
            "id": f"{n:06d}",
            "domain": domain,
            "turns": [f"{{{{filler tokens={max(1, a.prompt_tokens - GO_ON_TOKENS)} seed={seed + n}}}}}{GO_ON}"],
            "params": {"max_tokens": a.completion_tokens},
            "metadata": {
                "at_s": a.at_s,
                "prompt_tokens": a.prompt_tokens,
                "completion_tokens": a.completion_tokens,
            },
        }
        for n, a in enumerate(trace.arrivals[:limit], start=1)
    ]
    return {
        "name": name,
        "title": "Requests of recorded lengths and arrivals",
        "description": "The texts mean nothing: this measures time, not quality.",
        "params": {"temperature": 0},
        "texts": {},
        "prompts": prompts,
    }


def arrivals(suite: Suite) -> list[Arrival]:
    """When the prompts of a suite made from a trace came; empty when it is none."""
    return arrivals_of(suite.prompts)


def arrivals_of(prompts: Sequence[SuitePrompt]) -> list[Arrival]:
    """As :func:`arrivals`, of some of its prompts."""
    found = []
    for prompt in prompts:
        try:
            m = prompt.metadata
            found.append(Arrival(float(m["at_s"]), int(m["prompt_tokens"]), int(m["completion_tokens"])))
        except (KeyError, TypeError, ValueError):
            return []
    return found
