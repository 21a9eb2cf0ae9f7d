"""A scene with a search server that answers by the query, and a model that tells what it was asked."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from model_foundry_tests.flows.conftest import (
    Scene,
    Servers,
    instance,  # noqa: F401 (a fixture)
    scene,  # noqa: F401
    servers,  # noqa: F401
)
from model_foundry_tests.inference.scripted import ScriptedServer, Step, as_json, http, sse_answer


def found(*results: Any, failed: Any = (), **more: Any) -> list[Step]:
    """A script: SearXNG's answer. A result is a dictionary, or a text that is its title."""
    listed = [
        r if isinstance(r, dict) else {"url": f"https://example.org/{n}", "title": r, "content": f"About {r}."}
        for n, r in enumerate(results, 1)
    ]
    body = {"query": "q", "results": listed, "unresponsive_engines": [*failed], **more}
    return [http(200, as_json(body), headers={"Content-Type": "application/json"})]


class SearchServer(ScriptedServer):
    """Finds two results for each query; ``by_query`` and ``fault`` play something else."""

    def __init__(self) -> None:
        super().__init__([])
        self.by_query: dict[str, list[Step]] = {}
        self.fault: list[Step] | None = None

    @property
    def queries(self) -> list[str]:
        return [request.body["q"] for request in self.received if request.path == "/search"]

    async def _play(self, script: Any, writer: asyncio.StreamWriter, gone: asyncio.Future[bytes]) -> None:
        request = self.received[-1]
        if request.path == "/config":
            script = [http(200, b'{"version": "1"}')]
        elif self.fault is not None:
            script = self.fault
        else:
            query = request.body["q"]
            script = self.by_query.get(query) or found(f"One of {query}", f"Two of {query}")
        await super()._play(script, writer, gone)


class EchoServer(ScriptedServer):
    """A model that answers with the last line it was told, in capitals; ``by_text`` plays something else.

    ``by_text``: a script by a text that the last message holds.
    """

    def __init__(self) -> None:
        super().__init__([])
        self.by_text: dict[str, list[Step]] = {}

    @property
    def asked(self) -> list[str]:
        """The last message of every request."""
        return [r.body["messages"][-1]["content"] for r in self.received if r.method == "POST"]

    async def _play(self, script: Any, writer: asyncio.StreamWriter, gone: asyncio.Future[bytes]) -> None:
        request = self.received[-1]
        if request.method == "GET":
            script = [http(200, json.dumps({"data": [{"id": "small"}]}).encode())]
        else:
            text = request.body["messages"][-1]["content"]
            script = next((s for part, s in self.by_text.items() if part in text), None) or sse_answer(
                text.rpartition("\n\n")[2].upper()
            )
        await super()._play(script, writer, gone)


class Grounded:
    """A scene with a model and a search server."""

    def __init__(self, scene_: Scene, servers_: Servers) -> None:
        self.scene, self._servers = scene_, servers_
        self.search, self.model = SearchServer(), EchoServer()
        for server in (self.search, self.model):
            self.start(server)
        scene_.raw["capabilities"] = ["cpu_inference", "gpu_inference", "web_search"]
        scene_.worker("searx", self.search.url, api="searxng", supports=["web_search"], slots=2)
        scene_.worker("m", self.model.url, supports=["cpu_inference"], slots=4)

    def start(self, server: ScriptedServer) -> ScriptedServer:
        """Starts a server of a test's own."""
        return asyncio.run_coroutine_threadsafe(server.__aenter__(), self._servers._loop).result(10)

    def rows(self, query: str) -> list[dict[str, Any]]:
        return self.scene.foundry.warehouse.rows(query)


@pytest.fixture
def grounded(scene: Scene, servers: Servers) -> Grounded:  # noqa: F811 (the fixtures)
    return Grounded(scene, servers)
