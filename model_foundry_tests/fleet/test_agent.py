"""The agent: what it makes of what it sees, and a real one beside a real llama.cpp server, with a real NATS."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_foundry import __version__
from model_foundry.embedded.processes import free_port
from model_foundry.fleet.agent import Agent, AgentOptions, heartbeat_of, progress_of
from model_foundry.fleet.gpu import GpuReading
from model_foundry.fleet.heartbeat import Gpu, Heartbeat, Progress, ServedModel, read_heartbeat, workers_bucket
from model_foundry.inference.probe import ProbeResult, Served
from model_foundry.inference.target import WorkerTarget
from model_foundry.jetstream.client import JetStream, NatsSettings, with_jetstream
from model_foundry_tests.inference.scripted import HANG, ScriptedServer
from model_foundry_tests.parts import NatsServer, wait_for

NOW = datetime(2026, 12, 1, 9, 30, tzinfo=UTC)
OPTIONS = AgentOptions("moon", "http://moon:8080", "openai")
NO_GPU = GpuReading()
DOWN = ProbeResult(False, False, "http://moon:8080 can't be reached")


def result(**changes: Any) -> ProbeResult:
    """A server that answers."""
    return ProbeResult(**{"reachable": True, "ok": True, "detail": "ok", "status": 200, **changes})


def beat(
    options: AgentOptions = OPTIONS,
    seen: ProbeResult | None = None,
    gpus: GpuReading = NO_GPU,
    before: Heartbeat | None = None,
) -> Heartbeat:
    return heartbeat_of(options, seen or result(), gpus, before, NOW)


def options(**changes: Any) -> AgentOptions:
    return AgentOptions(**{"name": "moon", "url": "http://moon:8080", "api": "openai", **changes})


# -- one heartbeat --------------------------------------------------------------------------------------------------


def test_a_heartbeat_says_what_the_server_tells() -> None:
    seen = result(
        served=[Served("m", 5, "Q4_1", 2048, True, 3)], slots=2, running=1, waiting=0, version="b6000", work_total=7.0
    )
    made = beat(options(supports=("gpu_inference", "cpu_inference")), seen)
    assert made.models == [
        ServedModel(name="m", size_bytes=5, quantization="Q4_1", context_length=2048, loaded=True, vram_bytes=3)
    ]
    assert (made.slots, made.running, made.waiting, made.version) == (2, 1, 0, "b6000")
    assert (made.supports, made.state_hint, made.problem) == (["gpu_inference", "cpu_inference"], "ready", None)
    assert (made.agent_version, made.sent_at, made.sequence, made.interval_s) == (__version__, NOW, 0, 10)
    assert made.notes == ()
    assert read_heartbeat(made.to_bytes(), "moon") == made


def test_what_the_server_does_not_tell_comes_from_the_options_or_is_unknown() -> None:
    made = beat(options(models=("a", "b"), slots=3))
    assert ([m.name for m in made.models], made.slots, made.notes) == (["a", "b"], 3, ())
    made = beat()
    assert (made.models, made.slots, made.running, made.gpu) == ([], None, None, None)


def test_given_slots_win_and_the_servers_are_noted() -> None:
    made = beat(options(slots=4), result(slots=2))
    assert (made.slots, made.notes) == (4, ("slots is 4 as given; the server has 2",))


def test_a_given_model_that_the_server_lacks_is_noted() -> None:
    made = beat(options(models=("a", "b", "c")), result(served=[Served("a"), Served("b:latest")]))
    assert ([m.name for m in made.models], made.notes) == (["a", "b:latest"], ("the server does not list c",))


def test_a_server_that_is_down_keeps_the_models_it_had_but_not_in_memory() -> None:
    up = beat(seen=result(served=[Served("m", size_bytes=5, loaded=True, vram_bytes=3)], slots=2, running=1))
    made = beat(seen=DOWN, before=up)
    assert (made.reachable, made.state_hint, made.problem) == (False, "down", DOWN.detail)
    assert made.models == [ServedModel(name="m", size_bytes=5)]
    assert (made.running, made.slots, made.progress, made.sequence) == (None, None, Progress(), 1)


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        (result(), "ready"),
        (result(loading=True), "loading"),
        (result(ok=False, status=503, loading=True), "loading"),
        (result(ok=False, status=401), "misconfigured"),
        (result(ok=False, status=404), "misconfigured"),
        (result(ok=False, status=200), "misconfigured"),
        (result(ok=False, status=500), "down"),
        (DOWN, "down"),
        (ProbeResult(False, False, "the headers can't be sent"), "down"),
    ],
)
def test_a_server_that_refuses_us_is_told_apart_from_one_that_is_down(seen: ProbeResult, state: str) -> None:
    assert beat(seen=seen).state_hint == state


@pytest.mark.parametrize(
    ("given_index", "indexes", "found", "notes"),
    [
        (None, [0], 0, ()),
        (None, [0, 1], None, ()),
        (None, [], None, ()),
        (1, [0, 1], 1, ()),
        (2, [0, 1], None, ("there is no GPU 2; nvidia-smi shows 0, 1",)),
        (0, [], None, ("there is no GPU 0; nvidia-smi shows none",)),
    ],
)
def test_the_workers_gpu_is_the_one_given_or_the_only_one(
    given_index: int | None, indexes: list[int], found: int | None, notes: tuple[str, ...]
) -> None:
    made = beat(options(gpu_index=given_index), gpus=GpuReading([Gpu(index=i) for i in indexes]))
    assert made.gpu == (None if found is None else Gpu(index=found))
    assert (len(made.gpus), made.notes) == (len(indexes), notes)


def test_what_is_wrong_with_nvidia_smi_is_noted_and_not_the_servers_problem() -> None:
    made = beat(options(gpu_index=0), gpus=GpuReading([], "nvidia-smi gave no answer within 5 s"))
    assert (made.problem, made.notes) == (None, ("nvidia-smi gave no answer within 5 s",))


# -- progress -------------------------------------------------------------------------------------------------------


def after(*seen: ProbeResult, every_s: float = 10) -> Progress:
    """The progress after these looks, one every ten seconds."""
    last: Heartbeat | None = None
    for number, look in enumerate(seen):
        last = heartbeat_of(OPTIONS, look, NO_GPU, last, NOW + timedelta(seconds=number * every_s))
    assert last is not None
    return last.progress


def at(work_total: float | None, running: int | None, waiting: int | None = 0, **more: Any) -> ProbeResult:
    return result(work_total=work_total, running=running, waiting=waiting, **more)


@pytest.mark.parametrize(
    ("looks", "stalled_s"),
    [
        ([at(5, 0)], 0),
        ([at(5, 1)], 0),
        ([at(5, 1), at(6, 1)], 0),
        ([at(5, 1), at(5, 1)], 10),
        ([at(5, 1), at(5, 1), at(5, 2)], 20),
        ([at(5, 1), at(5, 1), at(6, 1)], 0),
        ([at(5, 1), at(5, 1), at(5, 0)], 0),
        ([at(5, 0), at(5, 1)], 0),  # its request may have come just now
        ([at(5, 0), at(5, 1), at(5, 1)], 10),
        ([at(5, 0, 3), at(5, 0, 3)], 10),  # nothing runs, and yet some wait
        ([at(5, 1), at(5, 1), at(2, 1)], 0),  # started anew
        ([at(None, 1), at(None, 1)], None),
        ([at(5, None, None), at(5, None, None)], None),
        ([at(5, 1), at(None, None, None, late=("/metrics",))], 10),
        ([at(5, 1), at(None, 1, None, late=("/metrics",)), at(5, 1)], 20),
        ([at(5, 1), at(None, 1, None, late=("/metrics",)), at(9, 1)], 0),
        ([at(None, 1, None, late=("/metrics",))], None),
        ([at(5, 1), at(5, 1), DOWN], None),
    ],
)
def test_a_server_has_stalled_for_as_long_as_it_had_requests_and_moved_nothing(
    looks: list[ProbeResult], stalled_s: float | None
) -> None:
    assert after(*looks).stalled_s == stalled_s


def test_a_clock_that_jumps_back_makes_no_negative_stall() -> None:
    assert after(at(5, 1), at(5, 1), every_s=-3600).stalled_s == 0


_LOOKS = st.builds(
    at,
    st.none() | st.integers(0, 3).map(float),
    st.none() | st.integers(0, 2),
    st.none() | st.integers(0, 2),
    late=st.sampled_from([(), ("/metrics",), ("/v1/metrics", "/slots")]),
)


@given(st.lists(_LOOKS, min_size=1, max_size=8), st.floats(0, 1e6))
def test_a_stall_is_never_longer_than_the_time_that_has_passed(looks: list[ProbeResult], every_s: float) -> None:
    stalled_s, before = None, None
    for look in looks:
        progress = progress_of(look, before, every_s)
        stalled_s, before = progress.stalled_s, beat(seen=look).model_copy(update={"progress": progress})
    assert stalled_s is None or 0 <= stalled_s <= every_s * (len(looks) - 1) + 1e-6


# -- a real one -----------------------------------------------------------------------------------------------------


class RunningAgent:
    """An agent in a thread of its own, and what it said."""

    def __init__(self, settings: NatsSettings, url: str, **changes: Any) -> None:
        self.options = options(**{"url": url, "heartbeat_s": 0.25, "bucket": f"lab{free_port()}", **changes})
        self.settings, self.lines = settings, list[str]()
        self._target = WorkerTarget("moon", url, self.options.api)
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> RunningAgent:
        self._thread.start()
        assert self._ready.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Asks it to stop, and waits until it has; once it has, nothing."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(40)
        assert not self._thread.is_alive()
        assert self._error is None, self._error

    def _run(self) -> None:
        async def main() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            self._ready.set()
            await Agent(self.settings, self._target, self.options, say=self.lines.append).run(self._stop)

        try:
            asyncio.run(main())
        except BaseException as error:
            self._error = error

    def sent(self) -> Heartbeat | None:
        """What stands in the bucket now."""
        return read_bucket(self.settings, self.options.bucket).get(self.options.name)

    def wait_until(self, what: str, holds: Callable[[Heartbeat], bool]) -> Heartbeat:
        """The first heartbeat seen of which it holds."""

        def look() -> Heartbeat | None:
            found = self.sent()
            return found if found is not None and holds(found) else None

        found = wait_for(what, look)
        assert isinstance(found, Heartbeat)
        return found

    def wait_for_line(self, said: str) -> None:
        wait_for(f"a line with {said!r}", lambda: any(said in line for line in self.lines))


def read_bucket(settings: NatsSettings, bucket: str) -> dict[str, Heartbeat]:
    async def look(js: JetStream) -> dict[str, Heartbeat]:
        entries = await (await js.bucket(workers_bucket(bucket))).entries()
        read = {key: read_heartbeat(entry.value or b"", key) for key, entry in entries.items()}
        return {key: found for key, found in read.items() if isinstance(found, Heartbeat)}

    return with_jetstream(settings, look)


def put_by_hand(settings: NatsSettings, bucket: str, heartbeat: Heartbeat) -> None:
    async def put(js: JetStream) -> None:
        await (await js.bucket(workers_bucket(bucket))).put(heartbeat.name, heartbeat.to_bytes())

    with_jetstream(settings, put)


@contextmanager
def llama_on(port: int) -> Iterator[subprocess.Popen[str]]:
    """A real llama.cpp server with two slots."""
    argv = [sys.executable, "-m", "model_foundry.embedded.llama", "--port", str(port), "--slots", "2"]
    with subprocess.Popen([*argv, "--alias", "smollm2"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "ready at" in process.stdout.readline()
        yield process
        process.kill()


def test_it_follows_a_server_that_dies_and_comes_back_and_takes_its_key_along_when_it_goes(
    nats_settings: NatsSettings,
) -> None:
    port = free_port()
    # a look takes 80% of the interval at most; a busy test machine must not make the server look down
    with RunningAgent(nats_settings, f"http://127.0.0.1:{port}", heartbeat_s=2) as agent:
        agent.wait_until("heartbeats without a server", lambda b: b.reachable is False and b.state_hint == "down")
        with llama_on(port) as server:
            up = agent.wait_until("a server that is ready", lambda b: b.state_hint == "ready" and bool(b.models))
            assert (up.models[0].name, up.models[0].loaded, up.slots, up.running) == ("smollm2", True, 2, 0)
            assert (up.progress.stalled_s, up.reachable) == (0, True)
            later = agent.wait_until("a later heartbeat", lambda b: (b.sequence or 0) > (up.sequence or 0))
            assert later.sent_at is not None
            assert up.sent_at is not None
            assert later.sent_at > up.sent_at
            server.kill()
            down = agent.wait_until("a server that was killed", lambda b: b.reachable is False)
            assert (down.state_hint, [m.name for m in down.models]) == ("down", ["smollm2"])
        agent.stop()
        assert agent.sent() is None
        states = [line.split(":")[0] for line in agent.lines if "loading" not in line]
        assert states == ["server down", "server ready", "server down"]


def test_it_survives_a_nats_that_is_killed_and_started_again(tmp_path: Path) -> None:
    with NatsServer(tmp_path) as nats, RunningAgent(NatsSettings(nats.url), "http://127.0.0.1:1") as agent:
        first = agent.wait_until("a heartbeat", lambda b: True)
        nats.kill()
        agent.wait_for_line("NATS lost")
        nats.start()
        agent.wait_until("a heartbeat after the restart", lambda b: (b.sequence or 0) > (first.sequence or 0) + 1)
        agent.wait_for_line("NATS is back")
        assert [line.split(":")[0].split(";")[0] for line in agent.lines] == [
            "server down",
            "NATS lost",
            "NATS is back",
        ]


def test_it_waits_for_a_nats_that_is_not_there_yet_and_says_so_once(tmp_path: Path) -> None:
    nats = NatsServer(tmp_path)
    settings = NatsSettings(nats.url, connect_timeout_s=0.5)
    with RunningAgent(settings, "http://127.0.0.1:1", heartbeat_s=0.1) as agent:
        agent.wait_for_line("NATS lost")
        with nats:
            agent.wait_until("a heartbeat", lambda b: True)
            agent.wait_for_line("NATS is back")
            agent.stop()
            assert agent.sent() is None
        assert sum("NATS lost" in line for line in agent.lines) == 1


def test_a_bucket_that_is_lost_is_made_again(nats_settings: NatsSettings) -> None:
    with RunningAgent(nats_settings, "http://127.0.0.1:1") as agent:
        stream = f"KV_{workers_bucket(agent.options.bucket).name}"
        first = agent.wait_until("a heartbeat", lambda b: True)
        with_jetstream(nats_settings, lambda js: js._js.delete_stream(stream))
        agent.wait_for_line("NATS is back")
        assert with_jetstream(nats_settings, lambda js: js.stream_state(stream)).messages == 1
        agent.wait_until("a heartbeat afterwards", lambda b: (b.sequence or 0) > (first.sequence or 0))
        assert not [line for line in agent.lines if "somebody else" in line]


def test_it_stops_without_nats_and_says_what_stays(tmp_path: Path) -> None:
    with NatsServer(tmp_path) as nats:
        settings = NatsSettings(nats.url, connect_timeout_s=0.5)
        with RunningAgent(settings, "http://127.0.0.1:1") as agent:
            agent.wait_until("a heartbeat", lambda b: True)
            nats.kill()
            agent.stop()
    assert agent.lines[-1].startswith("NATS is not there; moon is gone for others when its heartbeat is old")


def test_it_stops_at_once_although_its_server_is_silent(nats_settings: NatsSettings) -> None:
    async def stop_while_it_looks() -> float:
        async with ScriptedServer([HANG]) as server:
            stop, clock = asyncio.Event(), time.monotonic
            agent = Agent(nats_settings, WorkerTarget("moon", server.url, "openai"), options(heartbeat_s=600))
            running = asyncio.create_task(agent.run(stop))
            await server.wait_for_requests(1)
            began = clock()
            stop.set()
            await running
            return clock() - began

    assert asyncio.run(stop_while_it_looks()) < 5


def test_a_key_that_somebody_else_has_written_since_is_left_to_them(nats_settings: NatsSettings) -> None:
    with RunningAgent(nats_settings, "http://127.0.0.1:1", heartbeat_s=600) as agent:
        mine = agent.wait_until("the one heartbeat", lambda b: True)
        theirs = mine.model_copy(update={"url": "http://other:1"})
        put_by_hand(nats_settings, agent.options.bucket, theirs)
        agent.stop()
        assert agent.sent() == theirs


def test_two_agents_with_one_name_are_told(nats_settings: NatsSettings) -> None:
    with RunningAgent(nats_settings, "http://127.0.0.1:1") as agent:
        mine = agent.wait_until("a heartbeat", lambda b: True)
        put_by_hand(nats_settings, agent.options.bucket, mine)
        agent.wait_for_line("somebody else writes moon in bucket lab")
        agent.wait_until("its own heartbeat again", lambda b: (b.sequence or 0) > (mine.sequence or 0))


def test_one_look_needs_no_nats(nats_settings: NatsSettings) -> None:
    agent = Agent(NatsSettings("nats://127.0.0.1:1"), WorkerTarget("moon", "http://127.0.0.1:1", "openai"), OPTIONS)
    assert asyncio.run(agent.once()).state_hint == "down"


def test_lines_hold_no_key(tmp_path: Path) -> None:
    target = WorkerTarget("moon", "http://127.0.0.1:1", "openai", headers={"Authorization": "Bearer s3cret\n"})
    made = asyncio.run(Agent(NatsSettings("nats://127.0.0.1:1"), target, OPTIONS).once())
    assert not re.search("s3cret", made.to_bytes().decode())
