"""The dispatcher: one loop that owns the state of a batch and sends its jobs to workers.

Belongs here: attempts, failover, deadlines, cancelling, what becomes of a job that nobody can have. Does not belong
here: which worker is next (``schedule``), what a worker's failures mean for it (``worker_state``), one attempt's I/O
(``client``), whose slots they are (``fleet.leases``), recording (``answering``; it is told through callbacks).

What a failed attempt leads to:

- connection, timeout, stalled, server_error, rate_limited, truncated_stream: another worker, while attempts are left,
  else the same one again, once it has cooled.
- model_not_found: another worker, never this one again for this job. Credentials refused (HTTP 401, 403): another
  worker, and this one gets nothing more of the batch.
- invalid_request, context_overflow, cancelled: the end; another worker would say the same.

A job has one budget of attempts, over all runs. A connection that was refused is none of them: nothing was sent. A job
that nobody can answer now, because its workers are gone, down, misconfigured or cooling for long, is put off: it stays
pending, and a later run takes it up. A caller that can't put off gets it back as failed.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

import httpx

from model_foundry.config import LimitsConfig
from model_foundry.inference.client import ANSWER_TOO_LONG, ask, new_client, utc_now
from model_foundry.inference.descriptors import make_room
from model_foundry.inference.schedule import Assignment, Waiting, WorkerState, plan
from model_foundry.inference.target import InferenceRequest
from model_foundry.inference.target import WorkerTarget as WorkerTarget  # part of this module's interface
from model_foundry.inference.worker_state import COOLS, Flight, Worker, may_go_on, refuses_us
from model_foundry.inference.worker_state import Cooling as Cooling  # part of this module's interface
from model_foundry.records import Completion, ErrorKind, Job, JobOutcome, JobStatus
from model_foundry.tasks import end

URGENT_S = 30.0
"""A job whose deadline leaves no more than this beyond its own time goes before others of its priority."""
_COOLING = Cooling()


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A job with the workers that may answer it.

    Attributes:
        job: as recorded.
        workers: names, as listed.
        ranks: of each worker, the lowest is best; see ``schedule``.
        served_names: worker's name -> its own name of the model; the job's model where it says nothing.
        attempts_before: the number of the last attempt recorded already; numbering goes on from it.
        params: what is sent; the job's own when None.
        places: of each worker, where the job's lane stands in what it supports; 0, first choice, when left out.
        service_s: the expected seconds at each worker; see ``schedule``.
        first: the worker that gets it whenever that has a free slot.
        spent_before: attempts of its budget that earlier runs have spent.
    """

    job: Job
    workers: tuple[str, ...]
    ranks: tuple[int, ...]
    served_names: Mapping[str, str] = field(default_factory=dict)
    attempts_before: int = 0
    params: Mapping[str, Any] | None = None
    places: tuple[int, ...] = ()
    service_s: tuple[float | None, ...] = ()
    first: str | None = None
    spent_before: int = 0

    def kind(self, worker: str) -> tuple[int, int]:
        """What a slot of this worker is wanted for; see ``fleet.leases``."""
        return (self.places[self.workers.index(worker)] if self.places else 0), self.job.priority


class SharedSlots(Protocol):
    """Slots that others use too; see ``fleet.leases.Slots``."""

    on_change: Callable[[], None]

    def want(self, worker: str, slots: int, wants: Mapping[tuple[int, int], int], busy: int) -> None:
        """Says what is wanted from now on."""

    def held(self, worker: str) -> int:
        """How many may be used now."""

    def coming(self, worker: str) -> int:
        """How many more may be had at once."""


