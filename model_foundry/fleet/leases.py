"""Slots shared by runs and hosts: nobody sends a request to a worker without holding one of its slots.

Belongs here: who may hold how many (a pure function), taking, renewing and giving back. Does not belong here: what is
done with a slot (``inference.dispatch``), the bucket's wire format (``jetstream.buckets``).

A slot is the key ``<worker>.slot.<number>`` in a bucket whose entries are gone after ``lease_s`` unless they are put
again. Taking one is putting it only if it is free, by its revision, so of two who try one succeeds; a holder that was
killed renews no more, and its slots come back by themselves. Slots are held for as long as there is work for them, not
taken for each request: a long batch pays once.

So that a long batch does not keep a worker from everybody else, each holder says what it wants under
``<worker>.want.<holder>``, and gives a slot back, after the request in it, when it holds more than its share. A job for
which the worker is the second choice (its lane stands later in ``supports``) wants in a later class: it gets what the
first choice leaves over.

Without NATS nothing new is taken. What is in flight goes on: another could take the slot only over the same NATS, and a
holder that finds its slot taken when it is back stops that request.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from model_foundry.config import FleetConfig
from model_foundry.errors import NatsUnavailableError, StreamError
from model_foundry.jetstream.buckets import Bucket, BucketConfig, Entry
from model_foundry.jetstream.client import JetStream
from model_foundry.tasks import end

Class = tuple[int, int]
"""What a slot is wanted for: the place of the job's lane in the worker's ``supports`` (the first is 0), and the job's
priority. A lower place comes first, then a higher priority."""


@dataclass(frozen=True, slots=True)
class Want:
    """What one holder wants of a worker: slots by class, those it holds included. ``since``: epoch seconds."""

    holder: str
    since: float
    slots: Mapping[Class, int]


def shares(wants: Sequence[Want], slots: int) -> dict[str, int]:
    """How many of a worker's slots each holder may hold. Pure.

    Class by class, first ones first, what is left is shared out one slot at a time among those that still want one;
    who has wanted for longest is first in each turn.
    """
    given = {want.holder: 0 for want in wants}
    turn = sorted(wants, key=lambda want: (want.since, want.holder))
    left = slots
    for kind in sorted({k for want in wants for k in want.slots}, key=lambda k: (k[0], -k[1])):
        missing = {want.holder: want.slots.get(kind, 0) for want in turn}
        while left > 0 and any(n > 0 for n in missing.values()):
            for holder in missing:
                if left > 0 and missing[holder] > 0:
                    given[holder] += 1
                    missing[holder] -= 1
                    left -= 1
    return given


def slots_bucket(config: FleetConfig) -> BucketConfig:
    """The bucket of the leases."""
    return BucketConfig(f"{config.bucket}_slots", config.lease_s, config.replicas)


def token(worker: str) -> str:
    """A worker's name as one token of a key. A dot would make two; no name holds an equals sign."""
    return worker.replace(".", "=")


@dataclass(frozen=True, slots=True)
class Held:
    """Who holds a slot, for people."""

    worker: str
    slot: int
    holder: str
    since: float


def holders(entries: Mapping[str, Entry]) -> list[Held]:
    """The slots that are held, from a bucket's entries."""
    found = []
    for key, entry in entries.items():
        worker, kind, name = key.split(".", 2)
        said = _said(entry)
        if kind == "slot" and said:
            found.append(
                Held(worker.replace("=", "."), int(name), str(said.get("holder")), float(said.get("since") or 0))
            )
    return sorted(found, key=lambda held: (held.worker, held.slot))


def _said(entry: Entry) -> dict[str, Any]:
    """An entry's content; nothing when it was deleted or is not ours."""
    if entry.value is None:
        return {}
    try:
        said = json.loads(entry.value)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


@dataclass(slots=True)
class _Share:
    """What is held and wanted of one worker. ``held``: slot number -> revision."""

    slots: int = 0
    wants: dict[Class, int] = field(default_factory=dict)
    busy: int = 0
    held: dict[int, int] = field(default_factory=dict)
    due: int = 0
    free: int = 0
    looked: bool = False
    said: dict[Class, int] | None = None
    since: float = 0.0
    dirty: bool = True

    @property
    def wanted(self) -> int:
        return min(self.slots, sum(self.wants.values()))


