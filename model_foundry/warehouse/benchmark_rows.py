"""Sweeps and their results into the lake and out of it, each function one transaction or one snapshot.

Belongs here: sweeps and results as relations, running their SQL. Does not belong here: what is asked
(``benchmarks.plan``), what a result is made of (``benchmarks.results``), the SQL itself.

Every function can be called again with the same arguments and leaves the same rows: a sweep is recognized by its id, a
result by its sweep and its request's id.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import pyarrow as pa

from model_foundry.warehouse.engine import Rows, run_script, storable
from model_foundry.warehouse.lake import Warehouse
from model_foundry.warehouse.sql_files import sql_text

SweepStatus = Literal["running", "done", "stopped"]


@dataclass(frozen=True, slots=True)
class SweepRow:
    """A sweep as its row has it; what is JSON there is JSON text here."""

    sweep_id: str
    suite: str
    suite_digest: str
    models: str
    workers: str
    settings: str
    seed: int
    versions: str
    hardware: str
    planned: int
    status: SweepStatus
    started_at: datetime
    run_id: str
    finished_at: datetime | None = None


def begin_sweep(warehouse: Warehouse, sweep: SweepRow) -> None:
    """Records that a sweep begins, or goes on."""
    row = {name: getattr(sweep, name) for name in SWEEPS.names}
    with warehouse.writer(f"begin sweep {sweep.sweep_id}") as connection:
        connection.register("incoming", pa.Table.from_pylist([row], schema=SWEEPS))
        run_script(connection, sql_text("landing", "begin_sweep"))


def end_sweep(warehouse: Warehouse, sweep_id: str, status: SweepStatus) -> None:
    """Records that a sweep is done, or stopped."""
    params = {"sweep_id": sweep_id, "status": status, "now": datetime.now(UTC)}
    with warehouse.writer(f"end sweep {sweep_id}") as connection:
        run_script(connection, sql_text("landing", "end_sweep"), params)


def unfinished_sweeps(warehouse: Warehouse, suite: str, since: datetime) -> list[SweepRow]:
    """The sweeps of a suite that have something left, the newest first."""
    return [SweepRow(**row) for row in warehouse.show("unfinished_sweeps", {"suite": suite, "since": since})]


def record_results(warehouse: Warehouse, rows: Sequence[Mapping[str, Any]]) -> None:
    """Records results; see ``RESULTS`` for what a row has."""
    if not rows:
        return
    with warehouse.writer(f"record {len(rows)} benchmark results") as connection:
        connection.register("incoming", pa.Table.from_pylist([storable(row) for row in rows], schema=RESULTS))
        run_script(connection, sql_text("landing", "record_benchmark_results"))


def requests_done(warehouse: Warehouse, sweep_id: str) -> set[str]:
    """The ids of the requests that are recorded."""
    return {row["request_id"] for row in warehouse.show("sweep_requests", {"sweep_id": sweep_id})}


def answers_of(warehouse: Warehouse, sweep_id: str, request_ids: Collection[str]) -> Rows:
    """What was answered to requests: rows of ``sql/show/sweep_answers.sql``."""
    if not request_ids:
        return []
    return warehouse.show("sweep_answers", {"sweep_id": sweep_id, "request_ids": list(request_ids)})


_TEXT, _TIME = pa.string(), pa.timestamp("us", tz="UTC")


def _columns(kind: pa.DataType, names: str) -> list[tuple[str, pa.DataType]]:
    return [(name, kind) for name in names.split()]


SWEEPS = pa.schema(
    [
        *_columns(_TEXT, "sweep_id suite suite_digest models workers settings"),
        ("seed", pa.int64()),
        *_columns(_TEXT, "versions hardware"),
        ("planned", pa.int32()),
        ("status", _TEXT),
        *_columns(_TIME, "started_at finished_at"),
        ("run_id", _TEXT),
    ]
)
"""A sweep on its way in."""

RESULTS = pa.schema(
    [
        *_columns(_TEXT, "sweep_id request_id suite suite_digest prompt_id"),
        ("turn", pa.int32()),
        *_columns(_TEXT, "domain language model worker api served_name phase"),
        ("repeat", pa.int32()),
        ("loop", _TEXT),
        ("concurrency", pa.int32()),
        ("rate_rps", pa.float64()),
        ("arrival", _TEXT),
        ("position", pa.int32()),
        *_columns(pa.float64(), "planned_at_s send_delay_s"),
        *_columns(_TIME, "sent_at finished_at"),
        *_columns(_TEXT, "status error_kind error_message finish_reason text reasoning tool_calls"),
        *_columns(pa.int64(), "prompt_tokens completion_tokens cached_tokens"),
        ("tokens_source", _TEXT),
        *_columns(pa.float64(), "ttft_s ttfo_s tpot_s e2e_s load_s prefill_s decode_s unattributed_s"),
        *_columns(pa.float64(), "prefill_tps decode_tps"),
        *_columns(pa.bool_(), "cold disturbed"),
        ("energy_j", pa.float64()),
        ("checks", _TEXT),
        ("passed", pa.bool_()),
        ("score", pa.float64()),
        *_columns(_TEXT, "notes run_id"),
    ]
)
"""A result on its way in."""
