"""``foundry search``: the notes that are nearest in meaning to a few words."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from model_foundry.cli.output import ConfigOption, JsonOption, console, errors, print_json
from model_foundry.embedding import notes_config
from model_foundry.runtime import Foundry
from model_foundry.search import Found, search
from model_foundry.search_service import SearchService

EXCERPT_CHARS = 234
"""Three lines of 78 characters."""


def search_notes(
    query: Annotated[
        str | None, typer.Argument(help="What to look for, in words of any language the model knows.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, max=1000, help="How many notes at most.")] = 5,
    listen: Annotated[
        bool, typer.Option("--listen", help="Answer searches over NATS until Ctrl-C; 'foundry up' runs this itself.")
    ] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """The notes nearest in meaning to the query: path, score (cosine, up to 1), excerpt. Exit 1: none."""
    foundry = Foundry.load(config)
    if (query is None) is not listen:
        raise typer.BadParameter("give words to search for, or --listen; one of the two")
    if query is None:
        notes_config(foundry)
        asyncio.run(_listen(foundry))
        return
    found = search(foundry, query, top)
    if as_json:
        print_json(asdict(found))
    else:
        show(found)
    if not found.hits:
        errors.print("no note is embedded")
        raise typer.Exit(1)


async def _listen(foundry: Foundry) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await SearchService(foundry, lambda line: console.print(line, markup=False)).run(stop)


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
