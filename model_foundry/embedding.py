"""Embedding: from the notes of a folder to vectors in the lake, and from a query to its vector.

Belongs here: reading and cutting the notes, asking the fleet for what is new, recording in small batches. Does not
belong here: where to cut (``chunking``), who gets a batch (``inference.embedding_pool``), the requests
(``inference.embeddings``), the SQL (``warehouse.vectors``), ranking (``search``).

A run can be made again at any time: what has its vector is not asked for again. A run that dies leaves what it had
recorded, and the next one goes on from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from model_foundry.chunking import chunks
from model_foundry.config import NotesConfig
from model_foundry.errors import ConfigError, NatsUnavailableError
from model_foundry.fleet.board import read_board
from model_foundry.fleet.leases import sharing_slots
from model_foundry.fleet.roster import Roster, without_beats
from model_foundry.inference.client import new_client
from model_foundry.inference.dispatch import SharedSlots
from model_foundry.inference.embedding_pool import Embedder, Outcome, PoolReport, embed_texts
from model_foundry.inference.embeddings import Vector
from model_foundry.jetstream.client import JetStream
from model_foundry.notes import Note, read_notes
from model_foundry.placing import Placement
from model_foundry.records import ErrorKind
from model_foundry.routing import workers_for
from model_foundry.runtime import Foundry
from model_foundry.tasks import while_flushing
from model_foundry.warehouse.vectors import (
    ChunkRow,
    EmbeddedChunk,
    chunks_to_embed,
    embedded_dimensions,
    keep_embeddings,
    record_embeddings,
)

FLUSH_EVERY_S = 1.0
"""How long a vector waits, at most, before it is recorded."""
QUERY_PRIORITY = 10
"""A person waits for a query; notes have the priority 0."""
NOT_CONFIGURED = "the configuration has no section 'notes'"
HOW_TO_CONFIGURE = "notes: {folder: path/to/notes, model: NAME}; NAME stands in `models` and is one that embeds."


@dataclass(slots=True)
class EmbeddingReport:
    """What one run did.

    Attributes:
        status: ``done``; ``empty`` when the folder has no notes; ``waiting`` when nobody could embed what there was;
            ``kept`` when the folder is empty although notes were embedded before, and nothing was taken out.
        notes: files in the folder.
        unreadable: of them, those that can't be read.
        chunks: into which they were cut, blank ones left out.
        unchanged: chunks that had their vector, or their failure, already.
        moved: chunks that took their vector along from where their text was.
        removed: rows that went; ``notes_removed`` of whole notes.
        embedded: vectors made.
        failures: chunks without a vector now, by error kind.
        waiting: of those, the ones that a later run tries again.
        dimensions: of the vectors.
        took_s: seconds from the first request to the last answer.
        pool: requests, tokens, workers.
    """

    status: str = "done"
    notes: int = 0
    unreadable: int = 0
    chunks: int = 0
    unchanged: int = 0
    moved: int = 0
    removed: int = 0
    notes_removed: int = 0
    embedded: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    waiting: int = 0
    dimensions: int | None = None
    took_s: float | None = None
    pool: PoolReport = field(default_factory=PoolReport)

    @property
    def chunks_per_s(self) -> float | None:
        """Vectors a second; None when none was made."""
        return self.embedded / self.took_s if self.embedded and self.took_s else None

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens a second, as the servers count them; None when they don't say."""
        tokens = self.pool.prompt_tokens
        return tokens / self.took_s if tokens and self.took_s else None


def notes_config(foundry: Foundry) -> NotesConfig:
    """The section ``notes``.

    Raises:
        ConfigError: when there is none.
    """
    if foundry.config.notes is None:
        raise ConfigError(NOT_CONFIGURED, hint=HOW_TO_CONFIGURE)
    return foundry.config.notes


