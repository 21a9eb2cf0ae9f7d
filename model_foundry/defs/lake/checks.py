"""Checks over the lake: each is a query in ``sql/checks`` that returns the rows that should not be there."""

from dataclasses import dataclass

import dagster as dg

from model_foundry.config import FoundryConfig, StreamConfig
from model_foundry.defs.resources import LakeResource
from model_foundry.defs.tables import records_table
from model_foundry.warehouse.invariants import INVARIANTS
from model_foundry.warehouse.sql_files import sql_text

INBOXES = {"prompt_inbox": "prompts", "pipeline_event_inbox_record": "events"}
"""The assets that land a stream, and which."""


@dataclass(frozen=True)
class LakeCheck:
    """A check: the asset it guards, the query's name, what a failure means. An inbox's is about its own stream."""

    asset: str
    name: str
    description: str
    severity: dg.AssetCheckSeverity


LAKE_CHECKS = [
    *(
        LakeCheck(
            inbox,
            "no_rejects_today",
            "Messages of today that could not be read. They are kept whole in `rejects`; `foundry events replay` "
            "sends a corrected one.",
            dg.AssetCheckSeverity.WARN,
        )
        for inbox in INBOXES
    ),
    *(
        LakeCheck(
            inbox,
            "no_message_was_lost",
            "Messages that the stream dropped before they were read: its limits are too small for the outage "
            "there was.",
            dg.AssetCheckSeverity.ERROR,
        )
        for inbox in INBOXES
    ),
    # looking at the whole lake costs more the larger it is: once a night, not with every run
    *(
        LakeCheck("lake_compaction", name, f"Of the whole lake: {meaning}.", dg.AssetCheckSeverity.ERROR)
        for name, meaning in INVARIANTS.items()
    ),
]


def checks_of(asset: str) -> list[dg.AssetCheckKey]:
    """The keys of an asset's checks here."""
    return [dg.AssetCheckKey(dg.AssetKey(asset), check.name) for check in LAKE_CHECKS if check.asset == asset]


def lake_checks(config: FoundryConfig) -> list[dg.AssetChecksDefinition]:
    """The checks as Dagster's."""
    streams: dict[str, StreamConfig] = {inbox: getattr(config.streams, name) for inbox, name in INBOXES.items()}
    return [_asset_check(check, streams.get(check.asset)) for check in LAKE_CHECKS]


def _asset_check(check: LakeCheck, stream: StreamConfig | None) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=check.asset, name=check.name, description=check.description)
    def run(lake: LakeResource) -> dg.AssetCheckResult:
        found = lake.warehouse.rows(sql_text("checks", check.name))
        offending = [row for row in found if stream is None or row["stream"] == stream.name]
        metadata = {"rows": len(offending)}
        if offending:
            metadata["offending"] = records_table(offending[:20])  # type: ignore[assignment]
        return dg.AssetCheckResult(passed=not offending, severity=check.severity, metadata=metadata)

    return run
