"""Embeddings in the lake, with either catalog: a step that is done again, or by two at once, leaves the same rows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from model_foundry.records import ErrorKind
from model_foundry.warehouse.invariants import examine
from model_foundry.warehouse.lake import Warehouse
from model_foundry.warehouse.vectors import (
    ChunkRow,
    EmbeddedChunk,
    Kept,
    chunks_to_embed,
    embedded_dimensions,
    keep_embeddings,
    record_embeddings,
)

A, B, C = (ChunkRow(f"{name}.md", 0, None, name, f"digest-{name}") for name in "abc")


def rows(lake: Warehouse) -> list[tuple[str, int, str, str]]:
    found = lake.rows("select source, chunk, digest, status from embeddings order by all")
    return [tuple(row.values()) for row in found]


def test_each_step_can_be_done_again(lake: Warehouse) -> None:
    done = [
        EmbeddedChunk(A, "embedded", "w", (1.0, 2.0)),
        EmbeddedChunk(B, "failed", "w", None, ErrorKind.CONTEXT_OVERFLOW, "too long \ud800"),
        EmbeddedChunk(C, "waiting", None, None, ErrorKind.NO_WORKER, "nobody"),
    ]
    for _ in range(2):
        record_embeddings(lake, done, model="m", run_id="r")
    assert [row[3] for row in rows(lake)] == ["embedded", "failed", "waiting"]
    assert keep_embeddings(lake, [A, B, C]) == Kept()
    assert embedded_dimensions(lake, "m") == {2: 1}
    assert chunks_to_embed(lake, [A, B, C], "m") == {C.key}
    assert chunks_to_embed(lake, [A, B, C], "m", retry_failed=True) == {B.key, C.key}
    assert chunks_to_embed(lake, [A, B, C], "m", again=True) == {A.key, B.key, C.key}
    assert chunks_to_embed(lake, [A], "other") == {A.key}
    moved = ChunkRow("new.md", 3, None, "a", "digest-a")
    assert keep_embeddings(lake, [moved, B]) == Kept(moved=1, removed=2, notes_removed=2)
    assert keep_embeddings(lake, [moved, B]) == Kept()
    assert rows(lake) == [("b.md", 0, "digest-b", "failed"), ("new.md", 3, "digest-a", "embedded")]


def test_a_text_that_swaps_places_with_another_takes_its_vector_along(lake: Warehouse) -> None:
    record_embeddings(
        lake, [EmbeddedChunk(A, "embedded", "w", (1.0, 0.0)), EmbeddedChunk(B, "embedded", "w", (0.0, 1.0))],
        model="m", run_id="r",
    )  # fmt: skip
    swapped = [ChunkRow("a.md", 0, None, "b", B.digest), ChunkRow("b.md", 0, None, "a", A.digest)]
    assert keep_embeddings(lake, swapped).moved == 2
    found = lake.rows("select source, text, vector from embeddings order by source")
    assert [tuple(row.values()) for row in found] == [("a.md", "b", [0.0, 1.0]), ("b.md", "a", [1.0, 0.0])]


def test_two_runs_at_once_leave_each_chunk_once(sqlite_lake: Warehouse) -> None:
    chunks = [ChunkRow("n.md", n, None, f"t{n}", f"d{n}") for n in range(20)]
    lake = Warehouse(sqlite_lake.data_dir, sqlite_lake.config.model_copy(update={"writer_lock_timeout_s": 60}))

    def run(name: str) -> None:
        for chunk in chunks:
            keep_embeddings(lake, chunks)
            record_embeddings(lake, [EmbeddedChunk(chunk, "embedded", name, (1.0, 2.0))], model="m", run_id=name)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, ["first", "second"]))
    assert len(rows(lake)) == 20
    assert [i for i in examine(lake) if i.broken] == []
