"""``foundry workers``: who is there, what they can do, and how they are."""

from __future__ import annotations

from typing import Any

import typer
from rich.text import Text

from model_foundry.cli.output import ConfigOption, JsonOption, console, print_json, print_table
from model_foundry.fleet.health import State, missing_models
from model_foundry.fleet.look import FleetLook, look_at_fleet
from model_foundry.runtime import Foundry

MB_A_GB = 1024
_STYLES = {State.HEALTHY: "green", State.BUSY: "green", State.DEGRADED: "yellow", State.WARMING: "yellow"}


def workers(as_json: JsonOption = False, config: ConfigOption = None) -> None:
    """Who is there, what they support, models, slots, GPU memory, last seen. Exit 1 when one can't be used."""
    foundry = Foundry.load(config)
    look = look_at_fleet(foundry)
    rows = worker_rows(foundry, look)
    if as_json:
        print_json(rows)
    else:
        columns = ["worker", "state", "supports", "slots", "VRAM GB", "seen", "models"]
        print_table("", columns, [_cells(row) for row in rows])
        for row in rows:
            for reason in row["reasons"] if row["state"] != State.BUSY else []:
                console.print(Text(f"{row['name']}: {reason}", style=_STYLES.get(State(row["state"]), "red")))
            for note in [row["stand_in"], *row["notes"]]:
                if note:
                    console.print(Text(f"{row['name']}: {note}", style="dim"))
        for key, reason in look.board.roster.refused.items():
            console.print(Text(f"heartbeat {key} is not in the fleet: {reason}", style="yellow"))
        if look.board.problem:
            console.print(Text(f"heartbeats and slots in use are unknown: {look.board.problem}", style="yellow"))
    raise typer.Exit(0 if all(State(row["state"]).usable for row in rows) else 1)


def worker_rows(foundry: Foundry, look: FleetLook) -> list[dict[str, Any]]:
    """One object a worker."""
    return [_row(foundry, look, name) for name in look.seen]


def _row(foundry: Foundry, look: FleetLook, name: str) -> dict[str, Any]:
    seen = look.seen[name]
    member, probe = seen.facts.member, seen.facts.probe
    worker, beat = member.config, member.beat
    effective = look.board.roster.config
    ours = list(worker.models) if worker.models else [m for m in effective.models if effective.serves(name, m)]
    return {
        "name": name,
        "url": seen.url or worker.url,
        "api": worker.api,
        "supports": worker.supports,
        "slots": worker.slots,
        "slots_held": None if look.board.problem else seen.facts.held,
        "models": ours,
        "state": seen.health.state,
        "reasons": list(seen.health.reasons),
        "detail": "; ".join(seen.health.reasons) or "ok",
        "in_file": member.in_file,
        "heartbeat_age_s": member.beat_age_s,
        "gpu": beat.gpu.model_dump() if beat and beat.gpu else None,
        "version": (probe.version if probe else None) or (beat.version if beat else None),
        "server_models": probe.models if probe else [],
        "server_slots": probe.slots if probe else None,
        "loaded": probe.loaded if probe else [],
        "running": probe.running if probe else None,
        "waiting": probe.waiting if probe else None,
        "missing_models": missing_models(member, probe),
        "stand_in": worker.stand_in,
        "notes": list(member.notes),
    }


def _cells(row: dict[str, Any]) -> list[Any]:
    gpu = row["gpu"] or {}
    used, total = gpu.get("vram_used_mb"), gpu.get("vram_total_mb")
    vram = None if total is None else f"{'?' if used is None else f'{used / MB_A_GB:.1f}'}/{total / MB_A_GB:.1f}"
    age_s = row["heartbeat_age_s"]
    seen = ("answers" if State(row["state"]).usable else "–") if age_s is None else f"{age_s:.0f} s ago"
    slots = row["slots"] if row["slots_held"] is None else f"{row['slots_held']}/{row['slots']}"
    return [row["name"], row["state"], row["supports"], slots, vram, seen, row["models"]]
