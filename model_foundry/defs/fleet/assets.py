"""``worker_fleet``: the fleet over time, and what is worth a warning.

Belongs here: showing a snapshot and checking it. Does not belong here: how a worker is (``fleet.health``), when a
snapshot is taken (``defs.fleet.sensors``).
"""

import json
from collections.abc import Callable
from typing import Any

import dagster as dg

from model_foundry.defs.externals import worker_key
from model_foundry.defs.recency import AS_OF
from model_foundry.defs.resources import FoundryResource
from model_foundry.defs.streams import OWNERS
from model_foundry.defs.tables import records_table
from model_foundry.fleet.health import State
from model_foundry.fleet.snapshots import record
from model_foundry.warehouse.engine import Rows

WORKER_FLEET = "worker_fleet"
MAX_CHANGES = 50


def worker_fleet_asset(workers: list[str]) -> dg.AssetsDefinition:
    """The asset, downstream of the workers of the configuration."""

    @dg.asset(
        name=WORKER_FLEET,
        deps=[worker_key(name) for name in workers],
        group_name="fleet",
        kinds={"http", "nats", "duckdb"},
        owners=OWNERS,
        description=(
            "Every worker as it was found now: state and reasons, slots and who holds them, models in memory, GPU "
            "memory and load. Asked are the workers themselves, their agents' heartbeats, and how their last answers "
            "went. `fleet_sensor` records it at every change, and every few minutes.\n\n"
            "Table: `fleet_snapshots`. Views: `worker_fleet` (each worker now), `fleet_changes`. The same in a "
            "terminal: `foundry workers`."
        ),
    )
    def worker_fleet(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
        rows = record(foundry.parts, context.run_id)
        changes = foundry.parts.warehouse.rows("from fleet_changes order by taken_at desc limit $n", {"n": MAX_CHANGES})
        return dg.MaterializeResult(metadata=fleet_metadata(rows, changes))

    return worker_fleet


def fleet_metadata(rows: Rows, changes: Rows) -> dict[str, Any]:
    """Counts by state, a table of the workers, the last changes."""
    if not rows:
        return {"status": "empty"}
    states = [row["state"] for row in rows]
    return {
        "status": "done",
        AS_OF: dg.MetadataValue.timestamp(rows[0]["taken_at"]),
        "dagster/row_count": len(rows),
        "usable": sum(State(state).usable for state in states),
        **{state: states.count(state) for state in sorted(set(states))},
        "workers": records_table([_shown(row) for row in rows]),
        "changes": records_table(
            [
                {
                    "at": f"{row['taken_at']:%m-%d %H:%M:%S}",
                    "worker": row["worker"],
                    "from": row["previous_state"] or "–",
                    "to": row["state"],
                    "why": "; ".join(json.loads(row["reasons"])),
                }
                for row in changes
            ]
        ),
    }


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    used, total = row["vram_used_mb"], row["vram_total_mb"]
    return {
        "worker": row["worker"],
        "state": row["state"],
        "why": "; ".join(json.loads(row["reasons"])),
        "slots": f"{row['slots_held']}/{row['slots']}",
        "vram_gb": "" if total is None else f"{'?' if used is None else f'{used / 1024:.1f}'}/{total / 1024:.1f}",
        "gpu_percent": row["gpu_util_percent"],
        "loaded": ", ".join(json.loads(row["loaded"])),
        "heartbeat_age_s": row["heartbeat_age_s"],
        "version": row["version"],
    }


def fleet_checks(vram_warn_ratio: float) -> list[dg.AssetChecksDefinition]:
    """What is worth a warning in the last snapshot."""
    no_use = [state for state in State if not state.usable and state is not State.WARMING]
    return [
        _check(
            "no_worker_is_gone",
            "Every worker can be used, or is just loading its model.",
            lambda row: row["state"] in no_use,
        ),
        _check(
            "vram_has_room",
            f"No GPU's memory is over {vram_warn_ratio:.0%} full (`fleet.vram_warn_ratio`). Unknown is no warning.",
            lambda row: row["vram_ratio"] is not None and row["vram_ratio"] > vram_warn_ratio,
        ),
        _check(
            "slots_agree",
            "Each worker's `slots` is what its server says: more only wait inside the server, fewer leave it idle.",
            lambda row: row["server_slots"] is not None and row["server_slots"] != row["slots"],
        ),
    ]


def _check(name: str, description: str, offends: Callable[[dict[str, Any]], bool]) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=WORKER_FLEET, name=name, description=description)
    def check(foundry: FoundryResource) -> dg.AssetCheckResult:
        rows = foundry.parts.warehouse.show("last_fleet")
        found = [_shown(row) | {"server_slots": row["server_slots"]} for row in rows if offends(row)]
        metadata: dict[str, Any] = {"workers": len(rows), "rows": len(found)}
        if found:
            metadata["offending"] = records_table(found)
        return dg.AssetCheckResult(passed=not found, severity=dg.AssetCheckSeverity.WARN, metadata=metadata)

    return check
