"""Judging through a fleet whose judge answers by rule."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from model_foundry.benchmarks import judging
from model_foundry.benchmarks.planted import PAIRS
from model_foundry.errors import ConfigError
from model_foundry_tests.benchmarks.conftest import Scene, Servers
from model_foundry_tests.inference.scripted import ScriptedServer, http
from model_foundry_tests.sources.conftest import sse_answer


class JudgeServer(ScriptedServer):
    """Answers with what ``says`` makes of the request's last message."""

    def __init__(self, says: Callable[[str], str]) -> None:
        super().__init__([])
        self.says = says

    async def _play(self, script: Any, writer: asyncio.StreamWriter, gone: asyncio.Future[bytes]) -> None:
        request = self.received[-1]
        if request.method == "GET":
            script = [http(200, json.dumps({"data": [{"id": "small"}]}).encode())]
        else:
            script = sse_answer(self.says(request.body["messages"][-1]["content"]))
        await super()._play(script, writer, gone)


def perfect(content: str) -> str:
    """Knows the good answers."""
    first = content.split("<<ANSWER A ")[1].partition("\n")[2].partition("\n<</ANSWER A")[0]
    return "[[A]]" if any(first == p.good and p.prompt in content for p in PAIRS) else "[[B]]"


def gate(scene: Scene, servers: Servers, says: Callable[[str], str]) -> tuple[JudgeServer, judging.JudgeReport]:
    server = JudgeServer(says)
    asyncio.run_coroutine_threadsafe(server.__aenter__(), servers._loop).result(10)
    scene.worker("m", server.url, supports=["cpu_inference"], slots=1)
    foundry = scene.foundry
    foundry.warehouse.migrate()
    return server, judging.judge_pairs(foundry, judging.planted_pairs("small"), "small", run_id="r")


def test_a_perfect_judge_passes_and_is_not_asked_again(scene: Scene, servers: Servers) -> None:
    server, _ = gate(scene, servers, perfect)
    found = judging.gate_of(scene.foundry, "small")
    assert found.passed
    assert found.right == len(PAIRS)
    asked = len(server.received)
    again = judging.judge_pairs(scene.foundry, judging.planted_pairs("small"), "small", run_id="r2")
    assert again.unchanged == len(PAIRS)
    assert not [r for r in server.received[asked:] if r.method == "POST"]


@pytest.mark.parametrize(("says", "outcome"), [("[[A]]", "inconsistent"), ("A, surely", "unparsable")])
def test_a_biased_judge_and_a_babbling_one_win_nothing(scene: Scene, servers: Servers, says: str, outcome: str) -> None:
    _, report = gate(scene, servers, lambda content: says)
    assert report.outcomes == {outcome: len(PAIRS)}
    assert not judging.gate_of(scene.foundry, "small").passed


def test_a_judge_of_a_judged_family_is_refused_unless_allowed(scene: Scene) -> None:
    scene.raw["models"] |= {"qwen3-8b": "cpu_inference"}
    with pytest.raises(ConfigError, match="family"):
        judging.check_judge(scene.foundry, "qwen3-8b", ["Qwen2.5-0.5B"], allow_same_family=False)
    judging.check_judge(scene.foundry, "qwen3-8b", ["Qwen2.5-0.5B"], allow_same_family=True)
    judging.check_judge(scene.foundry, "qwen3-8b", ["llama3"], allow_same_family=False)
