"""``foundry doctor --worker``: does one model server speak its dialect, and what follows for the configuration.

Belongs here: whom to examine, and what a person sees of it. Does not belong here: the statements and how they are tried
(``inference.conformance``), the rest of the examination (``doctor``).
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from model_foundry import config as configuration
from model_foundry.cli.output import console, errors, print_json
from model_foundry.errors import ConfigError
from model_foundry.inference.client import new_client
from model_foundry.inference.conformance import examine as conformance
from model_foundry.inference.conformance.examine import Examined
from model_foundry.inference.conformance.outcome import Verdict, excerpt
from model_foundry.inference.conformance.subject import Subject
from model_foundry.inference.target import WorkerTarget, bearer
from model_foundry.runtime import Foundry

MAX_CELL_CHARS = 110
_MARKS = {
    Verdict.HOLDS: ("✓", "green"),
    Verdict.FAILS: ("✗", "red"),
    Verdict.NOT_APPLICABLE: ("–", "dim"),
    Verdict.UNKNOWN: ("?", "yellow"),
}


@dataclass(frozen=True, slots=True)
class Whom:
    """The server to examine, as the command line names it. ``worker`` is a URL, or a name of the configuration."""

    worker: str
    api: Literal["openai", "ollama"] | None = None
    model: str | None = None
    api_key_env: str | None = None
    config: Path | None = None


def examine_worker(whom: Whom, *, as_json: bool) -> bool:
    """Examines one server and prints what was found; whether everything that is required holds.

    Raises:
        FoundryError: when there is no such worker, or it can't be examined.
    """
    subject, found = asyncio.run(_examine(whom, show=not as_json))
    entry = conformance.worker_entry(subject, found, api_key_env=whom.api_key_env)
    good = not any(e.bad for e in found)
    if as_json:
        print_json(_as_json(subject, found, entry) | {"good": good})
        return good
    state = subject.state
    console.print(f"{subject.root}: {state.kind}, {state.version or 'version unknown'}, {subject.api}", markup=False)
    console.print(f"asked for {subject.model}\n", markup=False)
    _print_table(found)
    _print_entry(entry)
    return good


async def _examine(whom: Whom, *, show: bool) -> tuple[Subject, list[Examined]]:
    columns = (TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn())
    async with new_client() as client:
        if re.match(r"https?://", whom.worker):
            headers = bearer(configuration.secret(whom.api_key_env, None, key="api_key"))
            api = whom.api or await conformance.find_api(client, whom.worker, headers)
            target = WorkerTarget("", whom.worker, api, headers=headers)
            subject = await conformance.meet(client, target, whom.model)
        else:
            target, model = _configured(whom)
            subject = await conformance.meet(client, target, model, slots_declared=True)
        found: list[Examined] = []
        statements = conformance.statements_for(subject.api)
        with Progress(*columns, console=errors, transient=True, disable=not show) as progress:
            task = progress.add_task(statements[0].id, total=len(statements))
            async for examined in conformance.examine(subject):
                found.append(examined)
                coming = statements[len(found)].id if len(found) < len(statements) else ""
                progress.update(task, advance=1, description=f"{coming:<18}")
    return subject, found


def _configured(whom: Whom) -> tuple[WorkerTarget, str | None]:
    """A worker of the configuration, and the server's name of the model to ask for."""
    foundry = Foundry.load(whom.config)
    worker = foundry.config.workers.get(whom.worker)
    if worker is None:
        raise ConfigError(
            f"no worker {whom.worker!r} in {foundry.config_file}; allowed: {', '.join(foundry.config.workers)}",
            hint="Name one of them, or give a URL: foundry doctor --worker http://host:port",
        )
    if whom.api is not None:
        worker = worker.model_copy(update={"api": whom.api})
    if whom.api_key_env is not None:
        worker = worker.model_copy(update={"api_key_env": whom.api_key_env, "api_key_file": None})
    names = worker.models or {}
    model = names.get(whom.model, whom.model) if whom.model else next(iter(names.values()), None)
    return foundry.worker_target(whom.worker, worker), model


def _print_table(found: list[Examined]) -> None:
    table = Table(header_style="bold", pad_edge=False, box=None)
    table.add_column("")
    table.add_column("statement", ratio=2, overflow="fold")
    table.add_column("seen, and what it means when it does not hold", ratio=3, overflow="fold")
    for examined in found:
        statement, outcome = examined.statement, examined.outcome
        mark, style = _MARKS[outcome.verdict]
        title = Text(statement.title, style="bold red" if examined.bad else "")
        title.append(" required" if statement.required else "", style="dim")
        seen = Text(
            excerpt(outcome.evidence, MAX_CELL_CHARS), style="dim" if outcome.verdict is not Verdict.FAILS else ""
        )
        if outcome.verdict is Verdict.FAILS:
            seen.append(f"\n→ {statement.consequence}", style="red" if examined.bad else "yellow")
        table.add_row(Text(mark, style=style), title, seen)
    console.print(table)
    counts = {v: sum(e.outcome.verdict is v for e in found) for v in Verdict}
    console.print("\n" + ", ".join(f"{_MARKS[v][0]} {v} {n}" for v, n in counts.items() if n), markup=False)
    bad = [e.statement.id for e in found if e.bad]
    if bad:
        console.print(f"[red]Required, and does not hold: {', '.join(bad)}. This server can't be used as it is.[/]")


def _print_entry(entry: dict[str, Any]) -> None:
    console.print("\nFor the configuration:\n", markup=False)
    # not through the console, which would fold long lines
    print(yaml.safe_dump({"workers": entry}, sort_keys=False, allow_unicode=True, width=10_000), end="", flush=True)


def _as_json(subject: Subject, found: list[Examined], entry: dict[str, Any]) -> dict[str, Any]:
    return {
        "url": subject.root,
        "api": subject.api,
        "kind": subject.state.kind,
        "version": subject.state.version,
        "model": subject.model,
        "statements": [
            {
                "id": e.statement.id,
                "title": e.statement.title,
                "required": e.statement.required,
                "verdict": e.outcome.verdict.value,
                "evidence": e.outcome.evidence,
                "consequence": e.statement.consequence if e.outcome.verdict is Verdict.FAILS else None,
            }
            for e in found
        ],
        "workers": entry,
    }
