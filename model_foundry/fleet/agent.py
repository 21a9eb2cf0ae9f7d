"""The agent beside a model server: looks at it every few seconds and puts a heartbeat where everybody reads it.

Belongs here: making a heartbeat of what was seen, the loop around it, surviving what goes away and comes back. Does
not belong here: how a server or a GPU is asked (``inference.probe``, ``fleet.gpu``), what a heartbeat is
(``fleet.heartbeat``), options and signals (``cli.commands.worker``).

Two tasks share one value, the newest heartbeat. One makes it, whatever NATS does; the other sends it, whatever the
server does, and throws its connection away and makes another when NATS does not acknowledge. So no heartbeat is
queued: what is sent after an outage is what is true then. Whatever changes is said once, not every beat.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx

from model_foundry import __version__
from model_foundry.errors import FoundryError
from model_foundry.fleet.gpu import GpuReader, GpuReading
from model_foundry.fleet.heartbeat import (
    MAX_SLOTS,
    Api,
    Gpu,
    Heartbeat,
    Progress,
    ServedModel,
    State,
    workers_bucket,
)
from model_foundry.inference.client import new_client, utc_now
from model_foundry.inference.probe import ProbeResult, Served, listed_as, probe
from model_foundry.inference.target import WorkerTarget
from model_foundry.jetstream.buckets import Bucket, BucketConfig
from model_foundry.jetstream.client import JetStream, NatsSettings
from model_foundry.tasks import end

LOOK_SHARE = 0.8
"""Of the interval, for looking at the server and the GPUs: a slow answer never makes the next beat late."""
LONGEST_LOOK_S = 10.0
FIRST_RETRY_S = 0.5
LONGEST_RETRY_S = 15.0
LEAVING_S = 8.0
"""For deleting our key when we stop; without NATS it stays and grows old, as after a crash."""


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """What the agent says of its worker, and how often.

    Attributes:
        name: the worker's.
        url: where others reach its server; the agent itself may reach it elsewhere (``target.url``).
        api: its dialect.
        supports: capabilities, preferred first.
        slots: requests at once; None leaves it to the server to tell.
        models: by the server's names; said when the server does not tell.
        gpu_index: of the GPU it runs on, by ``nvidia-smi``'s numbers; None takes the only one.
        heartbeat_s: seconds from one heartbeat to the next.
        bucket: ``fleet.bucket``.
        replicas: ``fleet.replicas``.
    """

    name: str
    url: str
    api: Api
    supports: tuple[str, ...] = ("cpu_inference",)
    slots: int | None = None
    models: tuple[str, ...] = ()
    gpu_index: int | None = None
    heartbeat_s: float = 10.0
    bucket: str = "foundry"
    replicas: int = 1


# -- pure -----------------------------------------------------------------------------------------------------------


def heartbeat_of(
    options: AgentOptions,
    result: ProbeResult,
    reading: GpuReading,
    previous: Heartbeat | None,
    now: datetime,
    *,
    elapsed_s: float | None = None,
) -> Heartbeat:
    """The heartbeat of what was just seen. Pure.

    Args:
        options: what is said of the worker; slots given here win over what the server tells.
        result: the server's answers.
        reading: the GPUs.
        previous: this agent's heartbeat before, for what only shows over time.
        now: for ``sent_at``.
        elapsed_s: since ``previous``, by a monotonic clock; None takes it from ``sent_at``.
    """
    notes: list[str] = []
    if reading.problem:
        notes.append(reading.problem)
    return Heartbeat(
        name=options.name,
        url=options.url,
        api=options.api,
        supports=list(options.supports),
        models=_models_of(options, result, previous, notes),
        slots=_slots_of(options, result, notes),
        gpu=_gpu_of(options, reading, notes),
        gpus=reading.gpus,
        running=result.running,
        waiting=result.waiting,
        version=_short(result.version),
        agent_version=__version__,
        sent_at=now.astimezone(UTC),
        sequence=0 if previous is None or previous.sequence is None else previous.sequence + 1,
        interval_s=options.heartbeat_s,
        reachable=result.reachable,
        state_hint=state_of(result),
        problem=_problem_of(result),
        progress=progress_of(result, previous, _elapsed_s(previous, now) if elapsed_s is None else elapsed_s),
        notes=tuple(note[:1024] for note in notes),
    )


def state_of(result: ProbeResult) -> State:
    """What a server's answers make of it: one that refuses us is up, and asked in the wrong way."""
    if result.loading:
        return "loading"
    if result.ok:
        return "ready"
    return "misconfigured" if result.reachable and (result.status or 0) < 500 else "down"


