"""The OpenAI dialect: ``POST /v1/chat/completions``, as llama.cpp, ik_llama.cpp, vLLM and many others speak it.

Belongs here: a request's body, and what each streamed event means. Does not belong here: events from bytes (``sse``),
the I/O (``client``). Pure.

Differences that are read: reasoning under ``reasoning_content`` (llama.cpp, older vLLM), ``reasoning`` (vLLM, Ollama)
or ``thinking``; a usage chunk with empty ``choices``, asked or not; llama.cpp's ``timings``; errors inside a stream.
"""

from __future__ import annotations

import json
from typing import Any

from model_foundry.inference import failures
from model_foundry.inference.answer import Answer, count, first_text, loads, number, per_second, text_of
from model_foundry.inference.sse import SseEvent, SseParser
from model_foundry.inference.target import InferenceRequest
from model_foundry.records import ErrorKind

Parser = SseParser


def base_url(url: str) -> str:
    """The URL with ``/v1`` at its end, once."""
    url = url.rstrip("/")
    return url if url.endswith("/v1") else f"{url}/v1"


def endpoint(url: str) -> str:
    """Where chat completions are asked for."""
    return f"{base_url(url)}/chat/completions"


def body(request: InferenceRequest) -> dict[str, Any]:
    """The request's JSON: parameters as they are, streamed, with the usage asked for."""
    params = dict(request.params)
    if request.default_max_tokens is not None and not ({"max_tokens", "max_completion_tokens"} & params.keys()):
        params["max_tokens"] = request.default_max_tokens
    options = params.get("stream_options")
    return {
        **params,
        "model": request.model,
        "messages": request.messages,
        "stream": True,
        "stream_options": {**(options if isinstance(options, dict) else {}), "include_usage": True},
    }


def absorb(answer: Answer, event: SseEvent, at: float) -> None:
    """Adds one event to the answer.

    Raises:
        AnswerTooLong: when the answer is beyond its bound.
    """
    if event.data.strip() == "[DONE]":
        answer.terminal = True
        return
    try:
        chunk = loads(event.data)
    except ValueError:
        chunk = {"error": f"an event that is not JSON: {event.data}"}
    if not isinstance(chunk, dict):
        return
    error = chunk.get("error")
    if error or event.event == "error" or chunk.get("object") == "error":
        answer.failure = failures.in_stream(error or chunk)
        return
    _absorb_chunk(answer, chunk, at)


def absorb_whole(answer: Answer, text: str, at: float) -> None:
    """Takes an answer that came whole, although a stream was asked for.

    Raises:
        AnswerTooLong: when the answer is beyond its bound.
    """
    try:
        loads(text)
    except ValueError:
        return  # cut short, and then without an end
    absorb(answer, SseEvent(text), at)
    answer.terminal = answer.failure is None and answer.finish_reason is not None
    answer.note("the server answered whole, not streamed: its first token's time is that of the whole answer")


def _absorb_chunk(answer: Answer, chunk: dict[str, Any], at: float) -> None:
    choices = chunk.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if not isinstance(choice, dict):
            continue
        if choice.get("index") not in (0, None):
            answer.note("more than one choice came; only the first is kept")
            continue
        _absorb_choice(answer, choice, at)
    _absorb_usage(answer, chunk)


