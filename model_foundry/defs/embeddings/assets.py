"""``embeddings``, partitioned by day.

Belongs here: the partition, calling one domain function, showing the outcome. Neither texts of notes nor servers'
words about them are put into metadata or logs: Dagster's event log keeps what it is given for ever.

A day, and not a day and lane as prompts have: all notes go through one lane, and a folder is a state and no stream. The
partition says when something was embedded; a past day can't be made again, since the folder is what it is today, so
materializing one only shows what of that day is still so.
"""

from datetime import UTC, date, datetime
from typing import Any

import dagster as dg

from model_foundry.config import FoundryConfig
from model_foundry.defs.externals import worker_key
from model_foundry.defs.resources import FoundryResource, LakeResource
from model_foundry.defs.streams import OWNERS, RETRY
from model_foundry.defs.tables import number, records_table
from model_foundry.embedding import HOW_TO_CONFIGURE, EmbeddingReport, embed_notes
from model_foundry.warehouse.lake import Snapshot

EMBEDDINGS = "embeddings"
MAX_LISTED = 50
_SERVER_SPEAKS = ("): ", "while it answered: ")
"""After these words a message of ``inference.failures`` quotes the server."""


class EmbeddingConfig(dg.Config):
    """What of the notes is embedded beside what is new or changed."""

    retry_failed: bool = False
    again: bool = False
    accept_empty: bool = False


def embeddings_partitions(config: FoundryConfig) -> dg.DailyPartitionsDefinition:
    """One partition a UTC day; today's is there from midnight on."""
    return dg.DailyPartitionsDefinition(start_date=config.lake.first_date.isoformat(), end_offset=1)


def embeddings_asset(config: FoundryConfig) -> dg.AssetsDefinition:
    """The asset."""
    lane = config.notes_lane
    workers = [name for name, worker in config.workers.items() if lane in worker.supports]

    @dg.asset(
        name=EMBEDDINGS,
        partitions_def=embeddings_partitions(config),
        deps=[worker_key(name) for name in workers],
        group_name="notes",
        retry_policy=RETRY,
        kinds={"http", "duckdb"},
        owners=OWNERS,
        description=(
            "The notes of `notes.folder` as vectors, by `notes.model`. What is new or changed is cut at headings and "
            "paragraphs and embedded on the workers of the lane; a text that only moved takes its vector along; "
            "what is gone from the folder goes.\n\n"
            "`retry_failed` tries chunks again that failed for their own sake, `again` embeds everything anew, "
            "`accept_empty` says that an empty folder is meant. A past day shows what of it is still so.\n\n"
            "Table: `embeddings`; `foundry search` ranks it."
        ),
    )
    def embeddings(
        context: dg.AssetExecutionContext, config: EmbeddingConfig, foundry: FoundryResource, lake: LakeResource
    ) -> dg.MaterializeResult:  # type: ignore[type-arg]
        parts, day = foundry.parts, date.fromisoformat(context.partition_key)
        if parts.config.notes is None:
            return dg.MaterializeResult(metadata={"status": "not configured", "do": HOW_TO_CONFIGURE})
        if day != datetime.now(UTC).date():
            parts.warehouse.migrate()
            return dg.MaterializeResult(
                metadata={
                    "status": "past",
                    "still_so": records_table(lake.warehouse.show("embedded_that_day", {"day": day})),
                }
            )
        report = embed_notes(
            parts,
            run_id=context.run_id,
            retry_failed=config.retry_failed,
            again=config.again,
            accept_empty=config.accept_empty,
            on_progress=lambda done, total: context.log.info(f"{done} of {total} chunks done"),
        )
        if report.status == "kept":
            context.log.warning("The folder is empty although notes were embedded before: nothing was taken out.")
        with lake.warehouse.snapshot() as now:
            return dg.MaterializeResult(metadata=embeddings_metadata(now, report, parts.config.notes.model))

    return embeddings


def embeddings_metadata(lake: Snapshot, report: EmbeddingReport, model: str) -> dict[str, Any]:
    """Counts, dimensions, rates, which notes have no vector and why."""
    pool = report.pool
    metadata: dict[str, Any] = {
        "status": report.status,
        "model": model,
        "notes": report.notes,
        "unreadable": report.unreadable,
        "chunks": report.chunks,
        "unchanged": report.unchanged,
        "moved": report.moved,
        "removed": report.removed,
        "notes_removed": report.notes_removed,
        "embedded": report.embedded,
        "failed": sum(report.failures.values()) - report.waiting,
        "waiting": report.waiting,
        "requests": pool.requests,
        "dagster/row_count": report.embedded,
    }
    figures = {
        "dimensions": report.dimensions,
        "prompt_tokens": pool.prompt_tokens,
        "took_s": report.took_s,
        "chunks_per_s": report.chunks_per_s,
        "tokens_per_s": report.tokens_per_s,
    }
    metadata |= {key: number(value) for key, value in figures.items() if value is not None}
    if report.status == "kept":
        metadata["do"] = "Is notes.folder mounted? If there are no notes any more: materialize with accept_empty."
    if pool.texts_by_worker:
        metadata["by_worker"] = records_table([{"worker": w, "chunks": n} for w, n in pool.texts_by_worker.items()])
    if pool.dropped:
        metadata["workers_left_out"] = records_table(
            [{"worker": w, "because": own_words(why)} for w, why in pool.dropped.items()]
        )
    without = lake.show("embedding_failures", {"model": model})
    if without:
        metadata["without_vector"] = records_table(without[:MAX_LISTED])
    return metadata


def own_words(message: str) -> str:
    """A failure's message without what the server said, which may quote a note."""
    for words in _SERVER_SPEAKS:
        if words in message:
            return message[: message.index(words) + len(words)].rstrip(": ")
    return message
