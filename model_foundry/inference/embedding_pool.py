"""Batches of texts and the workers that embed them: who gets the next batch, and what a failure leads to.

Belongs here: slots, failover, leaving a failing worker alone. Does not belong here: one request (``embeddings``), whose
slots they are (``fleet.leases``), recording (``embedding``; it is told through a callback). Apart from ``dispatch``,
because here every batch is as good as another: there are no priorities, deadlines or domains to weigh.

- connection, timeout, stalled, server_error, rate_limited, truncated_stream: another worker, while attempts are left;
  this one cools, longer each time it fails in a row, and after ``GIVE_UP_AFTER`` of those it gets nothing more.
- model_not_found, credentials refused, vectors of another length than those that there are: this worker gets nothing
  more.
- a failure of one text, and invalid_request: the end for that text.

What nobody could embed is put off: a later run takes it up.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import httpx

from model_foundry.config import LimitsConfig
from model_foundry.inference.dispatch import SharedSlots
from model_foundry.inference.embeddings import EmbeddingRequest, Embeddings, Vector, embed
from model_foundry.inference.failures import Failure
from model_foundry.inference.target import WorkerTarget
from model_foundry.inference.worker_state import COOLS, may_go_on
from model_foundry.records import ErrorKind
from model_foundry.tasks import end

GIVE_UP_AFTER = 4
"""Failures of a worker in a row, after which it gets nothing more of these texts."""
COOL_S = 1.0
MAX_COOL_S = 30.0

Text = TypeVar("Text")
"""What a caller knows a text by."""


@dataclass(frozen=True, slots=True)
class Embedder:
    """A worker that may be asked.

    Attributes:
        target: how to reach it.
        model: its own name of the model.
        place: where the lane stands in what it supports; a lower one is asked first.
    """

    target: WorkerTarget
    model: str
    place: int = 0


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Text]):
    """What became of one text: a vector, a failure, or put off because nobody could embed it now."""

    text: Text
    worker: str | None
    vector: Vector | None = None
    failure: Failure | None = None
    put_off: bool = False


@dataclass(slots=True)
class PoolReport:
    """What it took. ``dropped``: worker -> why it got nothing more."""

    requests: int = 0
    texts_by_worker: dict[str, int] = field(default_factory=dict)
    prompt_tokens: int | None = None
    busy_s: float = 0.0
    dimensions: int | None = None
    dropped: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Batch(Generic[Text]):
    texts: list[tuple[Text, str]]
    spent: int = 0
    tried: set[str] = field(default_factory=set)
    last: Failure | None = None


@dataclass(slots=True)
class _Line:
    """A worker's state."""

    embedder: Embedder
    busy: int = 0
    failures: int = 0
    cooling_until: float = float("-inf")
    dropped: str | None = None

    @property
    def name(self) -> str:
        return self.embedder.target.name


async def embed_texts(
    client: httpx.AsyncClient,
    embedders: Sequence[Embedder],
    texts: Sequence[tuple[Text, str]],
    limits: LimitsConfig,
    *,
    params: dict[str, object],
    batch_texts: int,
    on_outcome: Callable[[Outcome[Text]], None],
    dimensions: int | None = None,
    slots: SharedSlots | None = None,
    priority: int = 0,
    clock: Callable[[], float] = time.monotonic,
) -> PoolReport:
    """Embeds every text: each ends with exactly one ``on_outcome``.

    Args:
        client: see ``client.new_client``.
        embedders: whom to ask, first choice first.
        texts: what to embed, and what the caller knows it by.
        limits: attempts at one batch, time limits.
        params: sent with each request.
        batch_texts: texts in one request at most.
        on_outcome: called as each text ends; must not block.
        dimensions: the length that vectors must have; when None, the first answer decides.
        slots: slots shared with others; left out, every worker's slots are these texts' own.
        priority: of the slots that are wanted.
        clock: monotonic seconds.

    Raises:
        Exception: what the callback raises, or what ended the sharing of slots; what is in flight is then stopped.
    """
    pool = _Pool(client, embedders, limits, params, on_outcome, dimensions, slots, priority, clock)
    for start in range(0, len(texts), batch_texts):
        pool.queue.append(_Batch(list(texts[start : start + batch_texts])))
    try:
        await pool.run()
    finally:
        await end(*pool.running)
    return pool.report


