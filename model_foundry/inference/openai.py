"""The OpenAI dialect: ``POST /v1/chat/completions``, as llama.cpp, ik_llama.cpp, vLLM and many others speak it.

Belongs here: a request's body, and what each streamed event means. Does not belong here: events from bytes (``sse``),
the I/O (``client``). Pure.

Differences that are read: reasoning under ``reasoning_content`` (llama.cpp, older vLLM, LM Studio), ``reasoning``
(vLLM, Ollama) or ``thinking``, or as parts of the content (Mistral); a usage chunk with empty ``choices``, asked or
not; usage inside a choice; llama.cpp's ``timings``; the whole message again in the last chunk; errors inside a stream.
"""

from __future__ import annotations

from typing import Any

from model_foundry.inference import failures
from model_foundry.inference.answer import Answer
from model_foundry.inference.sse import SseEvent, SseParser
from model_foundry.inference.target import JSON, InferenceRequest
from model_foundry.inference.values import (
    count,
    first_text,
    loads,
    number,
    per_second,
    reasoning_of,
    text_of,
)
from model_foundry.records import ErrorKind

Parser = SseParser
CONTENT_TYPE = JSON
_OWN_EVENTS = ("message", "error")


def base_url(url: str) -> str:
    """The URL with ``/v1`` at its end, once."""
    url = url.rstrip("/")
    return url if url.endswith("/v1") else f"{url}/v1"


def endpoint(url: str, request: InferenceRequest | None = None) -> str:
    """Where chat completions are asked for."""
    return f"{base_url(url)}/chat/completions"


def body(request: InferenceRequest) -> dict[str, Any]:
    """The request's JSON: parameters and messages as they are, streamed, with the usage asked for.

    Ollama's ``format`` is given as ``response_format``, because a server that doesn't know it answers without it.
    """
    params = dict(request.params)
    if request.default_max_tokens is not None and not ({"max_tokens", "max_completion_tokens"} & params.keys()):
        params["max_tokens"] = request.default_max_tokens
    wanted = params.pop("format", None)
    if wanted and params.get("response_format") is None:
        schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": wanted}}
        params["response_format"] = {"type": "json_object"} if wanted == "json" else schema
    options = params.get("stream_options")
    return {
        **params,
        "model": request.model,
        "messages": request.messages,
        "stream": True,
        "stream_options": {**(options if isinstance(options, dict) else {}), "include_usage": True},
    }


def absorb(answer: Answer, event: SseEvent, at: float) -> bool:
    """Adds one event to the answer.

    Returns:
        Whether it was of the answer: a ping is not, whatever it is called.

    Raises:
        AnswerTooLong: when the answer is beyond its bound.
    """
    data = event.data.strip()
    if data in ("[DONE]", '"[DONE]"'):
        answer.terminal = True
        return True
    if not data:
        return False
    try:
        chunk = loads(data)
    except ValueError:
        if event.event not in _OWN_EVENTS:
            return False
        is_error = event.event == "error"
        chunk = {"error": data if is_error else f"an event that is not JSON: {data}"}
    if not isinstance(chunk, dict):
        if event.event == "error":
            answer.failure = failures.in_stream(data)
        return False
    return absorb_object(answer, chunk, at, is_error=event.event == "error")


def absorb_object(answer: Answer, chunk: dict[str, Any], at: float, *, is_error: bool = False) -> bool:
    """Adds one chunk to the answer; see :func:`absorb`."""
    error = chunk.get("error")
    if error or is_error or chunk.get("object") == "error":
        answer.failure = failures.in_stream(error if isinstance(error, str | dict) and error else chunk)
        return True
    _absorb_usage(answer, chunk, at)
    choices = chunk.get("choices")
    found = [c for c in choices if isinstance(c, dict)] if isinstance(choices, list) else []
    for place, choice in enumerate(found):
        index = count(choice.get("index"))
        own = answer.choice(place if index is None else index)
        if own is not None:
            _absorb_choice(own, choice, at)
            if own is answer:
                _absorb_usage(answer, {"usage": choice.get("usage")}, at)
    return bool(found) or isinstance(chunk.get("usage") or chunk.get("timings"), dict)


