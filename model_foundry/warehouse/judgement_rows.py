"""Judgements and published scores into the lake and out of it. Belongs here: relations, running their SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from model_foundry.warehouse.engine import Rows, run_script, storable
from model_foundry.warehouse.lake import Warehouse
from model_foundry.warehouse.sql_files import sql_text

_TEXT, _TIME = pa.string(), pa.timestamp("us", tz="UTC")
JUDGEMENTS = pa.schema(
    [
        *((n, _TEXT) for n in ("judgement_id", "suite", "suite_digest", "prompt_id")),
        ("turn", pa.int32()),
        *((n, _TEXT) for n in ("domain", "sweep_a", "sweep_b", "model_a", "model_b", "judge_model", "judge_worker")),
        *((n, _TEXT) for n in ("prompt_version", "decided_by")),
        ("same_family", pa.bool_()),
        *((n, _TEXT) for n in ("verdict_ab", "verdict_ba", "outcome", "words_ab", "words_ba")),
        ("chars_a", pa.int64()),
        ("chars_b", pa.int64()),
        ("planted", _TEXT),
        ("judged_at", _TIME),
        ("run_id", _TEXT),
    ]
)
"""A judgement on its way in."""


def record_judgements(warehouse: Warehouse, rows: Sequence[Mapping[str, Any]]) -> None:
    """Records judgements; one that is there stays, unless it was an error."""
    if not rows:
        return
    with warehouse.writer(f"record {len(rows)} judgements") as connection:
        connection.register("incoming", pa.Table.from_pylist([storable(row) for row in rows], schema=JUDGEMENTS))
        run_script(connection, sql_text("landing", "record_judgements"))


def judgements_made(warehouse: Warehouse, **params: str) -> Rows:
    """Rows of ``sql/show/judgements_made.sql``."""
    return warehouse.show("judgements_made", params)