def chunk_rows(notes: Sequence[Note], config: NotesConfig) -> list[ChunkRow]:
    """The notes in chunks, blank ones left out; one that can't be read is one chunk with its problem. Pure."""
    rows = []
    for note in notes:
        if note.problem is not None:
            rows.append(ChunkRow(note.source, 0, None, "", note.digest, note.problem))
            continue
        pieces = [c for c in chunks(note.text, config.chunk_chars, config.overlap_chars) if c.text.strip()]
        rows += [
            ChunkRow(note.source, n, c.heading, c.text, _digest(config.document_prefix + c.text))
            for n, c in enumerate(pieces)
        ]
    return rows


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def embed_notes(
    foundry: Foundry,
    *,
    run_id: str,
    retry_failed: bool = False,
    again: bool = False,
    accept_empty: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> EmbeddingReport:
    """Brings the embeddings up to date with the notes.

    Args:
        foundry: the parts.
        run_id: who embeds.
        retry_failed: also what failed for its own sake, such as a chunk that is too long for the model.
        again: all of them, as after another model was put under the same name.
        accept_empty: an empty folder means that there are no notes any more, and not that it is not mounted.
        on_progress: called with (done, total) chunks.

    Raises:
        ConfigError: when there are no notes configured, or their folder is not there.
        NatsUnavailableError, StreamError: when slots can't be shared.
        LakeError: when the lake can't be used.
    """
    config, warehouse = notes_config(foundry), foundry.warehouse
    notes = read_notes(config)
    warehouse.migrate()
    rows = chunk_rows(notes, config)
    report = EmbeddingReport(notes=len(notes), chunks=len(rows), unreadable=sum(n.problem is not None for n in notes))
    known = embedded_dimensions(warehouse, config.model)
    if not notes and known and not accept_empty:
        report.status = "kept"
        return report
    kept = keep_embeddings(warehouse, rows)
    report.moved, report.removed, report.notes_removed = kept.moved, kept.removed, kept.notes_removed
    if not notes:
        report.status = "empty"
        return report
    todo = chunks_to_embed(warehouse, rows, config.model, retry_failed=retry_failed, again=again)
    report.unchanged = len(rows) - len(todo) - kept.moved if not again else 0
    expected = None if again else next(iter(known), None)
    asyncio.run(_embed_chunks(foundry, [r for r in rows if r.key in todo], expected, run_id, report, on_progress))
    report.dimensions = report.pool.dimensions or expected
    if report.waiting and not report.embedded:
        report.status = "waiting"
    return report


async def _embed_chunks(
    foundry: Foundry,
    rows: Sequence[ChunkRow],
    dimensions: int | None,
    run_id: str,
    report: EmbeddingReport,
    on_progress: Callable[[int, int], None],
) -> None:
    config = notes_config(foundry)
    gathered: list[EmbeddedChunk] = []
    done = 0

    def gather(item: EmbeddedChunk) -> None:
        gathered.append(item)
        report.embedded += item.status == "embedded"
        report.waiting += item.status == "waiting"
        if item.error_kind:
            report.failures[item.error_kind] += 1

    async def flush() -> None:
        nonlocal done
        taken = gathered[:]
        gathered.clear()
        if taken:
            await asyncio.to_thread(record_embeddings, foundry.warehouse, taken, model=config.model, run_id=run_id)
            done += len(taken)
            on_progress(done, len(rows))

    for row in rows:
        if row.problem is not None:
            gather(EmbeddedChunk(row, "failed", None, None, ErrorKind.INVALID_REQUEST, row.problem))
    texts = [(row, config.document_prefix + row.text) for row in rows if row.problem is None]
    if not texts:
        await flush()
        return
    started = time.monotonic()
    async with JetStream(foundry.nats) as js:
        roster = (await read_board(js, foundry.config)).roster
        async with sharing_slots(js, foundry.config.fleet, run_id) as slots, new_client() as client:
            work = embed_texts(
                client,
                embedders(foundry, roster),
                texts,
                foundry.config.limits,
                params=dict(foundry.config.models[config.model].params),
                batch_texts=config.batch_texts,
                on_outcome=lambda outcome: gather(_embedded(outcome)),
                dimensions=dimensions,
                slots=slots,
            )
            report.pool = await while_flushing(work, flush, FLUSH_EVERY_S)
    report.took_s = time.monotonic() - started


def _embedded(outcome: Outcome[ChunkRow]) -> EmbeddedChunk:
    """The row of an outcome."""
    if outcome.vector is not None:
        return EmbeddedChunk(outcome.text, "embedded", outcome.worker, outcome.vector)
    failure = outcome.failure
    status = "waiting" if outcome.put_off else "failed"
    kind, message = (failure.kind, failure.message) if failure else (ErrorKind.SERVER_ERROR, "no reason given")
    return EmbeddedChunk(outcome.text, status, outcome.worker, None, kind, message)


def embedders(foundry: Foundry, roster: Roster) -> list[Embedder]:
    """The workers that embed the notes, first choice first. One that can't be used now says why."""
    config, lane = roster.config, foundry.config.notes_lane or ""
    model = notes_config(foundry).model
    targets = Placement(foundry, roster).targets
    return [
        Embedder(
            targets[name],
            (config.workers[name].models or {}).get(model, model),
            config.workers[name].supports.index(lane),
        )
        for name in workers_for(config, model, lane)
    ]


@dataclass(frozen=True, slots=True)
class QueryVector:
    """A query's vector, or why there is none.

    Attributes:
        vector: of the query.
        worker: who embedded it.
        problem: why there is no vector.
        kind: of that failure; None when nobody could be asked now.
    """

    vector: Vector | None
    worker: str | None
    problem: str | None = None
    kind: ErrorKind | None = None


async def embed_query(foundry: Foundry, query: str) -> QueryVector:
    """The vector of one query; see :func:`embed_queries`."""
    return (await embed_queries(foundry, [query]))[0]


async def embed_queries(foundry: Foundry, queries: Sequence[str]) -> list[QueryVector]:
    """The vectors of queries, by the model of the notes, in their order.

    Slots are shared when NATS is there. Without it nobody else takes new ones, so a worker is asked as it is.

    Raises:
        ConfigError: when there are no notes configured.
    """
    config = notes_config(foundry)
    found: dict[int, Outcome[int]] = {}

    async def ask(roster: Roster, slots: SharedSlots | None) -> None:
        async with new_client() as client:
            await embed_texts(
                client,
                embedders(foundry, roster),
                [(n, config.query_prefix + query) for n, query in enumerate(queries)],
                foundry.config.limits,
                params=dict(foundry.config.models[config.model].params),
                batch_texts=config.batch_texts,
                on_outcome=lambda outcome: found.__setitem__(outcome.text, outcome),
                slots=slots,
                priority=QUERY_PRIORITY,
            )

    async with contextlib.AsyncExitStack() as stack:
        try:
            js = await stack.enter_async_context(JetStream(foundry.nats))
        except (NatsUnavailableError, ConfigError):
            await ask(without_beats(foundry.config), None)
        else:
            roster = (await read_board(js, foundry.config)).roster
            slots = await stack.enter_async_context(sharing_slots(js, foundry.config.fleet, "search"))
            await ask(roster, slots)
    return [_query_vector(found[n]) for n in range(len(queries))]


def _query_vector(outcome: Outcome[int]) -> QueryVector:
    failure = outcome.failure
    return QueryVector(
        outcome.vector,
        outcome.worker,
        None if failure is None else failure.message,
        None if failure is None or outcome.put_off else failure.kind,
    )
