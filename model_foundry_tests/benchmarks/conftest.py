"""A foundry whose workers answer by rule and can be looked at: who was asked what, when, with which model in memory."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from model_foundry.benchmarks.runner import Progress, SweepReport, run_sweep
from model_foundry.benchmarks.settings import SweepSettings, sweep_settings
from model_foundry.benchmarks.suite import Check, Suite, SuitePrompt
from model_foundry_tests.flows.conftest import (
    Scene,
    Servers,
    instance,  # noqa: F401 (a fixture)
    scene,  # noqa: F401
    servers,  # noqa: F401
)
from model_foundry_tests.inference.scripted import (
    DONE,
    HANG,
    ScriptedServer,
    Step,
    as_json,
    delta,
    done,
    http,
    ndjson,
    said,
    sse,
    usage,
)

JSON = {"Content-Type": "application/json"}
LLAMA_MODEL = "smollm2"


@dataclass(frozen=True)
class Asked:
    """A chat request as a server saw it; moments are of the monotonic clock."""

    model: str
    messages: tuple[tuple[str, str], ...]
    body: dict[str, Any]
    start: float
    end: float
    was_loaded: bool

    @property
    def text(self) -> str:
        """The last user's words."""
        return self.messages[-1][1]

    @property
    def is_warmup(self) -> bool:
        return self.text.startswith("Count from one to twenty")


class ChatServer(ScriptedServer):
    """Answers chats by a rule, and keeps one model in memory, as an Ollama with a small card would.

    Attributes:
        models: that it lists.
        answer: model and last user's words -> text.
        pause_s: before the first token.
        fault: a script to play instead, for a model or for all (None).
        loaded: in memory now.
        unloads: whether it does so when asked.
    """

    def __init__(self, *models: str, api: Literal["ollama", "openai"] = "openai") -> None:
        super().__init__([])
        self.models, self.api = models, api
        self.answer: Callable[[str, str], str] = lambda model, text: f"{model} on {text}"
        self.pause_s = 0.0
        self.fault: dict[str | None, list[Step]] = {}
        self.loaded: str | None = None
        self.unloads = True
        self.asked: list[Asked] = []
        self.flying: Counter[str] = Counter()
        self.together: set[frozenset[str]] = set()

    @property
    def measured(self) -> list[Asked]:
        """What was no warm-up."""
        return [asked for asked in self.asked if not asked.is_warmup]

    async def _play(self, script: Any, writer: asyncio.StreamWriter, gone: asyncio.Future[bytes]) -> None:
        request = self.received[-1]
        if request.method == "GET":
            await super()._play([self._told(request.path)], writer, gone)
            return
        body = request.body
        model = body["model"]
        messages = tuple((m["role"], m["content"]) for m in body["messages"])
        if not messages:
            if self.unloads and body.get("keep_alive") == 0:
                self.loaded = None
            await super()._play(ndjson(done("unload")), writer, gone)
            return
        start, was_loaded = time.monotonic(), self.loaded == model
        self.loaded = model
        self.flying[model] += 1
        self.together.add(frozenset(+self.flying))
        try:
            fault = self.fault.get(model, self.fault.get(None))
            await super()._play(fault or self._script(model, messages[-1][1], was_loaded), writer, gone)
        finally:
            self.flying[model] -= 1
            self.asked.append(Asked(model, messages, body, start, time.monotonic(), was_loaded))

    def _script(self, model: str, text: str, was_loaded: bool) -> list[Step]:
        said_, first = self.answer(model, text), self.pause_s
        half = len(said_) // 2
        if self.api == "openai":
            return sse(
                first, delta(content=said_[:half]), delta(content=said_[half:]), delta("stop"), usage(9, 4), DONE
            )
        load = {"load_duration": 10_000_000 if was_loaded else 2_000_000_000}
        counts = {"prompt_eval_count": 9, "prompt_eval_duration": 10**7, "eval_count": 4, "eval_duration": 10**7}
        return ndjson(first, said(said_[:half]), said(said_[half:]), done(**load, **counts))

    def _told(self, path: str) -> bytes:
        tags = [{"name": m, "model": m} for m in self.models]
        found: dict[str, Any] = {
            "/api/tags": {"models": tags},
            "/api/ps": {"models": [t for t in tags if t["name"] == self.loaded]},
            "/api/version": {"version": "1.2.3"},
            "/v1/models": {"data": [{"id": m, "object": "model"} for m in self.models]},
        }
        if path not in found:
            return http(404)
        return http(200, as_json(found[path]), headers=JSON)


HANGS: list[Step] = [HANG]


def a_suite(prompts: int = 3, turns: int = 1, name: str = "little", checks: bool = False) -> Suite:
    """A suite of its own words."""
    return Suite(
        name=name,
        prompts=[
            SuitePrompt(
                id=f"p{n}",
                domain=("code", "general")[n % 2],
                turns=[f"question {n}.{t}" for t in range(turns)],
                checks=[Check(kind="contains", value=f"{n}.{turns - 1}")] if checks else [],
            )
            for n in range(prompts)
        ],
    )


class Bench:
    """A scene with workers that are measured."""

    def __init__(self, scene_: Scene, servers_: Servers) -> None:
        self.scene, self._servers = scene_, servers_
        scene_.raw["limits"]["cold_load_s"] = 0.5
        scene_.raw["fleet"]["lease_s"] = 1
        self.seen: list[Progress] = []

    def worker(self, name: str, *models: str, api: Literal["ollama", "openai"] = "openai", **fields: Any) -> ChatServer:
        """Starts a worker and puts it into the configuration."""
        server = ChatServer(*models, api=api)
        asyncio.run_coroutine_threadsafe(server.__aenter__(), self._servers._loop).result(10)
        for model in models:
            self.scene.raw["models"].setdefault(model, "cpu_inference")
        self.scene.worker(name, server.url, **{"api": api, "models": list(models), **fields})
        return server

    def run(self, suite: Suite | None = None, run_id: str = "run-1", **options: Any) -> SweepReport:
        """Runs a sweep; settings by name, other options as ``run_sweep`` takes them."""
        given = {name: options.pop(name) for name in list(options) if name in SweepSettings.model_fields}
        return run_sweep(
            options.pop("foundry", None) or self.scene.foundry,
            suite or a_suite(),
            run_id=run_id,
            settings=sweep_settings(given),
            **{"flush_every_s": 0.2, "on_progress": self.seen.append, **options},
        )

    def rows(self, query: str = "from benchmark_results order by position, request_id") -> list[dict[str, Any]]:
        return self.scene.foundry.warehouse.rows(query)


@pytest.fixture(scope="session")
def llama_url() -> Iterator[str]:
    """Base URL of a real llama.cpp server with two slots, on one thread: two wait for each other on busy cores."""
    argv = [sys.executable, "-m", "model_foundry.embedded.llama", "--port", "0", "--slots", "2", "--alias", LLAMA_MODEL]
    with subprocess.Popen([*argv, "--threads", "1"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert "ready at http://127.0.0.1:" in ready, f"llama.cpp did not start: {ready!r}"
        yield ready.split(" ready at ")[1].split(" ")[0]
        process.terminate()
        assert process.wait(20) == 0


@pytest.fixture
def bench(scene: Scene, servers: Servers) -> Bench:  # noqa: F811 (the fixtures)
    return Bench(scene, servers)
