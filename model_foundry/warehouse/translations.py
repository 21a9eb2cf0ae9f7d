"""Translations in the lake: paragraphs of articles, by language.

Belongs here: rows of ``translations``, to the lake and back. Does not belong here: asking for them (``translating``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa

from model_foundry.paragraphs import paragraphs, together
from model_foundry.warehouse.engine import run_script, storable
from model_foundry.warehouse.lake import Warehouse
from model_foundry.warehouse.sql_files import sql_text

Key = tuple[str, str, int]
"""An article's job id, the language, and the number of the paragraph."""


@dataclass(frozen=True, slots=True)
class TranslationRow:
    """One paragraph in one language.

    Attributes:
        job_id: the article's.
        language: into which.
        paragraph: from 0.
        source_text: what is translated.
        source_digest: of it and of how it is asked for.
        status: ``answered``, ``kept``, ``incomplete``, ``failed`` or ``waiting``.
        text: the translation; as it stands where it is kept.
        model: ours.
        worker: who translated.
        attempts: requests.
        e2e_s: of the last one.
        prompt_tokens: of the last one.
        completion_tokens: of the last one.
        error_kind: why there is none.
        error_message: why there is none, or why it waits.
        notes: what looks wrong, and attempts that failed.
    """

    job_id: str
    language: str
    paragraph: int
    source_text: str
    source_digest: str
    status: str
    text: str | None = None
    model: str | None = None
    worker: str | None = None
    attempts: int = 0
    e2e_s: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    error_kind: str | None = None
    error_message: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """By which it is known."""
        return self.job_id, self.language, self.paragraph

    @property
    def is_there(self) -> bool:
        """Whether it has its text."""
        return self.status in ("answered", "kept")


def record_translations(
    warehouse: Warehouse, rows: Sequence[TranslationRow], *, lane: str, partition_date: date, run_id: str
) -> None:
    """Records paragraphs of one partition's articles, in place of what was recorded of them before."""
    if not rows:
        return
    table = pa.Table.from_pylist([_row(row) for row in rows], schema=TRANSLATED)
    params = {"day": partition_date, "lane": lane, "run_id": run_id, "now": datetime.now(UTC)}
    with warehouse.writer(f"record {len(rows)} translated paragraphs") as connection:
        connection.register("translated", table)
        run_script(connection, sql_text("landing", "record_translations"), params)


def translation_rows(
    warehouse: Warehouse, job_ids: Sequence[str], *, lane: str, partition_date: date
) -> dict[Key, TranslationRow]:
    """What there is of articles' translations."""
    if not job_ids:
        return {}
    params = {"lane": lane, "day": partition_date, "ids": list(job_ids)}
    found = [
        TranslationRow(**row | {"notes": tuple(json.loads(row["notes"]))})
        for row in warehouse.show("translations_of", params)
    ]
    return {row.key: row for row in found}


def translations_of(
    warehouse: Warehouse, articles: Mapping[str, str], *, lane: str, partition_date: date
) -> dict[str, dict[str, str]]:
    """The translations of articles, whole, by job and language; one that has a paragraph missing is left out.

    Args:
        warehouse: the lake.
        articles: their texts by job id, for the white space between the paragraphs.
        lane: the partition's lane.
        partition_date: the partition's date.
    """
    rows = translation_rows(warehouse, list(articles), lane=lane, partition_date=partition_date)
    found: dict[str, dict[str, str]] = {job_id: {} for job_id in articles}
    for job_id, language in sorted({(row.job_id, row.language) for row in rows.values()}):
        pieces = paragraphs(articles[job_id])
        mine = [rows.get((job_id, language, n)) for n in range(len(pieces))]
        texts = [row.text for row in mine if row is not None and row.is_there and row.text is not None]
        if len(texts) == len(pieces):
            found[job_id][language] = together(pieces, texts)
    return found


def _row(row: TranslationRow) -> dict[str, Any]:
    return storable(asdict(row) | {"notes": json.dumps(row.notes, ensure_ascii=False)})


_TEXT = pa.string()

TRANSLATED = pa.schema(
    [
        *((name, _TEXT) for name in ("job_id", "language", "source_text", "source_digest", "status", "text")),
        *((name, _TEXT) for name in ("model", "worker", "error_kind", "error_message", "notes")),
        *((name, pa.int32()) for name in ("paragraph", "attempts")),
        *((name, pa.int64()) for name in ("prompt_tokens", "completion_tokens")),
        ("e2e_s", pa.float64()),
    ]
)
"""A paragraph on its way in."""
