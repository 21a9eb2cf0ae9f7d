"""What does sharing slots cost? In one run, against a real nats-server and the embedded llama.cpp server.

    python benchmarks/leases.py

- a lease: taking a slot and giving it back, median of many, beside one short answer of the model server;
- a batch: the same jobs against a server that answers at once, with slots of its own and with leased ones.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from model_foundry.config import FleetConfig, LimitsConfig
from model_foundry.fleet.leases import sharing_slots
from model_foundry.inference.client import ask, new_client
from model_foundry.inference.dispatch import WorkItem, dispatch
from model_foundry.inference.target import InferenceRequest, WorkerTarget
from model_foundry.jetstream.client import JetStream, NatsSettings
from model_foundry.records import Job, JobStatus
from model_foundry_tests.inference.conftest import LLAMA_MODEL
from model_foundry_tests.inference.conftest import llama_url as llama
from model_foundry_tests.inference.scripted import ScriptedServer, sse_answer
from model_foundry_tests.parts import NatsServer

LEASES = 300
JOBS = 1000
SLOTS = 4


def a_job(number: int) -> Job:
    """A job with the least there is."""
    now = datetime.now(UTC)
    fields: dict[str, Any] = dict.fromkeys(Job.__dataclass_fields__, None)
    fields |= {"stream": "P", "stream_created": 1, "seq": number, "subject": "prompts.submit", "published_at": now}
    fields |= {"partition_date": now.date(), "job_id": f"j{number}", "domain": "general", "domain_source": "message"}
    fields |= {"language": "en", "lane": "cpu_inference", "model": "m", "prompt": "hi", "priority": 0, "params": {}}
    fields |= {"messages": [{"role": "user", "content": "hi"}], "extra": {}, "notes": (), "route_reason": ""}
    return Job(**fields | {"status": JobStatus.PENDING})


async def lease_ms(js: JetStream) -> float:
    """Median milliseconds to have a slot and to be rid of it."""
    took = []
    async with sharing_slots(js, FleetConfig(bucket="bench"), "me") as slots:
        changed = asyncio.Event()
        slots.on_change = changed.set

        async def until(held: int) -> None:
            while slots.held("w") != held:
                changed.clear()
                await changed.wait()

        for _ in range(LEASES):
            start = time.perf_counter()
            slots.want("w", 1, {(0, 0): 1}, 0)
            await until(1)
            slots.want("w", 1, {}, 0)
            await until(0)
            took.append(1000 * (time.perf_counter() - start))
    return statistics.median(took)


async def answer_ms(url: str) -> float:
    """Median milliseconds of a short answer of a small model."""
    took = []
    request = InferenceRequest(LLAMA_MODEL, [{"role": "user", "content": "Say yes."}], {"max_tokens": 16}, None)
    async with new_client() as client:
        for _ in range(20):
            start = time.perf_counter()
            await ask(client, WorkerTarget("w", url, "openai"), request, LimitsConfig())
            took.append(1000 * (time.perf_counter() - start))
    return statistics.median(took)


async def batch_s(js: JetStream | None) -> float:
    """Seconds for all jobs, over a server that answers at once."""
    async with ScriptedServer(sse_answer("yes")) as server:
        items = [WorkItem(a_job(n), ("w",), (0,)) for n in range(JOBS)]
        targets = {"w": WorkerTarget("w", server.url, "openai", SLOTS)}
        quiet: dict[str, Any] = {"on_attempt": lambda *_: None, "on_done": lambda *_: None}
        start = time.perf_counter()
        if js is None:
            await dispatch(items, targets, LimitsConfig(), **quiet)
        else:
            async with sharing_slots(js, FleetConfig(bucket="bench"), "batch") as slots:
                await dispatch(items, targets, LimitsConfig(), slots=slots, **quiet)
        return time.perf_counter() - start


async def measure(nats: NatsSettings, llama_url: str) -> None:
    """Prints both."""
    async with JetStream(nats) as js:
        lease, answer = await lease_ms(js), await answer_ms(llama_url)
        print(f"one lease, taken and given back   {lease:8.2f} ms")
        print(f"one answer of 16 tokens           {answer:8.2f} ms   a lease is {lease / answer:.3f} of it")
        own, leased = [], []
        for _ in range(3):  # in turns, so that a busy moment meets both
            own.append(await batch_s(None))
            leased.append(await batch_s(js))
        plain, shared = min(own), min(leased)
        print(f"{JOBS} jobs, {SLOTS} slots of its own     {plain:8.2f} s    {JOBS / plain:6.0f} /s")
        print(f"{JOBS} jobs, {SLOTS} leased slots         {shared:8.2f} s    {JOBS / shared:6.0f} /s")
        each_ms = 1000 * (shared - plain) / JOBS
        print(f"leased / own                      {shared / plain:8.2f}      {each_ms:.3f} ms a job")


def main() -> None:
    """Starts the real parts and measures."""
    start_llama = llama.__wrapped__()  # the tests' own way to start one
    url = next(start_llama)
    try:
        with tempfile.TemporaryDirectory() as folder, NatsServer(Path(folder)) as server:
            asyncio.run(measure(NatsSettings(server.url), url))
    finally:
        next(start_llama, None)


if __name__ == "__main__":
    main()