def _absorb_choice(answer: Answer, choice: dict[str, Any], at: float) -> None:
    if isinstance(choice.get("finish_reason"), str):
        answer.finish_reason = choice["finish_reason"]
        if answer.finish_reason == "error":
            answer.failure = failures.Failure(ErrorKind.SERVER_ERROR, "the server ended with finish_reason 'error'")
    delta = choice.get("delta") or choice.get("message")
    if not isinstance(delta, dict):
        return
    calls = delta.get("tool_calls")
    sizes = (
        [_absorb_tool_call(answer, call) for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    )
    answer.add(
        at,
        text=text_of(delta.get("content")) or first_text(delta.get("refusal")),
        reasoning=first_text(delta.get("reasoning_content"), delta.get("reasoning"), delta.get("thinking")),
        tool_bytes=sum(sizes) if sizes else None,
    )


def _absorb_tool_call(answer: Answer, piece: dict[str, Any]) -> int:
    """Adds a piece to the call of its index; returns its size. Without an index, a new id starts a new call."""
    raw = piece.get("function")
    function = raw if isinstance(raw, dict) else {}
    arguments = function.get("arguments")
    if arguments is None:
        arguments = ""
    elif not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    index, identity = piece.get("index"), piece.get("id")
    key = index if isinstance(index, int) else None
    found = next((c for c in answer.tool_calls if key is not None and c["index"] == key), None)
    if key is None and answer.tool_calls and identity in (None, "", answer.tool_calls[-1]["id"]):
        found = answer.tool_calls[-1]
    if found is None:
        key = key if key is not None else len(answer.tool_calls)
        found = {"index": key, "id": None, "type": "function", "function": {"name": "", "arguments": ""}}
        answer.tool_calls.append(found)
    found["id"] = found["id"] or identity or None
    found["function"]["name"] = found["function"]["name"] or first_text(function.get("name"))
    found["function"]["arguments"] += arguments
    return len(arguments.encode(errors="replace")) + len(first_text(function.get("name")).encode(errors="replace")) + 16


def _absorb_usage(answer: Answer, chunk: dict[str, Any]) -> None:
    """Counts and times; they may come in every chunk (the last one holds) or never (then they are unknown)."""
    usage, timings = chunk.get("usage"), chunk.get("timings")
    stats = answer.server_stats or {}
    if isinstance(usage, dict):
        stats = {**stats, "usage": usage}
        details = usage.get("prompt_tokens_details")
        answer.prompt_tokens = _known(count(usage.get("prompt_tokens")), answer.prompt_tokens)
        answer.completion_tokens = _known(count(usage.get("completion_tokens")), answer.completion_tokens)
        if isinstance(details, dict):
            answer.cached_tokens = _known(count(details.get("cached_tokens")), answer.cached_tokens)
    if isinstance(timings, dict):
        stats = {**stats, "timings": timings}
        _absorb_timings(answer, timings)
    answer.server_stats = stats or None


def _absorb_timings(answer: Answer, timings: dict[str, Any]) -> None:
    """llama.cpp's ``timings`` (tools/server, ``result_timings``): milliseconds; any of them may be null.

    ``prompt_n`` leaves out cached tokens, so the prompt has ``cache_n + prompt_n``. ``predicted_n`` has the first token
    in it, but ``predicted_ms`` starts once that one is there: current servers therefore give (predicted_n - 1) /
    predicted_s as ``predicted_per_second``, older ones predicted_n / predicted_s. The server's own rate is taken when
    it gives one, because it knows what its interval covers; the quotient otherwise.
    """
    cached, prompt_n, predicted_n = (count(timings.get(k)) for k in ("cache_n", "prompt_n", "predicted_n"))
    prompt_ms, predicted_ms = number(timings.get("prompt_ms")), number(timings.get("predicted_ms"))
    figures = answer.figures
    figures.prefill_s = None if prompt_ms is None else prompt_ms / 1000
    figures.decode_s = None if predicted_ms is None else predicted_ms / 1000
    figures.prefill_tps = per_second(prompt_n, figures.prefill_s)
    own_rate = number(timings.get("predicted_per_second")) if figures.decode_s else None
    figures.decode_tps = own_rate or per_second(predicted_n, figures.decode_s)
    answer.cached_tokens = _known(answer.cached_tokens, cached)
    answer.completion_tokens = _known(answer.completion_tokens, predicted_n)
    if answer.prompt_tokens is None and prompt_n is not None:
        answer.prompt_tokens = prompt_n + (cached or 0)


def _known(first: int | None, second: int | None) -> int | None:
    return second if first is None else first