def progress_of(result: ProbeResult, previous: Heartbeat | None, elapsed_s: float) -> Progress:
    """Whether the server got anything done since the heartbeat before. Pure.

    A server has stalled for as long as it has had requests, running or waiting, and moved nothing: vLLM was seen to
    answer ``/health`` at 0 tokens/s, with 0 requests running (vllm#39863, #46811). One whose figures were there and
    now come late counts as such too; one that gives no figures is unknown.
    """
    before = previous.progress if previous is not None else Progress()
    stalled_s = (before.stalled_s or 0.0) + max(0.0, elapsed_s)
    if any(path.endswith("/metrics") for path in result.late) and before.work_total is not None:
        return Progress(work_total=before.work_total, stalled_s=stalled_s)
    if result.work_total is None:
        return Progress(generated_tokens_total=result.generated_tokens_total)
    busy = _is_busy(result.running, result.waiting)
    if busy is None:
        counted = None
    elif busy and previous is not None and before.work_total == result.work_total:
        # when it was idle a beat ago, its request may have come just now
        counted = stalled_s if _is_busy(previous.running, previous.waiting) is not False else 0.0
    else:
        counted = 0.0
    return Progress(
        generated_tokens_total=result.generated_tokens_total, work_total=result.work_total, stalled_s=counted
    )


def _is_busy(running: int | None, waiting: int | None) -> bool | None:
    return None if running is None and waiting is None else (running or 0) + (waiting or 0) > 0


def _elapsed_s(previous: Heartbeat | None, now: datetime) -> float:
    return (now - previous.sent_at).total_seconds() if previous is not None and previous.sent_at is not None else 0.0


def _problem_of(result: ProbeResult) -> str | None:
    if result.loading:
        return "the server still loads its model"
    return None if result.ok else _short(result.detail)


def _short(text: str | None) -> str | None:
    return (text or "").strip()[:1024] or None


def _models_of(
    options: AgentOptions, result: ProbeResult, previous: Heartbeat | None, notes: list[str]
) -> list[ServedModel]:
    """What the server lists; else what the options name; else what it listed before, in memory or not unknown."""
    if result.served:
        found = [_served_model(s) for s in result.served if len(s.name) <= 256]
        listed = {m.name for m in found}
        missing = [m for m in options.models if listed_as(m, listed) is None]
        if missing:
            notes.append(f"the server does not list {', '.join(missing)}")
        return found
    if options.models or result.ok or previous is None:
        return [ServedModel(name=name) for name in options.models]
    return [m.model_copy(update={"loaded": None, "vram_bytes": None}) for m in previous.models]


def _served_model(served: Served) -> ServedModel:
    return ServedModel(
        name=served.name,
        size_bytes=served.size_bytes,
        quantization=_short(served.quantization),
        context_length=served.context_length,
        loaded=served.loaded,
        vram_bytes=served.vram_bytes,
    )


def _slots_of(options: AgentOptions, result: ProbeResult, notes: list[str]) -> int | None:
    told = result.slots if result.slots is not None and 1 <= result.slots <= MAX_SLOTS else None
    if options.slots is None:
        return told
    if told is not None and told != options.slots:
        notes.append(f"slots is {options.slots} as given; the server has {told}")
    return options.slots


def _gpu_of(options: AgentOptions, reading: GpuReading, notes: list[str]) -> Gpu | None:
    if options.gpu_index is None:
        return reading.gpus[0] if len(reading.gpus) == 1 else None
    found = next((g for g in reading.gpus if g.index == options.gpu_index), None)
    if found is None and not reading.problem:
        there = ", ".join(str(g.index) for g in reading.gpus) or "none"
        notes.append(f"there is no GPU {options.gpu_index}; nvidia-smi shows {there}")
    return found


# -- the loop -------------------------------------------------------------------------------------------------------


