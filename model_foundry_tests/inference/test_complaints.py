"""What users of other clients have complained of, each under its number in the project's list, with the right value."""

from __future__ import annotations

import json
from typing import Any

import pytest

from model_foundry.inference import doubts, ollama
from model_foundry.inference.answer import Answer
from model_foundry.inference.target import InferenceRequest
from model_foundry.inference.values import count, number
from model_foundry.records import ErrorKind, JobStatus
from model_foundry_tests.inference.scripted import DONE, delta, done, event, line, ndjson, said, sse, usage
from model_foundry_tests.inference.test_client import played
from model_foundry_tests.inference.test_dialects import delta as chunk
from model_foundry_tests.inference.test_dialects import ollama_answer, openai_answer
from model_foundry_tests.inference.test_dialects import said as line_of

HI = [{"role": "user", "content": "hi"}]


def examined(answer: Answer, *, sent_at: float = -1.0, messages: Any = HI) -> Answer:
    doubts.examine(answer, sent_at, messages)
    return answer


def flags(answer: Answer) -> list[str]:
    return [note.partition(":")[0] for note in answer.notes]


def test_1_a_usage_chunk_without_choices_is_read_asked_or_not() -> None:
    for choices in ([], None):
        found = played(sse(delta(content="a"), delta("stop"), event({"choices": choices, "usage": USAGE}), DONE))
        assert (found.status, found.prompt_tokens, found.completion_tokens) == (JobStatus.ANSWERED, 5, 2)
    assert openai_answer(chunk(content="a"), {"usage": USAGE}, "[DONE]").completion_tokens == 2


USAGE = {"prompt_tokens": 5, "completion_tokens": 2}


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_2_an_answer_of_reasoning_only_has_a_first_token_and_a_pace_but_no_first_output(name: str) -> None:
    pieces = [chunk(**{name: "hm "}) for _ in range(5)]
    end = {"choices": [], "usage": {"completion_tokens": 5}}
    timings = examined(openai_answer(*pieces, chunk("length"), end, "[DONE]")).timings(-1)
    assert (timings.ttft_s, timings.ttfo_s, timings.tpot_s, timings.e2e_s) == (1, None, 1, 5)


def test_2_tokens_that_were_counted_and_never_seen_are_flagged() -> None:
    hidden = chunk(some_new_field="thoughts")
    answer = examined(openai_answer(hidden, chunk("stop"), {"usage": {"completion_tokens": 128}}, "[DONE]"))
    assert flags(answer) == [doubts.TOKENS_DOUBTFUL]
    assert answer.timings(-1).ttft_s is None


def test_3_the_first_token_is_the_first_reasoning_and_the_first_output_is_the_content() -> None:
    answer = openai_answer(*[chunk(reasoning="hm")] * 300, chunk(content="hi"), times=[*range(1, 301), 500.0])
    assert (answer.timings(0).ttft_s, answer.timings(0).ttfo_s) == (1, 500)


def test_4_reasoning_is_read_under_all_its_names_and_never_twice() -> None:
    both = openai_answer(chunk(reasoning="hm", reasoning_content="hm", thinking="hm"))
    assert (both.reasoning, both.chunks) == ("hm", 1)
    assert ollama_answer(line_of(thinking="hm", reasoning="hm")).reasoning == "hm"
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "hi"}]
    answer = openai_answer(chunk(content=parts))
    assert (answer.reasoning, answer.text) == ("hm", "hi")


def test_4_a_message_that_repeats_what_was_streamed_is_not_counted_twice() -> None:
    last = {"choices": [{"index": 0, "delta": {}, "message": {"content": "hi"}, "finish_reason": "stop"}]}
    assert openai_answer(chunk(content="hi"), last, "[DONE]").text == "hi"
    assert openai_answer(last).text == "hi"


