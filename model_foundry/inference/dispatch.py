"""The dispatcher: one loop that owns the state of a batch and sends its jobs to workers.

Belongs here: attempts, failover, cooling down, deadlines, cancelling. Does not belong here: which worker is next
(``schedule``), one attempt's I/O (``client``), recording (``answering``; it is told through two callbacks).

What a failed attempt leads to:

- connection, timeout, stalled, server_error, rate_limited, truncated_stream: another worker, while attempts are left,
  else the same one again. The worker cools down first, longer each time it fails in a row, jittered, or for as long as
  its Retry-After asks. After it has cooled, one request alone tries it, until one succeeds.
- model_not_found, and credentials refused (HTTP 401, 403): another worker, never this one again for this job. The
  worker does not cool, because it may well answer others.
- invalid_request, context_overflow, cancelled: the end; another worker would say the same.

A worker that does nothing but fail for two minutes is down: what only it could answer is finished as failed, so that a
run ends. Time-outs count towards that only when several jobs have them, because one job may simply be too long. A job
whose workers all cool longer than ``Cooling.max_wait_s`` is finished too.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import httpx

from model_foundry.config import LimitsConfig
from model_foundry.inference.client import ANSWER_TOO_LONG, ask, new_client, utc_now
from model_foundry.inference.schedule import Assignment, Waiting, WorkerState, plan
from model_foundry.inference.target import InferenceRequest
from model_foundry.inference.target import WorkerTarget as WorkerTarget  # part of this module's interface
from model_foundry.records import Completion, ErrorKind, Job, JobOutcome, JobStatus

_COOLS = frozenset(
    {
        ErrorKind.CONNECTION,
        ErrorKind.TIMEOUT,
        ErrorKind.STALLED,
        ErrorKind.SERVER_ERROR,
        ErrorKind.RATE_LIMITED,
        ErrorKind.TRUNCATED_STREAM,
    }
)
_TOO_SLOW = frozenset({ErrorKind.TIMEOUT, ErrorKind.STALLED})
_CREDENTIALS_REFUSED = (401, 403, 407)


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
    """

    job: Job
    workers: tuple[str, ...]
    ranks: tuple[int, ...]
    served_names: Mapping[str, str] = field(default_factory=dict)
    attempts_before: int = 0
    params: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Cooling:
    """How long a failing worker is left alone.

    The n-th failure in a row cools for ``base_s * 2**(n-1)``, at most ``max_s``, plus up to ``jitter`` of it.
    ``down_after_s``: how long it may fail without one success in between before it counts as down;
    ``down_after_timeouts``: of how many different jobs, where it fails by being too slow.
    ``max_wait_s``: the longest that a job waits for its workers to have cooled.
    """

    base_s: float = 1.0
    max_s: float = 30.0
    jitter: float = 0.25
    down_after_s: float = 120.0
    down_after_timeouts: int = 3
    max_wait_s: float = 300.0


async def dispatch(
    items: Sequence[WorkItem],
    workers: Mapping[str, WorkerTarget],
    limits: LimitsConfig,
    *,
    on_attempt: Callable[[WorkItem, Completion], None],
    on_done: Callable[[WorkItem, JobOutcome], None],
    cancel: asyncio.Event | None = None,
    client: httpx.AsyncClient | None = None,
    cooling: Cooling = Cooling(),
    clock: Callable[[], float] = time.monotonic,
    wall_clock: Callable[[], datetime] = utc_now,
    jitter: Callable[[], float] = random.random,
) -> None:
    """Answers every item: each ends with exactly one ``on_done``, after the ``on_attempt`` of each of its attempts.

    Args:
        items: in published order.
        workers: by name; a name that items use and this lacks is no candidate.
        limits: attempts at one job (in this call), time limits, sizes.
        on_attempt: called as each attempt ends; must not block.
        on_done: called as each job ends; must not block.
        cancel: when set, what is in flight is cancelled and recorded, what waits is finished as cancelled.
        client: one to use; a new one otherwise.
        cooling: see :class:`Cooling`.
        clock: monotonic seconds.
        wall_clock: UTC, for deadlines and ``sent_at``.
        jitter: numbers between 0 and 1.

    Raises:
        Exception: what a callback raises; everything in flight is then stopped, as when this is cancelled.
    """
    own = client or new_client()
    loop = _Loop(items, workers, limits, on_attempt, on_done, cancel, own, cooling, clock, wall_clock, jitter)
    try:
        await loop.run()
    finally:
        await loop.stop()
        if client is None:
            await own.aclose()


