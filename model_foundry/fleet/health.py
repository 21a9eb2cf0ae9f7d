"""How a worker is, in one word and with reasons: from its agent, a look at it, and how its last answers went. Pure.

Belongs here: the states and what leads to them. Does not belong here: gathering the facts (``fleet.look``), what a
running batch makes of failures (``inference.worker_state``).

A server that answers ``/health`` is not thereby well: vLLM was seen to answer it at 0 tokens a second (vllm#39863), and
a proxy may answer anything. So work counts: a counter that moves while there are requests, and answers that end well.

From the worst on; the first that holds is the state, and all that hold are reasons:

- ``misconfigured``: it is there, and a person has to see to it: it refuses us (401, 403), is not what the URL says
  (404), or lacks a model that we say it has.
- ``gone``: it has an agent, and that is silent.
- ``down``: nothing answers.
- ``warming``: it loads its model.
- ``degraded``: it has requests and moves nothing, or half of its last answers failed.
- ``busy``: all of its slots are taken, or requests wait inside the server.
- ``healthy``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from model_foundry.fleet.roster import Member
from model_foundry.inference.probe import ProbeResult, listed_as

DEGRADED_STALL_S = 30.0
DEGRADED_SHARE = 0.5
DEGRADED_MIN_N = 4
"""So many attempts at least before a share of failures says anything."""


class State(StrEnum):
    """A worker's state, from the worst to the best."""

    MISCONFIGURED = "misconfigured"
    GONE = "gone"
    DOWN = "down"
    WARMING = "warming"
    DEGRADED = "degraded"
    BUSY = "busy"
    HEALTHY = "healthy"

    @property
    def usable(self) -> bool:
        """Whether jobs may go there."""
        return self in (State.DEGRADED, State.BUSY, State.HEALTHY)


@dataclass(frozen=True, slots=True)
class RecentAttempts:
    """How a worker's last attempts went. ``failed``: by its own fault."""

    n: int = 0
    failed: int = 0
    last_answered_at: datetime | None = None
    last_error: str | None = None


def recent_from_rows(rows: Sequence[Mapping[str, Any]]) -> dict[str, RecentAttempts]:
    """By worker, from the rows of ``sql/show/recent_attempts.sql``."""
    return {r["worker"]: RecentAttempts(r["n"], r["failed"], r["last_answered_at"], r["last_error"]) for r in rows}


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a worker now.

    Attributes:
        member: as the roster has it.
        probe: what a look at it found; None when nobody looked.
        held: slots that somebody holds.
        recent: how its last attempts went.
    """

    member: Member
    probe: ProbeResult | None = None
    held: int = 0
    recent: RecentAttempts = RecentAttempts()


@dataclass(frozen=True, slots=True)
class Health:
    """The state, and everything that speaks against a better one."""

    state: State
    reasons: tuple[str, ...]


def missing_models(member: Member, probe: ProbeResult | None) -> list[str]:
    """The server's names of models that we say it has and it does not list."""
    if probe is None or not probe.ok or not probe.models:
        return []
    names = (member.config.models or {}).values()
    return [name for name in names if listed_as(name, probe.models) is None]


def health(facts: Facts) -> Health:
    """How a worker is."""
    found = list(_reasons(facts))
    if not found:
        return Health(State.HEALTHY, ())
    order = list(State)
    found.sort(key=lambda reason: order.index(reason[0]))
    return Health(found[0][0], tuple(text for _, text in found))


def _reasons(facts: Facts) -> list[tuple[State, str]]:
    member, probe, beat = facts.member, facts.probe, facts.member.beat
    found: list[tuple[State, str]] = []
    if member.gone:
        found.append((State.GONE, f"no heartbeat for {member.beat_age_s:.0f} s"))
    if probe is not None and not probe.ok:
        found.append((_state_of(probe), probe.detail))
    elif beat is not None and probe is None and not member.gone:
        told = {"misconfigured": State.MISCONFIGURED, "loading": State.WARMING, "down": State.DOWN}
        if beat.state_hint in told:
            found.append((told[beat.state_hint], beat.problem or f"its agent says: {beat.state_hint}"))
        elif beat.reachable is False:
            found.append((State.DOWN, beat.problem or "its agent can't reach its server"))
    if missing := missing_models(member, probe):
        has = ", ".join(probe.models) if probe and probe.models else "no model"
        found.append((State.MISCONFIGURED, f"the server does not list {', '.join(missing)}; it has {has}"))
    stalled_s = beat.progress.stalled_s if beat and not member.gone else None
    if stalled_s is not None and stalled_s >= DEGRADED_STALL_S:
        found.append((State.DEGRADED, f"it has requests and has moved nothing for {stalled_s:.0f} s"))
    recent = facts.recent
    if recent.n >= DEGRADED_MIN_N and recent.failed >= DEGRADED_SHARE * recent.n:
        why = f": {recent.last_error}" if recent.last_error else ""
        found.append((State.DEGRADED, f"{recent.failed} of its last {recent.n} attempts failed{why}"))
    slots = member.config.slots
    if facts.held >= slots:
        found.append((State.BUSY, f"{facts.held} of {slots} slots are taken"))
    waiting = probe.waiting if probe is not None else beat.waiting if beat else None
    if waiting:
        found.append((State.BUSY, f"{waiting} requests wait inside the server"))
    return found


def _state_of(probe: ProbeResult) -> State:
    """Of a look that did not find what it should."""
    if probe.loading:
        return State.WARMING
    if probe.reachable and (probe.status is None or probe.status < 500):
        return State.MISCONFIGURED
    return State.DOWN