class Control:
    """What a dispatch is told while it runs. All of it may be called at any time, in the dispatch's loop."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self.cancelled: set[str] = set()
        self.news: tuple[Mapping[str, WorkerTarget], Callable[[WorkItem], WorkItem]] | None = None

    def cancel(self, job_ids: Collection[str]) -> None:
        """Cancels jobs: what is in flight is stopped, what waits ends."""
        self.cancelled.update(job_ids)
        self.wake.set()

    def renew(self, workers: Mapping[str, WorkerTarget], revise: Callable[[WorkItem], WorkItem]) -> None:
        """Tells of a fleet that has changed.

        Args:
            workers: all there are now; one that is missing gets nothing more.
            revise: gives an item its workers anew.
        """
        self.news = workers, revise
        self.wake.set()


async def dispatch(
    items: Sequence[WorkItem],
    workers: Mapping[str, WorkerTarget],
    limits: LimitsConfig,
    *,
    on_attempt: Callable[[WorkItem, Completion], None],
    on_done: Callable[[WorkItem, JobOutcome], None],
    on_put_off: Callable[[WorkItem, str], None] | None = None,
    cancel: asyncio.Event | None = None,
    control: Control | None = None,
    slots: SharedSlots | None = None,
    look: Callable[[WorkerTarget], Awaitable[str | None]] | None = None,
    client: httpx.AsyncClient | None = None,
    cooling: Cooling = _COOLING,
    clock: Callable[[], float] = time.monotonic,
    wall_clock: Callable[[], datetime] = utc_now,
    jitter: Callable[[], float] = random.random,
) -> None:
    """Answers every item: each ends with exactly one ``on_done``, after the ``on_attempt`` of each of its attempts, or
    with one ``on_put_off``.

    Args:
        items: in published order.
        workers: by name; a name that items use and this lacks is no candidate.
        limits: attempts at one job, time limits, sizes.
        on_attempt: called as each attempt ends; must not block.
        on_done: called as each job ends; must not block.
        on_put_off: called with the reason when nobody can answer a job now. Left out, such a job ends as failed.
        cancel: when set, what is in flight is cancelled and recorded, what waits is finished as cancelled.
        control: news while it runs.
        slots: slots shared with others; left out, every worker's slots are this dispatch's own.
        look: says why a worker that could not be reached still can't be, None when it can; left out, a job tries.
        client: one to use; a new one otherwise.
        cooling: see :class:`Cooling`.
        clock: monotonic seconds.
        wall_clock: UTC, for deadlines and ``sent_at``.
        jitter: numbers between 0 and 1.

    Raises:
        TooFewDescriptors: when this process may not open as many connections as there are slots to fill.
        Exception: what a callback raises; everything in flight is then stopped, as when this is cancelled.
    """
    make_room(min(len(items), sum(w.slots for w in workers.values())))
    own = client or new_client()
    callbacks = _Callbacks(on_attempt, on_done, on_put_off, look)
    times = _Times(cooling, clock, wall_clock, jitter)
    loop = _Loop(items, workers, limits, callbacks, times, cancel, control or Control(), slots, own)
    try:
        await loop.run()
    finally:
        await loop.stop()
        if client is None:
            await own.aclose()


@dataclass(frozen=True, slots=True)
class _Callbacks:
    on_attempt: Callable[[WorkItem, Completion], None]
    on_done: Callable[[WorkItem, JobOutcome], None]
    on_put_off: Callable[[WorkItem, str], None] | None
    look: Callable[[WorkerTarget], Awaitable[str | None]] | None


@dataclass(frozen=True, slots=True)
class _Times:
    cooling: Cooling
    clock: Callable[[], float]
    wall_clock: Callable[[], datetime]
    jitter: Callable[[], float]


@dataclass(slots=True)
class _Pending:
    """An item that has not ended. ``spent`` counts attempts of its budget, ``made`` all that are recorded here."""

    item: WorkItem
    position: int
    made: int = 0
    spent: int = 0
    tried: set[str] = field(default_factory=set)
    barred: set[str] = field(default_factory=set)
    last: Completion | None = None
    view: Waiting | None = None
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    lost_slot: bool = False

    def budget(self, limits: LimitsConfig) -> int:
        """Attempts that may be spent here; at least one, or it would never end."""
        return max(1, limits.max_attempts - self.item.spent_before)


class _Loop:
    """The one owner of the state; nothing else changes it, so there are no locks."""

    def __init__(
        self,
        items: Sequence[WorkItem],
        workers: Mapping[str, WorkerTarget],
        limits: LimitsConfig,
        callbacks: _Callbacks,
        times: _Times,
        cancel: asyncio.Event | None,
        control: Control,
        slots: SharedSlots | None,
        client: httpx.AsyncClient,
    ) -> None:
        self._waiting = {n: _Pending(item, n) for n, item in enumerate(items)}
        self._workers = {name: Worker(target) for name, target in workers.items()}
        self._running: dict[asyncio.Task[Completion], tuple[_Pending, Worker, float]] = {}
        self._looks: dict[asyncio.Task[str | None], Worker] = {}
        self._wants: dict[str, Counter[tuple[int, int]]] = {}
        self._limits, self._callbacks, self._times = limits, callbacks, times
        self._cancel, self._control, self._slots, self._client = cancel, control, slots, client
        self._changed = True
        self._cancelled_seen = 0
        self._next_deadline: datetime | None = None
        self._cancel_wait = asyncio.create_task(cancel.wait()) if cancel else None
        self._wake_wait = asyncio.create_task(control.wake.wait())
        if slots is not None:
            slots.on_change = control.wake.set

    async def run(self) -> None:
        while True:
            now = self._times.clock()  # one moment for the whole round: what cools at planning also counts when we wait
            self._take_news()
            self._finish_hopeless(now)
            if not self._waiting and not self._running:
                self._plan(now)  # nothing is wanted any more: slots are given back now
                return
            self._look_at_unreachable(now)
            for assignment in self._plan(now):
                self._send(assignment)
            self._say_wants()  # again: a slot with a request in it is not given back
            self._stop_surplus()
            await self._wait(now)
            for task in [t for t in self._running if t.done()]:
                self._take(task)
            for look in [t for t in self._looks if t.done()]:
                self._take_look(look)

    async def stop(self) -> None:
        """Ends what is in flight; nothing is left behind. Does nothing after a normal end."""
        waits = [self._wake_wait, *([self._cancel_wait] if self._cancel_wait else [])]
        await end(*self._running, *self._looks, *waits)

    # -- deciding --------------------------------------------------------------------------------------------------

    def _plan(self, now: float) -> list[Assignment]:
        """What can be sent now. Of shared slots, what is wanted is said first; only those held are used."""
        waiting = [self._view(p, now) for p in self._waiting.values()]
        if self._slots is None:
            return plan(waiting, {name: w.view(now) for name, w in self._able()}, now)
        self._wants = {name: w.kinds() for name, w in self._workers.items()}
        for assignment in plan(waiting, {name: w.view(now) for name, w in self._able()}, now):
            self._wants[assignment.worker][self._waiting[assignment.position].item.kind(assignment.worker)] += 1
        self._say_wants()
        held = {name: self._slots.held(name) for name in self._workers}
        fleet: dict[str, WorkerState] = {
            name: w.view(now, max(held[name] + self._slots.coming(name), w.in_flight)) for name, w in self._able()
        }
        free = Counter({name: held[name] - w.in_flight for name, w in self._workers.items()})
        sendable = []
        for assignment in plan(waiting, fleet, now):
            if free[assignment.worker] > 0:  # else it waits for the slot that is coming
                free[assignment.worker] -= 1
                sendable.append(assignment)
        return sendable

    def _say_wants(self) -> None:
        if self._slots is not None:
            for name, worker in self._workers.items():
                self._slots.want(name, worker.target.slots, self._wants.get(name, {}), worker.in_flight)

    def _able(self) -> list[tuple[str, Worker]]:
        """The workers that may get something."""
        return [(n, w) for n, w in self._workers.items() if w.why_not() is None and not (self._look and w.unreachable)]

    @property
    def _look(self) -> Callable[[WorkerTarget], Awaitable[str | None]] | None:
        return self._callbacks.look

    def _candidates(self, pending: _Pending) -> list[int]:
        """The places, in the item's list, of the workers that can still be hoped for."""
        names = pending.item.workers
        return [n for n, name in enumerate(names) if name not in pending.barred and not self._why_not(name)]

    def _why_not(self, name: str) -> str | None:
        worker = self._workers.get(name)
        return f"worker {name} is not known here" if worker is None else worker.why_not()

    def _view(self, pending: _Pending, now: float) -> Waiting:
        """What the decision sees; kept until a failure changes it, because thousands may wait."""
        if pending.view is None or pending.item.job.deadline is not None:
            item, places = pending.item, self._candidates(pending)
            service_s = tuple(item.service_s[n] for n in places) if item.service_s else ()
            pending.view = Waiting(
                position=pending.position,
                workers=tuple(item.workers[n] for n in places),
                ranks=tuple(item.ranks[n] for n in places),
                priority=item.job.priority,
                model=item.job.model,
                tried=frozenset(pending.tried),
                service_s=service_s,
                first=item.first,
                urgent=self._is_urgent(item.job, service_s),
            )
        return pending.view

    def _is_urgent(self, job: Job, service_s: tuple[float | None, ...]) -> bool:
        if job.deadline is None:
            return False
        own_s = min((s for s in service_s if s is not None), default=0.0)
        return (job.deadline - self._times.wall_clock()).total_seconds() - own_s <= URGENT_S

    def _take_news(self) -> None:
        """The fleet as it is now, and jobs that were cancelled."""
        for pending, _, _ in self._running.values():
            if pending.item.job.job_id in self._control.cancelled:
                pending.stop.set()
        if len(self._control.cancelled) != self._cancelled_seen:
            self._cancelled_seen, self._changed = len(self._control.cancelled), True
        if self._control.news is None:
            return
        (targets, revise), self._control.news = self._control.news, None
        for name, target in targets.items():
            worker = self._workers.setdefault(name, Worker(target))
            moved = (worker.target.url, worker.target.headers) != (target.url, target.headers)
            if moved and worker.in_flight == 0:
                self._workers[name] = Worker(target)
            else:
                worker.target = target
        for name in self._workers.keys() - targets.keys():
            gone = self._workers[name]
            gone.target = replace(gone.target, unusable=f"worker {name} is gone")
        for pending in self._waiting.values():
            pending.item, pending.view = revise(pending.item), None
        self._changed = True

    def _finish_hopeless(self, now: float) -> None:
        """Ends every waiting job that can't be sent any more. Looks only when something may have changed that."""
        wall_now = self._times.wall_clock()
        cancelled = self._cancel is not None and self._cancel.is_set()
        if not (cancelled or self._changed or (self._next_deadline and self._next_deadline <= wall_now)):
            return
        self._changed = False
        for pending in list(self._waiting.values()):
            deadline = pending.item.job.deadline
            if cancelled or pending.item.job.job_id in self._control.cancelled:
                self._finish(pending, JobStatus.CANCELLED, ErrorKind.CANCELLED, "cancelled before it was answered")
            elif deadline is not None and deadline <= wall_now:
                text = f"its deadline {deadline.isoformat()} passed while it waited"
                self._finish(pending, JobStatus.EXPIRED, ErrorKind.DEADLINE, text)
            else:
                pending.view = None
                self._end_if_no_worker(pending, now)
        self._next_deadline = min((d for p in self._waiting.values() if (d := p.item.job.deadline)), default=None)

    def _end_if_no_worker(self, pending: _Pending, now: float) -> None:
        names = pending.item.workers
        candidates = [self._workers[names[n]] for n in self._candidates(pending)]
        cooled = min((w.cooling_until for w in candidates), default=None)
        if cooled is not None and cooled - now <= self._times.cooling.max_wait_s:
            return
        if pending.last is not None and names and pending.barred.issuperset(names):
            self._finish_as(pending, pending.last)  # each of them has said that it does not serve the model
            return
        reasons = [r for n in names if (r := self._why_not(n))]
        reasons += [w.last_error[1] for w in candidates if w.last_error]
        why = "; ".join(reasons) or "no worker serves its model and capability"
        if self._callbacks.on_put_off is not None:
            del self._waiting[pending.position]
            self._callbacks.on_put_off(pending.item, why)
        elif pending.last is not None:
            self._finish_as(pending, pending.last)
        elif errors := [w.last_error for n in names if (w := self._workers.get(n)) and w.last_error]:
            kind, message = errors[0]
            self._finish(pending, JobStatus.FAILED, kind, f"not sent, because {message}")
        else:
            self._finish(pending, JobStatus.FAILED, ErrorKind.NO_WORKER, f"no worker can answer it: {why}")

    # -- acting ----------------------------------------------------------------------------------------------------

    def _send(self, assignment: Assignment) -> None:
        pending, worker = self._waiting.pop(assignment.position), self._workers[assignment.worker]
        item, now = pending.item, self._times.clock()
        request = InferenceRequest(
            model=item.served_names.get(worker.target.name) or item.job.model or "",
            messages=item.job.messages,
            params=item.job.params if item.params is None else item.params,
            default_max_tokens=self._limits.default_max_tokens,
        )
        pending.made += 1
        worker.last_model = item.job.model
        worker.flights[pending.position] = Flight(
            pending.position, now, assignment.ends_at, item.kind(worker.target.name)
        )
        attempt = ask(
            self._client,
            worker.target,
            request,
            self._limits,
            cancel=pending.stop,
            clock=self._times.clock,
            wall_clock=self._times.wall_clock,
        )
        self._running[asyncio.create_task(attempt)] = pending, worker, now

    def _stop_surplus(self) -> None:
        """Stops what is to stop: everything when all is cancelled, and the youngest request of a slot that was lost."""
        if self._cancel is not None and self._cancel.is_set():
            for pending, _, _ in self._running.values():
                pending.stop.set()
        if self._slots is None:
            return
        for name, worker in self._workers.items():
            surplus = worker.in_flight - self._slots.held(name)
            if surplus > 0:
                flying = [(sent, p) for p, w, sent in self._running.values() if w is worker]
                for _, pending in sorted(flying, key=lambda found: -found[0])[:surplus]:
                    pending.lost_slot = True
                    pending.stop.set()

    def _look_at_unreachable(self, now: float) -> None:
        """Looks at each worker that could not be reached, has cooled, and is waited for."""
        if self._look is None:
            return
        waited_for = {name for p in self._waiting.values() for name in p.item.workers}
        for name, worker in self._workers.items():
            due = worker.unreachable and worker.cooling_until <= now and worker.why_not() is None
            if due and name in waited_for and worker not in self._looks.values():
                self._looks[asyncio.create_task(_look_at(self._look, worker.target))] = worker

    def _take_look(self, task: asyncio.Task[str | None]) -> None:
        worker, reason = self._looks.pop(task), task.result()
        if reason is None:
            worker.reachable_again()
        else:
            worker.still_unreachable(reason, self._times.clock(), self._times.cooling, self._times.jitter())
        self._changed = True

    async def _wait(self, now: float) -> None:
        """Until an attempt or a look ends, a worker has cooled, a deadline comes near, or there is news."""
        wakes = [w.cooling_until - now for w in self._workers.values() if w.cooling_until > now]
        if self._next_deadline is not None:
            left_s = (self._next_deadline - self._times.wall_clock()).total_seconds()
            wakes += [left_s, *([left_s - URGENT_S] if left_s > URGENT_S else [])]
        timeout = max(0.0, min(wakes)) if wakes and self._waiting else None
        cancelling = self._cancel is None or self._cancel.is_set()
        waits = [self._wake_wait, *([] if cancelling or self._cancel_wait is None else [self._cancel_wait])]
        tasks: set[asyncio.Task[Any]] = {*self._running, *self._looks, *waits}
        # everything that waits has a worker, is not cooling, and none is busy: plan() must have sent it
        alone = not self._running and not self._looks and timeout is None and self._slots is None
        assert not alone, "jobs wait, and nothing will wake them"  # noqa: S101
        await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if self._wake_wait.done():
            self._control.wake.clear()
            self._wake_wait = asyncio.create_task(self._control.wake.wait())

    def _take(self, task: asyncio.Task[Completion]) -> None:
        """Records an attempt that ended, and decides what comes next for its job and its worker."""
        pending, worker, sent = self._running.pop(task)
        del worker.flights[pending.position]
        item, job = pending.item, pending.item.job
        completion = task.result()
        lost_slot = pending.lost_slot and completion.status is JobStatus.CANCELLED
        completion = replace(
            completion,
            job_id=job.job_id,
            attempt=item.attempts_before + pending.made,
            model=job.model,
            queue_s=(completion.sent_at - job.published_at).total_seconds(),
            error_message="stopped: its slot was taken while NATS was away" if lost_slot else completion.error_message,
        )
        pending.last = completion
        self._callbacks.on_attempt(item, completion)
        own_cut = completion.finish_reason == ANSWER_TOO_LONG
        if completion.error_kind in COOLS and not own_cut:
            times = self._times
            worker.failed(completion, pending.position, sent, times.clock(), times.cooling, times.jitter())
            self._changed = True
        elif refuses_us(completion.error_kind, completion.http_status):
            worker.refused_credentials(completion)
            self._changed = True
        elif completion.status is not JobStatus.CANCELLED:
            self._changed |= worker.down
            worker.succeeded()
        pending.spent += not (lost_slot or completion.not_sent)
        if lost_slot:
            pending.stop, pending.lost_slot = asyncio.Event(), False
        elif (
            own_cut
            or not may_go_on(completion.error_kind, completion.http_status)
            or pending.spent >= pending.budget(self._limits)
        ):
            self._finish_as(pending, completion)
            return
        else:
            pending.tried.add(worker.target.name)
            if completion.error_kind is ErrorKind.MODEL_NOT_FOUND:
                pending.barred.add(worker.target.name)
        self._waiting[pending.position] = pending
        pending.view, self._changed = None, True

    def _finish_as(self, pending: _Pending, completion: Completion) -> None:
        self._finish(pending, completion.status, completion.error_kind, completion.error_message)

    def _finish(self, pending: _Pending, status: JobStatus, kind: ErrorKind | None, message: str | None) -> None:
        self._waiting.pop(pending.position, None)
        attempts = pending.item.attempts_before + pending.made
        outcome = JobOutcome(pending.item.job.job_id, status, kind, message, attempts, self._times.wall_clock())
        self._callbacks.on_done(pending.item, outcome)


async def _look_at(look: Callable[[WorkerTarget], Awaitable[str | None]], target: WorkerTarget) -> str | None:
    return await look(target)