def _absorb_choice(answer: Answer, choice: dict[str, Any], at: float) -> None:
    if isinstance(choice.get("finish_reason"), str):
        answer.finish_reason = choice["finish_reason"]
    error = choice.get("error")
    if isinstance(error, str | dict) and error:
        answer.failure = failures.in_stream(error)
    elif answer.finish_reason == "error":
        answer.failure = failures.Failure(ErrorKind.SERVER_ERROR, "the server ended with finish_reason 'error'")
    logprobs = choice.get("logprobs")
    answer.add_logprobs(logprobs.get("content") if isinstance(logprobs, dict) else logprobs)
    delta = choice.get("delta")
    if not isinstance(delta, dict) or not delta:
        delta = choice.get("message")
        if isinstance(delta, dict) and not answer.is_empty:
            return  # what was streamed, once more
    if not isinstance(delta, dict):
        delta = {"content": choice.get("text")}
    function_call = delta.get("function_call")
    calls = delta.get("tool_calls")
    if not calls and isinstance(function_call, dict):
        calls = [{"index": 0, "function": function_call}]
    content = delta.get("content")
    names = ("reasoning_content", "reasoning", "thinking")
    answer.add(
        at,
        text=text_of(content) or first_text(delta.get("refusal")),
        reasoning=next((t for name in names if (t := text_of(delta.get(name)))), "") or reasoning_of(content),
        tool_bytes=answer.calls.add(calls),
    )


def _absorb_usage(answer: Answer, chunk: dict[str, Any], at: float) -> None:
    """Counts and times; they may come in every chunk (the last one holds) or never (then they are unknown)."""
    usage, timings = chunk.get("usage"), chunk.get("timings")
    stats = answer.server_stats or {}
    if isinstance(usage, dict):
        stats = {**stats, "usage": usage}
        said = {name: count(usage.get(name)) for name in ("prompt_tokens", "completion_tokens")}
        prompt = _known(said["prompt_tokens"], count(usage.get("input_tokens")))
        completion = _known(said["completion_tokens"], count(usage.get("output_tokens")))
        cached = _detail(usage, "prompt_tokens_details", "cached_tokens")
        thought = _detail(usage, "completion_tokens_details", "reasoning_tokens")
        answer.prompt_tokens = _known(prompt, answer.prompt_tokens)
        answer.completion_tokens = _known(completion, answer.completion_tokens)
        answer.cached_tokens = _known(cached, answer.cached_tokens)
        answer.reasoning_tokens = _known(thought, answer.reasoning_tokens)
    if isinstance(timings, dict):
        stats = {**stats, "timings": timings}
        answer.figures_at = at
        _absorb_timings(answer, timings, counted=_said_count(stats.get("usage")))
    answer.server_stats = stats or None


def _said_count(usage: Any) -> bool:
    return isinstance(usage, dict) and count(usage.get("completion_tokens")) is not None


def _absorb_timings(answer: Answer, timings: dict[str, Any], *, counted: bool) -> None:
    """llama.cpp's ``timings`` (tools/server, ``result_timings``): milliseconds; any of them may be null.

    ``prompt_n`` leaves out cached tokens, so the prompt has ``cache_n + prompt_n``. ``predicted_n`` has the first token
    in it, but ``predicted_ms`` starts once that one is there: current servers therefore give (predicted_n - 1) /
    predicted_s as ``predicted_per_second``, older ones predicted_n / predicted_s. The server's own rate is taken when
    it gives one, because it knows what its interval covers; the quotient otherwise.

    With ``timings_per_token`` they come in every chunk, each with the count so far. ``counted``: ``usage`` has the
    count, which goes before.
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
    if not counted:
        answer.completion_tokens = _known(predicted_n, answer.completion_tokens)
    if answer.prompt_tokens is None and prompt_n is not None:
        answer.prompt_tokens = prompt_n + (cached or 0)


def _detail(usage: dict[str, Any], group: str, name: str) -> int | None:
    details = usage.get(group)
    return count(details.get(name)) if isinstance(details, dict) else None


def _known(first: int | None, second: int | None) -> int | None:
    return second if first is None else first
