"""A foundry with a folder of notes, and servers that embed: real, scripted, or by known words."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from model_foundry_tests.flows.conftest import (
    Scene,
    Servers,
    instance,  # noqa: F401 (a fixture)
    scene,  # noqa: F401
    servers,  # noqa: F401
)
from model_foundry_tests.inference.scripted import ScriptedServer, Step, as_json, http, refusal

WORDS = ("cat", "train", "bread")
MODEL = "nomic"
LLAMA_MODEL = "smollm2"


def vector_of(text: str) -> list[float]:
    """How often each word stands in the text, and a little of something that all texts have."""
    return [*(float(text.lower().count(word)) for word in WORDS), 0.1]


def openai_answer(vectors: list[Any], tokens: int = 7) -> list[Step]:
    """A script: OpenAI's answer."""
    data = [{"object": "embedding", "index": n, "embedding": v} for n, v in enumerate(vectors)]
    body = {"object": "list", "data": data, "model": "m", "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
    return [http(200, as_json(body), headers={"Content-Type": "application/json"})]


def ollama_answer(vectors: list[Any], **more: Any) -> list[Step]:
    """A script: Ollama's answer."""
    return [http(200, as_json({"model": "m", "embeddings": vectors, **more}))]


class WordServer(ScriptedServer):
    """Embeds by :func:`vector_of`, in both dialects. Refuses texts that are longer than ``limit`` characters.

    ``fault``: a script to play instead, until it is taken away.
    """

    def __init__(self, limit: int = 10**9, embed: Callable[[str], Any] = vector_of) -> None:
        super().__init__([])
        self.limit, self.embed = limit, embed
        self.fault: list[Step] | None = None

    @property
    def texts(self) -> list[str]:
        """Every text that it was asked for."""
        return [text for request in self.received for text in request.body["input"]]

    async def _play(self, script: Any, writer: asyncio.StreamWriter, gone: asyncio.Future[bytes]) -> None:
        request = self.received[-1]
        texts, ollama = request.body["input"], request.path == "/api/embed"
        answer = ollama_answer if ollama else openai_answer
        if self.fault is not None:
            script = self.fault
        elif any(len(text) > self.limit for text in texts):
            script = refusal(400, {"error": "the input length exceeds the context length"})
        else:
            script = answer([self.embed(text) for text in texts])
        await super()._play(script, writer, gone)


class Notes:
    """A scene whose notes a test writes."""

    def __init__(self, scene_: Scene, servers_: Servers) -> None:
        self.scene, self._servers = scene_, servers_
        self.folder = scene_.folder / "notes"
        self.folder.mkdir()
        scene_.raw["capabilities"] = ["cpu_inference", "gpu_inference", "embedding"]
        scene_.raw["models"][MODEL] = "embedding"
        scene_.raw["notes"] = {"folder": "notes", "model": MODEL, "lane": "embedding"}

    def worker(self, name: str = "w", server: WordServer | None = None, **fields: Any) -> WordServer:
        """Starts an embedding worker and puts it into the configuration."""
        made = server or WordServer()
        asyncio.run_coroutine_threadsafe(made.__aenter__(), self._servers._loop).result(10)
        self.scene.worker(name, made.url, **{"supports": ["embedding"], **fields})
        return made

    def write(self, **texts: str) -> None:
        """Writes notes; ``a__b`` is ``a/b.md``."""
        for name, text in texts.items():
            file = self.folder / f"{name.replace('__', '/')}.md"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")

    def rows(self, query: str = "from embeddings order by source, chunk") -> list[dict[str, Any]]:
        return self.scene.foundry.warehouse.rows(query)


@pytest.fixture
def notes(scene: Scene, servers: Servers) -> Notes:  # noqa: F811 (the fixtures)
    return Notes(scene, servers)


@pytest.fixture(scope="session")
def llama_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Base URL of a real llama.cpp server that embeds."""
    argv = [sys.executable, "-m", "model_foundry.embedded.llama", "--port", "0", "--slots", "2", "--alias", LLAMA_MODEL]
    argv += ["--embedding", "--context-per-slot", "512"]
    errors: Path = tmp_path_factory.mktemp("llama") / "errors"
    with errors.open("wb") as log, subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert "ready at http://127.0.0.1:" in ready, errors.read_text()
        yield ready.split(" ready at ")[1].split(" ")[0]
        process.terminate()
        assert process.wait(20) == 0
