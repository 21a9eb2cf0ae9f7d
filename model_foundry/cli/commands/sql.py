"""``foundry sql``: the lake, read-only, from the command line."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import duckdb
import typer

from model_foundry.cli.output import (
    ConfigOption,
    JsonOption,
    console,
    errors,
    print_json,
    print_table,
    rows_table,
)
from model_foundry.runtime import Foundry
from model_foundry.warehouse.sql_files import sql_folder, sql_text


def sql(
    query: Annotated[
        str | None, typer.Argument(help="SQL; '-' reads it from standard input. Left out: a prompt.")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read the SQL from a file.", exists=True)] = None,
    example: Annotated[str | None, typer.Option("--example", "-e", help="Run a worked example by name.")] = None,
    examples: Annotated[bool, typer.Option("--examples", help="List the worked examples and the views.")] = False,
    at: Annotated[
        str | None, typer.Option("--at", help="The lake as it was: a time (2026-12-01T09:00Z) or a snapshot's number.")
    ] = None,
    snapshots: Annotated[bool, typer.Option("--snapshots", help="List the snapshots that --at can name.")] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Run SQL on the lake, read-only, or open a prompt. Readers never wait for writers."""
    foundry = Foundry.load(config)
    when = _moment(at)
    if snapshots:
        query = sql_text("show", "lake_snapshots")
    if examples:
        _list_examples(as_json)
        return
    if example is not None:
        path = sql_folder() / "queries" / f"{example}.sql"
        if not path.is_file():
            allowed = ", ".join(sorted(p.stem for p in path.parent.glob("*.sql")))
            raise typer.BadParameter(f"no example {example!r}; allowed: {allowed}", param_hint="--example")
        query = path.read_text(encoding="utf-8")
    elif file is not None:
        query = file.read_text(encoding="utf-8")
    elif query == "-":
        query = typer.get_text_stream("stdin").read()
    if query is None:
        _prompt(foundry, when)
    elif not _run(foundry, query, as_json, when):
        raise typer.Exit(1)


def _moment(text: str | None) -> datetime | int | None:
    """What ``--at`` names."""
    if text is None:
        return None
    if text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        allowed = "a time as 2026-12-01T09:00Z, or a snapshot's number (foundry sql --snapshots)"
        raise typer.BadParameter(f"{text!r}; allowed: {allowed}", param_hint="--at") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _run(foundry: Foundry, query: str, as_json: bool, at: datetime | int | None = None) -> bool:
    """Runs one query and prints its rows; False after a query that DuckDB refused, whose words are printed."""
    try:
        rows = foundry.warehouse.rows(query, at=at)
    except duckdb.Error as error:
        errors.print(f"[bold red]error:[/] {str(error).replace('[', chr(92) + '[')}")
        return False
    if as_json:
        print_json(rows)
    else:
        rows_table("", rows, note=f"{len(rows)} row{'' if len(rows) == 1 else 's'}")
    return True


def _prompt(foundry: Foundry, at: datetime | int | None) -> None:
    """A prompt: statements end with a semicolon; each one sees the newest snapshot."""
    import readline  # noqa: F401 (line editing and history for input())

    console.print("The lake, read-only. End a statement with ';'. Ctrl-D leaves. Try: from domain_latency;")
    lines: list[str] = []
    while True:
        try:
            lines.append(input("foundry> " if not lines else "    ...> "))
        except EOFError:
            console.print()
            return
        except KeyboardInterrupt:
            console.print()
            lines.clear()
            continue
        if lines[-1].rstrip().endswith(";"):
            _run(foundry, "\n".join(lines), as_json=False, at=at)
            lines.clear()


def _list_examples(as_json: bool) -> None:
    rows = [
        (kind, path.stem, _question(path))
        for kind, folder in (("view", "views"), ("macro", "macros"), ("example", "queries"))
        for path in sorted((sql_folder() / folder).glob("*.sql"))
    ]
    if as_json:
        print_json([{"kind": kind, "name": name, "question": question} for kind, name, question in rows])
    else:
        print_table("", ["kind", "name", "the question it answers"], rows)


def _question(path: Path) -> str:
    """The comment at the head of an SQL file."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("--"):
            break
        lines.append(line.removeprefix("--").strip())
    return " ".join(lines)
