"""What must hold of every lake at any moment, and looking whether it does.

Belongs here: which checks are invariants, and that every file is there. Does not belong here: their SQL
(``sql/checks``), showing the result (``cli``, ``defs``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from model_foundry.warehouse.lake import Snapshot, Warehouse
from model_foundry.warehouse.sql_files import sql_text

INVARIANTS = {
    "every_message_is_accounted_for": "each landed message is one job, a duplicate of one, or a reject",
    "every_message_has_its_range": "each landed message lies in a range of the ledger",
    "keys_are_unique": "no job, attempt, reject, result, claim or range stands twice",
    "jobs_agree_with_their_attempts": "jobs, attempts and claims agree",
    "figures_are_finite_and_ordered": "no figure is NaN or infinite, and 0 < ttft_s <= e2e_s",
}
"""Name of the query in ``sql/checks`` -> what holds when it gives no row."""


@dataclass(frozen=True, slots=True)
class Invariant:
    """One invariant as it was found. ``broken`` counts the rows, or files, that break it; ``example`` is one."""

    name: str
    meaning: str
    broken: int
    example: str = ""


def examine(warehouse: Warehouse) -> Iterator[Invariant]:
    """Every invariant, over one snapshot.

    Raises:
        LakeError: when the lake can't be opened.
    """
    with warehouse.snapshot() as snapshot:
        for name, meaning in INVARIANTS.items():
            rows = snapshot.rows(sql_text("checks", name))
            yield Invariant(name, meaning, len(rows), str(rows[0]) if rows else "")
        missing = [file for file in _files(snapshot) if "://" not in file and not Path(file).is_file()]
        yield Invariant(
            "every_file_is_there",
            "each data file that the catalog names is there",
            len(missing),
            missing[0] if missing else "",
        )


def _files(snapshot: Snapshot) -> list[str]:
    tables = [row["table_name"] for row in snapshot.show("lake_sizes")]
    files = []
    for table in tables:
        query = "select data_file, delete_file from ducklake_list_files(current_database(), $name)"
        for row in snapshot.rows(query, {"name": table}):
            files += [file for file in row.values() if file]
    return files
