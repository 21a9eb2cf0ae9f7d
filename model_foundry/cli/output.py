"""What the commands print: tables that fit 80 columns, JSON for scripts, progress.

Belongs here: form, and reading what a person gives as a file. Does not belong here: what is in a table.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from model_foundry.warehouse.engine import Rows

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", help="The configuration file [default: $FOUNDRY_CONFIG, else foundry.yaml here or above]."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


def print_json(value: Any) -> None:
    """Prints a value as JSON. Unknown figures are null, times RFC 3339."""
    sys.stdout.write(json.dumps(_jsonable(value), ensure_ascii=False, indent=1) + "\n")


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, note: str = "") -> None:
    """Prints a table; numbers to the right, long cells folded, never cut."""
    table = Table(
        title=title or None, title_justify="left", title_style="bold", header_style="bold", pad_edge=False, box=None
    )
    numeric = [
        all(isinstance(row[i], int | float) or row[i] is None for row in rows) and bool(rows)
        for i in range(len(columns))
    ]
    for name, right in zip(columns, numeric, strict=True):
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(cell)) for cell in row))
    console.print(table)
    if note:
        console.print(Text(note, style="dim"))
    console.print()


def rows_table(title: str, rows: Rows, columns: dict[str, str] | None = None, *, note: str = "") -> None:
    """Prints rows, or the named columns of them under shorter heads."""
    names = columns or {name: name for name in (rows[0] if rows else {})}
    print_table(title, list(names.values()), [[_jsonable(row[name]) for name in names] for row in rows], note=note)


def read_jsonl(file: Path) -> list[dict[str, Any]]:
    """The messages of a JSONL file; every line must be an object.

    Raises:
        typer.BadParameter: naming the first line that is not.
    """
    messages = []
    for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            message = json.loads(line)
        except ValueError as error:
            raise typer.BadParameter(f"{file}, line {number} is not JSON: {error}", param_hint="--file") from None
        if not isinstance(message, dict):
            raise typer.BadParameter(f"{file}, line {number} holds no object", param_hint="--file")
        messages.append(message)
    if not messages:
        raise typer.BadParameter(f"{file} holds no message", param_hint="--file")
    return messages


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    if isinstance(value, list | tuple):
        return ", ".join(str(v) for v in value)
    return str(value)


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(v) for v in value]
    if value is None:
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", errors="backslashreplace")
    if isinstance(value, str | int | bool):
        return value
    return str(value)
