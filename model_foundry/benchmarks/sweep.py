"""A sweep: which models at which workers, and whether it begins anew or goes on. I/O: the lake.

Belongs here: choosing the pairs from the fleet, a sweep's identity, its row. Does not belong here: the order of
requests (``plan``), asking (``runner``).

A sweep that was broken off goes on when the same is asked for again: the same suite by its digest, models, workers,
slots and settings, within ``RESUME_WITHIN``, with the same versions of everything, and no other seed asked for. Else,
and when it is done, a new one begins. What was measured days ago, or by another server, is not mixed with what is
measured now.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from model_foundry.benchmarks.plan import Pair, Plan, make_plan
from model_foundry.benchmarks.settings import SweepSettings
from model_foundry.benchmarks.suite import Suite
from model_foundry.config import FoundryConfig
from model_foundry.errors import ConfigError
from model_foundry.fleet.roster import Member, Roster
from model_foundry.inference.probe import ProbeResult, listed_as
from model_foundry.inference.target import WorkerTarget
from model_foundry.routing import workers_for
from model_foundry.warehouse.benchmark_rows import SweepRow, unfinished_sweeps
from model_foundry.warehouse.lake import Warehouse

RESUME_WITHIN = timedelta(hours=24)
NOT_FOR_CHAT = "embedding"
"""Models of this capability answer no prompts."""
_HERE = {"127.0.0.1", "::1", "localhost", "0.0.0.0"}  # noqa: S104 (names, nothing is bound)


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep that can be run: its row, its settings, its plan. ``resumed``: it was begun before."""

    row: SweepRow
    settings: SweepSettings
    plan: Plan
    resumed: bool


def chat_models(config: FoundryConfig) -> list[str]:
    """The models that answer prompts, in the configuration's order."""
    notes = config.notes.model if config.notes else None
    return [n for n, m in config.models.items() if m.capability != NOT_FOR_CHAT and n != notes]


def known_names(config: FoundryConfig, models: Collection[str], workers: Collection[str]) -> None:
    """Looks whether names are known.

    Raises:
        ConfigError: when one is not.
    """
    for kind, names, allowed in (("model", models, config.models), ("worker", workers, config.workers)):
        for name in names:
            if name not in allowed:
                raise ConfigError(f"{kind} is {name!r}; allowed: {', '.join(allowed)}")


def choose_pairs(
    roster: Roster,
    targets: Mapping[str, WorkerTarget],
    probes: Mapping[str, ProbeResult],
    models: Sequence[str],
    workers: Collection[str],
) -> tuple[list[Pair], list[str]]:
    """The models at the workers that serve them and can be used now, and what is left out and why. Pure.

    Args:
        roster: the fleet.
        targets: how each worker is reached; one that can't be used says why.
        probes: what each said when it was asked.
        models: wanted.
        workers: wanted; empty: all.
    """
    pairs, notes = [], []
    for model in models:
        serving = [w for w in _serving(roster, model) if not workers or w in workers]
        if not serving:
            notes.append(f"{model}: no worker{' of those wanted' if workers else ''} serves it")
        for worker in serving:
            served = (roster.config.workers[worker].models or {}).get(model, model)
            if (why := _why_not(targets[worker], probes.get(worker), served)) is not None:
                notes.append(f"{model} at {worker}: {why}")
                continue
            member, target = roster.members[worker], targets[worker]
            pairs.append(
                Pair(
                    model=model,
                    worker=worker,
                    served_name=served,
                    api=target.api,
                    slots=target.slots,
                    hardware=hardware_of(member, target),
                    can_unload=target.api == "ollama",
                )
            )
    return pairs, notes


def _serving(roster: Roster, model: str) -> tuple[str, ...]:
    """Every worker that serves a model in its own lane, first choice first."""
    return workers_for(roster.config, model, roster.config.models[model].capability)


def _why_not(target: WorkerTarget, probe: ProbeResult | None, served_name: str) -> str | None:
    if target.unusable:
        return target.unusable
    if probe is None or not probe.ok:
        return probe.detail if probe else "it was not asked"
    if probe.models and listed_as(served_name, probe.models) is None:
        return f"its server does not list {served_name}"
    return None


def hardware_of(member: Member, target: WorkerTarget) -> str:
    """What a worker runs on: its host and GPU. Without a GPU that is known of, all of the host."""
    host = urlsplit(target.url).hostname or target.name
    gpu = member.beat.gpu.index if member.beat and member.beat.gpu else None
    index = member.config.gpu_index if member.config.gpu_index is not None else gpu
    where = "this host" if host in _HERE else host
    return where if index is None else f"{where} GPU {index}"


def is_here(target: WorkerTarget) -> bool:
    """Whether a worker's server is on this host."""
    return urlsplit(target.url).hostname in _HERE


def open_sweep(
    warehouse: Warehouse,
    suite: Suite,
    pairs: Sequence[Pair],
    settings: SweepSettings,
    *,
    seed: int | None,
    versions: Mapping[str, Any],
    hardware: Mapping[str, Any],
    run_id: str,
    anew: bool = False,
) -> Sweep:
    """The sweep that was broken off, when it is the same; else a new one. Nothing is written.

    Args:
        warehouse: the lake, migrated.
        suite: what is asked.
        pairs: of whom.
        settings: how.
        seed: of everything random; None: the broken-off sweep's, or one drawn now.
        versions: of everything; see ``conditions``.
        hardware: on what.
        run_id: who runs it.
        anew: begin a new one whatever there is.

    Raises:
        ConfigError: when nothing would be asked.
    """
    now = datetime.now(UTC)
    ordered = sorted(pairs, key=lambda p: (p.model, p.worker))
    text = settings_text(settings, ordered)
    if not anew:
        for row in unfinished_sweeps(warehouse, suite.name, now - RESUME_WITHIN):
            same = (row.suite_digest, row.settings) == (suite.digest, text)
            if same and seed in (None, row.seed) and agree(json.loads(row.versions), versions):
                return Sweep(row, settings, make_plan(suite, ordered, settings, row.seed), True)
    seed = secrets.randbelow(2**31) if seed is None else seed
    plan = make_plan(suite, ordered, settings, seed)
    row = SweepRow(
        sweep_id=new_sweep_id(now),
        suite=suite.name,
        suite_digest=suite.digest,
        models=_json(sorted({p.model for p in pairs})),
        workers=_json(sorted({p.worker for p in pairs})),
        settings=text,
        seed=seed,
        versions=_json(versions),
        hardware=_json(hardware),
        planned=len(plan.requests()),
        status="running",
        started_at=now,
        run_id=run_id,
    )
    return Sweep(row, settings, plan, False)


def agree(a: Any, b: Any) -> bool:
    """Whether versions are the same as far as both are known: a busy server may not have told."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return all(agree(a.get(name), b.get(name)) for name in {*a, *b})
    return a is None or b is None or a == b


def new_sweep_id(now: datetime) -> str:
    """An id that sorts by time."""
    return f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def settings_text(settings: SweepSettings, pairs: Sequence[Pair]) -> str:
    """All that the plan was made of, beside suite and seed, as JSON text; the same for the same."""
    return _json({**settings.model_dump(mode="json"), "pairs": [asdict(pair) for pair in pairs]})


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
