"""Embeddings into the lake and out of it, each function one transaction or one snapshot.

Belongs here: chunks and vectors as relations, running their SQL. Does not belong here: where chunks come from
(``notes``, ``chunking``), asking for vectors (``embedding``), the SQL itself.

Every function can be called again with the same arguments and leaves the same rows: a chunk is recognized by its note,
its number, its text's digest and the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from model_foundry.records import ErrorKind
from model_foundry.text import well_formed
from model_foundry.warehouse.engine import rows_of, run_script
from model_foundry.warehouse.lake import Warehouse
from model_foundry.warehouse.sql_files import sql_text

ChunkKey = tuple[str, int]
"""A note's path and a chunk's number in it."""


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """A chunk as it is now. ``digest`` is of what is embedded; ``problem``: why it can't be, when that is known."""

    source: str
    chunk: int
    heading: str | None
    text: str
    digest: str
    problem: str | None = None

    @property
    def key(self) -> ChunkKey:
        """What it is known by."""
        return self.source, self.chunk


@dataclass(frozen=True, slots=True)
class Kept:
    """What became of the rows there were: vectors that moved along with their text, rows and whole notes that went."""

    moved: int = 0
    removed: int = 0
    notes_removed: int = 0


@dataclass(frozen=True, slots=True)
class EmbeddedChunk:
    """What became of a chunk: a vector, or an error. ``status``: embedded, failed or waiting."""

    chunk: ChunkRow
    status: str
    worker: str | None = None
    vector: Sequence[float] | None = None
    error_kind: ErrorKind | None = None
    error_message: str | None = None


def keep_embeddings(warehouse: Warehouse, chunks: Sequence[ChunkRow]) -> Kept:
    """Takes out what is of no chunk any more, of whatever model; a text that moved takes its vectors along."""
    with warehouse.writer("keep embeddings of the notes") as connection:
        connection.register("chunks", _chunks_table(chunks))
        [found] = rows_of(run_script(connection, sql_text("landing", "keep_embeddings")))
    return Kept(**found)


def chunks_to_embed(
    warehouse: Warehouse, chunks: Sequence[ChunkRow], model: str, *, retry_failed: bool = False, again: bool = False
) -> set[ChunkKey]:
    """The chunks that a model has yet to embed.

    Args:
        warehouse: the lake.
        chunks: as they are now.
        model: ours.
        retry_failed: those too that failed for their own sake.
        again: all of them.
    """
    params = {"model": model, "retry_failed": retry_failed, "again": again}
    with warehouse.reader() as connection:
        connection.register("chunks", _chunks_table(chunks))
        rows = rows_of(run_script(connection, sql_text("landing", "chunks_to_embed"), params))
    return {(row["source"], row["chunk"]) for row in rows}


def record_embeddings(warehouse: Warehouse, done: Sequence[EmbeddedChunk], *, model: str, run_id: str) -> None:
    """Records what became of chunks, in place of what was recorded of them before."""
    if not done:
        return
    now = datetime.now(UTC)
    shared = {"model": model, "run_id": run_id, "embedded_at": now, "partition_date": now.date()}
    rows = [_row(item) | shared for item in done]
    with warehouse.writer(f"record {len(rows)} embeddings") as connection:
        connection.register("incoming", pa.Table.from_pylist(rows, schema=EMBEDDED))
        run_script(connection, sql_text("landing", "record_embeddings"))


def embedded_dimensions(warehouse: Warehouse, model: str) -> dict[int, int]:
    """Chunks of a model that are embedded, by the length of their vectors, most of them first."""
    found = warehouse.show("embedded_dimensions", {"model": model})
    return {row["dimensions"]: row["chunks"] for row in found if row["dimensions"] is not None}


def _row(item: EmbeddedChunk) -> dict[str, Any]:
    chunk = item.chunk
    return {
        "source": chunk.source,
        "chunk": chunk.chunk,
        "heading": chunk.heading,
        "text": chunk.text,
        "digest": chunk.digest,
        "worker": item.worker,
        "dimensions": len(item.vector) if item.vector else None,
        "vector": list(item.vector) if item.vector else None,
        "status": item.status,
        "error_kind": item.error_kind,
        "error_message": None if item.error_message is None else well_formed(item.error_message),
    }


def _chunks_table(chunks: Sequence[ChunkRow]) -> pa.Table:
    rows = [{name: getattr(chunk, name) for name in CHUNKS.names} for chunk in chunks]
    return pa.Table.from_pylist(rows, schema=CHUNKS)


_TEXT = pa.string()

CHUNKS = pa.schema([("source", _TEXT), ("chunk", pa.int32()), *((n, _TEXT) for n in ("heading", "text", "digest"))])
"""A chunk as it is now."""

EMBEDDED = pa.schema(
    [
        *CHUNKS,
        ("model", _TEXT),
        ("worker", _TEXT),
        ("dimensions", pa.int32()),
        ("vector", pa.list_(pa.float32())),
        *((name, _TEXT) for name in ("status", "error_kind", "error_message")),
        ("partition_date", pa.date32()),
        ("embedded_at", pa.timestamp("us", tz="UTC")),
        ("run_id", _TEXT),
    ]
)
"""What became of a chunk, on its way in."""
