"""Asking workers what they offer."""

from __future__ import annotations

import asyncio
import socket
from typing import Literal

import pytest

from model_foundry.inference.client import new_client
from model_foundry.inference.probe import ProbeResult, probe
from model_foundry.inference.target import WorkerTarget
from model_foundry_tests.inference.conftest import LLAMA_MODEL
from model_foundry_tests.inference.scripted import HANG, ScriptedServer, Step, as_json, http, refusal


async def probed(url: str, api: Literal["openai", "ollama"] = "openai", timeout_s: float = 10) -> ProbeResult:
    async with new_client() as client:
        return await probe(client, WorkerTarget("moon", url, api), timeout_s)


def played(*scripts: list[Step], api: Literal["openai", "ollama"] = "openai", timeout_s: float = 10) -> ProbeResult:
    async def run() -> ProbeResult:
        async with ScriptedServer(*scripts) as server:
            return await probed(server.url, api, timeout_s)

    return asyncio.run(run())


def answers(value: object) -> list[Step]:
    return [http(200, as_json(value))]


def test_llama_cpp_tells_its_model_version_and_slots(llama_url: str) -> None:
    found = asyncio.run(probed(llama_url))
    assert (found.reachable, found.detail, found.models, found.slots) == (True, "ok", [LLAMA_MODEL], 2)
    assert found.version


@pytest.mark.parametrize("status", [401, 404])
def test_a_refusal_is_reachable_and_not_ok(status: int) -> None:
    found = played(refusal(status))
    assert (found.reachable, found.ok) == (True, False)
    assert f"HTTP {status}" in found.detail


def test_a_server_that_only_lists_models_is_enough() -> None:
    found = played(answers({"data": [{"id": "a"}, {"id": "b"}, {"no": "id"}, 3]}), refusal(404))
    assert found == ProbeResult(True, True, "ok", ["a", "b"])


def test_ollama_tells_its_models_those_in_memory_and_its_version() -> None:
    both = answers({"models": [{"name": "gemma3:12b"}], "version": "0.12.3"})
    assert played(both, api="ollama") == ProbeResult(True, True, "ok", ["gemma3:12b"], "0.12.3", loaded=["gemma3:12b"])


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (refusal(401), "workers.moon.api_key_env"),
        (refusal(500, {"error": "boom"}), "HTTP 500: boom"),
        (answers([1, 2]), "is it a model server"),
        ([http(200, b"<html>")], "is it a model server"),
    ],
)
def test_a_server_that_answers_otherwise_is_reachable_and_told_apart(script: list[Step], said: str) -> None:
    found = played(script)
    assert found.reachable
    assert said in found.detail


def test_a_server_that_is_silent_or_gone_is_not_reachable() -> None:
    assert not played([HANG], timeout_s=0.2).reachable
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        found = asyncio.run(probed(f"http://127.0.0.1:{bound.getsockname()[1]}"))
    assert (found.reachable, found.models) == (False, [])
    assert not asyncio.run(probed("http://[::bad")).reachable
