"""Text as it comes, for whoever looks on."""

from __future__ import annotations

import asyncio

import pytest

from model_foundry.config import LimitsConfig
from model_foundry.inference.client import ask, new_client
from model_foundry.inference.target import InferenceRequest, WorkerTarget
from model_foundry_tests.inference.scripted import DONE, ScriptedServer, delta, done, event, ndjson, said, sse, usage
from model_foundry_tests.parts import in_loop, until

REQUEST = InferenceRequest("m", [{"role": "user", "content": "hello"}])


@in_loop
async def test_each_piece_is_told_before_the_next_one_comes() -> None:
    more = asyncio.Event()
    script = sse(
        delta(reasoning="hm"), delta(content="Can"), more, delta(content="berra"), delta("stop"), usage(5, 3), DONE
    )
    pieces: list[tuple[str, str]] = []
    async with ScriptedServer(script) as server, new_client() as client:
        target = WorkerTarget("moon", server.url, "openai")
        task = asyncio.create_task(
            ask(client, target, REQUEST, LimitsConfig(), on_text=lambda text, thought: pieces.append((text, thought)))
        )
        await until(lambda: asyncio.sleep(0, list(pieces)), lambda found: len(found) == 2)
        assert pieces == [("", "hm"), ("Can", "")]
        more.set()
        completion = await task
    assert pieces[2:] == [("berra", "")]
    assert (completion.text, completion.reasoning) == ("Canberra", "hm")


@pytest.mark.parametrize("api", ["openai", "ollama"])
@in_loop
async def test_all_pieces_are_the_answer_and_other_choices_are_none_of_it(api: str) -> None:
    other = event({"choices": [{"index": 1, "delta": {"content": "Sydney"}, "finish_reason": None}]})
    script = (
        sse(delta(content="a"), other, delta(content="b"), delta("stop"), DONE)
        if api == "openai"
        else ndjson(said("a"), said("b"), done())
    )
    pieces: list[str] = []
    async with ScriptedServer(script) as server, new_client() as client:
        target = WorkerTarget("moon", server.url, "openai" if api == "openai" else "ollama")
        completion = await ask(client, target, REQUEST, LimitsConfig(), on_text=lambda text, _: pieces.append(text))
    assert "".join(pieces) == completion.text == "ab"
