"""A foundry on a real NATS server and a real lake, whose workers are scripted servers in a thread."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from model_foundry.config import load
from model_foundry.fleet.heartbeat import workers_bucket
from model_foundry.jetstream.client import PubAck, with_jetstream
from model_foundry.runtime import Foundry
from model_foundry_tests.inference.scripted import ScriptedServer, Step, sse_answer


class Servers:
    """Scripted servers on a loop in a thread of their own, since a Dagster run is synchronous."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def start(self, *scripts: list[Step]) -> ScriptedServer:
        """A server that plays the scripts."""

        async def make() -> ScriptedServer:
            return await ScriptedServer(*scripts).__aenter__()

        return asyncio.run_coroutine_threadsafe(make(), self._loop).result(10)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)


@pytest.fixture
def servers() -> Iterator[Servers]:
    made = Servers()
    yield made
    made.close()


class Scene:
    """A foundry over a folder, and what a test does with it."""

    def __init__(self, folder: Path, nats_url: str, **changes: Any) -> None:
        self.folder = folder
        self.tag = uuid.uuid4().hex[:8]
        self.raw: dict[str, Any] = {
            "nats": {"url": nats_url},
            "streams": {
                "prompts": {"name": f"PROMPTS_{self.tag}", "subjects": ["prompts.>"]},
                "events": {"name": f"EVENTS_{self.tag}", "subjects": ["llm.>", "obsidian.>", "knowledge.>"]},
                "results": {"name": f"RESULTS_{self.tag}", "subjects": ["results.>"]},
            },
            "capabilities": ["cpu_inference", "gpu_inference"],
            "models": {"small": "cpu_inference", "big": "gpu_inference"},
            "workers": {},
            "domains": {"general": {"candidates": ["small"]}, "code": {"candidates": ["big"]}},
            "limits": {"sensor_long_poll_s": 0.2, "request_connect_timeout_s": 2},
            "fleet": {"bucket": f"fleet_{self.tag}", "heartbeat_s": 0.4, "gone_after_s": 2},
        } | changes

    def worker(self, name: str, url: str, **fields: Any) -> Scene:
        """Adds a worker that speaks the OpenAI dialect."""
        self.raw["workers"][name] = {"url": url, "api": "openai", **fields}
        return self

    @property
    def foundry(self) -> Foundry:
        """The foundry, read anew from the file."""
        file = self.folder / "foundry.yaml"
        file.write_text(yaml.safe_dump(self.raw, sort_keys=False), encoding="utf-8")
        return Foundry(load(file, environ={}), file)

    def publish(self, *bodies: dict[str, Any] | bytes, subject: str = "prompts.submit", **headers: str) -> list[PubAck]:
        """Publishes messages; an object as JSON."""
        data = [b if isinstance(b, bytes) else json.dumps(b).encode() for b in bodies]
        streams = self.foundry.config.streams

        async def work(js: Any) -> list[PubAck]:
            await js.ensure_stream(streams.prompts)
            await js.ensure_stream(streams.events)
            if headers:
                return [await js.publish(subject, d, headers=headers) for d in data]
            return await js.publish_many([(subject, d, None) for d in data])

        return with_jetstream(self.foundry.nats, work)

    def purge(self, *, below: int, stream: str = "prompts") -> None:
        """Makes a stream drop what stands before a sequence, as its limits would."""
        name = self.raw["streams"][stream]["name"]
        with_jetstream(self.foundry.nats, lambda js: js._js.purge_stream(name, seq=below))

    def delete(self, seq: int) -> None:
        """Deletes one prompt from its stream."""
        name = self.raw["streams"]["prompts"]["name"]
        with_jetstream(self.foundry.nats, lambda js: js._js.delete_msg(name, seq))

    def results(self) -> dict[str, dict[str, Any]]:
        """Every result published so far, by job id."""

        async def work(js: Any) -> list[Any]:
            state = await js.ensure_stream(self.foundry.config.streams.results)
            return await js.read_range(state, 1, state.last_seq)

        found = [json.loads(m.data) for m in with_jetstream(self.foundry.nats, work)]
        return {result["job_id"]: result for result in found}

    def beats(self, name: str, url: str, **fields: Any) -> None:
        """Puts a heartbeat, as a worker's agent does."""
        body = {"name": name, "url": url, "api": "openai", **fields}

        async def work(js: Any) -> None:
            fleet = self.foundry.config.fleet
            bucket = await js.bucket(workers_bucket(fleet.bucket, fleet.replicas))
            await bucket.put(name, json.dumps(body).encode())

        with_jetstream(self.foundry.nats, work)

    def close(self) -> None:
        """Takes the streams away, so that another test may have their subjects."""

        async def work(js: Any) -> None:
            for stream in self.raw["streams"].values():
                try:
                    await js._js.delete_stream(stream["name"])
                except Exception:
                    continue

        with_jetstream(self.foundry.nats, work)


@pytest.fixture
def scene(tmp_path: Path, nats_url: str) -> Iterator[Scene]:
    made = Scene(tmp_path, nats_url)
    yield made
    made.close()


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    made = dg.DagsterInstance.local_temp(str(tmp_path))  # not entered: contexts of ticks enter it, and only once
    yield made
    made.dispose()


@pytest.fixture
def skin(scene: Scene, servers: Servers, instance: dg.DagsterInstance) -> Any:
    from model_foundry_tests.flows.skin import Skin

    scene.raw["limits"]["reconcile_after_s"] = 0.001
    scene.worker("w", servers.start(sse_answer("Canberra")).url)
    return Skin(scene, instance)
