"""What is stated of a server, and what came of trying it.

Belongs here: the types, and shortening evidence. Does not belong here: the statements themselves (``statements``), how
they are tried (``checks``). Pure.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from model_foundry.text import well_formed

if TYPE_CHECKING:
    from model_foundry.inference.conformance.subject import Subject

Api = Literal["openai", "ollama"]
BOTH: frozenset[Api] = frozenset(("openai", "ollama"))
OPENAI: frozenset[Api] = frozenset(("openai",))
OLLAMA: frozenset[Api] = frozenset(("ollama",))

MAX_EVIDENCE_CHARS = 160


class Verdict(StrEnum):
    """What came of a statement."""

    HOLDS = "holds"
    FAILS = "does not hold"
    NOT_APPLICABLE = "not applicable"
    UNKNOWN = "could not be told"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A verdict, and what it rests on: a short excerpt, or figures with their units."""

    verdict: Verdict
    evidence: str


Check = Callable[["Subject"], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class Statement:
    """Something that a server of a dialect is expected to do.

    Attributes:
        id: short and stable, for scripts.
        title: the statement, as a sentence.
        apis: the dialects it is about.
        required: whether this project can't work with a server where it does not hold.
        consequence: what it means for the user when it does not hold.
        check: tries it on a live server. What it raises of ``httpx`` or ``TimeoutError`` is an outcome too, see
            ``examine``.
    """

    id: str
    title: str
    apis: frozenset[Api]
    required: bool
    consequence: str
    check: Check


def excerpt(text: str, chars: int = MAX_EVIDENCE_CHARS) -> str:
    """A text on one line, well-formed, cut with an ellipsis."""
    line = " ".join(well_formed(text).split())
    return line if len(line) <= chars else line[: chars - 1] + "…"


def holds(evidence: str) -> Outcome:
    """It holds."""
    return Outcome(Verdict.HOLDS, excerpt(evidence))


def fails(evidence: str) -> Outcome:
    """It does not hold."""
    return Outcome(Verdict.FAILS, excerpt(evidence))


def not_applicable(evidence: str) -> Outcome:
    """It is not about this server."""
    return Outcome(Verdict.NOT_APPLICABLE, excerpt(evidence))


def unknown(evidence: str) -> Outcome:
    """It could not be told."""
    return Outcome(Verdict.UNKNOWN, excerpt(evidence))


def judged(good: bool, evidence: str) -> Outcome:
    """It holds, or it does not."""
    return holds(evidence) if good else fails(evidence)
