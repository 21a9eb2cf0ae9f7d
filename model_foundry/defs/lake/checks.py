"""Checks over the lake: each is a query in ``sql/checks`` that returns the rows that should not be there."""

from dataclasses import dataclass

import dagster as dg

from model_foundry.defs.resources import LakeResource
from model_foundry.defs.tables import records_table
from model_foundry.warehouse.invariants import INVARIANTS
from model_foundry.warehouse.sql_files import sql_text


@dataclass(frozen=True)
class LakeCheck:
    """A check: the asset it guards, the query's name, and what a failure means."""

    asset: str
    name: str
    description: str
    severity: dg.AssetCheckSeverity


LAKE_CHECKS = [
    LakeCheck(
        "prompt_inbox",
        "no_rejects_today",
        "Messages of today that could not be read. They are kept whole in `rejects`.",
        dg.AssetCheckSeverity.WARN,
    ),
    LakeCheck(
        "prompt_inbox",
        "no_message_was_lost",
        "Messages that a stream dropped before they were read: its limits are too small for the outage there was.",
        dg.AssetCheckSeverity.ERROR,
    ),
    # looking at the whole lake costs more the larger it is: once a night, not with every run
    *(
        LakeCheck("lake_compaction", name, f"Of the whole lake: {meaning}.", dg.AssetCheckSeverity.ERROR)
        for name, meaning in INVARIANTS.items()
    ),
]


def lake_checks() -> list[dg.AssetChecksDefinition]:
    """The checks as Dagster's."""
    return [_asset_check(check) for check in LAKE_CHECKS]


def _asset_check(check: LakeCheck) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=check.asset, name=check.name, description=check.description)
    def run(lake: LakeResource) -> dg.AssetCheckResult:
        offending = lake.warehouse.rows(sql_text("checks", check.name))
        metadata = {"rows": len(offending)}
        if offending:
            metadata["offending"] = records_table(offending[:20])  # type: ignore[assignment]
        return dg.AssetCheckResult(passed=not offending, severity=check.severity, metadata=metadata)

    return run
