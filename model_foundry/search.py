"""Search: the notes that are nearest in meaning to a query.

Belongs here: a query's way from words to notes, and what is said when there is none. Does not belong here: embedding
(``embedding``), the SQL (``sql/show/similar_notes.sql``), printing (``cli``).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from model_foundry.embedding import embed_query, notes_config
from model_foundry.errors import ConfigError, FoundryError
from model_foundry.inference.embeddings import Vector
from model_foundry.runtime import Foundry
from model_foundry.warehouse.vectors import embedded_dimensions

QUERY_TIMEOUT_S = 60.0
EMBED_FIRST = "Materialize the asset 'embeddings', or wait: 'foundry up' does it seven minutes past every hour."
EMBED_AGAIN = "Materialize 'embeddings' with {again: true}: then all notes are embedded by the model as it is now."


class SearchError(FoundryError):
    """There is nothing to search in, or the query can't be embedded or compared."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A note. ``text`` is its nearest chunk, ``score`` that chunk's cosine similarity, from -1 to 1."""

    source: str
    chunk: int
    heading: str | None
    text: str
    score: float


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found, best first, with the model and the worker that embedded the query."""

    query: str
    model: str
    worker: str | None
    hits: tuple[Hit, ...]


def search(foundry: Foundry, query: str, top: int = 5) -> Found:
    """Searches the notes; see :func:`search_notes`."""
    return asyncio.run(search_notes(foundry, query, top))


async def search_notes(foundry: Foundry, query: str, top: int = 5) -> Found:
    """Searches the notes. The lake is read off the loop.

    Args:
        foundry: the parts.
        query: words.
        top: how many notes at most.

    Raises:
        ConfigError: when the query is blank, or no notes are configured.
        SearchError: when nothing is embedded yet, nobody embeds the query, or its vector is of another length.
        LakeError: when there is no lake yet.
    """
    if not query.strip():
        raise ConfigError("the query is blank; allowed: words to search for")
    config, warehouse = notes_config(foundry), foundry.warehouse
    await asyncio.to_thread(warehouse.migrate)
    known = await asyncio.to_thread(embedded_dimensions, warehouse, config.model)
    if not known:
        raise SearchError(f"none of the notes in {config.folder} is embedded by {config.model} yet", hint=EMBED_FIRST)
    try:
        asked = await asyncio.wait_for(embed_query(foundry, query), QUERY_TIMEOUT_S)
    except TimeoutError:
        raise SearchError(
            f"the query was not embedded within {QUERY_TIMEOUT_S:g} s: every slot of the lane is taken, or it is slow",
            hint="foundry workers shows who is busy.",
        ) from None
    if asked.vector is None:
        raise SearchError(f"the query can't be embedded: {asked.problem}", hint="foundry workers shows how each is.")
    dimensions = len(asked.vector)
    if dimensions not in known:
        there = ", ".join(map(str, known))
        raise SearchError(
            f"{config.model} gives {dimensions} dimensions on worker {asked.worker}; those in the lake have {there}",
            hint=EMBED_AGAIN,
        )
    hits = await asyncio.to_thread(similar_notes, foundry, asked.vector, top)
    return Found(query, config.model, asked.worker, hits)


def similar_notes(foundry: Foundry, vector: Vector, top: int) -> tuple[Hit, ...]:
    """The notes whose nearest chunk is nearest to a vector, best first.

    Raises:
        ConfigError: when no notes are configured.
        LakeError: when the lake can't be used.
    """
    model = notes_config(foundry).model
    params = {"model": model, "dimensions": len(vector), "query": list(vector), "top": top}
    return tuple(Hit(**row) for row in foundry.warehouse.show("similar_notes", params))
