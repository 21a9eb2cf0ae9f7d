"""Upkeep of the lake: each asset is one step, and shows what it found and what it left.

Belongs here: calling a step and showing it. Does not belong here: the steps (``warehouse.maintenance``).
"""

from datetime import UTC, datetime

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from model_foundry.defs.resources import FoundryResource
from model_foundry.defs.streams import OWNERS
from model_foundry.defs.tables import records_table
from model_foundry.warehouse.maintenance import back_up, compact, forget_history, retire

GROUP = "lake"


def lake_assets() -> list[dg.AssetsDefinition]:
    """Every step of the upkeep."""

    @dg.asset(
        group_name=GROUP,
        kinds={"sqlite"},
        owners=OWNERS,
        description=(
            "A copy of the SQLite catalog beside it, in `backups`. The data files need none: they are never changed. "
            "With a PostgreSQL catalog, back up its database as you back up others."
        ),
    )
    def lake_backup(foundry: FoundryResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
        warehouse = foundry.parts.warehouse
        warehouse.migrate()
        file = back_up(warehouse, warehouse.config.backups, datetime.now(UTC))
        if file is None:
            return dg.MaterializeResult(metadata={"status": "not needed: the catalog is in PostgreSQL"})
        return dg.MaterializeResult(metadata={"file": dg.MetadataValue.path(str(file)), "bytes": file.stat().st_size})

    @dg.asset(
        group_name=GROUP,
        deps=[lake_backup],
        kinds={"duckdb"},
        owners=OWNERS,
        description=(
            "What is old goes: rows beyond `lake.retention_days`, snapshots beyond `lake.snapshots_days`, and files "
            "that nothing has referred to for a day."
        ),
    )
    def lake_retention(foundry: FoundryResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
        warehouse, now = foundry.parts.warehouse, datetime.now(UTC)
        warehouse.migrate()
        before = warehouse.show("lake_sizes")
        rows = retire(warehouse, warehouse.config.retention_days, now.date())
        gone = forget_history(warehouse, warehouse.config.snapshots_days, now)
        return dg.MaterializeResult(
            metadata={
                **{f"rows_deleted_{table}": count for table, count in rows.items()},
                **{f"{what}_deleted": count for what, count in gone.items()},
                "bytes_before": sum(row["bytes"] for row in before),
                "bytes_after": sum(row["bytes"] for row in warehouse.show("lake_sizes")),
            }
        )

    @dg.asset(
        group_name=GROUP,
        deps=[lake_retention],
        kinds={"duckdb"},
        owners=OWNERS,
        description=(
            "Few files instead of many: small files are merged, files of mostly deleted rows rewritten. Materialize it "
            "by hand when thousands of small files slow queries down before the night."
        ),
    )
    def lake_compaction(foundry: FoundryResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
        foundry.parts.warehouse.migrate()
        sizes = compact(foundry.parts.warehouse)
        return dg.MaterializeResult(metadata={**sizes.totals(), "by_table": records_table(sizes.by_table())})

    return [lake_backup, lake_retention, lake_compaction]


def upkeep_job() -> UnresolvedAssetJobDefinition:
    """The job of the whole upkeep."""
    return dg.define_asset_job(
        "tidy_lake",
        selection=dg.AssetSelection.groups(GROUP),
        description="Back up the catalog, let go of what is old, merge small files, verify the invariants.",
    )


def upkeep_schedule(job: UnresolvedAssetJobDefinition) -> dg.ScheduleDefinition:
    """All of it every night."""
    return dg.ScheduleDefinition(
        name="housekeeping",
        job=job,
        cron_schedule="23 3 * * *",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Backs up, tidies and verifies the lake, every night.",
    )