class Slots:
    """The slots of one holder; see :func:`sharing_slots`.

    Attributes:
        on_change: called when more or fewer are held, or free, than before.
        holder: its own name.
    """

    def __init__(self, bucket: Bucket, holder: str, lease_s: float, clock: Callable[[], float] = time.time) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self.looks = 0
        self._bucket, self.holder, self._lease_s, self._clock = bucket, holder, lease_s, clock
        self._workers: dict[str, _Share] = {}
        self._wake = asyncio.Event()
        self._error: Exception | None = None

    # -- told by, and asked from, the one who has the work ---------------------------------------------------------

    def want(self, worker: str, slots: int, wants: Mapping[Class, int], busy: int) -> None:
        """Says what is wanted of a worker from now on, requests in flight included.

        Args:
            worker: its name.
            slots: how many it has.
            wants: slots by class.
            busy: requests in flight; so many are not given back.
        """
        share = self._workers.setdefault(worker, _Share())
        changed = (share.slots, share.wants) != (slots, dict(wants))
        owed = busy < share.busy and len(share.held) > share.due  # others wait for what has just become idle
        share.slots, share.wants, share.busy = slots, dict(wants), busy
        if changed or owed:
            share.dirty = True
            self._wake.set()

    def held(self, worker: str) -> int:
        """How many slots may be used: those held, without what is owed to others as soon as it is idle.

        Raises:
            Exception: what ended the loop, if it ended.
        """
        if self._error:
            raise self._error
        share = self._workers.get(worker)
        return min(len(share.held), max(share.busy, share.due)) if share else 0

    def coming(self, worker: str) -> int:
        """How many more may be had at once, as far as is known. Nothing is known of a worker never wanted: all."""
        share = self._workers.get(worker)
        if share is None or not share.looked:
            return 10**6
        return share.free

    # -- the loop ----------------------------------------------------------------------------------------------------

    async def keep(self) -> None:
        """Takes, renews and gives back until it is cancelled. What ends it otherwise is raised by :meth:`held`."""
        try:
            await self._keep()
        except Exception as error:
            self._error = error
            self.on_change()

    async def _keep(self) -> None:
        renew_s = self._lease_s / 3
        loop = asyncio.get_running_loop()
        renewed_at = looked_at = loop.time()
        async with self._bucket.changes(">", self._changed):
            while True:
                timeout_s = max(0.0, min(renewed_at + renew_s, looked_at + 1.0) - loop.time())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(timeout_s):
                        await self._wake.wait()
                self._wake.clear()
                try:
                    if loop.time() >= renewed_at + renew_s:
                        renewed_at = loop.time()
                        await self._renew()
                    if loop.time() >= looked_at + 1.0:  # an expired slot tells nobody
                        looked_at = loop.time()
                        for share in self._workers.values():
                            share.dirty |= share.wanted != len(share.held)
                    for worker, share in list(self._workers.items()):
                        if share.dirty:
                            share.dirty = False
                            await self._settle(worker, share)
                except (NatsUnavailableError, StreamError):  # it is looked at again in a second, when NATS is back
                    for share in self._workers.values():
                        share.dirty = True
                    await asyncio.sleep(0.2)

    def _changed(self, key: str) -> None:
        worker, kind, name = key.split(".", 2)
        share = self._workers.get(worker.replace("=", "."))
        if share is None or (kind == "want" and name == self.holder) or (kind == "slot" and int(name) in share.held):
            return
        share.dirty = True
        self._wake.set()

    async def _settle(self, worker: str, share: _Share) -> None:
        """Says what is wanted, looks at what others want and hold, takes what is due, gives back what is not."""
        self.looks += 1
        before = len(share.held), share.free, share.looked
        await self._say(worker, share)
        name = token(worker)
        entries = await self._bucket.entries(f"{name}.>", deleted=True)
        wants = [w for key, entry in entries.items() if key.startswith(f"{name}.want.") and (w := _want(key, entry))]
        due = shares(wants, share.slots).get(self.holder, 0)
        taken = {int(key.rsplit(".", 1)[1]) for key, e in entries.items() if ".slot." in key and e.value is not None}
        for number in taken - share.held.keys():
            entry = entries[f"{name}.slot.{number}"]
            if _said(entry).get("holder") == self.holder:  # taken, and the acknowledgement was lost
                share.held[number] = entry.revision
        share.due = due
        while len(share.held) > max(share.busy, min(due, share.wanted)):
            number = max(share.held)
            await self._bucket.delete_if(f"{name}.slot.{number}", share.held.pop(number))
            taken.discard(number)
        for number in range(share.slots):
            if len(share.held) >= min(due, share.wanted):
                break
            if number in taken:
                continue
            was = entries.get(f"{name}.slot.{number}")
            revision = await self._take(name, number, was.revision if was else 0)
            taken.add(number)
            if revision is not None:
                share.held[number] = revision
        share.free = max(0, min(due - len(share.held), share.slots - len([n for n in taken if n < share.slots])))
        share.looked = True
        if before != (len(share.held), share.free, share.looked):
            self.on_change()

    async def _say(self, worker: str, share: _Share) -> None:
        """Puts what is wanted, when it is not what was said last. More than all slots is as good as all."""
        wants = {kind: min(n, share.slots) for kind, n in share.wants.items() if n > 0}
        if wants == share.said or (not wants and share.said is None):
            return
        key = f"{token(worker)}.want.{self.holder}"
        if not wants:
            await self._bucket.delete(key)
            share.said = None
            return
        if share.said is None:
            share.since = self._clock()
        await self._bucket.put(key, _want_body(share.since, wants))
        share.said = wants  # not before: what could not be put is said again

    async def _take(self, name: str, number: int, revision: int) -> int | None:
        body = json.dumps({"holder": self.holder, "since": round(self._clock(), 3)}).encode()
        return await self._bucket.put_if(f"{name}.slot.{number}", body, revision)

    async def _renew(self) -> None:
        """Puts everything again. A slot that expired meanwhile is taken again; one that somebody has is lost."""
        for worker, share in list(self._workers.items()):
            name = token(worker)
            lost = False
            for number, revision in list(share.held.items()):
                renewed = await self._take(name, number, revision)
                if renewed is None:
                    entry = (await self._bucket.entries(f"{name}.slot.{number}", deleted=True)).get(
                        f"{name}.slot.{number}"
                    )
                    if entry is None or entry.value is None or _said(entry).get("holder") == self.holder:
                        renewed = await self._take(name, number, entry.revision if entry else 0)
                if renewed is None:
                    del share.held[number]
                    lost = share.dirty = True
                else:
                    share.held[number] = renewed
            if share.said:
                await self._bucket.put(f"{name}.want.{self.holder}", _want_body(share.since, share.said))
            if lost:
                self.on_change()

    async def give_back(self) -> None:
        """Gives everything back."""
        for worker, share in self._workers.items():
            with contextlib.suppress(NatsUnavailableError, StreamError):
                for number, revision in share.held.items():
                    await self._bucket.delete_if(f"{token(worker)}.slot.{number}", revision)
                if share.said is not None:
                    await self._bucket.delete(f"{token(worker)}.want.{self.holder}")
            share.held.clear()
            share.said = None


