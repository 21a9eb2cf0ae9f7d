"""Ollama's own dialect: ``POST /api/chat`` and ``/api/generate``, newline-delimited JSON, durations in nanoseconds.

Belongs here: a request's body, and what each line means, after Ollama's ``api/types.go`` and ``docs/api.md``. Does not
belong here: lines from bytes (``ndjson``), the I/O (``client``). Pure.

The native API is asked rather than Ollama's ``/v1``, because only it reports load times and takes ``num_ctx``.
``truncate`` and ``shift`` are off unless a prompt asks for them: a prompt that does not fit is an error, not an answer
to half of it. For the same reason a request that Ollama would silently answer otherwise than asked (a GBNF grammar,
several choices, an image by URL) is refused here.

A request without messages loads the model, with ``keep_alive: 0`` it unloads it: that is Ollama's own warm-up call.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from model_foundry.inference import failures
from model_foundry.inference.answer import NOT_STREAMED, Answer
from model_foundry.inference.ndjson import NdjsonParser
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

Parser = NdjsonParser
CONTENT_TYPE = JSON

_TOP_LEVEL = frozenset({"think", "keep_alive", "tools", "truncate", "shift", "logprobs", "top_logprobs"})
_GENERATE_ONLY = frozenset({"raw", "suffix", "template", "system", "context"})
"""Parameters that only ``/api/generate`` has; a prompt with one of them goes there."""
_RENAMED = {"repetition_penalty": "repeat_penalty"}
_IMAGE_NEEDS = "allowed: text, images as base64 data: URLs"


def endpoint(url: str, request: InferenceRequest | None = None) -> str:
    """Where a request goes."""
    return f"{url.rstrip('/')}/api/{'generate' if request is not None and _is_generate(request) else 'chat'}"


def body(request: InferenceRequest) -> dict[str, Any]:
    """The request's JSON: OpenAI's parameters under Ollama's names, unknown ones among ``options``.

    Raises:
        ValueError: when it holds what Ollama can't take or would pass over, such as an image by URL.
    """
    params = {name: value for name, value in request.params.items() if value is not None}
    top: dict[str, Any] = {"truncate": False, "shift": False}
    options: dict[str, Any] = {}
    given = params.pop("options", None)
    params.pop("stream_options", None)
    _refuse(params)
    wanted = _format(params)
    if wanted is not None:
        top["format"] = wanted
    effort = params.pop("reasoning_effort", None)
    if effort is not None:
        params.setdefault("think", False if effort == "none" else effort)
    if params.get("tool_choice") == "none":
        params.pop("tools", None)
    max_tokens = [params.pop(k, None) for k in ("max_completion_tokens", "max_tokens")]
    num_predict = next((v for v in max_tokens if v is not None), request.default_max_tokens)
    if num_predict is not None:
        options["num_predict"] = num_predict
    for name, value in params.items():
        (top if name in _TOP_LEVEL | _GENERATE_ONLY else options)[_RENAMED.get(name, name)] = value
    if isinstance(options.get("stop"), str):
        options["stop"] = [options["stop"]]  # Ollama takes a list only
    return {
        **top,
        "model": request.model,
        **(_prompt(request) if _is_generate(request) else {"messages": _messages(request.messages)}),
        "stream": True,
        "options": {**options, **(given if isinstance(given, dict) else {})},
    }


def absorb(answer: Answer, line: str, at: float) -> bool:
    """Adds one line to the answer.

    Returns:
        Whether it was of the answer.

    Raises:
        AnswerTooLong: when the answer is beyond its bound.
    """
    try:
        chunk = loads(line)
    except ValueError:
        chunk = {"error": f"a line that is not JSON: {line}"}
    return isinstance(chunk, dict) and absorb_object(answer, chunk, at)


def absorb_object(answer: Answer, chunk: dict[str, Any], at: float) -> bool:
    """Adds one object to the answer; see :func:`absorb`."""
    error = chunk.get("error")
    if error:
        answer.failure = failures.in_stream(chunk if chunk.get("status") or not isinstance(error, str) else error)
        return True
    message = chunk.get("message")
    if not isinstance(message, dict):  # /api/generate has its parts in the chunk itself
        message = {"content": chunk.get("response"), "thinking": chunk.get("thinking")}
    is_first, is_last = answer.chunks == 0, chunk.get("done") is True
    _absorb_message(answer, message, at)
    answer.add_logprobs(chunk.get("logprobs"))
    if is_last:
        answer.terminal = True
        answer.finish_reason = first_text(chunk.get("done_reason")) or answer.finish_reason
        parts = ("message", "response", "thinking", "context", "logprobs")
        _absorb_statistics(answer, {k: v for k, v in chunk.items() if k not in parts}, at)
        if is_first and answer.chunks and message.get("content"):
            answer.note(NOT_STREAMED)
    return True


def _absorb_message(answer: Answer, message: dict[str, Any], at: float) -> None:
    calls = message.get("tool_calls")
    size = None
    for call in calls if isinstance(calls, list) else ():
        if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
            continue
        function = call["function"]
        whole = {**function, "arguments": function.get("arguments") or {}}
        # Ollama never streams a call in pieces, so each is one of its own, whatever its index says.
        added = answer.calls.add({"index": len(answer.calls), "id": call.get("id"), "function": whole})
        size = (size or 0) + (added or 0)
    content = message.get("content")
    thinking = next((t for k in ("thinking", "reasoning", "reasoning_content") if (t := text_of(message.get(k)))), "")
    answer.add(at, text=text_of(content), reasoning=thinking or reasoning_of(content), tool_bytes=size)


def _absorb_statistics(answer: Answer, final: dict[str, Any], at: float) -> None:
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
    answer.figures_at = at if figures.reported_s else None
    answer.prompt_may_be_cached = answer.cached_tokens is None
    if answer.prompt_tokens is not None:
        computed = max(0, answer.prompt_tokens - (answer.cached_tokens or 0))
        figures.prefill_tps = per_second(computed, figures.prefill_s)
    figures.decode_tps = per_second(answer.completion_tokens, figures.decode_s)


def _refuse(params: dict[str, Any]) -> None:
    """Raises for what Ollama would pass over without a word, and drops what then says nothing more."""
    if params.pop("grammar", None):
        raise ValueError("Ollama takes no 'grammar'; use response_format or json_schema, or a llama.cpp worker")
    choices = params.pop("n", 1)
    if choices != 1:
        raise ValueError(f"Ollama gives one choice, and 'n' is {choices!r}; ask several times")


def _format(params: dict[str, Any]) -> Any:
    """The shape of the answer as Ollama's ``format``, ``json`` or a JSON schema, taken out of the parameters.

    From OpenAI's ``response_format``, llama.cpp's ``json_schema``, or ``format`` itself.
    """
    response_format, schema, own = (params.pop(k, None) for k in ("response_format", "json_schema", "format"))
    if response_format is not None:
        kind = response_format.get("type") if isinstance(response_format, dict) else None
        if kind == "json_object":
            return response_format.get("schema") or "json"  # llama.cpp puts a schema there
        if kind == "json_schema":
            wrapped = response_format.get("json_schema")
            schema = wrapped.get("schema") if isinstance(wrapped, dict) else response_format.get("schema")
            if not isinstance(schema, dict):
                raise ValueError("response_format of type 'json_schema' has no json_schema.schema object")
        elif kind != "text":
            raise ValueError(
                f"response_format type {kind!r} can't go to Ollama; allowed: text, json_object, json_schema"
            )
    return schema if schema is not None else own


def _is_generate(request: InferenceRequest) -> bool:
    return any(request.params.get(name) is not None for name in _GENERATE_ONLY)


def _prompt(request: InferenceRequest) -> dict[str, Any]:
    """The one user message as a bare prompt with its images."""
    asked = ", ".join(sorted(n for n in _GENERATE_ONLY if request.params.get(n) is not None))
    if len(request.messages) != 1 or request.messages[0].get("role") != "user":
        raise ValueError(f"{asked}: goes to Ollama's /api/generate, which takes one user message and no conversation")
    message = _message(request.messages[0], {})
    return {"prompt": message["content"], **({"images": message["images"]} if message.get("images") else {})}


def _messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names: dict[str, str] = {}
    for message in messages:
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict) and isinstance(call.get("function"), dict):
                names[str(call.get("id"))] = first_text(call["function"].get("name"))
    return [_message(m, names) for m in messages]


def _message(message: dict[str, Any], tool_names: Mapping[str, str]) -> dict[str, Any]:
    """OpenAI's message as Ollama's: text content, images as bare base64, tool arguments as objects, a tool's answer
    under the tool's name rather than the call's id.
    """
    result = dict(message)
    content = message.get("content")
    if isinstance(content, list):
        texts, images = [], []
        for part in content:
            if isinstance(part, str):
                texts.append(part)
            elif isinstance(part, dict) and isinstance(part.get("text"), str):
                texts.append(part["text"])
            else:
                images.append(_image(part))
        result["content"] = "\n".join(texts)
        if images:
            own = message.get("images")
            result["images"] = [*(own if isinstance(own, list) else []), *images]
    elif content is None:
        result["content"] = ""
    if message.get("role") == "developer":
        result["role"] = "system"
    name = tool_names.get(str(message.get("tool_call_id")))
    if message.get("role") == "tool" and name and not message.get("tool_name"):
        result["tool_name"] = name
    if isinstance(message.get("tool_calls"), list):
        result["tool_calls"] = [_tool_call(c) for c in message["tool_calls"]]
    return result


def _image(part: Any) -> str:
    """The base64 data of an image part; RFC 2397 says how a data: URL is written."""
    kind = part.get("type") if isinstance(part, dict) else type(part).__name__
    image = part.get("image_url") if isinstance(part, dict) else None
    url = image.get("url") if isinstance(image, dict) else image
    head, comma, data = url.partition(",") if isinstance(url, str) else ("", "", "")
    head = head.lower()
    if not (comma and head.startswith("data:") and head.endswith(";base64")):
        raise ValueError(f"a message part of type {kind!r} can't go to Ollama; {_IMAGE_NEEDS}")
    if not head.startswith(("data:image/", "data:;", "data:application/octet-stream;")):
        raise ValueError(f"a message part of type {kind!r} holds {head[5:].split(';')[0]!r}; {_IMAGE_NEEDS}")
    data = "".join(data.split())
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"a message part of type {kind!r} is not base64 ({error}); {_IMAGE_NEEDS}") from None
    return data


def _tool_call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"] or "{}")
    except (ValueError, RecursionError):
        raise ValueError(f"the arguments of tool call {function.get('name')!r} are not JSON") from None
    if not isinstance(arguments, dict):
        raise ValueError(f"the arguments of tool call {function.get('name')!r} are no JSON object, which Ollama needs")
    return {**call, "function": {**function, "arguments": arguments}}
