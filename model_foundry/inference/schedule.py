"""Which waiting job goes to which free slot: a pure function over a snapshot of the fleet.

Belongs here: the decision. Does not belong here: time passing, cooling down, failures, effects (``dispatch``), who may
have how many slots when several runs want them (``fleet.leases``), how long a job will take (``fleet.estimates``).

Jobs are looked at in order: higher priority first, then those whose deadline is near, then what has not failed yet,
then the published order. Each goes where it is expected to *finish* first: when a slot is free there, plus the time to
load its model if that is not in memory, plus its own time. So a job may wait for a busy fast worker while a slow one
is idle, and a job further back, for which the fast one's queue is too long, takes the slow one. What is not known
counts like the best that is known of the job's other workers, so that a worker gets measured; where nothing is known
all are alike, and the rank decides, then the largest share of free slots, then the order.

Of a job's workers only those not tried yet count, while one of them is ready. Once a worker is found, a job of the same
priority whose model is in that worker's memory may overtake one whose model would have to be loaded, within a window of
positions, so that models are not swapped back and forth and nobody starves.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

OVERTAKING_WINDOW = 32
"""A job is overtaken for its model's sake by no job that stands this many positions behind it."""
LOOKAHEAD = 512
"""So many jobs are looked at while a slot is free that none of them wants."""
UNKNOWN_S = 1.0
"""A job's time where nothing at all is known. Any number does: it makes a free slot better than a busy one."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job that waits, as the decision sees it.

    Attributes:
        position: its place in the published order; unique, and its name here.
        workers: names of the workers that may have it.
        ranks: of each worker; the lowest is best where the expected end is the same.
        priority: higher first.
        model: what it asks for, to group by.
        tried: workers that failed it already; used again only when no other can take it before they can.
        service_s: the expected seconds at each worker, without loading; None is unknown. Left out: unknown everywhere.
        first: the worker that gets it whenever that has a free slot, whoever would be faster.
        urgent: its deadline is near.
    """

    position: int
    workers: tuple[str, ...]
    ranks: tuple[int, ...]
    priority: int = 0
    model: str | None = None
    tried: frozenset[str] = frozenset()
    service_s: tuple[float | None, ...] = ()
    first: str | None = None
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A worker as the decision sees it.

    Attributes:
        slots: usable now; not more are ever filled.
        in_flight: requests at it.
        cooling_until: on the clock of ``now``.
        last_model: what it was last asked for.
        ends_at: when those in flight are expected to end, on that clock; the rest of them in ``UNKNOWN_S``.
        load_s: seconds to load each model that can't stay in memory beside the others; None: it is not known which
            can, and they are grouped without counting the time.
    """

    slots: int
    in_flight: int = 0
    cooling_until: float = 0.0
    last_model: str | None = None
    ends_at: tuple[float, ...] = ()
    load_s: Mapping[str, float] | None = None

    def loading_s(self, model: str | None, resident: str | None) -> float:
        """Seconds of loading before a job of this model, when ``resident`` is what was used before it."""
        return 0.0 if model is None or model == resident or not self.load_s else self.load_s.get(model, 0.0)


@dataclass(frozen=True, slots=True)
class Assignment:
    """The job at this position is sent to this worker. ``ends_at`` is its expected end, None when that is a guess."""

    position: int
    worker: str
    ends_at: float | None = None


@dataclass(frozen=True, slots=True)
class _Choice:
    worker: str
    starts_at: float
    ends_at: float
    known: bool


@dataclass(slots=True)
class _Bench:
    """A worker's slots while a plan is made: when each is free, and which model it will have used by then."""

    state: WorkerState
    free_at: list[float]
    free: int
    model: str | None