@dataclass(slots=True)
class _Pending:
    """An item that has not ended."""

    item: WorkItem
    position: int
    made: int = 0
    tried: set[str] = field(default_factory=set)
    barred: set[str] = field(default_factory=set)
    last: Completion | None = None
    view: Waiting | None = None


@dataclass(slots=True)
class _Worker:
    """A worker's state. ``failures`` counts those in a row; parallel ones of the same moment count once."""

    target: WorkerTarget
    in_flight: int = 0
    failures: int = 0
    failing_since: float | None = None
    timed_out: set[int] = field(default_factory=set)
    cooled_at: float = float("-inf")
    cooling_until: float = float("-inf")
    last_model: str | None = None
    last_error: tuple[ErrorKind, str] | None = None
    down: bool = False

    def view(self) -> WorkerState:
        """What the decision sees: a worker that failed last has one slot, until it succeeds."""
        slots = min(1, self.target.slots) if self.failures else self.target.slots
        return WorkerState(slots, self.in_flight, self.cooling_until, self.last_model)

    def succeeded(self) -> None:
        self.failures, self.failing_since, self.down = 0, None, False
        self.timed_out.clear()

    def failed(
        self, completion: Completion, position: int, sent: float, now: float, cooling: Cooling, jitter: float
    ) -> None:
        kind = completion.error_kind or ErrorKind.SERVER_ERROR
        self.last_error = kind, completion.error_message or kind
        wait = completion.retry_after_s
        if sent >= self.cooled_at:  # not one of several that were under way when the first of them failed
            self.failures += 1
            self.failing_since = now if self.failing_since is None else self.failing_since
            grown = min(cooling.max_s, cooling.base_s * 2 ** min(self.failures - 1, 30))
            wait = max(wait or 0.0, grown * (1 + cooling.jitter * jitter))
        self.cooled_at = now
        self.cooling_until = max(self.cooling_until, now + (wait or 0.0))
        if kind is ErrorKind.RATE_LIMITED:  # being full is a sign of life; all else, for so long, is not
            self.failing_since = None
        elif kind in _TOO_SLOW:
            self.timed_out.add(position)
        failing_s = 0.0 if self.failing_since is None else now - self.failing_since
        enough = kind not in _TOO_SLOW or len(self.timed_out) >= cooling.down_after_timeouts
        self.down = enough and failing_s >= cooling.down_after_s