class _Pool(Generic[Text]):
    """The one owner of the state."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        embedders: Sequence[Embedder],
        limits: LimitsConfig,
        params: dict[str, object],
        on_outcome: Callable[[Outcome[Text]], None],
        dimensions: int | None,
        slots: SharedSlots | None,
        priority: int,
        clock: Callable[[], float],
    ) -> None:
        self.queue: deque[_Batch[Text]] = deque()
        self.running: dict[asyncio.Task[Embeddings], tuple[_Line, _Batch[Text]]] = {}
        self.report = PoolReport(dimensions=dimensions)
        self._client, self._limits, self._params, self._on_outcome = client, limits, params, on_outcome
        self._slots, self._priority, self._clock = slots, priority, clock
        self._lines = [_Line(e, dropped=e.target.unusable) for e in embedders]
        self.report.dropped = {line.name: line.dropped for line in self._lines if line.dropped}
        self._wake = asyncio.Event()
        if slots is not None:
            slots.on_change = self._wake.set

    async def run(self) -> None:
        while self.queue or self.running:
            self._say_wants()
            self._send()
            self._say_wants()  # again: a slot with a request in it is not given back
            self._stop_surplus()
            if not self.running and not any(line.dropped is None for line in self._lines):
                self._put_off()
                break
            await self._wait()
            for task in [t for t in self.running if t.done()]:
                self._take(*self.running.pop(task), task)
        self._say_wants()

    # -- deciding --------------------------------------------------------------------------------------------------

    def _may_have(self, line: _Line) -> int:
        """Requests that a worker may have at once: after a failure one, until one succeeds."""
        if line.dropped is not None or (line.cooling_until > self._clock() and line.busy == 0):
            return line.busy
        return 1 if line.failures else line.embedder.target.slots

    def _say_wants(self) -> None:
        if self._slots is None:
            return
        left = len(self.queue)
        for line in self._lines:
            more = min(max(0, self._may_have(line) - line.busy), left)
            wanted = line.busy + more
            kind = line.embedder.place, self._priority
            self._slots.want(line.name, line.embedder.target.slots, {kind: wanted} if wanted else {}, line.busy)
            # what this one will most likely take is not wanted of the next as well
            left -= min(more, max(0, self._slots.held(line.name) - line.busy) + self._slots.coming(line.name))

    def _send(self) -> None:
        for line in self._lines:
            while self.queue and line.busy < min(self._may_have(line), self._held(line)):
                if (batch := self._next_for(line)) is None:
                    break
                line.busy += 1
                request = EmbeddingRequest(
                    line.embedder.model, tuple(text for _, text in batch.texts), params=self._params
                )
                asked = embed(self._client, line.embedder.target, request, self._limits)
                self.running[asyncio.create_task(asked)] = line, batch

    def _next_for(self, line: _Line) -> _Batch[Text] | None:
        """The next batch that this worker has not failed at, or that all that are left have."""
        able = {other.name for other in self._lines if other.dropped is None}
        for n, batch in enumerate(self.queue):
            if line.name not in batch.tried or able <= batch.tried:
                del self.queue[n]
                return batch
        return None

    def _held(self, line: _Line) -> int:
        return line.embedder.target.slots if self._slots is None else self._slots.held(line.name)

    def _stop_surplus(self) -> None:
        """Stops requests whose slot was lost."""
        if self._slots is None:
            return
        for line in self._lines:
            mine = [t for t, (owner, _) in self.running.items() if owner is line and not t.cancelling()]
            for task in mine[max(0, self._slots.held(line.name)) :]:
                task.cancel()

    async def _wait(self) -> None:
        now = self._clock()
        cooling = [line.cooling_until - now for line in self._lines if not line.dropped and line.cooling_until > now]
        self._wake.clear()
        woken = asyncio.create_task(self._wake.wait())
        try:
            waits: set[asyncio.Task[object]] = {*self.running, woken}
            await asyncio.wait(waits, timeout=min([*cooling, 1.0]), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end(woken)

    # -- outcomes --------------------------------------------------------------------------------------------------

    def _take(self, line: _Line, batch: _Batch[Text], task: asyncio.Task[Embeddings]) -> None:
        line.busy -= 1
        if task.cancelled():
            self.queue.appendleft(batch)
            return
        found = task.result()
        self._count(found)
        expected = self.report.dimensions
        if found.dimensions is not None and expected not in (None, found.dimensions):
            self._drop(
                line, f"worker {line.name} gives {found.dimensions} dimensions; those that there are: {expected}"
            )
            self.queue.appendleft(batch)
            return
        self.report.dimensions = expected or found.dimensions
        again: list[tuple[Text, str]] = []
        for (text, words), outcome in zip(batch.texts, found.outcomes, strict=True):
            if not isinstance(outcome, Failure):
                self.report.texts_by_worker[line.name] = self.report.texts_by_worker.get(line.name, 0) + 1
                self._on_outcome(Outcome(text, line.name, vector=outcome))
            elif outcome is found.worker_failure and may_go_on(outcome.kind, outcome.http_status):
                again.append((text, words))
            else:
                self._on_outcome(Outcome(text, line.name, failure=outcome))
        failure = found.worker_failure
        if failure is None or not may_go_on(failure.kind, failure.http_status):
            line.failures = 0
            return
        self._failed(line, failure)
        batch.spent += not found.not_sent
        if batch.spent >= self._limits.max_attempts:
            for text, _ in again:
                self._on_outcome(Outcome(text, line.name, failure=failure, put_off=True))
            return
        batch.tried.add(line.name)
        self.queue.appendleft(_Batch(again, batch.spent, batch.tried, failure))

    def _count(self, found: Embeddings) -> None:
        self.report.requests += found.requests
        self.report.busy_s += found.e2e_s
        if found.prompt_tokens is not None:
            self.report.prompt_tokens = (self.report.prompt_tokens or 0) + found.prompt_tokens

    def _failed(self, line: _Line, failure: Failure) -> None:
        if failure.kind not in COOLS:  # the model is not there, or we are not let in
            self._drop(line, failure.message)
            return
        line.failures += 1
        if line.failures >= GIVE_UP_AFTER:
            self._drop(line, failure.message)
            return
        grown_s = min(MAX_COOL_S, COOL_S * 2 ** (line.failures - 1))
        line.cooling_until = self._clock() + max(grown_s, min(failure.retry_after_s or 0.0, 10 * MAX_COOL_S))

    def _drop(self, line: _Line, why: str) -> None:
        line.dropped = self.report.dropped[line.name] = why

    def _put_off(self) -> None:
        """Ends what nobody can have."""
        why = "; ".join(line.dropped for line in self._lines if line.dropped)
        nobody = Failure(ErrorKind.NO_WORKER, why or "no worker serves the model in this lane")
        while self.queue:
            batch = self.queue.popleft()
            for text, _ in batch.texts:
                self._on_outcome(Outcome(text, None, failure=batch.last or nobody, put_off=True))
