"""``foundry search``: the notes that are nearest in meaning to a few words."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from model_foundry.cli.output import ConfigOption, JsonOption, console, errors, print_json
from model_foundry.runtime import Foundry
from model_foundry.search import Found, search

EXCERPT_CHARS = 234
"""Three lines of 78 characters."""


def search_notes(
    query: Annotated[str, typer.Argument(help="What to look for, in words of any language the model knows.")],
    top: Annotated[int, typer.Option(min=1, max=1000, help="How many notes at most.")] = 5,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """The notes nearest in meaning to the query: path, score (cosine, up to 1), excerpt. Exit 1: none."""
    found = search(Foundry.load(config), query, top)
    if as_json:
        print_json(asdict(found))
    else:
        show(found)
    if not found.hits:
        errors.print("no note is embedded")
        raise typer.Exit(1)


def show(found: Found) -> None:
    """One paragraph a note."""
    for hit in found.hits:
        head = Text(f"{hit.score:.3f}  ", style="dim").append(hit.source, style="bold")
        if hit.heading:
            head.append(f"  # {hit.heading}", style="dim")
        console.print(head)
        console.print(Text(excerpt(hit.text)), style=None, width=min(console.width, 80))
        console.print()


def excerpt(text: str, most: int = EXCERPT_CHARS) -> str:
    """The beginning of a text, as one line of so many characters at most."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"
