"""One request for embeddings, against servers that play both dialects byte by byte, and against a real llama.cpp."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import struct
from collections.abc import Sequence
from typing import Any

import pytest

from model_foundry.config import LimitsConfig
from model_foundry.inference.client import new_client
from model_foundry.inference.embeddings import EmbeddingRequest, Embeddings, embed
from model_foundry.inference.failures import Failure
from model_foundry.inference.target import WorkerTarget
from model_foundry.records import ErrorKind
from model_foundry_tests.embeddings.conftest import LLAMA_MODEL, WordServer, ollama_answer, openai_answer, vector_of
from model_foundry_tests.inference.scripted import HANG, ScriptedServer, Step, head, http, refusal
from model_foundry_tests.parts import in_loop

LIMITS = LimitsConfig(request_connect_timeout_s=2, request_first_token_timeout_s=0.5, request_idle_timeout_s=0.2)
LONG = "the input length exceeds the context length"


async def ask(
    server: ScriptedServer | str, texts: Sequence[str] = ("one",), api: Any = "openai", **params: Any
) -> Embeddings:
    url = server if isinstance(server, str) else server.url
    target = WorkerTarget("w", url, api, headers={"Authorization": "Bearer k"})
    async with new_client() as client:
        return await embed(client, target, EmbeddingRequest("m", tuple(texts), params), LIMITS)


async def played(script: Sequence[Step], texts: Sequence[str] = ("one",), api: str = "openai") -> Embeddings:
    async with ScriptedServer(script) as server:
        return await ask(server, texts, api)


def kinds(found: Embeddings) -> list[ErrorKind | None]:
    return [o.kind if isinstance(o, Failure) else None for o in found.outcomes]


@in_loop
async def test_ollama_is_always_told_not_to_truncate() -> None:
    script = ollama_answer([[1, 2.5], [0, -1]], total_duration=9, load_duration=1_500_000_000, prompt_eval_count=12)
    async with ScriptedServer(script) as server:
        found = await ask(server, ["a", "猫"], "ollama", truncate=True, keep_alive="5m", input="x")
    assert found.outcomes == ((1.0, 2.5), (0.0, -1.0))
    assert (found.dimensions, found.prompt_tokens, found.load_s, found.requests) == (2, 12, 1.5, 1)
    assert found.worker_failure is None
    assert found.e2e_s > 0
    [request] = server.received
    assert (request.method, request.path) == ("POST", "/api/embed")
    assert request.body == {"model": "m", "input": ["a", "猫"], "truncate": False, "keep_alive": "5m"}
    assert request.headers["authorization"] == "Bearer k"


@in_loop
async def test_openai_is_asked_for_floats_and_its_order_is_that_of_the_index() -> None:
    data = [{"index": 1, "embedding": [0, 1]}, {"index": 0, "embedding": [1, 0]}]
    body = json.dumps({"object": "list", "data": data, "usage": {"prompt_tokens": 5, "total_tokens": 5}}).encode()
    async with ScriptedServer([http(200, body)]) as server:
        found = await ask(server, ["a", "b"], dimensions=2, encoding_format="base64")
        await ask(f"{server.url}/v1/", ["a", "b"])
    assert found.outcomes == ((1.0, 0.0), (0.0, 1.0))
    assert found.prompt_tokens == 5
    assert [r.path for r in server.received] == ["/v1/embeddings"] * 2
    assert server.received[0].body == {
        "model": "m",
        "input": ["a", "b"],
        "encoding_format": "float",
        "dimensions": 2,
    }


@in_loop
async def test_base64_that_comes_unasked_is_read_and_a_broken_one_fails_its_text() -> None:
    packed = base64.b64encode(struct.pack("<3f", 1, -2, 0.5)).decode()
    found = await played(openai_answer([packed, "%%", packed[:6]]), "abc")
    assert found.outcomes[0] == (1.0, -2.0, 0.5)
    assert kinds(found) == [None, ErrorKind.SERVER_ERROR, ErrorKind.SERVER_ERROR]


@in_loop
async def test_an_answer_that_comes_in_single_bytes_is_read() -> None:
    body = b'{"embeddings": [[0.5, 1e-3]]}'
    script: list[Step] = [head("application/json"), *(body[n : n + 1] for n in range(len(body)))]
    found = await played(script, api="ollama")
    assert found.dimensions == 2
    assert found.prompt_tokens is None


@pytest.mark.parametrize(
    ("vector", "words"),
    [
        ("[NaN, 1]", "NaN"),
        ("[1e999, 1]", "infinity"),
        ("[1e39, 1]", "infinity"),
        ("[null, 1]", "no number"),
        ("[true, 1]", "no number"),
        ('["1", 1]', "no number"),
        (f"[{10**400}, 1]", "too large"),
        ("[0, 0]", "zero"),
        ("[1e-60, 0]", "zero"),
        ("[]", "empty"),
        ("null", "no list"),
        ("[[1, 2]]", "no number"),
    ],
)
@pytest.mark.parametrize("api", ["openai", "ollama"])
def test_a_vector_that_can_not_be_compared_fails_its_text_and_no_other(api: str, vector: str, words: str) -> None:
    good = "[3, 4]"
    if api == "ollama":
        body = f'{{"embeddings": [{good}, {vector}]}}'
    else:
        body = f'{{"data": [{{"index": 0, "embedding": {good}}}, {{"index": 1, "embedding": {vector}}}]}}'
    found = asyncio.run(played([http(200, body.encode())], ["a", "b"], api))
    good_one, failure = found.outcomes
    assert good_one == (3.0, 4.0)
    assert isinstance(failure, Failure)
    assert failure.kind is ErrorKind.SERVER_ERROR
    assert words in failure.message
    assert found.worker_failure is None


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"data": [{"index": 0, "embedding": [1, 2]}]}', "1 embeddings for 2 texts"),
        (b'{"data": [{"index": 0, "embedding": [1]}, {"index": 0, "embedding": [1]}]}', "index"),
        (b'{"data": [{"index": 0, "embedding": [1]}, {"index": "1", "embedding": [1]}]}', "index"),
        (b'{"data": [{"index": 0, "embedding": [1, 2]}, {"index": 1, "embedding": [1, 2, 3]}]}', "2 and 3 dimensions"),
        (b'{"data": [1, 2]}', "data"),
        (b"{}", "data"),
        (b"[]", "no JSON object"),
        (b"<html>", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b'{"error": {"message": "boom"}}', "boom"),
    ],
)
def test_an_answer_that_can_not_be_told_apart_is_the_workers_failure(body: bytes, words: str) -> None:
    found = asyncio.run(played([http(200, body)], ["a", "b"]))
    assert kinds(found) == [ErrorKind.SERVER_ERROR] * 2
    assert found.worker_failure is not None
    assert words in found.worker_failure.message


@pytest.mark.parametrize("api", ["openai", "ollama"])
def test_of_a_batch_that_is_refused_for_one_texts_length_only_that_text_fails(api: str) -> None:
    async def run() -> None:
        async with WordServer(limit=20) as server:
            texts = ["cat", "train", "bread" * 9, "cat cat", "bread"]
            found = await ask(server, texts, api)
        assert kinds(found) == [None, None, ErrorKind.CONTEXT_OVERFLOW, None, None]
        assert found.worker_failure is None
        assert found.requests == len(server.received) > 1
        assert [o for o in found.outcomes if not isinstance(o, Failure)] == [
            pytest.approx(tuple(vector_of(t)), rel=1e-6) for t in texts if len(t) < 20
        ]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, LONG),
        (
            500,
            "input (4001 tokens) is too large to process. increase the physical batch size (current batch size: 512)",
        ),
        (400, "This model's maximum context length is 512 tokens. However, you requested 600 tokens"),
    ],
)
def test_too_long_is_told_from_the_words_of_each_server(status: int, said: str) -> None:
    found = asyncio.run(played(refusal(status, {"error": {"message": said}})))
    assert kinds(found) == [ErrorKind.CONTEXT_OVERFLOW]


@in_loop
async def test_ollama_that_can_not_write_one_of_the_vectors_fails_that_text_alone() -> None:
    nan = refusal(500, {"error": "failed to encode response: json: unsupported value: NaN"})
    async with ScriptedServer(nan, nan, ollama_answer([[1, 2]])) as server:
        found = await ask(server, ["bad", "good"], "ollama")
    assert kinds(found) == [ErrorKind.SERVER_ERROR, None]
    assert found.worker_failure is None


@in_loop
async def test_parts_of_a_split_batch_that_have_other_dimensions_are_no_answer() -> None:
    scripts = refusal(400, {"error": LONG}), ollama_answer([[1, 2]]), ollama_answer([[1, 2, 3]])
    async with ScriptedServer(*scripts) as server:
        found = await ask(server, ["a", "b"], "ollama")
    assert kinds(found) == [ErrorKind.SERVER_ERROR] * 2
    assert found.worker_failure is not None


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (refusal(404, {"error": 'model "m" not found'}), ErrorKind.MODEL_NOT_FOUND),
        (refusal(401, b"no"), ErrorKind.INVALID_REQUEST),
        (refusal(429, b"full"), ErrorKind.RATE_LIMITED),
        (refusal(501, {"error": {"message": "This server does not support embeddings"}}), ErrorKind.SERVER_ERROR),
        ([HANG], ErrorKind.TIMEOUT),
        ([head("application/json"), b'{"da', HANG], ErrorKind.STALLED),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"], ErrorKind.TRUNCATED_STREAM),
        ([], ErrorKind.CONNECTION),
    ],
)
def test_every_other_end_is_the_workers_and_has_its_kind(script: list[Step], kind: ErrorKind) -> None:
    found = asyncio.run(played(script, ["a", "b"]))
    assert kinds(found) == [kind, kind]
    assert found.worker_failure is not None
    assert found.requests == 1
    assert not found.not_sent


@in_loop
async def test_a_worker_that_is_not_there_was_not_asked() -> None:
    found = await ask("http://127.0.0.1:1")
    assert kinds(found) == [ErrorKind.CONNECTION]
    assert found.not_sent


def test_a_real_llama_cpp_embeds_and_refuses_what_is_too_long(llama_url: str) -> None:
    async def run() -> Embeddings:
        limits = LimitsConfig()
        async with new_client() as client:
            texts = ("The cat sleeps.", "too long " * 2000, "A cat is asleep.", "Trains run on rails at night.")
            target = WorkerTarget("llama", llama_url, "openai")
            return await embed(client, target, EmbeddingRequest(LLAMA_MODEL, texts), limits)

    found = asyncio.run(run())
    assert kinds(found) == [None, ErrorKind.CONTEXT_OVERFLOW, None, None]
    assert found.dimensions == 576
    assert found.prompt_tokens is not None
    cat, other_cat, train = found.vectors
    assert all(math.isclose(sum(x * x for x in v), 1, rel_tol=1e-4) for v in found.vectors)
    nearer, farther = (sum(x * y for x, y in zip(cat, v, strict=True)) for v in (other_cat, train))
    assert nearer > farther
