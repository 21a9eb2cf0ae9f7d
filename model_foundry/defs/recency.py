"""Whether a picture in Dagster's history is behind what came in. Belongs here: that, for schedules that refresh."""

from __future__ import annotations

import dagster as dg

AS_OF = "as_of"
"""Metadata of a figure: the moment before it looked at the lake. When it was stored is later, and things land "
"between."""


def newest(instance: dg.DagsterInstance, *assets: str) -> float:
    """When any of the assets was last materialized, in epoch seconds; 0 when none ever was."""
    events = [instance.get_latest_materialization_event(dg.AssetKey(asset)) for asset in assets]
    return max((event.timestamp for event in events if event), default=0.0)


def seen_until(instance: dg.DagsterInstance, asset: str) -> float:
    """Up to which moment, in epoch seconds, the asset's newest picture shows what came in; 0 when there is none."""
    event = instance.get_latest_materialization_event(dg.AssetKey(asset))
    shown = event.asset_materialization.metadata.get(AS_OF) if event and event.asset_materialization else None
    return float(shown.value) if isinstance(shown, dg.TimestampMetadataValue) else 0.0
