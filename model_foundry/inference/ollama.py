"""Ollama's own dialect: ``POST /api/chat``, newline-delimited JSON, durations in nanoseconds.

Belongs here: a request's body, and what each line means, after Ollama's ``api/types.go`` and ``docs/api.md``. Does not
belong here: lines from bytes (``ndjson``), the I/O (``client``). Pure.

The native API is asked rather than Ollama's ``/v1``, because only it reports load times and takes ``num_ctx``.
``truncate`` and ``shift`` are off unless a prompt asks for them: a prompt that does not fit is an error, not an answer
to half of it.
"""

from __future__ import annotations

import json
from typing import Any

from model_foundry.inference import failures
from model_foundry.inference.answer import Answer, count, first_text, loads, number, per_second, text_of
from model_foundry.inference.ndjson import NdjsonParser
from model_foundry.inference.target import InferenceRequest

Parser = NdjsonParser

_TOP_LEVEL = frozenset({"format", "think", "keep_alive", "tools", "truncate", "shift", "logprobs", "top_logprobs"})
_CACHE_LIKELY_TPS = 50_000.0
"""Ollama counts cached prompt tokens in, so a prefill faster than this was most likely not computed (ollama#10860)."""


def endpoint(url: str) -> str:
    """Where chats are asked for."""
    return f"{url.rstrip('/')}/api/chat"


def body(request: InferenceRequest) -> dict[str, Any]:
    """The request's JSON: OpenAI's parameters under Ollama's names, unknown ones among ``options``.

    Raises:
        ValueError: when a message holds what Ollama can't take, such as an image by URL.
    """
    params = dict(request.params)
    top: dict[str, Any] = {"truncate": False, "shift": False}
    options: dict[str, Any] = {}
    given = params.pop("options", None)
    params.pop("stream_options", None)
    response_format = params.pop("response_format", None)
    if response_format is not None:
        top["format"] = _format(response_format)
    max_tokens = [params.pop(k, None) for k in ("max_completion_tokens", "max_tokens")]
    num_predict = next((v for v in max_tokens if v is not None), request.default_max_tokens)
    if num_predict is not None:
        options["num_predict"] = num_predict
    for name, value in params.items():
        (top if name in _TOP_LEVEL else options)[name] = value
    if isinstance(options.get("stop"), str):
        options["stop"] = [options["stop"]]  # Ollama takes a list only
    return {
        **top,
        "model": request.model,
        "messages": [_message(m) for m in request.messages],
        "stream": True,
        "options": {**options, **(given if isinstance(given, dict) else {})},
    }


def absorb(answer: Answer, line: str, at: float) -> None:
    """Adds one line to the answer.

    Raises:
        AnswerTooLong: when the answer is beyond its bound.
    """
    try:
        chunk = loads(line)
    except ValueError:
        chunk = {"error": f"a line that is not JSON: {line}"}
    if not isinstance(chunk, dict):
        return
    if chunk.get("error"):
        answer.failure = failures.in_stream(chunk["error"])
        return
    message = chunk.get("message")
    if isinstance(message, dict):
        first = answer.chunks == 0
        _absorb_message(answer, message, at)
        if first and answer.chunks and chunk.get("done") is True and message.get("content"):
            answer.note("the server answered whole, not streamed: its first token's time is that of the whole answer")
    if chunk.get("done") is True:
        answer.terminal = True
        answer.finish_reason = first_text(chunk.get("done_reason")) or answer.finish_reason
        _absorb_statistics(answer, {k: v for k, v in chunk.items() if k not in ("message", "context")})


def _absorb_message(answer: Answer, message: dict[str, Any], at: float) -> None:
    calls = message.get("tool_calls")
    size = None
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            continue
        arguments = json.dumps(function.get("arguments") or {}, ensure_ascii=False)
        name = first_text(function.get("name"))
        answer.tool_calls.append(
            {
                "index": len(answer.tool_calls),
                "id": first_text(call.get("id")) or None,
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
        )
        size = (size or 0) + len(arguments.encode(errors="replace")) + len(name.encode(errors="replace"))
    thinking = first_text(message.get("thinking"), message.get("reasoning"), message.get("reasoning_content"))
    answer.add(at, text=text_of(message.get("content")), reasoning=thinking, tool_bytes=size)


def _absorb_statistics(answer: Answer, final: dict[str, Any]) -> None:
    """The final object's counts and nanoseconds. What is zero is left out by the server, so what is absent is unknown.

    ``prompt_eval_count`` has cached tokens in it; newer servers name them as ``prompt_eval_cached_count``.
    """

    def seconds(name: str) -> float | None:
        nanoseconds = number(final.get(name))
        return None if nanoseconds is None else nanoseconds / 1e9

    answer.server_stats = final
    answer.prompt_tokens = count(final.get("prompt_eval_count"))
    answer.completion_tokens = count(final.get("eval_count"))
    answer.cached_tokens = count(final.get("prompt_eval_cached_count"))
    figures = answer.figures
    figures.load_s, figures.prefill_s = seconds("load_duration"), seconds("prompt_eval_duration")
    figures.decode_s = seconds("eval_duration")
    if answer.prompt_tokens is not None:
        computed = max(0, answer.prompt_tokens - (answer.cached_tokens or 0))
        figures.prefill_tps = per_second(computed, figures.prefill_s)
        if answer.cached_tokens is None and (figures.prefill_tps or 0) > _CACHE_LIKELY_TPS:
            answer.note("prefill_tps is likely that of a cached prompt, which the server counts in")
    figures.decode_tps = per_second(answer.completion_tokens, figures.decode_s)


def _format(response_format: Any) -> Any:
    """OpenAI's ``response_format`` as Ollama's ``format``: ``json``, or a JSON schema."""
    if not isinstance(response_format, dict) or response_format.get("type") not in ("json_object", "json_schema"):
        return None
    if response_format["type"] == "json_object":
        return "json"
    schema = response_format.get("json_schema")
    return schema.get("schema") if isinstance(schema, dict) else None


def _message(message: dict[str, Any]) -> dict[str, Any]:
    """OpenAI's message as Ollama's: text content, images as bare base64, tool arguments as objects."""
    result = dict(message)
    content = message.get("content")
    if isinstance(content, list):
        texts = [p["text"] for p in content if isinstance(p, dict) and isinstance(p.get("text"), str)]
        images = [_image(p) for p in content if isinstance(p, dict) and "text" not in p]
        result["content"] = "\n".join(texts)
        if images:
            result["images"] = images
    elif content is None:
        result["content"] = ""
    if isinstance(message.get("tool_calls"), list):
        result["tool_calls"] = [_tool_call(c) for c in message["tool_calls"]]
    return result


def _image(part: dict[str, Any]) -> str:
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    head, comma, data = url.partition(",") if isinstance(url, str) else ("", "", "")
    if not (head.startswith("data:") and head.endswith(";base64") and comma):
        raise ValueError(
            f"a message part of type {part.get('type')!r} can't go to Ollama; allowed: text, base64 data: URLs"
        )
    return data


def _tool_call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = loads(function["arguments"] or "{}")
    except ValueError:
        raise ValueError(f"the arguments of tool call {function.get('name')!r} are not JSON") from None
    return {**call, "function": {**function, "arguments": arguments}}