def plan(waiting: Sequence[Waiting], fleet: Mapping[str, WorkerState], now: float) -> list[Assignment]:
    """The assignments that can be made now, in order. Pure; no job is named twice, no worker beyond its slots.

    Args:
        waiting: in any order.
        fleet: by name; a worker that is not in it takes nothing.
        now: seconds, of the clock of ``cooling_until``.
    """
    benches = {name: _bench(state, now) for name, state in fleet.items() if state.cooling_until <= now}
    free = sum(bench.free for bench in benches.values())
    if not free:
        return []
    order = sorted(waiting, key=lambda job: (-job.priority, not job.urgent, bool(job.tried), job.position))
    taken: set[int] = set()
    assignments: list[Assignment] = []
    start, unwanted = 0, 0
    while free and start < len(order) and unwanted < LOOKAHEAD:
        head = order[start]
        choice = None if head.position in taken else _choose(head, benches, now)
        if choice is None:
            start += 1
            continue
        bench = benches[choice.worker]
        if not bench.free or choice.starts_at > now:  # it waits for a busy slot, which others then find taken
            heapq.heapreplace(bench.free_at, choice.ends_at)
            start, unwanted = start + 1, unwanted + 1
            continue
        job = _overtaker(order, start, taken, choice.worker, benches, now) or head
        if job is not head:
            choice = _choose(job, benches, now) or choice
        taken.add(job.position)
        bench.model = job.model
        bench.free, free = bench.free - 1, free - 1
        heapq.heapreplace(bench.free_at, choice.ends_at)
        assignments.append(Assignment(job.position, choice.worker, choice.ends_at if choice.known else None))
    return assignments


def expected_ends(job: Waiting, fleet: Mapping[str, WorkerState], now: float) -> dict[str, float | None]:
    """Seconds until the job is expected to end at each of its workers if nothing else waited; None at one that can't
    have it now. For showing a decision.
    """
    benches = {name: _bench(state, now) for name, state in fleet.items() if state.cooling_until <= now and state.slots}
    ends: dict[str, float | None] = {}
    for name in job.workers:
        choice = _choose(_only(job, name), benches, now) if name in benches else None
        ends[name] = choice.ends_at - now if choice and choice.known else None
    return ends


def _only(job: Waiting, name: str) -> Waiting:
    at = job.workers.index(name)
    service_s = (job.service_s[at],) if job.service_s else ()
    return Waiting(job.position, (name,), (job.ranks[at],), job.priority, job.model, service_s=service_s)


def _bench(state: WorkerState, now: float) -> _Bench:
    free = max(0, state.slots - state.in_flight)
    ends = [max(now, end) for end in sorted(state.ends_at)[: state.in_flight]]
    busy = [*ends, *[now + UNKNOWN_S] * (state.in_flight - len(ends))]
    free_at = [now] * free + sorted(busy)[max(0, state.in_flight - state.slots) :]
    heapq.heapify(free_at)
    return _Bench(state, free_at, free, state.last_model)


def _choose(job: Waiting, benches: Mapping[str, _Bench], now: float) -> _Choice | None:
    """Where the job is expected to end first, and when; None when none of its workers is ready."""
    known = [s for s in job.service_s if s is not None]
    guess = min(known, default=UNKNOWN_S)
    best: tuple[float, int, float] | None = None
    chosen: _Choice | None = None
    untried_only = bool(job.tried) and any(w in benches and w not in job.tried for w in job.workers)
    for at, name in enumerate(job.workers):
        bench = benches.get(name)
        if bench is None or not bench.free_at or (untried_only and name in job.tried):
            continue
        service_s = job.service_s[at] if job.service_s else None
        starts_at = bench.free_at[0] if bench.free_at[0] > now or bench.free else now
        loading_s = bench.state.loading_s(job.model, bench.model)
        ends_at = starts_at + loading_s + (guess if service_s is None else service_s)
        choice = _Choice(name, starts_at, ends_at, service_s is not None)
        if name == job.first and bench.free:
            return choice
        key = (ends_at, job.ranks[at], -bench.free / max(1, bench.state.slots))
        if best is None or key < best:
            best, chosen = key, choice
    return chosen


def _overtaker(
    order: Sequence[Waiting], start: int, taken: set[int], worker: str, benches: Mapping[str, _Bench], now: float
) -> Waiting | None:
    """The first job from ``start`` on, of the same priority and within the window, that goes there for its model."""
    head, bench = order[start], benches[worker]
    model = bench.model
    if model is None or head.model == model or head.urgent:
        return head
    if bench.state.load_s is not None and not bench.state.loading_s(head.model, model):
        return head  # both are in memory: nothing is gained
    for job in order[start:]:
        if job.priority != head.priority or job.position - head.position >= OVERTAKING_WINDOW:
            return None
        if job.model == model and job.position not in taken:
            choice = _choose(job, benches, now)
            if choice is not None and choice.worker == worker and choice.starts_at <= now:
                return job
    return None