@pytest.mark.parametrize(
    "nothing", [{"role": "assistant", "content": None}, {"role": "assistant"}, {"content": ""}, {}]
)
def test_5_a_chunk_with_a_role_only_is_no_first_token(nothing: dict[str, Any]) -> None:
    assert openai_answer(chunk(**nothing), chunk(content="hi"), times=[0.005, 0.8]).timings(0).ttft_s == 0.8


def test_6_the_wait_for_the_first_token_is_no_part_of_the_pace() -> None:
    answer = openai_answer(
        *[chunk(content=c) for c in "abc"], {"usage": {"completion_tokens": 3}}, times=[1, 1.1, 1.2, 9]
    )
    timings = answer.timings(0)
    assert (timings.ttft_s, timings.e2e_s) == (1, 1.2)
    assert timings.tpot_s == pytest.approx(0.1)


def test_8_rates_that_are_null_or_of_no_time_are_unknown() -> None:
    timings = {"predicted_n": 1, "predicted_ms": 0.0, "predicted_per_second": None, "prompt_n": 0, "prompt_ms": 3.0}
    answer = examined(openai_answer(chunk(content="a"), chunk("stop") | {"timings": timings}, "[DONE]"))
    assert (answer.figures.decode_tps, answer.figures.prefill_tps) == (None, None)


@pytest.mark.parametrize("bad", ["NaN", "Infinity", "-Infinity", "1e999", "-1", "true", '"fast"', "[]", "9" * 5000])
def test_9_what_is_no_number_is_unknown_and_the_rest_is_read(bad: str) -> None:
    times = f'{{"prompt_n":{bad},"prompt_ms":{bad},"predicted_n":4,"predicted_ms":{bad}}}'
    raw = f'{{"timings":{times},"usage":{{"x":{bad}}}}}'
    answer = examined(openai_answer(chunk(content="four tokens"), raw))
    figures = answer.figures
    assert (figures.prefill_s, figures.decode_s, figures.prefill_tps, figures.decode_tps) == (None,) * 4
    assert answer.completion_tokens == 4
    json.dumps(answer.kept_stats(), allow_nan=False)
    final = json.loads(json.dumps({"done": True, "eval_count": 4}))
    answer = Answer(max_bytes=100)
    ollama.absorb(answer, json.dumps(final)[:-1] + f', "eval_duration": {bad}}}', 0.0)
    assert (answer.figures.decode_s, answer.figures.decode_tps, answer.terminal) == (None, None, True)


def test_9_numbers_that_come_as_texts_are_numbers_and_half_a_token_is_none() -> None:
    assert [number(v) for v in ("12", " 1.5 ", "1e3", "1e999", "٣", "-1", "0x1", "")] == [12, 1.5, 1000] + [None] * 5
    assert [count(v) for v in ("12", 12.0, 12.5, True, -1, 2**60)] == [12, 12, None, None, None, None]


def test_10_a_count_that_is_absent_is_unknown_and_its_source_is_missing() -> None:
    found = played(ndjson(said("a"), done()), "ollama")
    assert (found.prompt_tokens, found.completion_tokens, found.tokens_source) == (None, None, "missing")
    assert played(ndjson(said("a"), done(eval_count=1)), "ollama").tokens_source == "server"


@pytest.mark.parametrize(
    ("tokens", "nanoseconds", "decode_tokens"), [(63859, 205_727_569, 100), (2000, 100_000_000, 10)]
)
def test_11_a_prefill_rate_of_a_cached_prompt_is_not_shown(tokens: int, nanoseconds: int, decode_tokens: int) -> None:
    final = {"done": True, "prompt_eval_count": tokens, "prompt_eval_duration": nanoseconds}
    final |= {"eval_count": decode_tokens, "eval_duration": 1_000_000_000}
    answer = examined(ollama_answer(line_of("a" * decode_tokens), final), sent_at=-10)
    assert (answer.figures.prefill_tps, answer.figures.decode_tps) == (None, decode_tokens)
    assert flags(answer) == [doubts.CACHE_LIKELY]
    assert answer.prompt_tokens == tokens