def _want_body(since: float, slots: Mapping[Class, int]) -> bytes:
    """What a holder wants, as :func:`_want` reads it."""
    body = {"since": since, "slots": [[place, priority, n] for (place, priority), n in slots.items()]}
    return json.dumps(body).encode()


def _want(key: str, entry: Entry) -> Want | None:
    """A holder's want; None when it is deleted or can't be read."""
    said = _said(entry)
    try:
        slots = {(int(place), int(priority)): int(n) for place, priority, n in said["slots"]}
        since = float(said["since"])
    except (KeyError, TypeError, ValueError):
        return None
    return Want(key.rsplit(".", 1)[1], since if math.isfinite(since) else 0.0, slots)


@contextlib.asynccontextmanager
async def sharing_slots(js: JetStream, config: FleetConfig, who: str) -> AsyncIterator[Slots]:
    """The slots of a holder while it is open; all are given back at the end.

    Args:
        js: a connection, open for as long.
        config: the bucket's name and the leases' age.
        who: a name for people, such as a run's id; a holder's own name is made of it, never used before.

    Raises:
        NatsUnavailableError, StreamError: when the bucket can't be made.
    """
    holder = f"{re.sub('[^A-Za-z0-9_-]', '_', who)[:40]}-{secrets.token_hex(4)}"
    slots = Slots(await js.bucket(slots_bucket(config)), holder, config.lease_s)
    keeper = asyncio.create_task(slots.keep())
    try:
        yield slots
    finally:
        await end(keeper)
        await slots.give_back()
