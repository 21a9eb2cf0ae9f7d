"""One attempt against a scripted server, and against a real llama.cpp server."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Sequence
from typing import Any, Literal

import pytest

from model_foundry.config import LimitsConfig
from model_foundry.inference.client import ANSWER_TOO_LONG, ask, new_client
from model_foundry.inference.target import InferenceRequest, WorkerTarget
from model_foundry.records import Completion, ErrorKind, JobStatus
from model_foundry_tests.inference.conftest import LLAMA_MODEL
from model_foundry_tests.inference.scripted import (
    DONE,
    HANG,
    ScriptedServer,
    Step,
    delta,
    done,
    event,
    head,
    http,
    line,
    ndjson,
    refusal,
    said,
    sse,
    sse_answer,
    usage,
)

Api = Literal["openai", "ollama"]
REQUEST = InferenceRequest("m", [{"role": "user", "content": "What is the capital of Australia?"}])


def limits(**changes: Any) -> LimitsConfig:
    return LimitsConfig(**{"request_connect_timeout_s": 2, **changes})


async def asked(url: str, api: Api = "openai", *, request: InferenceRequest = REQUEST, **changes: Any) -> Completion:
    target = WorkerTarget("moon", url, api, headers={"Authorization": "Bearer secret"})
    async with new_client() as client:
        return await asyncio.wait_for(ask(client, target, request, limits(**changes)), 20)


def played(script: Sequence[Step], api: Api = "openai", **changes: Any) -> Completion:
    """The completion that a script leads to."""

    async def run() -> Completion:
        async with ScriptedServer(script) as server:
            return await asked(server.url, api, **changes)

    return asyncio.run(run())


def end(completion: Completion) -> tuple[JobStatus, ErrorKind | None, str]:
    return completion.status, completion.error_kind, completion.text


ANSWERED = (JobStatus.ANSWERED, None)
TRUNCATED = (JobStatus.INCOMPLETE, ErrorKind.TRUNCATED_STREAM)


# -- whole answers -----------------------------------------------------------------------------------------------------


def test_an_openai_stream_is_an_answer_with_times_and_counts() -> None:
    found = played(
        sse(
            delta(role="assistant"),
            0.05,
            delta(content="Can"),
            0.02,
            delta(content="berra"),
            delta("stop"),
            usage(9, 2),
            DONE,
        )
    )
    assert end(found) == (*ANSWERED, "Canberra")
    assert (found.prompt_tokens, found.completion_tokens, found.tokens_source) == (9, 2, "server")
    assert (found.finish_reason, found.chunks, found.http_status, found.cold) == ("stop", 2, 200, None)
    t = found.timings
    assert t.ttft_s is not None
    assert t.e2e_s is not None
    assert t.tpot_s is not None
    assert 0.05 <= t.ttft_s < t.e2e_s
    assert t.tpot_s == pytest.approx(t.e2e_s - t.ttft_s)
    assert found.sent_at <= found.finished_at


def test_an_ollama_stream_is_an_answer_with_the_servers_figures() -> None:
    final = done(
        load_duration=900_000_000,
        prompt_eval_count=9,
        prompt_eval_duration=1_000_000,
        eval_count=2,
        eval_duration=2_000_000,
    )
    found = played(ndjson(said("Can"), said("berra"), final), "ollama")
    assert end(found) == (*ANSWERED, "Canberra")
    assert (found.prompt_tokens, found.completion_tokens, found.cold) == (9, 2, True)
    assert found.timings.load_s == 0.9
    assert played(ndjson(said("a"), done(load_duration=1_000_000)), "ollama").cold is False
    assert played(ndjson(said("a"), done()), "ollama").cold is None


def test_the_request_goes_to_the_dialects_path_with_our_headers() -> None:
    async def run() -> None:
        async with ScriptedServer(sse_answer(), ndjson(said("a"), done())) as server:
            await asked(f"{server.url}/v1")
            await asked(server.url, "ollama")
        openai, ollama = server.received
        assert (openai.method, openai.path, openai.body["stream"]) == ("POST", "/v1/chat/completions", True)
        assert (ollama.path, ollama.body["truncate"], ollama.body["shift"]) == ("/api/chat", False, False)
        assert openai.headers["authorization"] == "Bearer secret"
        assert openai.headers["accept-encoding"] == "identity", "compression would hold tokens back"

    asyncio.run(run())


def test_an_answer_cut_into_single_bytes_is_the_same_answer() -> None:
    raw = delta(reasoning="考") + delta(content="キャンベラ🗻") + delta("stop") + usage(5, 2) + DONE
    found = played(sse(*(raw[i : i + 1] for i in range(len(raw)))))
    assert (end(found), found.reasoning) == ((*ANSWERED, "キャンベラ🗻"), "考")


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream"])
def test_an_answer_that_comes_whole_is_taken_and_noted(content_type: str) -> None:
    whole = {
        "choices": [{"message": {"content": "Canberra"}, "finish_reason": "stop"}],
        "usage": {"completion_tokens": 2},
    }
    raw = json.dumps(whole, indent=1).encode()
    found = played([head(content_type), raw[:20], 0.01, raw[20:]])
    assert (end(found), found.completion_tokens) == ((*ANSWERED, "Canberra"), 2)
    assert "not streamed" in found.notes[0]
    assert end(played([head(content_type), raw[:60]])) == (*TRUNCATED, "")


def test_a_whole_answer_from_ollama_is_noted_too() -> None:
    found = played(
        [http(200, line({"message": {"content": "Canberra"}, "done": True, "done_reason": "stop"}))], "ollama"
    )
    assert (end(found), "not streamed" in found.notes[0]) == ((*ANSWERED, "Canberra"), True)


def test_an_answer_is_complete_though_the_connection_stays_open_after_its_end() -> None:
    assert end(played([*sse_answer("a"), HANG], request_idle_timeout_s=30)) == (*ANSWERED, "a")


# -- ends that are none ------------------------------------------------------------------------------------------------


def test_a_stream_that_ends_early_is_incomplete_and_keeps_its_text() -> None:
    assert end(played(sse(delta(content="Can")))) == (*TRUNCATED, "Can")
    assert end(played(ndjson(said("Can")), "ollama")) == (*TRUNCATED, "Can")
    assert end(played(sse())) == (*TRUNCATED, "")


def test_a_body_that_breaks_off_is_incomplete_and_keeps_its_text() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = delta(content="Can")
    found = played([chunked, f"{len(body):x}\r\n".encode() + body + b"\r\n"])
    assert end(found) == (*TRUNCATED, "Can")
    assert "the connection broke" in found.notes[0]


def test_a_finish_reason_without_the_end_mark_is_complete_with_a_note() -> None:
    found = played(sse(delta(content="Canberra"), delta("stop")))
    assert (end(found), len(found.notes)) == ((*ANSWERED, "Canberra"), 1)


@pytest.mark.parametrize(
    ("api", "script"),
    [
        ("openai", sse(delta(content="Can"), event({"error": {"message": "CUDA error", "code": 500}}), HANG)),
        ("openai", sse(delta(content="Can"), b'error: {"code": 500, "message": "CUDA error"}\n\n', HANG)),
        ("ollama", ndjson(said("Can"), line({"error": "CUDA error"}), HANG)),
    ],
)
def test_an_error_inside_a_good_stream_fails_at_once_and_keeps_the_text(api: Api, script: list[Step]) -> None:
    found = played(script, api)
    assert end(found) == (JobStatus.FAILED, ErrorKind.SERVER_ERROR, "Can")
    assert "CUDA error" in (found.error_message or "")


def test_an_answer_beyond_the_bound_is_cut_off() -> None:
    found = played(sse(*(delta(content="x" * 100) for _ in range(50)), HANG), max_answer_bytes=1024)
    assert end(found) == (*TRUNCATED, "x" * 1000)
    assert found.finish_reason == ANSWER_TOO_LONG
    assert "limits.max_answer_bytes" in (found.error_message or "")


def test_a_line_without_an_end_is_cut_off() -> None:
    found = played([head(), b"data: " + b"x" * 2**21, HANG], max_answer_bytes=1024)
    assert (found.status, found.finish_reason) == (JobStatus.INCOMPLETE, ANSWER_TOO_LONG)


# -- time --------------------------------------------------------------------------------------------------------------


def test_no_first_token_in_time_is_a_timeout_though_the_server_sends_pings() -> None:
    pings: list[Step] = [b": ping\n\n", 0.02] * 100
    for script in ([HANG], sse(HANG), sse(delta(role="assistant"), *pings)):
        found = played(script, request_first_token_timeout_s=0.3)
        assert end(found) == (JobStatus.FAILED, ErrorKind.TIMEOUT, "")
        assert "request_first_token_timeout_s" in (found.error_message or "")


def test_silence_within_an_answer_is_a_stall_and_keeps_the_text() -> None:
    pings: list[Step] = [b": ping\n\n", 0.02] * 100
    found = played(sse(delta(content="Can"), *pings), request_idle_timeout_s=0.3)
    assert end(found) == (JobStatus.FAILED, ErrorKind.STALLED, "Can")


def test_an_answer_may_take_longer_than_any_single_pause() -> None:
    steps: list[Step] = [s for n in range(6) for s in (delta(content=str(n)), 0.2)]
    found = played(sse(*steps, delta("stop"), DONE), request_idle_timeout_s=1, request_first_token_timeout_s=1)
    assert end(found) == (*ANSWERED, "012345")


def test_an_answer_without_end_meets_the_hard_limit() -> None:
    steps: list[Step] = [delta(content="x"), 0.02] * 200
    found = played(sse(*steps), request_hard_timeout_s=0.3)
    assert (found.status, found.error_kind) == (JobStatus.FAILED, ErrorKind.TIMEOUT)
    assert found.text
    assert "request_hard_timeout_s" in (found.error_message or "")


# -- no answer at all --------------------------------------------------------------------------------------------------


def test_a_refused_connection_an_unknown_host_and_a_bad_url_are_connection_failures() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: refused
        for url in (f"http://127.0.0.1:{taken.getsockname()[1]}", "http://no-such-host.invalid", "http://[::bad"):
            found = asyncio.run(asked(url))
            assert (found.status, found.error_kind) == (JobStatus.FAILED, ErrorKind.CONNECTION), url
            assert (found.http_status, found.timings.e2e_s) == (None, None)


def test_a_connection_closed_without_an_answer_is_a_connection_failure() -> None:
    assert end(played([])) == (JobStatus.FAILED, ErrorKind.CONNECTION, "")


def test_a_connection_that_is_never_accepted_is_a_connection_failure() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        found = asyncio.run(
            asked(
                f"http://127.0.0.1:{full.getsockname()[1]}",
                request_connect_timeout_s=0.3,
                request_first_token_timeout_s=3,
            )
        )
        for filler in fillers:
            filler.close()
    assert (found.status, found.error_kind) == (JobStatus.FAILED, ErrorKind.CONNECTION)


@pytest.mark.parametrize(
    ("script", "kind", "retry_after_s"),
    [
        (refusal(400, {"error": "bad temperature"}), ErrorKind.INVALID_REQUEST, None),
        (refusal(401, {"error": "no"}), ErrorKind.INVALID_REQUEST, None),
        (refusal(404, {"error": "model 'm' not found"}), ErrorKind.MODEL_NOT_FOUND, None),
        (refusal(429, b"", retry_after="3"), ErrorKind.RATE_LIMITED, 3.0),
        (refusal(503, {"error": {"message": "Loading model", "code": 503}}), ErrorKind.SERVER_ERROR, None),
    ],
)
def test_a_refusal_is_a_failure_of_its_kind(script: list[Step], kind: ErrorKind, retry_after_s: float | None) -> None:
    found = played(script)
    assert (found.status, found.error_kind, found.retry_after_s) == (JobStatus.FAILED, kind, retry_after_s)
    assert found.http_status is not None


def test_a_refusal_whose_body_never_comes_is_bounded_too() -> None:
    started = time.monotonic()
    found = played([b"HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\n", HANG], request_first_token_timeout_s=0.3)
    assert found.status is JobStatus.FAILED
    assert time.monotonic() - started < 15


def test_a_key_that_can_not_be_sent_is_in_no_message() -> None:
    for key in ("sécret-key", "secret\nkey"):
        target = WorkerTarget("moon", "http://127.0.0.1:9", "openai", headers={"Authorization": f"Bearer {key}"})
        assert key not in repr(target)

        async def run(target: WorkerTarget = target) -> Completion:
            async with ScriptedServer(sse_answer()) as server, new_client() as client:
                there = WorkerTarget("moon", server.url, "openai", headers=target.headers)
                return await ask(client, there, REQUEST, limits())

        found = asyncio.run(run())
        assert found.status is JobStatus.FAILED
        assert "cret" not in (found.error_message or "")


def test_a_request_that_can_not_be_written_is_invalid_and_never_sent() -> None:
    async def run() -> None:
        async with ScriptedServer(sse_answer()) as server:
            for params in ({"temperature": float("nan")}, {"stop": "\ud800"}):
                found = await asked(server.url, request=InferenceRequest("m", REQUEST.messages, params))
                assert (found.status, found.error_kind) == (JobStatus.FAILED, ErrorKind.INVALID_REQUEST)
        assert server.received == []

    asyncio.run(run())


# -- cancelling --------------------------------------------------------------------------------------------------------


def test_a_cancelled_request_closes_its_connection_and_keeps_the_text() -> None:
    async def run() -> None:
        async with ScriptedServer(sse(delta(content="Can"), HANG)) as server, new_client() as client:
            cancel = asyncio.Event()
            target = WorkerTarget("moon", server.url, "openai")
            work = asyncio.create_task(ask(client, target, REQUEST, limits(), cancel=cancel))
            await server.wait_for_requests(1)
            cancel.set()
            found = await asyncio.wait_for(work, 10)
            assert (found.status, found.error_kind) == (JobStatus.CANCELLED, ErrorKind.CANCELLED)
            assert found.text in ("", "Can")
            await asyncio.wait_for(server.hung_up.wait(), 10)

    asyncio.run(run())


def test_a_task_that_is_cancelled_closes_its_connection_too() -> None:
    async def run() -> None:
        async with ScriptedServer([HANG]) as server, new_client() as client:
            work = asyncio.create_task(ask(client, WorkerTarget("moon", server.url, "openai"), REQUEST, limits()))
            await server.wait_for_requests(1)
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
            await asyncio.wait_for(server.hung_up.wait(), 10)

    asyncio.run(run())


# -- a real server -----------------------------------------------------------------------------------------------------


def a_real_request(**params: Any) -> InferenceRequest:
    return InferenceRequest(LLAMA_MODEL, REQUEST.messages, {"max_tokens": 8, "temperature": 0, "seed": 1, **params})


def test_llama_cpp_answers_with_its_own_counts_and_times(llama_url: str) -> None:
    found = asyncio.run(asked(llama_url, request=a_real_request()))
    assert found.status is JobStatus.ANSWERED, found.error_message
    assert found.text
    assert found.server_stats is not None
    server = found.server_stats["usage"]
    assert (found.prompt_tokens, found.completion_tokens) == (server["prompt_tokens"], server["completion_tokens"])
    assert found.completion_tokens is not None
    assert 1 <= found.completion_tokens <= 8
    assert found.tokens_source == "server"
    t, own = found.timings, found.server_stats["timings"]
    assert t.ttft_s is not None
    assert t.e2e_s is not None
    assert t.prefill_s is not None
    assert t.decode_s is not None
    assert 0 < t.ttft_s <= t.e2e_s
    assert t.ttfo_s == t.ttft_s
    whole_s = (found.finished_at - found.sent_at).total_seconds()  # e2e_s ends before the token that ends the answer
    assert 0 < t.prefill_s + t.decode_s < whole_s + 0.01
    assert t.decode_tps == pytest.approx(own["predicted_per_second"])
    assert t.prefill_tps == pytest.approx(own["prompt_per_second"])


def test_llama_cpp_takes_unknown_parameters_and_repeats_itself_with_the_same_seed(llama_url: str) -> None:
    first, second = (asyncio.run(asked(llama_url, request=a_real_request(no_such_parameter=1))) for _ in range(2))
    assert first.text == second.text
    assert second.cached_tokens is not None


def test_llama_cpp_says_that_a_prompt_does_not_fit(llama_url: str) -> None:
    long = InferenceRequest(LLAMA_MODEL, [{"role": "user", "content": "hello " * 3000}], {"max_tokens": 8})
    found = asyncio.run(asked(llama_url, request=long))
    assert (found.status, found.error_kind) == (JobStatus.FAILED, ErrorKind.CONTEXT_OVERFLOW)


def test_llama_cpp_stops_when_it_is_cancelled(llama_url: str) -> None:
    async def run() -> None:
        async with new_client() as client:
            cancel = asyncio.Event()
            target = WorkerTarget("here", llama_url, "openai")
            endless = a_real_request(max_tokens=1500, ignore_eos=True)
            work = asyncio.create_task(ask(client, target, endless, limits(), cancel=cancel))

            async def busy() -> int:
                slots = (await client.get(f"{llama_url}/slots")).json()
                return sum(s["is_processing"] for s in slots)

            async with asyncio.timeout(20):
                while not await busy():
                    pass
                cancel.set()
                assert (await work).status is JobStatus.CANCELLED
                while await busy():
                    pass

    asyncio.run(run())