class _Loop:
    """The one owner of the state; nothing else changes it, so there are no locks."""

    def __init__(
        self,
        items: Sequence[WorkItem],
        workers: Mapping[str, WorkerTarget],
        limits: LimitsConfig,
        on_attempt: Callable[[WorkItem, Completion], None],
        on_done: Callable[[WorkItem, JobOutcome], None],
        cancel: asyncio.Event | None,
        client: httpx.AsyncClient,
        cooling: Cooling,
        clock: Callable[[], float],
        wall_clock: Callable[[], datetime],
        jitter: Callable[[], float],
    ) -> None:
        self._waiting = {n: _Pending(item, n) for n, item in enumerate(items)}
        self._workers = {name: _Worker(target) for name, target in workers.items()}
        self._running: dict[asyncio.Task[Completion], tuple[_Pending, _Worker, float]] = {}
        self._limits, self._on_attempt, self._on_done = limits, on_attempt, on_done
        self._cancel, self._client, self._cooling = cancel, client, cooling
        self._clock, self._wall_clock, self._jitter = clock, wall_clock, jitter
        self._changed = True
        self._next_deadline: datetime | None = None
        self._cancel_wait = asyncio.create_task(cancel.wait()) if cancel else None

    async def run(self) -> None:
        while True:
            now = self._clock()  # one moment for the whole round: what cools at planning also counts when we wait
            self._finish_hopeless(now)
            if not self._waiting and not self._running:
                return
            for assignment in plan([self._view(p) for p in self._waiting.values()], self._fleet(), now):
                self._send(assignment)
            await self._wait(now)
            for task in [t for t in self._running if t.done()]:
                self._take(task)

    async def stop(self) -> None:
        """Ends what is in flight; nothing is left behind. Does nothing after a normal end."""
        tasks: list[asyncio.Task[Any]] = [*self._running, *([self._cancel_wait] if self._cancel_wait else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- deciding --------------------------------------------------------------------------------------------------

    def _fleet(self) -> dict[str, WorkerState]:
        return {name: w.view() for name, w in self._workers.items() if not w.down and not w.target.unusable}

    def _candidates(self, pending: _Pending) -> list[tuple[str, int]]:
        """The workers that can still be hoped for, with their ranks."""
        pairs = zip(pending.item.workers, pending.item.ranks, strict=True)
        return [(name, rank) for name, rank in pairs if name not in pending.barred and not self._why_not(name)]

    def _why_not(self, name: str) -> str | None:
        worker = self._workers.get(name)
        if worker is None:
            return f"worker {name} is not known here"
        if worker.target.unusable:
            return worker.target.unusable
        return f"worker {name} is down: {worker.last_error[1]}" if worker.down and worker.last_error else None

    def _view(self, pending: _Pending) -> Waiting:
        """What the decision sees; kept until a failure changes it, because thousands may wait."""
        if pending.view is None:
            candidates, job = self._candidates(pending), pending.item.job
            pending.view = Waiting(
                position=pending.position,
                workers=tuple(name for name, _ in candidates),
                ranks=tuple(rank for _, rank in candidates),
                priority=job.priority,
                model=job.model,
                tried=frozenset(pending.tried),
            )
        return pending.view

    def _finish_hopeless(self, now: float) -> None:
        """Ends every waiting job that can't be sent any more. Looks only when something may have changed that."""
        wall_now = self._wall_clock()
        cancelled = self._cancel is not None and self._cancel.is_set()
        if not (cancelled or self._changed or (self._next_deadline and self._next_deadline <= wall_now)):
            return
        self._changed = False
        for pending in list(self._waiting.values()):
            deadline = pending.item.job.deadline
            if cancelled:
                self._finish(pending, JobStatus.CANCELLED, ErrorKind.CANCELLED, "cancelled before it was answered")
            elif deadline is not None and deadline <= wall_now:
                text = f"its deadline {deadline.isoformat()} passed while it waited"
                self._finish(pending, JobStatus.EXPIRED, ErrorKind.DEADLINE, text)
            else:
                pending.view = None
                self._finish_if_no_worker(pending, now)
        self._next_deadline = min((d for p in self._waiting.values() if (d := p.item.job.deadline)), default=None)

    def _finish_if_no_worker(self, pending: _Pending, now: float) -> None:
        candidates = self._candidates(pending)
        cooled = min((self._workers[name].cooling_until for name, _ in candidates), default=None)
        if cooled is not None and cooled - now <= self._cooling.max_wait_s:
            return
        if pending.last is not None:
            self._finish_as(pending, pending.last)
            return
        names = pending.item.workers
        down = next((w for n in names if (w := self._workers.get(n)) and w.last_error and (w.down or candidates)), None)
        if down and down.last_error:
            kind, message = down.last_error
            self._finish(pending, JobStatus.FAILED, kind, f"not sent, because {message}")
            return
        why = "; ".join(filter(None, (self._why_not(n) for n in names))) or "no worker serves its model and capability"
        self._finish(pending, JobStatus.FAILED, ErrorKind.NO_WORKER, f"no worker can answer it: {why}")

    # -- acting ----------------------------------------------------------------------------------------------------

    def _send(self, assignment: Assignment) -> None:
        pending, worker = self._waiting.pop(assignment.position), self._workers[assignment.worker]
        item = pending.item
        request = InferenceRequest(
            model=item.served_names.get(worker.target.name) or item.job.model or "",
            messages=item.job.messages,
            params=item.job.params if item.params is None else item.params,
            default_max_tokens=self._limits.default_max_tokens,
        )
        pending.made += 1
        worker.in_flight += 1
        worker.last_model = item.job.model
        attempt = ask(
            self._client,
            worker.target,
            request,
            self._limits,
            cancel=self._cancel,
            clock=self._clock,
            wall_clock=self._wall_clock,
        )
        self._running[asyncio.create_task(attempt)] = pending, worker, self._clock()

    async def _wait(self, now: float) -> None:
        """Until an attempt ends, a worker has cooled, a deadline passes, or everything is cancelled."""
        wakes = [w.cooling_until - now for w in self._workers.values() if w.cooling_until > now]
        if self._next_deadline is not None:
            wakes.append((self._next_deadline - self._wall_clock()).total_seconds())
        timeout = max(0.0, min(wakes)) if wakes and self._waiting else None
        cancelling = self._cancel is None or self._cancel.is_set()
        waiter = set() if cancelling or self._cancel_wait is None else {self._cancel_wait}
        tasks: set[asyncio.Task[Any]] = {*self._running, *waiter}
        if tasks:
            await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        elif timeout is not None:
            await asyncio.sleep(timeout)
        else:  # everything that waits has a worker, is not cooling, and none is busy: plan() must have sent it
            raise AssertionError("jobs wait, and nothing will wake them")

    def _take(self, task: asyncio.Task[Completion]) -> None:
        """Records an attempt that ended, and decides what comes next for its job and its worker."""
        pending, worker, sent = self._running.pop(task)
        worker.in_flight -= 1
        item, job = pending.item, pending.item.job
        completion = task.result()
        completion = replace(
            completion,
            job_id=job.job_id,
            attempt=item.attempts_before + pending.made,
            model=job.model,
            queue_s=(completion.sent_at - job.published_at).total_seconds(),
        )
        pending.last = completion
        self._on_attempt(item, completion)
        own_cut = completion.finish_reason == ANSWER_TOO_LONG
        if completion.error_kind in _COOLS and not own_cut:
            worker.failed(completion, pending.position, sent, self._clock(), self._cooling, self._jitter())
            self._changed = True
        elif completion.status is not JobStatus.CANCELLED:
            self._changed |= worker.down
            worker.succeeded()
        if own_cut or not _may_go_on(completion) or pending.made >= self._limits.max_attempts:
            self._finish_as(pending, completion)
            return
        pending.tried.add(worker.target.name)
        if completion.error_kind not in _COOLS:
            pending.barred.add(worker.target.name)
        self._waiting[pending.position] = pending
        self._changed = True

    def _finish_as(self, pending: _Pending, completion: Completion) -> None:
        self._finish(pending, completion.status, completion.error_kind, completion.error_message)

    def _finish(self, pending: _Pending, status: JobStatus, kind: ErrorKind | None, message: str | None) -> None:
        self._waiting.pop(pending.position, None)
        attempts = pending.item.attempts_before + pending.made
        self._on_done(
            pending.item, JobOutcome(pending.item.job.job_id, status, kind, message, attempts, self._wall_clock())
        )


def _may_go_on(completion: Completion) -> bool:
    """Whether another worker may do better."""
    kind = completion.error_kind
    return (
        kind in _COOLS
        or kind is ErrorKind.MODEL_NOT_FOUND
        or (kind is ErrorKind.INVALID_REQUEST and completion.http_status in _CREDENTIALS_REFUSED)
    )
