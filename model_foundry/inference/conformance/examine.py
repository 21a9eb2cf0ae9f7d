"""All statements on one server, one after the other, and the configuration entry that follows from it.

Belongs here: finding out the dialect and the model, the order, and what an error of the connection means as an outcome.
Does not belong here: what a person sees (``cli``).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from model_foundry.errors import ConfigError, FoundryError
from model_foundry.inference.conformance.outcome import Api, Outcome, Statement, Verdict, excerpt, fails, unknown
from model_foundry.inference.conformance.statements import STATEMENTS
from model_foundry.inference.conformance.subject import PROBE_S, Subject
from model_foundry.inference.probe import probe
from model_foundry.inference.target import WorkerTarget

STATEMENT_S = 330.0
"""For one statement, all its requests together; the first answer, which may load the model, has most of it."""
ANSWERS = "answers"
"""The statement without which those after it can't be tried."""


class ServerUnreachableError(FoundryError):
    """The server that is to be examined does not answer."""


@dataclass(frozen=True, slots=True)
class Examined:
    """A statement, and what came of it."""

    statement: Statement
    outcome: Outcome

    @property
    def bad(self) -> bool:
        """Whether something that is required does not hold."""
        return self.statement.required and self.outcome.verdict is Verdict.FAILS


async def find_api(client: httpx.AsyncClient, url: str, headers: Mapping[str, str]) -> Api:
    """The dialect of an unknown server: Ollama's own when it says an Ollama version, else OpenAI's."""
    found = await probe(client, WorkerTarget("it", url, "ollama", headers=headers), PROBE_S)
    return "ollama" if found.ok and found.version else "openai"


async def meet(
    client: httpx.AsyncClient, target: WorkerTarget, model: str | None, *, slots_declared: bool = False
) -> Subject:
    """Looks at the server and chooses the model: the one named, else the first in memory, else the first listed.

    Raises:
        ServerUnreachableError: when nothing answers there.
        ConfigError: when no model is named and the server lists none.
    """
    state = await probe(client, target, PROBE_S)
    if not state.reachable:
        raise ServerUnreachableError(state.detail, hint="Start the server, or correct the URL; is the port open?")
    if state.loading:
        raise ServerUnreachableError(state.detail, hint="It still loads its model; wait and ask again.")
    names = [*state.loaded, *state.models]
    if model is None and not names:
        raise ConfigError(
            f"{target.url} lists no models to try: {state.detail}",
            hint="Name one with --model, and check --api and --api-key-env.",
        )
    return Subject(client, target, model or names[0], state, slots_declared)


def statements_for(api: Api, statements: Sequence[Statement] = STATEMENTS) -> list[Statement]:
    """The statements about a dialect."""
    return [s for s in statements if api in s.apis]


async def examine(subject: Subject, statements: Sequence[Statement] = STATEMENTS) -> AsyncIterator[Examined]:
    """Tries every statement about the subject's dialect, in order. Nothing that the server does is an exception."""
    silent = False
    for statement in statements_for(subject.api, statements):
        if silent:
            yield Examined(statement, unknown("not tried, because it answers no chat"))
            continue
        outcome = await _tried(subject, statement)
        silent = statement.id == ANSWERS and outcome.verdict is not Verdict.HOLDS
        yield Examined(statement, outcome)


async def _tried(subject: Subject, statement: Statement) -> Outcome:
    """An error of the connection does not speak for a required statement; for another one it tells nothing."""
    judged = fails if statement.required else unknown
    try:
        async with asyncio.timeout(STATEMENT_S):
            return await statement.check(subject)
    except TimeoutError:
        return judged("no answer in time")
    except (httpx.LocalProtocolError, UnicodeEncodeError):  # their texts may hold the key
        return judged("the headers can't be sent; check the key")
    except httpx.HTTPError as error:
        return judged(f"the connection failed: {excerpt(str(error)) or type(error).__name__}")


def worker_entry(subject: Subject, found: Sequence[Examined], *, api_key_env: str | None = None) -> dict[str, Any]:
    """An entry for ``workers:`` in the configuration, with what was found out: name, then its keys.

    ``slots`` is the user's word, else the server's; else 2 when two requests were answered at once, else 1.
    """
    verdicts = {e.statement.id: e.outcome.verdict for e in found}
    slots = subject.slots or (2 if verdicts.get("parallel") is Verdict.HOLDS else 1)
    entry: dict[str, Any] = {"url": subject.root, "api": subject.api}
    if subject.state.kind == "vllm" or any(s.vram_bytes for s in subject.state.served):
        entry["supports"] = ["gpu_inference"]
    entry["slots"] = slots
    entry["models"] = subject.state.models or [subject.model]
    if api_key_env:
        entry["api_key_env"] = api_key_env
    host = urlsplit(subject.root).hostname or "worker"
    name = subject.target.name or re.sub(r"[^A-Za-z0-9._-]+|^[^A-Za-z0-9]+", "-", host).strip("-")[:64]
    return {name or "worker": entry}
