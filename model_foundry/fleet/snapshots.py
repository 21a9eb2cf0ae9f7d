"""The fleet over time: a look becomes rows of the lake, and a change of state becomes work.

Belongs here: the rows, recording them, what a tick of the fleet's sensor asks for. Does not belong here: the look
itself (``fleet.look``), Dagster (``defs.fleet``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

from model_foundry.errors import LakeError
from model_foundry.fleet.health import State
from model_foundry.fleet.look import FleetLook, look_at_fleet
from model_foundry.runtime import Foundry
from model_foundry.warehouse.engine import Rows
from model_foundry.warehouse.landing import record_fleet


def snapshot_rows(look: FleetLook, previous: Mapping[str, str], run_id: str) -> Rows:
    """The rows of ``fleet_snapshots`` for a look. Pure.

    Args:
        look: the fleet.
        previous: each worker's state in the snapshot before.
        run_id: who records.
    """
    return [_row(look, name, previous.get(name), run_id) for name in look.seen]


def _row(look: FleetLook, name: str, previous: str | None, run_id: str) -> dict[str, Any]:
    seen = look.seen[name]
    member, probe, beat = seen.facts.member, seen.facts.probe, seen.facts.member.beat
    live = beat if beat is not None and not member.gone else None
    gpu = live.gpu if live else None
    loaded = list(probe.loaded) if probe and probe.loaded else [m.name for m in live.models if m.loaded] if live else []
    return {
        "taken_at": look.board.at,
        "worker": name,
        "state": str(seen.health.state),
        "previous_state": previous,
        "reasons": json.dumps(seen.health.reasons, ensure_ascii=False),
        "in_file": member.in_file,
        "has_agent": beat is not None,
        "url": seen.url or member.config.url,
        "api": member.config.api,
        "supports": json.dumps(member.config.supports),
        "models": json.dumps(member.config.models or {}, ensure_ascii=False),
        "loaded": json.dumps(loaded, ensure_ascii=False),
        "slots": member.config.slots,
        "server_slots": (probe.slots if probe else None) or (live.slots if live else None),
        "slots_held": seen.facts.held,
        "running": _first(probe.running if probe else None, live.running if live else None),
        "waiting": _first(probe.waiting if probe else None, live.waiting if live else None),
        "generated_tokens_total": _first(
            probe.generated_tokens_total if probe else None, live.progress.generated_tokens_total if live else None
        ),
        "stalled_s": live.progress.stalled_s if live else None,
        "heartbeat_age_s": member.beat_age_s,
        "version": (probe.version if probe else None) or (live.version if live else None),
        "gpu_index": gpu.index if gpu else None,
        "gpu_name": gpu.name if gpu else None,
        "gpu_util_percent": gpu.util_percent if gpu else None,
        "vram_used_mb": gpu.vram_used_mb if gpu else None,
        "vram_total_mb": gpu.vram_total_mb if gpu else None,
        "temperature_c": gpu.temperature_c if gpu else None,
        "power_w": gpu.power_w if gpu else None,
        "run_id": run_id,
    }


def _first(*values: Any) -> Any:
    """The first that is known; 0 is known."""
    return next((value for value in values if value is not None), None)


def record(foundry: Foundry, run_id: str) -> Rows:
    """Looks at the fleet and records it; gives the rows.

    Raises:
        LakeError: when the lake can't be written.
    """
    foundry.warehouse.migrate()
    look = look_at_fleet(foundry)
    previous = {r["worker"]: r["state"] for r in foundry.warehouse.rows("select worker, state from worker_fleet")}
    rows = snapshot_rows(look, previous, run_id)
    record_fleet(foundry.warehouse, rows)
    return rows


@dataclass(frozen=True, slots=True)
class FleetCursor:
    """What the sensor remembers: each worker's state, and when the fleet was last recorded (epoch seconds)."""

    states: Mapping[str, str] = field(default_factory=dict)
    recorded_at: float = 0.0

    @classmethod
    def of_text(cls, text: str | None) -> FleetCursor:
        """Reads one; an unreadable one is as good as none, since it only saves work."""
        try:
            raw = json.loads(text or "{}")
            return cls({str(k): str(v) for k, v in raw["states"].items()}, float(raw["recorded_at"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls()

    def to_text(self) -> str:
        """For :meth:`of_text`."""
        return json.dumps({"states": dict(self.states), "recorded_at": self.recorded_at})


@dataclass(frozen=True, slots=True)
class FleetTick:
    """What a tick asks for: whether to record the fleet, and why; partitions whose jobs can be answered again."""

    cursor: FleetCursor
    record_because: str | None
    answer: Sequence[tuple[date, str]] = ()


def plan_fleet_tick(foundry: Foundry, cursor: FleetCursor) -> FleetTick:
    """Looks at the fleet and compares it with what the cursor remembers."""
    look = look_at_fleet(foundry)
    waiting: Rows = []
    came = came_to_life(look, cursor)
    if came:
        try:
            waiting = foundry.warehouse.show("waiting_partitions")
        except LakeError:
            waiting = []
    return fleet_tick(look, cursor, waiting, foundry.config.fleet.snapshot_s, datetime.now(UTC))


def came_to_life(look: FleetLook, cursor: FleetCursor) -> list[str]:
    """The workers that can be used and could not be, or were not there, when the cursor was made."""

    def was_usable(name: str) -> bool:
        return name in cursor.states and State(cursor.states[name]).usable

    return [name for name, seen in look.seen.items() if seen.health.state.usable and not was_usable(name)]


def fleet_tick(look: FleetLook, cursor: FleetCursor, waiting: Rows, snapshot_s: float, now: datetime) -> FleetTick:
    """Pure: what to do about a fleet.

    Args:
        look: the fleet.
        cursor: what was before.
        waiting: rows of ``sql/show/waiting_partitions.sql``.
        snapshot_s: how often the fleet is recorded although nothing changed.
        now: UTC.
    """
    states = {name: str(seen.health.state) for name, seen in look.seen.items()}
    # busy and healthy come and go with every batch: recorded when it is time, but no change worth a run
    before, after = ({n: _coarse(s) for n, s in found.items()} for found in (cursor.states, states))
    changed = [
        f"{name} is {states.get(name, 'not there any more')}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]
    because = "; ".join(changed) or None
    if because is None and states and now.timestamp() - cursor.recorded_at >= snapshot_s:
        because = f"{snapshot_s:g} s have passed"
    config = look.board.roster.config
    came = came_to_life(look, cursor)
    answer = [
        (row["partition_date"], row["lane"])
        for row in waiting
        if any(
            row["lane"] in config.workers[name].supports
            and any(model in config.models and config.serves(name, model) for model in row["models"])
            for name in came
        )
    ]
    recorded_at = now.timestamp() if because else cursor.recorded_at
    return FleetTick(FleetCursor(states, recorded_at), because, answer)


def _coarse(state: str) -> str:
    return "healthy" if state == State.BUSY else state
