"""A suite: prompts by domain, with checks and references. Reads files, asks nobody.

Belongs here: what a suite is, reading one, its digest. Does not belong here: other forms of files (``importers``),
whether an answer passes (``checks``).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from model_foundry.envelopes.prompts import RESERVED_PARAMS

SuiteName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=64)]
"""Fit for a file's name and a partition key."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Check(_Part):
    """What an answer must be. ``kind`` says how ``value`` is meant; see ``checks``.

    Attributes:
        kind: of the check.
        value: what is expected, as the kind needs it.
        turn: which turn's answer, from 0; the last one when left out.
        options: further settings of the kind, such as a tolerance.
    """

    kind: Literal["exact", "contains", "regex", "numeric", "choice", "json_schema", "python", "tool_call", "length"]
    value: Any = None
    turn: int | None = Field(None, ge=0)
    options: dict[str, Any] = Field(default_factory=dict)


class SuitePrompt(_Part):
    """One prompt of one or more turns: each turn is a user's message, sent with the conversation before it.

    Attributes:
        id: unique in its suite.
        domain: what it is about.
        turns: the user's messages.
        system: a system message before them.
        language: in which it is written, ISO 639-1.
        reference: by turn, what a good answer says; for a judge.
        checks: deterministic ones.
        params: sent with it, over the suite's.
        metadata: whatever its source said of it.
    """

    id: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    domain: str
    turns: list[str] = Field(min_length=1)
    system: str | None = None
    language: str | None = None
    reference: list[str | None] = Field(default_factory=list)
    checks: list[Check] = Field(default_factory=list)
    params: dict[str, Any] = Field(default_factory=dict)
    metadata: dict[str, Any] = Field(default_factory=dict)

    @field_validator("domain")
    @classmethod
    def _domain_is_a_name(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", value):
            raise ValueError(f"is {value!r}; allowed: letters, digits, dot, underscore, hyphen")
        return value

    @field_validator("params")
    @classmethod
    def _params_are_allowed(cls, value: dict[str, Any]) -> dict[str, Any]:
        return _allowed_params(value)

    @model_validator(mode="after")
    def _turns_and_what_belongs_to_them(self) -> Self:
        if blank := [n for n, turn in enumerate(self.turns) if not turn.strip()]:
            raise ValueError(f"turns: turn {blank[0]} is blank; allowed: a user's message")
        if len(self.reference) > len(self.turns):
            raise ValueError(
                f"reference has {len(self.reference)} entries for {len(self.turns)} turns; allowed: one a turn, or null"
            )
        for n, check in enumerate(self.checks):
            if check.turn is not None and check.turn >= len(self.turns):
                raise ValueError(f"checks[{n}].turn is {check.turn}; allowed: 0 to {len(self.turns) - 1}")
        return self

    def checks_of(self, turn: int) -> list[Check]:
        """The checks of one turn's answer, from 0."""
        last = len(self.turns) - 1
        return [c for c in self.checks if turn == (last if c.turn is None else c.turn)]

    def reference_of(self, turn: int) -> str | None:
        """What a good answer to one turn says, from 0; None when the prompt does not say."""
        return self.reference[turn] if turn < len(self.reference) else None


class Suite(_Part):
    """A set of prompts.

    Attributes:
        name: unique; a partition key.
        title: one line for people.
        description: what it shows, and what it does not.
        source: where it is from.
        license: of the prompts.
        params: sent with every prompt: max_tokens, temperature, seed, …
        prompts: in the file's order.
    """

    name: SuiteName
    title: str = ""
    description: str = ""
    source: str = ""
    license: str = ""
    params: dict[str, Any] = Field(default_factory=dict)
    prompts: list[SuitePrompt] = Field(min_length=1)

    @field_validator("params")
    @classmethod
    def _params_are_allowed(cls, value: dict[str, Any]) -> dict[str, Any]:
        return _allowed_params(value)

    @model_validator(mode="after")
    def _ids_are_unique(self) -> Self:
        twice = [identity for identity, n in Counter(p.id for p in self.prompts).items() if n > 1]
        if twice:
            raise ValueError(f"prompts: more than one has the id {', '.join(map(repr, twice))}; allowed: each once")
        return self

    @property
    def digest(self) -> str:
        """Twelve hex digits that change with anything that changes what is asked or how it is checked."""
        part = self.model_dump(mode="json", include={"params", "prompts"})
        return hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()[:12]


def _allowed_params(params: dict[str, Any]) -> dict[str, Any]:
    if reserved := [key for key in RESERVED_PARAMS if key in params]:
        raise ValueError(f"holds {', '.join(reserved)}, which the sweep sets; allowed: any other key")
    return params