def test_11_where_the_server_names_its_cached_tokens_the_rate_is_of_the_others() -> None:
    final = {"done": True, "prompt_eval_count": 1100, "prompt_eval_cached_count": 1000, "prompt_eval_duration": 10**9}
    assert examined(ollama_answer(line_of("a"), final), sent_at=-10).figures.prefill_tps == 100
    final["prompt_eval_cached_count"] = 1100
    assert examined(ollama_answer(line_of("a"), final), sent_at=-10).figures.prefill_tps is None


def test_13_a_warm_models_load_time_is_not_a_cold_start() -> None:
    assert played(ndjson(0.1, said("a"), done(load_duration=60_000_000)), "ollama").cold is False


def test_14_a_model_that_was_loaded_for_the_request_is_marked_cold() -> None:
    assert played(ndjson(said("a"), done(load_duration=35_000_000_000)), "ollama").cold is True


def test_16_a_prompt_that_was_silently_cut_is_suspected() -> None:
    messages = [{"role": "user", "content": "The quick brown fox jumps over the lazy dog. " * 14_000}]
    final = {"done": True, "prompt_eval_count": 16387}
    assert flags(examined(ollama_answer(line_of("a"), final), messages=messages)) == [doubts.TRUNCATED_SUSPECT]
    final["prompt_eval_count"] = 140_001
    assert flags(examined(ollama_answer(line_of("a"), final), messages=messages)) == []
    japanese = [{"role": "user", "content": "大きなデータを分析してください。" * 300}]
    final["prompt_eval_count"] = 2048
    assert flags(examined(ollama_answer(line_of("a"), final), messages=japanese)) == []
    final["prompt_eval_count"] = 512
    assert flags(examined(ollama_answer(line_of("a"), final), messages=japanese)) == [doubts.TRUNCATED_SUSPECT]


def test_16_and_23_runs_of_spaces_and_lines_are_few_tokens_and_suspect_nothing() -> None:
    assert doubts.fewest_tokens([{"content": " " * 10_000 + "=" * 10_000 + "\n" * 10_000}]) < 10
    assert doubts.fewest_tokens([{"content": None}, {}, {"content": [{"type": "text", "text": "a" + "bc" * 9}]}]) == 4


def test_16_ollama_is_told_not_to_cut_and_gets_its_context_size() -> None:
    body = ollama.body(InferenceRequest("m", HI, {"num_ctx": 8192}))
    assert (body["truncate"], body["shift"], body["options"]) == (False, False, {"num_ctx": 8192})


@pytest.mark.parametrize(
    "error",
    [
        event({"error": {"message": "CUDA error", "code": 500}}),
        event({"error": True, "message": "CUDA error"}),
        event({"choices": [{"index": 0, "delta": {}, "error": {"message": "CUDA error"}}]}),
        b"event: error\ndata: CUDA error\n\n",
        b'event: error\ndata: {"message": "CUDA error"}\n\n',
    ],
)
def test_18_an_error_after_the_200_fails_and_keeps_the_text(error: bytes) -> None:
    found = played(sse(delta(content="so far"), error))
    assert (found.status, found.error_kind, found.text) == (JobStatus.FAILED, ErrorKind.SERVER_ERROR, "so far")
    assert "CUDA error" in (found.error_message or "")


def test_18_ollamas_error_with_a_status_means_what_the_status_means() -> None:
    full = line({"error": "server busy, please try again.  maximum pending requests exceeded", "status": 503})
    assert played(ndjson(said("so far"), full), "ollama").error_kind is ErrorKind.RATE_LIMITED
    long = line({"error": "the input length exceeds the context length", "status": "400"})
    assert played(ndjson(long), "ollama").error_kind is ErrorKind.CONTEXT_OVERFLOW


def test_19_an_end_without_its_mark_is_incomplete() -> None:
    for found in (played(sse(delta(content="a"))), played(ndjson(said("a")), "ollama")):
        assert (found.status, found.error_kind, found.text) == (
            JobStatus.INCOMPLETE,
            ErrorKind.TRUNCATED_STREAM,
            "a",
        )


