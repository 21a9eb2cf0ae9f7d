"""Servers that speak a dialect in their own way: shapes of bodies, choices, tool calls, characters cut in two."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_foundry.inference import ollama, openai
from model_foundry.inference.answer import MAX_LOGPROBS_BYTES, Answer, AnswerTooLong
from model_foundry.inference.bodies import Body, Inflater, Shape, Unreadable
from model_foundry.inference.client import ask, new_client
from model_foundry.inference.descriptors import TooFewDescriptors, make_room
from model_foundry.inference.ndjson import NdjsonParser
from model_foundry.inference.sse import SseParser
from model_foundry.inference.target import InferenceRequest, WorkerTarget
from model_foundry.inference.tool_calls import ToolCalls
from model_foundry.records import Completion, ErrorKind, JobStatus
from model_foundry_tests.inference.scripted import (
    DONE,
    ScriptedServer,
    Step,
    delta,
    done,
    http,
    ndjson,
    said,
    sse,
    usage,
)
from model_foundry_tests.inference.test_client import asked, limits, played
from model_foundry_tests.inference.test_dialects import a_request, ollama_answer, openai_answer
from model_foundry_tests.inference.test_dialects import delta as chunk
from model_foundry_tests.inference.test_dialects import said as line_of

TEXT = "キャンベラ 🗻 👩‍🚀 é"
STREAM = delta(role="assistant") + delta(content=TEXT) + delta("stop") + usage(5, 20) + DONE


def ended(found: Completion) -> tuple[JobStatus, str]:
    return found.status, found.text


# -- bytes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_an_event_stream_is_the_same_cut_at_every_byte(end: bytes, bom: bytes) -> None:
    raw = bom + (b": hello\nid: 7\nretry: 10\n" + STREAM).replace(b"data: ", b"data:").replace(b"\n", end)
    for cut in range(len(raw)):
        body, answer = Body(SseParser(10**6), 10**6, is_sse=True), Answer(10_000)
        for event in [*body.feed(raw[:cut]), *body.feed(raw[cut:]), *body.close()]:
            openai.absorb(answer, event, 0.0)
        assert (answer.text, answer.terminal, answer.completion_tokens) == (TEXT, True, 20), cut


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_lines_of_json_are_the_same_cut_at_every_byte(bom: bytes) -> None:
    raw = bom + (said(TEXT) + done(eval_count=20)).replace(b"\n", b"\r\n")
    for cut in range(len(raw)):
        body, answer = Body(NdjsonParser(10**6), 10**6, is_sse=False), Answer(10_000)
        for line in [*body.feed(raw[:cut]), *body.feed(raw[cut:]), *body.close()]:
            ollama.absorb(answer, line, 0.0)
        assert (answer.text, answer.terminal, answer.completion_tokens) == (TEXT, True, 20), cut


def test_an_answer_in_tiny_http_chunks_with_a_late_end_is_whole() -> None:
    steps: list[Step] = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"]
    steps += [f"1\r\n{chr(b)}\r\n".encode("latin-1") for b in STREAM]
    assert ended(played([*steps, b"0\r\n\r\n"])) == (JobStatus.ANSWERED, TEXT)


def test_halves_of_a_character_escaped_in_two_chunks_are_joined() -> None:
    halves = ['{"choices":[{"delta":{"content":"a\\ud83d"}}]}', '{"choices":[{"delta":{"content":"\\ude00b"}}]}']
    assert openai_answer(*halves).text == "a😀b"
    assert openai_answer(halves[0]).text == "a�"
    piece = '{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"%s"}}]}}]}'
    calls = openai_answer(piece % "\\ud83d", piece % "\\ude00").tool_calls
    assert calls[0]["function"]["arguments"] == "😀"


@pytest.mark.parametrize("name", ["gzip", "x-gzip", "deflate", "raw"])
def test_a_body_that_is_compressed_unasked_is_read_as_it_comes(name: str) -> None:
    packer = zlib.compressobj(wbits={"deflate": 15, "raw": -15}.get(name, 31))
    pieces = [packer.compress(STREAM[:90]) + packer.flush(zlib.Z_SYNC_FLUSH), packer.compress(STREAM[90:])]
    raw = b"".join([*pieces, packer.flush()])
    coding = {"Content-Encoding": "deflate" if name == "raw" else name}
    assert ended(played([http(200, raw, headers=coding)])) == (JobStatus.ANSWERED, TEXT)
    inflater = Inflater(coding["Content-Encoding"])
    assert b"".join(p for b in raw for p in inflater.feed(bytes([b]))) == STREAM


def test_a_small_body_that_inflates_to_a_large_one_is_bounded() -> None:
    bomb = gzip.compress(b"data: " + b"x" * 50_000_000)
    assert all(len(piece) <= 64 * 1024 for piece in Inflater("gzip").feed(bomb))
    found = played([http(200, bomb, headers={"Content-Encoding": "gzip"})], max_answer_bytes=1024)
    assert (found.status, found.error_kind) == (JobStatus.INCOMPLETE, ErrorKind.TRUNCATED_STREAM)


@pytest.mark.parametrize(("coding", "body"), [("br", b"\x8b\x02\x80abc"), ("gzip", b"data: plain\n\n")])
def test_a_body_that_can_not_be_uncompressed_is_the_servers_failure(coding: str, body: bytes) -> None:
    found = played([http(200, body, headers={"Content-Encoding": coding})])
    assert (found.status, found.error_kind) == (JobStatus.FAILED, ErrorKind.SERVER_ERROR)
    assert coding in (found.error_message or "")


@given(st.binary(max_size=300), st.sampled_from(["gzip", "deflate", "", "br"]), st.integers(1, 9))
def test_no_bytes_break_the_uncompressing(raw: bytes, coding: str, size: int) -> None:
    try:
        inflater = Inflater(coding)
        for at in range(0, len(raw), size):
            list(inflater.feed(raw[at : at + size]))
    except Unreadable:
        pass


@given(st.lists(st.sampled_from([b"\xef\xbb\xbf", b"{", b"[", b"<", b"\n", b" ", b"data: 1", b"}"])), st.booleans())
def test_a_bodys_shape_and_events_do_not_depend_on_its_cutting(parts: list[bytes], is_sse: bool) -> None:
    raw = b"".join(parts)

    def read(pieces: list[bytes]) -> tuple[Shape, list[Any], bytes, str | None]:
        body = Body(SseParser(999) if is_sse else NdjsonParser(999), 999, is_sse=is_sse)
        events = [e for piece in pieces for e in body.feed(piece)]
        events += body.close()
        return body.shape, events, bytes(body.whole), body.no_answer

    assert read([raw]) == read([raw[n : n + 1] for n in range(len(raw))])


# -- bodies that are no stream -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", ["openai", "ollama"])
def test_a_page_of_html_with_a_200_is_the_servers_failure_and_says_its_title(api: Any) -> None:
    page = b"\n<!DOCTYPE html><html><head><title>Sign in</title></head></html>"
    found = played([http(200, page)], api)
    assert (found.status, found.error_kind) == (JobStatus.FAILED, ErrorKind.SERVER_ERROR)
    assert "Sign in" in (found.error_message or "")
    assert "workers.moon.url" in (found.error_message or "")


def test_plain_words_with_a_200_are_the_servers_failure_and_an_empty_body_is_incomplete() -> None:
    found = played([http(200, b"no healthy upstream")])
    assert (found.status, found.error_kind) == (JobStatus.FAILED, ErrorKind.SERVER_ERROR)
    assert "no healthy upstream" in (found.error_message or "")
    for api in ("openai", "ollama"):
        assert played([http(200, b"")], api).status is JobStatus.INCOMPLETE  # type: ignore[arg-type]


def test_lines_of_json_where_events_belong_are_read() -> None:
    raw = STREAM.replace(b"data: ", b"").replace(b"\n\n", b"\n").replace(b"[DONE]\n", b"")
    assert ended(played([http(200, raw)])) == (JobStatus.ANSWERED, TEXT)


def test_an_indented_answer_of_ollama_is_read_whole() -> None:
    whole = {"message": {"content": TEXT}, "done": True, "done_reason": "stop", "eval_count": 20}
    found = played([http(200, json.dumps(whole, indent=2).encode())], "ollama")
    assert (ended(found), found.completion_tokens) == ((JobStatus.ANSWERED, TEXT), 20)


@pytest.mark.parametrize("chunk_", [{"choices": None}, {"choices": [None, 3]}, {"choices": [{"delta": None}]}, [1], 3])
def test_chunks_with_nothing_in_them_are_nothing(chunk_: Any) -> None:
    answer = openai_answer(chunk_, chunk(content="a"), {"usage": None, "timings": None}, chunk("stop"), '"[DONE]"')
    assert (answer.text, answer.chunks, answer.terminal) == ("a", 1, True)


# -- choices, tool calls, logprobs -------------------------------------------------------------------------------------


def test_of_several_choices_the_first_is_the_text_and_the_others_are_kept() -> None:
    pieces = [(0, "a"), (1, "x"), (0, "b"), (2, "q"), (1, "y")]
    chunks = [delta_of(n, content=text) for n, text in pieces]
    found = played(sse(*chunks, delta_of(1, "length"), delta_of(0, "stop"), usage(5, 5), DONE))
    assert (ended(found), found.finish_reason, found.timings.tpot_s) == ((JobStatus.ANSWERED, "ab"), "stop", None)
    assert found.server_stats is not None
    assert [(c["index"], c["text"], c["finish_reason"]) for c in found.server_stats["other_choices"]] == [
        (1, "xy", "length"),
        (2, "q", None),
    ]


def delta_of(index: int, finish: str | None = None, **parts: Any) -> bytes:
    choice = {"index": index, "delta": parts, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def test_choices_without_an_index_are_told_apart_by_their_place_and_share_the_bound() -> None:
    two = {"choices": [{"message": {"content": "a"}}, {"message": {"content": "b"}}]}
    answer = openai_answer(two)
    assert (answer.text, answer.others[1].text) == ("a", "b")
    with pytest.raises(AnswerTooLong):
        openai_answer(*[{"choices": [{"delta": {"content": "x" * 999}}, {"delta": {"content": "y" * 999}}]}] * 9)


def test_logprobs_are_kept_up_to_a_bound() -> None:
    entry = {"token": "a", "logprob": -0.1}
    answer = openai_answer({"choices": [{"delta": {"content": "a"}, "logprobs": {"content": [entry]}}]})
    assert answer.kept_stats() == {"logprobs": [entry]}
    for _ in range(MAX_LOGPROBS_BYTES // 10):
        answer.add_logprobs([entry])
    assert len(json.dumps(answer.kept_stats())) < 2 * MAX_LOGPROBS_BYTES
    assert "logprobs" in answer.notes[0]
    assert ollama_answer({**line_of("a"), "logprobs": [entry]}).kept_stats() == {"logprobs": [entry]}


def gathered(*chunks: list[dict[str, Any]]) -> list[tuple[str | None, str, str]]:
    calls = ToolCalls()
    for pieces in chunks:
        calls.add(pieces)
    return [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in calls.calls()]


def piece(arguments: Any = None, name: str | None = None, **more: Any) -> dict[str, Any]:
    return {**more, "function": {"name": name, "arguments": arguments}}


def test_pieces_of_tool_calls_find_their_call() -> None:
    f = ("x", "f", '{"a": 1}')
    assert gathered([piece('{"a"', "f", index=0)], [piece(": 1}", index=0, id="x")]) == [f], "the id late"
    assert gathered([piece('{"a"', "f", id="x")], [piece(": 1}")]) == [f], "no index"
    assert gathered([piece('{"a"', "f")], [piece(": 1}", id="x")]) == [f], "no index, and the id late"
    assert gathered([piece('{"a"', "f", id="x")], [piece(": 1}", "f", id="x")]) == [f], "the name again"
    assert gathered([piece({"a": 1}, "f", index="0", id="x")]) == [f], "an object, and an index as text"
    assert gathered([piece({"a": 1}, "f", index=0, id="x")], [piece({"a": 1}, index=0)]) == [f], "whole again"
    assert gathered([{"index": 0, "id": "x", "name": "f", "arguments": '{"a": 1}'}]) == [f], "no wrapping"
    two = [("x", "f", "{}"), ("y", "f", "{}")]
    assert gathered([piece("{}", "f", index=0, id="x")], [piece("{}", "f", index=0, id="y")]) == two, "all index 0"
    assert gathered([piece("{}", "f", id="x")], [piece("{}", "f", id="y")]) == two
    nameless = [(None, "f", "{}"), (None, "f", "{}")]
    assert gathered([piece("{}", "f"), piece("{}", "f")]) == nameless, "neither index nor id, in one chunk"
    assert gathered([piece("{}", "f")], [piece("{}", "f")]) == nameless, "neither index nor id, one after the other"


def test_the_old_function_call_is_a_tool_call_and_ollamas_arguments_may_be_text() -> None:
    old = [chunk(function_call={"name": "f", "arguments": '{"a"'}), chunk(function_call={"arguments": ": 1}"})]
    assert openai_answer(*old).tool_calls[0]["function"] == {"name": "f", "arguments": '{"a": 1}'}
    answer = ollama_answer(line_of(tool_calls=[{"function": {"index": 0, "name": "f", "arguments": '{"a": 1}'}}] * 2))
    assert [c["function"]["arguments"] for c in answer.tool_calls] == ['{"a": 1}'] * 2


def test_an_answer_of_millions_of_tiny_pieces_of_one_tool_call_is_no_work_of_its_square() -> None:
    calls = ToolCalls()
    for _ in range(100_000):
        calls.add([piece("x", "f", index=0)])
    assert len(calls.calls()[0]["function"]["arguments"]) == 100_000


def test_counts_that_grow_with_every_chunk_end_at_the_last() -> None:
    chunks = [chunk(content="a") | {"timings": {"predicted_n": n, "predicted_ms": n}} for n in range(1, 5)]
    assert openai_answer(*chunks).completion_tokens == 4


# -- requests ----------------------------------------------------------------------------------------------------------


def test_parts_go_to_an_openai_server_unchanged() -> None:
    parts = [{"type": "input_audio", "input_audio": {"data": "AAAA"}}, {"type": "image_url", "image_url": "http://x"}]
    assert openai.body(a_request(messages=[{"role": "user", "content": parts}]))["messages"][0]["content"] == parts


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,!!!"}},
        {"type": "image_url", "image_url": {"url": "data:application/pdf;base64,AAAA"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA"}},
    ],
)
def test_parts_that_ollama_can_not_take_are_an_invalid_request_and_never_sent(part: dict[str, Any]) -> None:
    request = a_request(messages=[{"role": "user", "content": [part]}])

    async def run() -> Completion:
        async with ScriptedServer(ndjson(said("a"), done())) as server:
            found = await asked(server.url, "ollama", request=request)
            assert server.received == []
            return found

    found = asyncio.run(run())
    assert (found.status, found.error_kind) == (JobStatus.FAILED, ErrorKind.INVALID_REQUEST)
    assert "data: URLs" in (found.error_message or "")


def test_the_shape_of_an_answer_is_asked_for_in_the_words_of_each_dialect() -> None:
    schema = {"type": "object"}
    wish = {"type": "json_schema", "json_schema": {"schema": schema}}
    for params in ({"response_format": wish}, {"json_schema": schema}, {"format": schema}):
        assert ollama.body(a_request(**params))["format"] == schema
    assert "format" not in ollama.body(a_request(response_format={"type": "text"}))
    assert openai.body(a_request(format=schema))["response_format"]["json_schema"]["schema"] == schema
    assert openai.body(a_request(format="json"))["response_format"] == {"type": "json_object"}
    assert openai.body(a_request(grammar="root ::= x", json_schema=schema))["grammar"] == "root ::= x"


@pytest.mark.parametrize(
    "params", [{"grammar": "root ::= x"}, {"n": 2}, {"response_format": {"type": "json_schema"}}, {"raw": True}]
)
def test_what_ollama_would_pass_over_is_refused(params: dict[str, Any]) -> None:
    two = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    with pytest.raises(ValueError):
        ollama.body(a_request(messages=two, **params))


def test_a_bare_prompt_goes_to_generate_and_its_answer_is_read() -> None:
    request = InferenceRequest("m", [{"role": "user", "content": "def f("}], {"suffix": "return x", "stop": "\n"})
    body = ollama.body(request)
    assert ollama.endpoint("http://h/", request) == "http://h/api/generate"
    assert (body["prompt"], body["suffix"], body["options"], "messages" in body) == (
        "def f(",
        "return x",
        {"stop": ["\n"]},
        False,
    )
    answer = ollama_answer({"thinking": "hm"}, {"response": "x):"}, {"response": "", "done": True, "context": [1]})
    assert (answer.text, answer.reasoning, answer.chunks, answer.terminal) == ("x):", "hm", 2, True)
    assert answer.server_stats == {"done": True}


def test_a_load_is_a_success_when_nothing_was_asked_and_no_answer_when_something_was() -> None:
    for reason in ("load", "unload"):
        loading = ollama_answer({"done": True, "done_reason": reason})
        assert loading.conclude()[0] is JobStatus.INCOMPLETE
        loading.asks_nothing = True
        assert loading.conclude() == (JobStatus.ANSWERED, None)
        assert "model was" in loading.notes[0]


def test_a_conversation_with_tools_is_written_in_ollamas_words() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
    ]
    system, _, answer = ollama.body(a_request(messages=messages))["messages"]
    assert (system["role"], answer["tool_name"]) == ("system", "f")


# -- many at once ------------------------------------------------------------------------------------------------------


def test_hundreds_of_slow_streams_at_once_all_end_right() -> None:
    async def run() -> None:
        pauses = [s for c in TEXT for s in (delta(content=c), 0.05)]
        async with ScriptedServer(sse(*pauses, delta("stop"), DONE)) as server, new_client() as client:
            target, request = WorkerTarget("w", server.url, "openai"), a_request()
            many = [ask(client, target, request, limits(request_connect_timeout_s=30)) for _ in range(300)]
            found = await asyncio.gather(*many)
        assert {ended(f) for f in found} == {(JobStatus.ANSWERED, TEXT)}

    asyncio.run(run())


def test_the_limit_of_open_files_is_raised_or_the_error_says_which_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    said_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: said_to.append(pair))
    assert make_room(10) == 1024
    assert make_room(2000) == 2256
    assert said_to == [(2256, 4096)]
    with pytest.raises(TooFewDescriptors, match="hard limit 4096"):
        make_room(5000)
