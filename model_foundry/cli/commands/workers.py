"""``foundry workers``: who is there, and what they can do."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import typer

from model_foundry.cli.output import ConfigOption, JsonOption, print_json, print_table
from model_foundry.errors import ConfigError
from model_foundry.inference.client import new_client
from model_foundry.inference.probe import probe
from model_foundry.runtime import Foundry

PROBE_TIMEOUT_S = 5.0


def workers(as_json: JsonOption = False, config: ConfigOption = None) -> None:
    """Who is there, what they support, models, slots. Asks each worker now; exit 1 when one does not answer."""
    found = asyncio.run(look_at_workers(Foundry.load(config)))
    if as_json:
        print_json(found)
    else:
        rows = [(w["name"], w["state"], w["api"], w["supports"], w["slots"], w["models"] or w["detail"]) for w in found]
        notes = [f"{w['name']}: {w['stand_in']}" for w in found if w["stand_in"]]
        notes += [f"{w['name']}: {w['detail']}" for w in found if w["state"] != "up" and w["models"]]
        print_table("", ["worker", "state", "api", "supports", "slots", "models"], rows, note="\n".join(notes))
    raise typer.Exit(0 if all(w["state"] == "up" for w in found) else 1)


async def look_at_workers(foundry: Foundry) -> list[dict[str, Any]]:
    """One object a worker, asked now, all at once."""
    async with new_client() as client:
        return list(await asyncio.gather(*(_look_at(foundry, client, name) for name in foundry.config.workers)))


async def _look_at(foundry: Foundry, client: httpx.AsyncClient, name: str) -> dict[str, Any]:
    worker = foundry.config.workers[name]
    row: dict[str, Any] = {
        "name": name,
        "url": worker.url,
        "api": worker.api,
        "supports": worker.supports,
        "slots": worker.slots,
        "models": list(worker.models)
        if worker.models
        else [m for m in foundry.config.models if foundry.config.serves(name, m)],
        "stand_in": worker.stand_in,
    }
    try:
        target = foundry.worker_target(name)
    except ConfigError as error:
        return row | {"state": "down", "detail": str(error), "version": None, "server_models": [], "missing_models": []}
    result = await probe(client, target, PROBE_TIMEOUT_S)
    served = list((worker.models or {m: m for m in row["models"]}).values())
    missing = [m for m in served if result.ok and m not in result.models and f"{m}:latest" not in result.models]
    detail = result.detail
    if missing:
        detail = f"the server does not list {', '.join(missing)}; it has {', '.join(result.models) or 'no model'}"
    return row | {
        "url": target.url,
        "state": "down" if not result.reachable else ("up" if result.ok and not missing else "misconfigured"),
        "detail": detail,
        "version": result.version,
        "server_models": result.models,
        "server_slots": result.slots,
        "missing_models": missing,
    }
