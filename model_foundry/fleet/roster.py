"""Who is in the fleet now: the workers of the configuration and those that joined by heartbeat, as one list. Pure.

Belongs here: what heartbeats mean for who may be asked for what. Does not belong here: reading the bucket
(``fleet.board``), which job goes where (``inference.schedule``), how a worker's state is named (``fleet.health``).

The configuration has the last word: a heartbeat of a worker that stands in it adds what only its host knows (models in
memory, GPU memory, slots where the file names none) and whether it is alive. A worker that does not stand in it joins
with what it says, and with those of our models that its server has; ``fleet.accept_unknown`` can forbid that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from model_foundry.config import FoundryConfig, WorkerConfig
from model_foundry.fleet.estimates import Rates, expected_load_s
from model_foundry.fleet.heartbeat import BadHeartbeat, Heartbeat
from model_foundry.inference.probe import listed_as

STALLED_S = 120.0
"""A server that has requests and has moved nothing for so long is not given more."""
VRAM_SHARE = 0.9
"""What of a GPU's memory weights may take; the rest is for contexts."""
LOAD_S = 5.0
"""Seconds to load a model, where none was measured."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat, or what was in its place, with the moment when NATS got it."""

    said: Heartbeat | BadHeartbeat
    at: datetime

    def age_s(self, now: datetime) -> float:
        """Seconds since; never negative, whatever the clocks say."""
        return max(0.0, (now - self.at).total_seconds())


@dataclass(frozen=True, slots=True)
class Member:
    """A worker of the fleet.

    Attributes:
        name: the worker's.
        config: what it is by now: the file's entry, or one made of its heartbeat.
        in_file: whether the configuration names it.
        beat: its last heartbeat; None when it has no agent.
        gone: it has an agent, or had one, and that is silent.
        notes: what does not fit, for people.
    """

    name: str
    config: WorkerConfig
    in_file: bool
    beat: Heartbeat | None = None
    beat_age_s: float | None = None
    gone: bool = False
    notes: tuple[str, ...] = ()

    def unusable(self) -> str | None:
        """Why nothing is sent to it now, by what its agent says; None when nothing speaks against it."""
        if self.gone:
            return f"worker {self.name} is gone: its last heartbeat is {self.beat_age_s:.0f} s old"
        if self.beat is None:
            return None
        if self.beat.state_hint not in (None, "ready") or self.beat.reachable is False:
            why = self.beat.problem or self.beat.state_hint or "its server does not answer"
            return f"worker {self.name}: its agent says: {why}"
        stalled_s = self.beat.progress.stalled_s
        if stalled_s is not None and stalled_s >= STALLED_S:
            return f"worker {self.name} has requests and has moved nothing for {stalled_s:.0f} s"
        return None


@dataclass(frozen=True, slots=True)
class Roster:
    """The fleet now. ``config``: the configuration with the workers as they are; routing goes by it.

    ``refused``: key of a heartbeat -> why it is not in the fleet.
    """

    config: FoundryConfig
    members: Mapping[str, Member]
    refused: Mapping[str, str] = field(default_factory=dict)


def roster(config: FoundryConfig, beats: Mapping[str, Beat], now: datetime) -> Roster:
    """The fleet of a configuration and the heartbeats by key.

    A worker that joined by heartbeat and is gone is left out: nobody expects it back.
    """
    members = {name: _member_in_file(name, w, beats.get(name), config, now) for name, w in config.workers.items()}
    refused: dict[str, str] = {}
    for key, beat in beats.items():
        if isinstance(beat.said, BadHeartbeat):
            refused[key] = beat.said.reason
        elif key not in members:
            if not config.fleet.accept_unknown:
                refused[key] = "it is not in the configuration, and fleet.accept_unknown is false"
            elif beat.age_s(now) <= config.fleet.gone_after_s:
                members[key] = _member_by_heartbeat(key, beat.said, beat.age_s(now), config)
    workers = {name: member.config for name, member in members.items()}
    return Roster(config.model_copy(update={"workers": workers}), members, refused)


def _member_in_file(name: str, worker: WorkerConfig, beat: Beat | None, config: FoundryConfig, now: datetime) -> Member:
    if beat is None:
        return Member(name, worker, True)
    if isinstance(beat.said, BadHeartbeat):
        return Member(name, worker, True, notes=(f"its heartbeat can't be read: {beat.said.reason}",))
    said, age_s = beat.said, beat.age_s(now)
    notes = list(said.notes)
    if said.slots is not None and "slots" not in worker.model_fields_set:
        worker = worker.model_copy(update={"slots": said.slots})
    elif said.slots is not None and said.slots != worker.slots:
        notes.append(f"the file gives it {worker.slots} slots, its server has {said.slots}")
    return Member(name, worker, True, said, age_s, age_s > config.fleet.gone_after_s, tuple(notes))


def _member_by_heartbeat(name: str, said: Heartbeat, age_s: float, config: FoundryConfig) -> Member:
    """A worker made of what it says. Capabilities that the configuration does not know can't be asked for."""
    supports = [c for c in said.supports if c in config.capabilities]
    notes = [*said.notes]
    if unknown := [c for c in said.supports if c not in config.capabilities]:
        notes.append(f"capabilities that are not configured: {', '.join(unknown)}")
    fields: dict[str, Any] = {
        "url": said.url,
        "api": said.api,
        "supports": supports or list(config.capabilities)[:1],
        "slots": said.slots or 1,
        "models": _our_models(said, config) if supports else {},
        "gpu_index": said.gpu.index if said.gpu else None,
        "description": "joined by heartbeat",
    }
    return Member(name, WorkerConfig(**fields), False, said, age_s, False, tuple(notes))


def _our_models(said: Heartbeat, config: FoundryConfig) -> dict[str, str] | None:
    """Those of our models that the server has, with its name for each; None when it does not say what it has."""
    if not said.models:
        return None
    theirs = [m.name for m in said.models]
    return {ours: found for ours in config.models if (found := listed_as(ours, theirs)) is not None}


def load_times(member: Member, rates: Mapping[tuple[str, str], Rates]) -> dict[str, float] | None:
    """Seconds to load each of a worker's models when it is not in memory: nothing where they all fit together, None
    where that is not known. For ``inference.schedule.WorkerState.load_s``.
    """
    models = member.config.models or {}
    if len(models) == 1:
        return {}
    beat = member.beat
    total_mb = beat.gpu.vram_total_mb if beat and beat.gpu else None
    sizes = {m.name: m.size_bytes for m in beat.models} if beat else {}
    if not models or total_mb is None or any(sizes.get(theirs) is None for theirs in models.values()):
        return None
    if sum(sizes[theirs] or 0 for theirs in models.values()) <= VRAM_SHARE * total_mb * 2**20:
        return {}
    return {ours: expected_load_s(rates.get((member.name, ours))) or LOAD_S for ours in models}


def without_beats(config: FoundryConfig) -> Roster:
    """The fleet as the file has it, when heartbeats can't be read or don't matter."""
    return Roster(config, {name: Member(name, w, True) for name, w in config.workers.items()})
