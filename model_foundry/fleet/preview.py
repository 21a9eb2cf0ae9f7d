"""Which worker would get a job now, and why each of the others would not: the scheduler's decision, shown. Pure.

Belongs here: asking ``inference.schedule`` about one job in the fleet as a look found it. Does not belong here: the
look (``fleet.look``), the route of the prompt (``routing``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from model_foundry.fleet.estimates import Rates
from model_foundry.fleet.look import FleetLook
from model_foundry.fleet.roster import load_times
from model_foundry.inference.dispatch import WorkItem
from model_foundry.inference.schedule import Waiting, WorkerState, expected_ends, plan


@dataclass(frozen=True, slots=True)
class Verdict:
    """A worker and a job: whether it gets it, and why or why not. ``expected_s``: until its end there; None unknown."""

    worker: str
    state: str
    takes: bool
    why: str
    expected_s: float | None
    slots: int
    slots_held: int


def preview(look: FleetLook, item: WorkItem, rates: Mapping[tuple[str, str], Rates]) -> list[Verdict]:
    """Every worker of the fleet, the one that would get the job first."""
    config = look.board.roster.config
    waiting = Waiting(
        0,
        item.workers,
        item.ranks,
        item.job.priority,
        item.job.model,
        service_s=item.service_s,
        first=item.first,
    )
    fleet = {
        name: WorkerState(
            seen.facts.member.config.slots,
            in_flight=min(seen.facts.held, seen.facts.member.config.slots),
            last_model=_loaded(look, name),
            load_s=load_times(seen.facts.member, rates),
        )
        for name, seen in look.seen.items()
        if seen.health.state.usable
    }
    chosen = next((a.worker for a in plan([waiting], fleet, 0.0)), None)
    ends = expected_ends(waiting, fleet, 0.0)
    verdicts = []
    for name, seen in look.seen.items():
        worker = config.workers[name]
        if item.job.lane not in worker.supports:
            why = f"does not support {item.job.lane}"
        elif name not in item.workers:
            why = f"does not serve {item.job.model}"
        elif not seen.health.state.usable:
            why = f"{seen.health.state}: {seen.health.reasons[0]}"
        elif name == chosen:
            why = _why_chosen(item, name, ends, len([w for w in item.workers if w in fleet]))
        else:
            why = _why_not(seen.facts.held, worker.slots, ends.get(name), ends.get(chosen or ""), item, name)
        verdicts.append(
            Verdict(name, seen.health.state, name == chosen, why, ends.get(name), worker.slots, seen.facts.held)
        )
    return sorted(verdicts, key=lambda v: (not v.takes, v.worker not in item.workers))


def _loaded(look: FleetLook, name: str) -> str | None:
    """Our name of the model in the worker's memory, when it is one."""
    probe, models = look.seen[name].facts.probe, look.board.roster.config.workers[name].models or {}
    loaded = [ours for ours, theirs in models.items() if probe and theirs in probe.loaded]
    return loaded[0] if len(loaded) == 1 else None


def _why_chosen(item: WorkItem, name: str, ends: Mapping[str, float | None], ready: int) -> str:
    if item.first == name:
        return f"role {item.job.role} asks for it first"
    if ready == 1:
        return "the only one that can" if len(item.workers) == 1 else "the only one that can be used now"
    if ends.get(name) is not None:
        return "expected to end it first"
    return "never measured yet" if any(end is not None for end in ends.values()) else "comes first in the configuration"


def _why_not(held: int, slots: int, end: float | None, best: float | None, item: WorkItem, name: str) -> str:
    if held >= slots:
        return f"its {slots} slots are taken"
    if end is not None and best is not None and end > best:
        return f"would end {end - best:.1f} s later"
    place = item.places[item.workers.index(name)] if item.places else 0
    return "comes later: this lane is not its first" if place else "comes later in the configuration"
