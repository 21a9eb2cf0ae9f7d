"""Slots that several holders share, over a real nats-server."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from model_foundry.config import FleetConfig
from model_foundry.fleet.leases import Slots, Want, holders, shares, sharing_slots, slots_bucket
from model_foundry.jetstream.client import JetStream, NatsSettings
from model_foundry_tests.parts import NatsServer, in_loop, until

PLAIN = (0, 0)
SECOND_CHOICE = (1, 0)


# -- who may hold how many --------------------------------------------------------------------------------------------


def want(holder: str, since: float = 0.0, n: int = 0) -> Want:
    return Want(holder, since, {PLAIN: n})


def test_slots_are_shared_out_in_turns_first_come_first() -> None:
    assert shares([want("a", 1, n=9), want("b", 2, n=9)], 3) == {"a": 2, "b": 1}
    assert shares([want("a", 2, n=9), want("b", 1, n=9)], 3) == {"a": 1, "b": 2}
    assert shares([want("a", n=1), want("b", n=9)], 4) == {"a": 1, "b": 3}


def test_what_is_second_choice_gets_what_the_first_leaves() -> None:
    own = Want("gpu", 9, {PLAIN: 2})
    guest = Want("cpu", 1, {SECOND_CHOICE: 8})
    assert shares([own, guest], 3) == {"gpu": 2, "cpu": 1}
    assert shares([Want("gpu", 9, {PLAIN: 5}), guest], 3) == {"gpu": 3, "cpu": 0}
    assert shares([guest], 3) == {"cpu": 3}


def test_a_higher_priority_is_served_first_whoever_has_it() -> None:
    assert shares([want("a", n=9), Want("b", 9, {(0, 5): 2})], 3) == {"a": 1, "b": 2}


wants = st.lists(
    st.builds(
        Want,
        holder=st.uuids().map(str),
        since=st.floats(0, 9),
        slots=st.dictionaries(st.tuples(st.integers(0, 2), st.integers(-2, 2)), st.integers(0, 6), max_size=3),
    ),
    max_size=5,
)


@given(wants, st.integers(0, 8))
def test_shares_give_out_every_slot_that_is_wanted_and_no_more(found: list[Want], slots: int) -> None:
    given_out = shares(found, slots)
    wanted = {w.holder: sum(w.slots.values()) for w in found}
    assert sum(given_out.values()) == min(slots, sum(wanted.values()))
    assert all(0 <= n <= wanted[holder] for holder, n in given_out.items())
    first = min((k for w in found for k, n in w.slots.items() if n), key=lambda k: (k[0], -k[1]), default=None)
    if first:
        of_first = {w.holder: w.slots.get(first, 0) for w in found}
        lucky = [given_out[h] for h, n in of_first.items() if n > given_out[h]]
        assert all(given_out[h] <= min(lucky, default=slots) + 1 or len(w_slots(found, h)) > 1 for h in of_first)


def w_slots(found: list[Want], holder: str) -> dict[tuple[int, int], int]:
    return next({k: n for k, n in w.slots.items() if n} for w in found if w.holder == holder)


# -- over NATS --------------------------------------------------------------------------------------------------------


def a_fleet(**changes: float) -> FleetConfig:
    return FleetConfig(bucket=f"t{uuid.uuid4().hex[:8]}", **changes)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def a_holder(settings: NatsSettings, config: FleetConfig, name: str) -> AsyncIterator[Slots]:
    async with JetStream(settings) as js, sharing_slots(js, config, name) as slots:
        yield slots


async def holds(slots: Slots, number: int, worker: str = "card") -> None:
    async def look() -> int:
        return slots.held(worker)

    await until(look, lambda n: n == number)


@in_loop
async def test_two_holders_share_the_slots_and_the_second_gets_its_share_as_requests_end(
    nats_settings: NatsSettings,
) -> None:
    config = a_fleet()
    async with a_holder(nats_settings, config, "a") as a, a_holder(nats_settings, config, "b") as b:
        a.want("card", 3, {PLAIN: 3}, busy=0)
        await holds(a, 3)
        a.want("card", 3, {PLAIN: 3}, busy=3)
        b.want("card", 3, {PLAIN: 3}, busy=0)
        await until(lambda: asyncio.sleep(0, a.looks), lambda n: n >= 2)
        assert (a.held("card"), b.held("card")) == (3, 0), "a request in flight keeps its slot"
        a.want("card", 3, {PLAIN: 3}, busy=2)
        await holds(b, 1)
        assert a.held("card") == 2
        a.want("card", 3, {}, busy=0)
        await holds(b, 3)
        assert a.held("card") == 0


@in_loop
async def test_a_guest_gives_way_to_the_workers_own_lane(nats_settings: NatsSettings) -> None:
    config = a_fleet()
    async with a_holder(nats_settings, config, "cpu") as cpu, a_holder(nats_settings, config, "gpu") as gpu:
        cpu.want("card", 2, {SECOND_CHOICE: 9}, busy=0)
        await holds(cpu, 2)
        gpu.want("card", 2, {PLAIN: 9}, busy=0)
        await holds(gpu, 2)
        await holds(cpu, 0)
        assert cpu.coming("card") == 0
        gpu.want("card", 2, {}, busy=0)
        await holds(cpu, 2)


@in_loop
async def test_the_slots_of_a_holder_that_died_come_back_by_themselves(nats_settings: NatsSettings) -> None:
    config = a_fleet(lease_s=1)
    async with JetStream(nats_settings) as js:
        dead = Slots(await js.bucket(slots_bucket(config)), "dead", config.lease_s)
        dead.want("card", 2, {PLAIN: 2}, busy=2)
        keeper = asyncio.create_task(dead.keep())
        await holds(dead, 2)
        keeper.cancel()  # and never gives back
        async with a_holder(nats_settings, config, "heir") as heir:
            heir.want("card", 2, {PLAIN: 2}, busy=0)
            await holds(heir, 2)


@in_loop
async def test_a_living_holder_keeps_its_slots_beyond_the_leases_age(nats_settings: NatsSettings) -> None:
    config = a_fleet(lease_s=1)
    async with a_holder(nats_settings, config, "a") as a, a_holder(nats_settings, config, "b") as b:
        a.want("card", 1, {PLAIN: 1}, busy=0)
        await holds(a, 1)
        a.want("card", 1, {PLAIN: 1}, busy=1)
        b.want("card", 1, {PLAIN: 1}, busy=0)
        await asyncio.sleep(3)  # what is shown is that nothing happens in that time
        assert (a.held("card"), b.held("card")) == (1, 0)


@in_loop
async def test_a_holder_learns_that_its_slot_was_taken_while_it_slept(nats_settings: NatsSettings) -> None:
    config = a_fleet(lease_s=1)
    async with a_holder(nats_settings, config, "a") as a, JetStream(nats_settings) as js:
        a.want("moon.1", 1, {PLAIN: 1}, busy=1)
        await holds(a, 1, "moon.1")
        bucket = await js.bucket(slots_bucket(config))
        await bucket.put("moon=1.slot.0", b'{"holder": "thief", "since": 1}')
        await holds(a, 0, "moon.1")
        assert [(h.worker, h.slot, h.holder) for h in holders(await bucket.entries())][:1] == [("moon.1", 0, "thief")]


@in_loop
async def test_slots_outlive_a_restart_of_nats(tmp_path: Path) -> None:
    config = a_fleet(lease_s=30)
    with NatsServer(tmp_path) as server:
        async with a_holder(NatsSettings(server.url), config, "a") as a:
            a.want("card", 2, {PLAIN: 2}, busy=0)
            await holds(a, 2)
            server.kill()
            a.want("moon", 1, {PLAIN: 1}, busy=0)
            server.start()
            await holds(a, 1, "moon")
            assert a.held("card") == 2


@in_loop
async def test_what_is_held_is_never_more_than_the_slots_whoever_comes_and_goes(nats_settings: NatsSettings) -> None:
    """Eight holders with changing wants; their sum is looked at all the time."""
    config, most = a_fleet(), 0
    async with contextlib.AsyncExitStack() as stack:
        found = [await stack.enter_async_context(a_holder(nats_settings, config, f"h{n}")) for n in range(8)]
        used = [0] * 8

        async def work(number: int, slots: Slots) -> None:
            for turn in range(12):
                slots.want("card", 3, {(0, number % 2): 1 + (number + turn) % 3}, busy=0)
                await until(lambda: asyncio.sleep(0, slots.held("card")), lambda n: n > 0)
                used[number] += 1
                slots.want("card", 3, {}, busy=0)
                await until(lambda: asyncio.sleep(0, slots.held("card")), lambda n: n == 0)

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, sum(slots.held("card") for slots in found))
                await asyncio.sleep(0)

        watcher = asyncio.create_task(watch())
        await asyncio.gather(*(work(n, slots) for n, slots in enumerate(found)))
        watcher.cancel()
    assert used == [12] * 8
    assert 1 <= most <= 3
