"""Key-value buckets against a real nats-server."""

from __future__ import annotations

import asyncio
import uuid

from model_foundry.jetstream.buckets import Bucket, BucketConfig
from model_foundry.jetstream.client import JetStream, NatsSettings
from model_foundry_tests.parts import in_loop, until


def a_bucket(**changes: float) -> BucketConfig:
    return BucketConfig(f"test_{uuid.uuid4().hex[:8]}", **{"max_age_s": 60, **changes})  # type: ignore[arg-type]


@in_loop
async def test_what_is_put_is_read_until_it_is_deleted(nats_settings: NatsSettings) -> None:
    async with JetStream(nats_settings) as js:
        bucket = await js.bucket(a_bucket())
        assert await bucket.entries() == {}
        await bucket.put("moon", b"1")
        await bucket.put("card", b"2")
        last = await bucket.put("moon", b"3")
        found = await bucket.entries()
        assert {key: entry.value for key, entry in found.items()} == {"moon": b"3", "card": b"2"}
        assert found["moon"].revision == last
        await bucket.delete("moon")
        assert set(await bucket.entries()) == {"card"}
        assert (await bucket.entries(deleted=True))["moon"].value is None


@in_loop
async def test_of_two_who_take_a_key_at_one_revision_one_gets_it(nats_settings: NatsSettings) -> None:
    async with JetStream(nats_settings) as one, JetStream(nats_settings) as other:
        config = a_bucket()
        buckets = [await one.bucket(config), await other.bucket(config)] * 10
        taken = await asyncio.gather(*(b.put_if("slot", str(n).encode(), 0) for n, b in enumerate(buckets)))
        [revision] = [r for r in taken if r is not None]
        assert await buckets[0].delete_if("slot", revision + 100) is None
        deleted = await buckets[0].delete_if("slot", revision)
        assert deleted is not None
        assert await buckets[1].put_if("slot", b"again", 0) is None, "a deleted key has a revision of its own"
        assert await buckets[1].put_if("slot", b"again", deleted) is not None


@in_loop
async def test_what_nobody_says_again_is_gone(nats_settings: NatsSettings) -> None:
    async with JetStream(nats_settings) as js:
        bucket = await js.bucket(a_bucket(max_age_s=0.5))
        revision = await bucket.put("slot", b"x")
        await until(lambda: bucket.entries(deleted=True), lambda found: not found)
        assert await bucket.put_if("slot", b"y", revision) is None
        assert await bucket.put_if("slot", b"y", 0) is not None


@in_loop
async def test_a_change_is_told_of(nats_settings: NatsSettings) -> None:
    async with JetStream(nats_settings) as one, JetStream(nats_settings) as other:
        config, told = a_bucket(), asyncio.Queue[str]()
        await one.bucket(config)
        bucket = await other.bucket(config)
        async with bucket.changes("card.>", told.put_nowait):
            await (await one.bucket(config)).put("moon.a", b"")
            await (await one.bucket(config)).put("card.a", b"")
            assert await asyncio.wait_for(told.get(), 10) == "card.a"


@in_loop
async def test_a_bucket_takes_over_a_changed_age(nats_settings: NatsSettings) -> None:
    config = a_bucket()
    async with JetStream(nats_settings) as js:
        await (await js.bucket(config)).put("a", b"1")
        bucket: Bucket = await js.bucket(BucketConfig(config.name, 30))
        assert (await js._js.stream_info(bucket.stream)).config.max_age == 30
        assert set(await bucket.entries()) == {"a"}
