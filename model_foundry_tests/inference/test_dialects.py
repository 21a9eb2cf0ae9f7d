"""Requests and streamed answers of both dialects, without a server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_foundry.inference import doubts, ollama, openai
from model_foundry.inference.answer import Answer, AnswerTooLong
from model_foundry.inference.sse import SseEvent
from model_foundry.inference.target import InferenceRequest
from model_foundry.records import ErrorKind, JobStatus

HELLO = [{"role": "user", "content": "hello"}]


def a_request(*, default_max_tokens: int | None = None, messages: Any = None, **params: Any) -> InferenceRequest:
    return InferenceRequest("served:name", messages or HELLO, params, default_max_tokens)


def openai_answer(*chunks: Any, times: list[float] | None = None) -> Answer:
    answer = Answer(max_bytes=10_000)
    for n, chunk in enumerate(chunks):
        data = chunk if isinstance(chunk, str) else json.dumps(chunk)
        openai.absorb(answer, SseEvent(data), times[n] if times else float(n))
    return answer


def ollama_answer(*chunks: Any, times: list[float] | None = None) -> Answer:
    answer = Answer(max_bytes=10_000)
    for n, chunk in enumerate(chunks):
        ollama.absorb(answer, json.dumps(chunk), times[n] if times else float(n))
    return answer


def delta(finish: str | None = None, **parts: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": parts, "finish_reason": finish}]}


def said(content: str = "", **more: Any) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": content, **more}, "done": False}


# -- requests -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"])
def test_v1_is_in_the_address_once(url: str) -> None:
    assert openai.endpoint(url) == "http://h:1/v1/chat/completions"


def test_openai_parameters_are_forwarded_and_the_usage_is_asked_for() -> None:
    body = openai.body(a_request(temperature=0, min_p=0.1, stream_options={"x": 1}, default_max_tokens=7))
    assert body == {
        "model": "served:name",
        "messages": HELLO,
        "stream": True,
        "stream_options": {"x": 1, "include_usage": True},
        "temperature": 0,
        "min_p": 0.1,
        "max_tokens": 7,
    }


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_the_default_bound_gives_way_to_the_prompts_own(name: str) -> None:
    body = openai.body(a_request(default_max_tokens=7, **{name: 3}))
    assert {k: v for k, v in body.items() if k.startswith("max")} == {name: 3}
    assert ollama.body(a_request(default_max_tokens=7, **{name: 3}))["options"] == {"num_predict": 3}


def test_ollama_gets_options_under_its_own_names_and_never_cuts_a_prompt() -> None:
    body = ollama.body(
        a_request(
            max_tokens=9,
            seed=1,
            stop="END",
            top_p=0.5,
            mystery=2,
            think=False,
            keep_alive="5m",
            options={"num_ctx": 99},
        )
    )
    assert body == {
        "model": "served:name",
        "messages": HELLO,
        "stream": True,
        "truncate": False,
        "shift": False,
        "think": False,
        "keep_alive": "5m",
        "options": {"num_predict": 9, "seed": 1, "stop": ["END"], "top_p": 0.5, "mystery": 2, "num_ctx": 99},
    }


def test_ollama_gets_a_json_schema_as_its_format() -> None:
    schema = {"type": "object"}
    wish = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    assert ollama.body(a_request(response_format=wish))["format"] == schema
    assert ollama.body(a_request(response_format={"type": "json_object"}))["format"] == "json"


def test_ollama_gets_parts_as_text_and_images() -> None:
    parts = [
        {"type": "text", "text": "what is"},
        {"type": "text", "text": "this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]
    (message,) = ollama.body(a_request(messages=[{"role": "user", "content": parts}]))["messages"]
    assert message == {"role": "user", "content": "what is\nthis?", "images": ["AAAA"]}


def test_an_image_by_url_can_not_go_to_ollama() -> None:
    parts = [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]
    with pytest.raises(ValueError, match="image_url"):
        ollama.body(a_request(messages=[{"role": "user", "content": parts}]))


def test_ollama_gets_tool_arguments_as_objects() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    (message,) = ollama.body(a_request(messages=[{"role": "assistant", "content": None, "tool_calls": [call]}]))[
        "messages"
    ]
    assert message["tool_calls"][0]["function"]["arguments"] == {"a": 1}
    assert message["content"] == ""


# -- first tokens ----------------------------------------------------------------------------------------------------


def test_a_chunk_with_a_role_only_is_no_first_token() -> None:
    answer = openai_answer(
        delta(role="assistant", content=None), delta(content=""), delta(content="hi"), times=[1, 2, 3]
    )
    assert (answer.first_token_at, answer.first_output_at, answer.chunks) == (3, 3, 1)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_is_a_first_token_but_no_first_output(name: str) -> None:
    answer = openai_answer(delta(**{name: "hm"}), delta(content="hi"), times=[1, 2])
    assert (answer.first_token_at, answer.first_output_at) == (1, 2)
    assert (answer.reasoning, answer.text) == ("hm", "hi")


def test_reasoning_under_two_names_is_not_counted_twice() -> None:
    assert openai_answer(delta(reasoning="hm", reasoning_content="hm")).reasoning == "hm"


def test_an_answer_of_reasoning_only_has_a_first_token_and_no_first_output() -> None:
    answer = openai_answer(delta(reasoning="hm"), delta("length"), "[DONE]")
    timings = answer.timings(sent_at=-1)
    assert (timings.ttft_s, timings.ttfo_s, timings.e2e_s) == (1, None, 1)
    assert answer.conclude() == (JobStatus.ANSWERED, None)


def test_a_tool_call_is_a_first_output() -> None:
    answer = openai_answer(delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}]))
    assert answer.first_output_at == 0


def test_the_usage_chunk_sets_no_time() -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3}}
    answer = openai_answer(
        delta(content="a"), delta(content="b"), delta("stop"), usage, "[DONE]", times=[1, 2, 3, 9, 9]
    )
    timings = answer.timings(sent_at=0)
    assert (timings.ttft_s, timings.e2e_s, timings.tpot_s) == (1, 2, 0.5)


# -- counts and figures ----------------------------------------------------------------------------------------------


def test_counts_that_are_absent_are_unknown_and_not_zero() -> None:
    for answer in (
        openai_answer(delta(content="a"), delta("stop"), "[DONE]"),
        ollama_answer(said("a"), {"done": True}),
    ):
        assert (answer.prompt_tokens, answer.completion_tokens, answer.tokens_source) == (None, None, "missing")
        assert answer.timings(0).tpot_s is None


def test_a_usage_that_is_null_in_other_chunks_is_nothing() -> None:
    last = {
        "choices": [],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}},
    }
    answer = openai_answer(delta(content="a") | {"usage": None}, last, delta(content="b") | {"usage": None})
    assert (answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens) == (5, 2, 4)
    assert answer.tokens_source == "server"


def test_timings_of_llama_cpp_become_seconds_and_rates() -> None:
    timings = {"cache_n": 3, "prompt_n": 31, "prompt_ms": 124.0, "predicted_n": 4, "predicted_ms": 20.0}
    answer = openai_answer(delta(content="a"), delta("stop") | {"timings": timings})
    figures = answer.figures
    assert (figures.prefill_s, figures.decode_s) == (0.124, 0.02)
    assert [figures.prefill_tps, figures.decode_tps] == pytest.approx([250, 200])
    assert (answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens) == (34, 4, 3)
    assert answer.server_stats == {"timings": timings}


def test_the_servers_own_decode_rate_is_taken_as_it_knows_its_interval() -> None:
    timings = {"predicted_n": 4, "predicted_ms": 20.0, "predicted_per_second": 150.0}
    assert openai_answer(delta("stop") | {"timings": timings}).figures.decode_tps == 150


def test_rates_that_are_null_are_unknown() -> None:
    raw = '{"timings":{"prompt_n":1,"prompt_ms":NaN,"predicted_n":1,"predicted_ms":0.0,"predicted_per_second":null}}'
    figures = openai_answer(raw).figures
    assert (figures.prefill_s, figures.prefill_tps, figures.decode_s, figures.decode_tps) == (None, None, 0.0, None)


def test_ollamas_nanoseconds_become_seconds_and_rates() -> None:
    final = {
        "done": True,
        "done_reason": "stop",
        "total_duration": 4_000_000_000,
        "load_duration": 1_000_000_000,
        "prompt_eval_count": 20,
        "prompt_eval_duration": 500_000_000,
        "eval_count": 10,
        "eval_duration": 2_000_000_000,
        "a_new_field": {"x": 1},
    }
    answer = ollama_answer(said("a"), said("b"), final, times=[2, 4, 4])
    timings = answer.timings(sent_at=0)
    assert (timings.load_s, timings.prefill_s, timings.decode_s) == (1, 0.5, 2)
    assert (timings.prefill_tps, timings.decode_tps, timings.unattributed_s) == (40, 5, 0.5)
    assert timings.tpot_s == pytest.approx(2 / 9)
    assert answer.server_stats is not None
    assert answer.server_stats["a_new_field"] == {"x": 1}


def test_a_prefill_faster_than_any_machine_is_noted_as_cached() -> None:
    answer = ollama_answer(said("a"), {"done": True, "prompt_eval_count": 63859, "prompt_eval_duration": 205727569})
    doubts.examine(answer, -1, [])
    assert answer.notes[0].startswith("cache_likely")
    assert answer.figures.prefill_tps is None


def test_an_answer_in_one_chunk_has_no_time_per_token() -> None:
    usage = {"choices": [], "usage": {"completion_tokens": 30}}
    assert openai_answer(delta(content="all of it"), usage).timings(0).tpot_s is None


# -- tool calls ------------------------------------------------------------------------------------------------------


def test_tool_calls_are_gathered_by_index() -> None:
    def piece(index: int, arguments: str, **more: Any) -> dict[str, Any]:
        return delta(tool_calls=[{"index": index, "function": {"arguments": arguments, **more}}])

    answer = openai_answer(piece(0, '{"a"', name="f"), piece(1, "{}", name="g"), piece(0, ": 1}", name="f"))
    assert [c["function"] for c in answer.tool_calls] == [
        {"name": "f", "arguments": '{"a": 1}'},
        {"name": "g", "arguments": "{}"},
    ]


def test_tool_calls_without_an_index_are_told_apart_by_their_id() -> None:
    calls = [
        {"id": "x", "function": {"name": "f", "arguments": "{}"}},
        {"id": "y", "function": {"name": "g", "arguments": {"b": 2}}},
    ]
    answer = openai_answer(delta(tool_calls=calls))
    assert [(c["id"], c["function"]["arguments"]) for c in answer.tool_calls] == [("x", "{}"), ("y", '{"b": 2}')]


def test_ollamas_tool_calls_look_like_openais() -> None:
    answer = ollama_answer(said(tool_calls=[{"function": {"name": "f", "arguments": {"a": "ä"}}}]), {"done": True})
    assert answer.tool_calls[0]["function"] == {"name": "f", "arguments": '{"a": "ä"}'}


# -- ends ------------------------------------------------------------------------------------------------------------


def test_an_empty_answer_with_a_finish_reason_is_answered_and_noted() -> None:
    for answer in (openai_answer(delta("stop"), "[DONE]"), ollama_answer({"done": True, "done_reason": "stop"})):
        assert answer.conclude() == (JobStatus.ANSWERED, None)
        assert answer.notes == ["empty answer"]


def test_an_end_mark_after_nothing_is_no_answer() -> None:
    status, failure = openai_answer("[DONE]").conclude()
    assert (status, failure and failure.kind) == (JobStatus.INCOMPLETE, ErrorKind.TRUNCATED_STREAM)


def test_blank_text_is_an_answer() -> None:
    answer = openai_answer(delta(content=" \n"), delta("stop"), "[DONE]")
    assert (answer.conclude()[0], answer.text, answer.notes) == (JobStatus.ANSWERED, " \n", [])


@pytest.mark.parametrize(
    "chunk",
    [
        {"error": {"message": "out of memory", "code": 500}},
        {"error": "out of memory"},
        {"object": "error", "message": "out of memory", "code": 500},
        "out of memory",
    ],
)
def test_an_error_inside_the_stream_keeps_the_text_before_it(chunk: Any) -> None:
    answer = openai_answer(delta(content="so far"), chunk)
    status, failure = answer.conclude()
    assert failure is not None
    assert (status, failure.kind, answer.text) == (JobStatus.FAILED, ErrorKind.SERVER_ERROR, "so far")
    assert "out of memory" in failure.message


def test_an_answer_beyond_its_bound_stops_and_keeps_what_fits() -> None:
    answer = Answer(max_bytes=1024)
    for _ in range(10):
        answer.add(0.0, text="ä" * 50)
    with pytest.raises(AnswerTooLong):
        answer.add(0.0, text="ä" * 50)
    assert len(answer.text.encode()) == 1000


WORDS_OF_BOTH_DIALECTS = """
choices delta message content tool_calls function arguments name index id usage timings error text prompt_tokens
completion_tokens prompt_tokens_details cached_tokens prompt_ms predicted_n done done_reason load_duration eval_count
prompt_eval_count finish_reason reasoning object thinking code
""".split()  # noqa: SIM905 (shorter so)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(10**400),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(WORDS_OF_BOTH_DIALECTS),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@given(st.lists(json_values, max_size=4))
def test_no_json_that_a_server_may_send_breaks_the_reading(chunks: list[Any]) -> None:
    for read in (openai_answer, ollama_answer):
        answer = read(*chunks)
        answer.conclude()
        answer.timings(0.0)