class Agent:
    """Sends one worker's heartbeats until told to stop.

    Args:
        settings: how to reach NATS.
        target: how the agent itself reaches the server.
        options: what it says of the worker.
        say: takes one line for each change.
    """

    def __init__(
        self,
        settings: NatsSettings,
        target: WorkerTarget,
        options: AgentOptions,
        *,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._settings, self._target, self._options, self._say = settings, target, options, say
        self._gpus = GpuReader()
        self._latest: Heartbeat | None = None
        self._latest_at = 0.0
        self._fresh = asyncio.Event()
        self._revision: int | None = None
        self._has_sent = False
        self._nats_trouble: object = None
        self._is_shared = False
        self._is_stopping = False

    async def run(self, stop: asyncio.Event) -> None:
        """Looks and sends until ``stop`` is set; then deletes its key, so that nobody waits for it to grow old.

        NATS and the server may be away at the start and at any time after it.
        """
        async with new_client() as client:
            working = [
                asyncio.ensure_future(work)
                for work in (self._look_for_ever(client), self._send_for_ever(), stop.wait())
            ]
            try:
                done, _ = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await self._end(working)
        for task in done:
            task.result()
        await self._leave()

    async def _end(self, working: Sequence[asyncio.Future[Any]]) -> None:
        """Cancels all and waits until they have ended.

        The tasks look at a flag too, because one may be between two things to wait for.
        """
        self._is_stopping = True
        self._fresh.set()
        await end(*working)

    async def once(self) -> Heartbeat:
        """Looks once; nothing is sent."""
        async with new_client() as client:
            return await self._look(client)

    async def send(self, heartbeat: Heartbeat) -> None:
        """Sends one heartbeat over a connection of its own.

        Raises:
            NatsUnavailableError: when NATS does not answer.
            StreamError: when it refuses.
        """
        async with JetStream(self._settings) as js:
            await self._put(await js.bucket(self._bucket), heartbeat)

    # -- looking ----------------------------------------------------------------------------------------------------

    async def _look_for_ever(self, client: httpx.AsyncClient) -> None:
        clock, due = asyncio.get_running_loop().time, asyncio.get_running_loop().time()
        while not self._is_stopping:
            await self._look(client)
            self._fresh.set()
            due = max(due + self._options.heartbeat_s, clock())
            await asyncio.sleep(due - clock())

    async def _look(self, client: httpx.AsyncClient) -> Heartbeat:
        """The server and the GPUs at once, bounded; the newest heartbeat afterwards."""
        clock = asyncio.get_running_loop().time
        bound_s = min(LONGEST_LOOK_S, self._options.heartbeat_s * LOOK_SHARE)
        result, reading = await asyncio.gather(probe(client, self._target, bound_s), self._gpus.read(bound_s))
        now, before = clock(), self._latest
        self._latest = heartbeat_of(
            self._options, result, reading, before, utc_now(), elapsed_s=now - self._latest_at if before else 0.0
        )
        self._latest_at = now
        self._say_of_the_server(before, self._latest)
        return self._latest

    def _say_of_the_server(self, before: Heartbeat | None, now: Heartbeat) -> None:
        if now.state_hint != (before.state_hint if before else "ready"):
            self._say(f"server {now.state_hint}: {now.problem or self._target.url}")

    # -- sending ----------------------------------------------------------------------------------------------------

    @property
    def _bucket(self) -> BucketConfig:
        return workers_bucket(self._options.bucket, self._options.replicas)

    async def _send_for_ever(self) -> None:
        delay_s = FIRST_RETRY_S
        while not self._is_stopping:
            try:
                async with JetStream(self._settings) as js:
                    bucket = await js.bucket(self._bucket)
                    while True:
                        await self._fresh.wait()
                        if self._is_stopping:
                            return
                        self._fresh.clear()
                        if self._latest is not None:
                            await self._put(bucket, self._latest)
                        self._say_of_nats(None)
                        delay_s = FIRST_RETRY_S
            except Exception as error:  # whatever it is: nats-py raises TypeError too when it is cut off
                self._revision = None
                self._say_of_nats(error)
                if self._latest is not None:
                    self._fresh.set()  # the newest one is sent as soon as that is possible
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, LONGEST_RETRY_S)

    async def _put(self, bucket: Bucket, heartbeat: Heartbeat) -> None:
        """Puts it, and notices when the key was written by somebody else since our last time."""
        data, last, revision = heartbeat.to_bytes(), self._revision, None
        self._has_sent, self._revision = True, None  # unknown until it is acknowledged
        if last is not None:
            revision = await bucket.put_if(self._options.name, data, last)
            # a key that is not there any more was lost or deleted, which nobody does twice
            shared = revision is None and self._options.name in await bucket.entries(self._options.name)
            if shared and not self._is_shared:
                self._say(
                    f"somebody else writes {self._options.name} in bucket {bucket.name} too; "
                    "two agents with one name? give each worker a name of its own"
                )
            self._is_shared = shared
        self._revision = await bucket.put(self._options.name, data) if revision is None else revision

    def _say_of_nats(self, error: Exception | None) -> None:
        """One line when NATS is lost, is lost for another reason, or is back."""
        hint = error.hint if isinstance(error, FoundryError) else None
        trouble = None if error is None else (type(error), hint)
        if trouble == self._nats_trouble:
            return
        self._nats_trouble = trouble
        if error is None:
            self._say("NATS is back; heartbeats arrive again")
        else:
            said = str(error) or type(error).__name__
            self._say(f"NATS lost: {said}; trying again until it is back{f'. {hint}' if hint else ''}")

    async def _leave(self) -> None:
        """Deletes our key, unless somebody else has written it since."""
        if not self._has_sent:
            return
        with contextlib.suppress(FoundryError, OSError):  # a timeout is one
            async with asyncio.timeout(LEAVING_S), JetStream(self._settings) as js:
                bucket = await js.bucket(self._bucket)
                if self._revision is None:
                    await bucket.delete(self._options.name)
                else:
                    await bucket.delete_if(self._options.name, self._revision)
                return
        self._say(f"NATS is not there; {self._options.name} is gone for others when its heartbeat is old")