def test_23_the_servers_count_is_taken_and_chunks_are_kept_beside_it() -> None:
    found = played(sse(*[delta(content="word ")] * 10, delta("stop"), usage(5, 20), DONE))
    assert (found.completion_tokens, found.chunks, found.tokens_source, found.notes) == (20, 10, "server", ())


@pytest.mark.parametrize(
    ("text", "chunks", "tokens"), [("a", 100, 3), ("a", 3, 5000), ("long " * 200, 3, 4), ("a", 9, 0)]
)
def test_23_a_count_that_the_answer_contradicts_is_flagged_and_makes_no_pace(
    text: str, chunks: int, tokens: int
) -> None:
    final = {"usage": {"completion_tokens": tokens}, "timings": {"predicted_n": tokens, "predicted_ms": 1000}}
    answer = examined(
        openai_answer(*[chunk(content=text)] * chunks, final, times=[n / 100 for n in range(101)]), sent_at=-9
    )
    assert flags(answer) == [doubts.TOKENS_DOUBTFUL]
    assert (answer.completion_tokens, answer.chunks) == (tokens, chunks)
    assert (answer.timings(-9).tpot_s, answer.timings(-9).decode_tps) == (None, None)


def test_23_reasoning_that_the_server_counts_and_hides_is_no_contradiction() -> None:
    more = {"completion_tokens": 900, "completion_tokens_details": {"reasoning_tokens": 898}}
    assert flags(examined(openai_answer(chunk(content="hello"), {"usage": more}))) == []


@pytest.mark.parametrize(
    "final",
    [
        {"eval_count": 10, "eval_duration": 60 * 10**9},  # longer than the client waited
        {"eval_count": 10, "eval_duration": 10**9, "load_duration": 9 * 10**9},  # before a token that came sooner
        {"eval_count": 10, "eval_duration": 8_000},  # microseconds where nanoseconds belong
    ],
)
def test_times_in_wrong_units_are_kept_flagged_and_no_rate_is_made_of_them(final: dict[str, Any]) -> None:
    pieces = [line_of("word ")] * 10
    answer = examined(ollama_answer(*pieces, {"done": True, **final}, times=[*range(1, 11), 11.0]), sent_at=0)
    assert flags(answer) == [doubts.TIMES_DOUBTFUL]
    timings = answer.timings(0)
    assert timings.decode_s == final["eval_duration"] / 1e9
    assert (timings.decode_tps, timings.prefill_tps, timings.unattributed_s) == (None, None, None)
    assert timings.e2e_s == 10


def test_a_decode_rate_that_no_machine_has_is_unknown() -> None:
    timings = {"predicted_n": 4, "predicted_ms": 0.001, "predicted_per_second": 1e6, "prompt_n": 9, "prompt_ms": 1e-3}
    answer = examined(openai_answer(chunk(content="four"), {"timings": timings}))
    assert (answer.figures.decode_tps, answer.figures.prefill_tps) == (None, None)
    assert flags(answer) == [doubts.RATE_DOUBTFUL] * 2


def test_32_an_answer_that_keeps_coming_outlives_the_idle_limit() -> None:
    trickle = [step for n in range(8) for step in (delta(content=str(n)), 0.1)]
    found = played(sse(*trickle, delta("stop"), DONE), request_idle_timeout_s=0.5, request_first_token_timeout_s=0.5)
    assert (found.status, found.text) == (JobStatus.ANSWERED, "01234567")


def test_32_pings_that_are_events_do_not_keep_a_silent_answer_alive() -> None:
    pings = [b"event: ping\ndata: now\n\n", 0.02, event({"type": "ping"}), 0.02, b"data:\n\n", 0.02] * 60
    found = played(sse(delta(content="a"), *pings), request_idle_timeout_s=0.4)
    assert (found.status, found.error_kind, found.text) == (JobStatus.FAILED, ErrorKind.STALLED, "a")
