"""How many slow streams can one process read at once, and what does that cost?

    python benchmarks/streams.py [2000]

A server in a process of its own sends each answer in ten pieces, a second apart, so that all streams are open at the
same time. Every answer must be whole and its own. Printed: seconds in all, CPU seconds and peak memory of the client's
process, and how late the first tokens were read, against the second at which each was sent.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import sys
import time
from collections import Counter
from multiprocessing.connection import Connection

from model_foundry.config import LimitsConfig
from model_foundry.inference.client import ask, new_client
from model_foundry.inference.descriptors import make_room
from model_foundry.inference.target import InferenceRequest, WorkerTarget
from model_foundry_tests.inference.scripted import DONE, ScriptedServer, delta, sse, usage

PIECES = 10
PAUSE_S = 1.0


def serve(pipe: Connection, streams: int) -> None:
    """The server's process: ends when the other end of the pipe says so."""

    async def run() -> None:
        pauses = [step for n in range(PIECES) for step in (PAUSE_S, delta(content=f"piece {n} é🗻 "))]
        async with ScriptedServer(sse(*pauses, delta("stop"), usage(5, 3 * PIECES), DONE)) as server:
            pipe.send(server.url)
            await asyncio.to_thread(pipe.recv)
            pipe.send(server.most_in_flight)

    make_room(streams)
    asyncio.run(run())


async def measure(url: str, streams: int) -> None:
    """Asks all at once, and prints what came of it."""
    target = WorkerTarget("bench", url, "openai", slots=streams)
    request = InferenceRequest("m", [{"role": "user", "content": "hi"}])
    limits = LimitsConfig(request_connect_timeout_s=60)
    before, cpu = time.perf_counter(), time.process_time()
    async with new_client() as client:
        found = await asyncio.gather(*(ask(client, target, request, limits) for _ in range(streams)))
    took_s, cpu_s = time.perf_counter() - before, time.process_time() - cpu
    expected = "".join(f"piece {n} é🗻 " for n in range(PIECES))
    ends = Counter(f"{c.status}{'' if c.text == expected else ', not its whole text'}" for c in found)
    ttfts_s = sorted(c.timings.ttft_s for c in found if c.timings.ttft_s is not None)
    print(f"{streams} streams: {dict(ends)}")
    print(f"{took_s:.1f} s in all, {cpu_s:.1f} CPU-s, {1000 * cpu_s / streams:.1f} ms of CPU a stream")
    if ttfts_s:
        print(f"ttft_s: median {ttfts_s[len(ttfts_s) // 2]:.2f}, largest {ttfts_s[-1]:.2f}")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    if set(ends) != {"answered"}:
        sys.exit("not every stream ended as it should")


def main() -> None:
    streams = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    make_room(streams)
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs, streams))
    server.start()
    try:
        asyncio.run(measure(ours.recv(), streams))
        ours.send("end")
        print(f"the server had {ours.recv()} of them at once")
    finally:
        server.terminate()
        server.join(10)


if __name__ == "__main__":
    main()
