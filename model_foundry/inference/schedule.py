"""Which waiting job goes to which free slot: a pure function.

Belongs here: the decision. Does not belong here: time passing, cooling down, failures, effects (``dispatch``).

The rules, in order: higher priority first, then what has not failed yet, then the published order. Of a job's workers,
those not tried yet; of these the best rank that has a free slot and is not cooling; among equals the one with the
largest share of its slots free, then the one listed first. Once a worker is found, a job of the same priority that
wants the model which that worker used last may overtake, so that models are not swapped back and forth; only within a
window of positions, so that nobody starves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

OVERTAKING_WINDOW = 32
"""A job is overtaken for its model's sake by no job that stands this many positions behind it."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job that waits, as the decision sees it.

    Attributes:
        position: its place in the published order; unique, and its name here.
        workers: names of the workers that may have it.
        ranks: of each worker; the lowest is best.
        priority: higher first.
        model: what it asks for, to group by.
        tried: workers that failed it already; used again only when no other can take it before they can.
    """

    position: int
    workers: tuple[str, ...]
    ranks: tuple[int, ...]
    priority: int = 0
    model: str | None = None
    tried: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A worker as the decision sees it. ``cooling_until`` is on the clock of ``now``; ``slots`` those usable now."""

    slots: int
    in_flight: int = 0
    cooling_until: float = 0.0
    last_model: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """The job at this position is sent to this worker."""

    position: int
    worker: str


def plan(waiting: Sequence[Waiting], fleet: Mapping[str, WorkerState], now: float) -> list[Assignment]:
    """The assignments that can be made now, in order. Pure; no job is named twice, no worker beyond its slots.

    Args:
        waiting: in any order.
        fleet: by name; a worker that is not in it takes nothing.
        now: seconds, of the clock of ``cooling_until``.
    """
    free = {
        name: w.slots - w.in_flight for name, w in fleet.items() if w.cooling_until <= now and w.slots > w.in_flight
    }
    last_model = {name: w.last_model for name, w in fleet.items()}
    order = sorted(waiting, key=lambda job: (-job.priority, bool(job.tried), job.position))
    taken: set[int] = set()
    assignments: list[Assignment] = []
    start = 0
    while free and start < len(order):
        head = order[start]
        worker = None if head.position in taken else _best_worker(head, fleet, free, now)
        if worker is None:
            start += 1
            continue
        job = _same_model(order, start, taken, worker, last_model[worker], fleet, free, now) or head
        taken.add(job.position)
        last_model[worker] = job.model
        free[worker] -= 1
        if not free[worker]:
            del free[worker]
        assignments.append(Assignment(job.position, worker))
    return assignments


def _best_worker(job: Waiting, fleet: Mapping[str, WorkerState], free: Mapping[str, int], now: float) -> str | None:
    ready = [
        (w, r) for w, r in zip(job.workers, job.ranks, strict=True) if w in fleet and fleet[w].cooling_until <= now
    ]
    untried = [(w, r) for w, r in ready if w not in job.tried]
    able = [(w, r) for w, r in untried or ready if w in free]  # a full but untried worker is waited for
    return min(able, key=lambda wr: (wr[1], -free[wr[0]] / fleet[wr[0]].slots))[0] if able else None


def _same_model(
    order: Sequence[Waiting],
    start: int,
    taken: set[int],
    worker: str,
    model: str | None,
    fleet: Mapping[str, WorkerState],
    free: Mapping[str, int],
    now: float,
) -> Waiting | None:
    """The first job from ``start`` on, of the same priority and within the window, that goes there for this model."""
    head = order[start]
    if model is None or head.model == model:
        return head
    for job in order[start:]:
        if job.priority != head.priority or job.position - head.position >= OVERTAKING_WINDOW:
            return None
        if job.model == model and job.position not in taken and _best_worker(job, fleet, free, now) == worker:
            return job
    return None
