"""Keeping the lake small and quick: few files, a bounded history, rows no longer than they are wanted, backups.

Belongs here: each step, under the writer lock for as long as that step takes and no longer. Does not belong here: when
they run (``defs``).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from model_foundry.config import RetainedTable
from model_foundry.warehouse.catalogs import SqliteCatalog
from model_foundry.warehouse.engine import Rows, rows_of, run_script
from model_foundry.warehouse.lake import Warehouse
from model_foundry.warehouse.sql_files import sql_text

GRACE = timedelta(days=1)
"""How long a file that nothing refers to any more is kept, for readers that opened an older snapshot."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The tables' files before and after a step."""

    before: Rows
    after: Rows

    def totals(self) -> dict[str, int]:
        """Files and bytes of all tables, before and after."""
        return {
            f"{column}_{when}": sum(row[column] or 0 for row in rows)
            for when, rows in (("before", self.before), ("after", self.after))
            for column in ("files", "bytes")
        }

    def by_table(self) -> Rows:
        """One row a table, before beside after."""
        before = {row["table_name"]: row for row in self.before}
        return [
            {
                "table": row["table_name"],
                "files_before": before.get(row["table_name"], row)["files"],
                "files_after": row["files"],
                "bytes_before": before.get(row["table_name"], row)["bytes"],
                "bytes_after": row["bytes"],
            }
            for row in self.after
        ]


def compact(warehouse: Warehouse) -> Sizes:
    """Merges small files, and rewrites those of mostly deleted rows.

    Raises:
        LakeError: when a reader keeps its snapshot open; see ``Catalog.undisturbed``.
    """
    before = warehouse.show("lake_sizes")
    for step in ("merge_adjacent_files", "rewrite_data_files"):
        _call(warehouse, step)
    return Sizes(before, warehouse.show("lake_sizes"))


def retire(warehouse: Warehouse, retention_days: Mapping[RetainedTable, int], today: date) -> dict[str, int]:
    """Deletes the rows that are older than their table's retention; gives how many, by table.

    Args:
        warehouse: the lake.
        retention_days: by table, as ``lake.retention_days``; a table that is not there keeps its rows for ever.
        today: the UTC date.
    """
    deleted: dict[str, int] = {}
    for table, days in retention_days.items():
        before = today - timedelta(days=days)
        with warehouse.writer(f"retire {table}") as connection:
            count = f"select count(*) from {table} where partition_date < $before"  # noqa: S608 (checked names)
            [found] = connection.execute(count, {"before": before}).fetchall()
            if found[0]:
                params = {"before": before, "now": datetime.now(UTC)}
                run_script(connection, sql_text("maintenance", f"retire_{table}"), params)
            deleted[table] = found[0]
    return deleted


def forget_history(warehouse: Warehouse, keep_days: int, now: datetime) -> dict[str, int]:
    """Expires snapshots older than so many days, then deletes files that nothing refers to any more.

    Returns:
        Counts: ``snapshots`` expired, ``old_files`` and ``orphans`` (files that no snapshot ever held) deleted.
    """
    return {
        "snapshots": _call(warehouse, "expire_snapshots", older_than=now - timedelta(days=keep_days)),
        "old_files": _call(warehouse, "cleanup_old_files", older_than=now - GRACE),
        "orphans": _call(warehouse, "delete_orphaned_files", older_than=now - GRACE),
    }


def back_up(warehouse: Warehouse, keep: int, now: datetime) -> Path | None:
    """Copies a SQLite catalog into ``backups`` beside it and keeps the newest few; None for another catalog.

    The data files need no copy: they are never changed, and kept for a day after nothing refers to them.
    """
    catalog = warehouse.catalog
    if not isinstance(catalog, SqliteCatalog):
        return None
    folder = backups_folder(catalog)
    folder.mkdir(exist_ok=True)
    file = folder / f"catalog-{now.astimezone(UTC):%Y%m%dT%H%M%S}.sqlite"
    part = file.with_suffix(".part")
    with (
        catalog.lock("back up", warehouse.config.writer_lock_timeout_s),
        closing(sqlite3.connect(f"file:{catalog.file}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(part)) as copy,
    ):
        source.backup(copy)
    part.replace(file)
    for old in sorted(folder.glob("catalog-*.sqlite"))[:-keep]:
        old.unlink()
    return file


def backups_folder(catalog: SqliteCatalog) -> Path:
    """Where the copies of a catalog are."""
    return catalog.file.parent / "backups"


def _call(warehouse: Warehouse, step: str, *, older_than: datetime | None = None) -> int:
    """Calls one of DuckLake's maintenance functions under the writer lock; gives the number of rows that it reports."""
    argument = "" if older_than is None else f", older_than => timestamptz '{older_than.isoformat()}'"
    with warehouse.locked(step.replace("_", " ")) as connection:
        [(alias,)] = connection.execute("select current_database()").fetchall()
        connection.execute("begin transaction")
        rows = rows_of(connection.execute(f"call ducklake_{step}('{alias}'{argument})"))
        with warehouse.catalog.undisturbed():
            connection.execute("commit")
        return len(rows)
