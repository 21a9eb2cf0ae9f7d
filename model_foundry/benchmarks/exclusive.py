"""Workers for one sweep alone: what is measured must not share a worker with anything else.

Belongs here: a sweep's turn at its workers, all slots of one worker for the time of a block, seeing who else is at work
there. Does not belong here: how slots are shared out (``fleet.leases``), what is measured (``runner``).

Two leases, both over the slots that everything shares, so that one that is killed lets go by itself:

- A *turn*: one sweep at a time has a worker, from its first block there to its last. Others wait, first come first
  served. It is the one slot of a worker by the name ``bench/<worker>``, which no real worker has.
- *All slots*, for a block. Waiting for them, a sweep comes after everybody else: production takes what it wants, and
  the sweep waits until the worker is idle. Once it has them all it keeps them until the block ends; production then
  waits for that long, or goes to another worker. Between two blocks everything is given back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence

from model_foundry.errors import NatsUnavailableError, StreamError
from model_foundry.fleet.leases import Class, Held, Slots
from model_foundry.tasks import end

LAST: Class = (1_000_000, -10)
"""After every lane and priority there is."""
FIRST: Class = (0, 0)
TELL_AFTER_S = 1.0
"""How often a wait is looked at and told of; shorter ones are not worth a word."""
LOOK_EVERY_S = 2.0
"""How often it is looked who else is at work. A shorter visit may not be seen."""
_TURN = "bench/"


class NotIdleError(Exception):
    """A worker could not be had in time; the message says who has it."""


def turn_name(worker: str) -> str:
    """The name under which a worker's turn is leased."""
    return f"{_TURN}{worker}"


class Exclusive:
    """What one sweep holds of the fleet.

    Args:
        slots: its own holder of leases.
        look: who holds what now.
        on_wait: told with the worker and, in words, who is waited for; with None when the wait is over.
        wait_s: how long a worker is waited for.
    """

    def __init__(
        self,
        slots: Slots,
        look: Callable[[], Awaitable[Sequence[Held]]],
        on_wait: Callable[[str, str | None], None],
        wait_s: float,
    ) -> None:
        self._slots, self._look, self._on_wait, self._wait_s = slots, look, on_wait, wait_s
        self._change = asyncio.Event()
        slots.on_change = self._changed

    def _changed(self) -> None:
        """Wakes everybody that waits for a change now; who waits from now on waits for the next one."""
        self._change.set()
        self._change = asyncio.Event()

    @contextlib.asynccontextmanager
    async def turn(self, workers: Collection[str]) -> AsyncIterator[None]:
        """The turn at workers. They are taken in the order of their names, so two sweeps never wait for each other.

        Raises:
            NotIdleError: when it is not had in time.
        """
        taken: list[str] = []
        try:
            for worker in sorted(workers):
                taken.append(worker)
                await self._have(worker, turn_name(worker), 1, FIRST)
            yield
        finally:
            for worker in taken:
                self._slots.want(turn_name(worker), 1, {}, 0)

    @contextlib.asynccontextmanager
    async def all_slots(self, worker: str, slots: int) -> AsyncIterator[asyncio.Event]:
        """All slots of a worker of which one has the turn. The event is set when one of them, or the turn, is lost.

        Raises:
            NotIdleError: when they are not had in time.
        """
        lost = asyncio.Event()
        try:
            await self._have(worker, worker, slots, LAST)
            watcher = asyncio.create_task(self._watch(worker, slots, lost))
            try:
                yield lost
            finally:
                await end(watcher)
        finally:
            self._slots.want(worker, slots, {}, 0)

    async def _have(self, worker: str, name: str, number: int, kind: Class) -> None:
        """Waits until so many slots are held, and then keeps them whoever wants them."""
        loop = asyncio.get_running_loop()
        deadline, told = loop.time() + self._wait_s, None
        self._slots.want(name, number, {kind: number}, 0)
        try:
            while True:
                change = self._change
                if self._slots.held(name) >= number:
                    break
                if loop.time() >= deadline:
                    raise NotIdleError(
                        f"worker {worker} was not free within {self._wait_s:g} s: {await self._who(name)}"
                    )
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(TELL_AFTER_S, deadline - loop.time())):
                        await change.wait()
                        continue
                who = await self._who(name)
                if who != told:
                    told = who
                    self._on_wait(worker, who)
        finally:
            if told is not None:
                self._on_wait(worker, None)
        self._slots.want(name, number, {kind: number}, number)

    async def _who(self, name: str) -> str:
        """Who holds slots, in words."""
        try:
            others = [h for h in await self._look() if h.worker == name and h.holder != self._slots.holder]
        except (NatsUnavailableError, StreamError) as error:
            return f"NATS is away: {error}"
        if not others:
            return "nobody holds it now"
        return f"{len(others)} of its slots held by " + ", ".join(sorted({h.holder for h in others}))

    async def _watch(self, worker: str, slots: int, lost: asyncio.Event) -> None:
        while self._slots.held(worker) >= slots and self._slots.held(turn_name(worker)) >= 1:
            change = self._change
            if self._slots.held(worker) >= slots and self._slots.held(turn_name(worker)) >= 1:
                await change.wait()
        lost.set()


class Others:
    """Who else held slots, and when, while it is watched.

    Args:
        look: who holds what now.
        holder: our own name among them.
        neighbours: worker -> the workers, itself included, whose work it feels.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        look: Callable[[], Awaitable[Sequence[Held]]],
        holder: str,
        neighbours: Callable[[str], Collection[str]],
        clock: Callable[[], float],
    ) -> None:
        self._look, self._holder, self._neighbours, self._clock = look, holder, neighbours, clock
        self._seen: list[tuple[float, frozenset[str]]] = []

    async def watch(self) -> None:
        """Looks until it is cancelled."""
        while True:
            with contextlib.suppress(NatsUnavailableError, StreamError):
                self.saw([h for h in await self._look() if h.holder != self._holder])
            await asyncio.sleep(LOOK_EVERY_S)

    def saw(self, held: Sequence[Held]) -> None:
        """Notes slots that others hold now."""
        workers = frozenset(h.worker for h in held if not h.worker.startswith(_TURN))
        if workers:
            self._seen.append((self._clock(), workers))

    def were_at(self, worker: str, start: float, end: float, *, within: tuple[float, float]) -> bool:
        """Whether others were at work on the worker's hardware at that time, as far as it was seen.

        Args:
            worker: of whom.
            start: of what was measured; a look a little before it counts.
            end: likewise; a look a little after it counts.
            within: when the worker itself was ours; others' slots there before and after don't count.
        """
        neighbours = set(self._neighbours(worker)) - {worker}
        for at, workers in self._seen:
            if start - LOOK_EVERY_S <= at <= end + LOOK_EVERY_S and (
                neighbours & workers or (worker in workers and within[0] <= at <= within[1])
            ):
                return True
        return False
