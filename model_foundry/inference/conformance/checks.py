"""How each statement is tried on a live server.

Belongs here: one function a statement, that sends a few bounded requests and judges the answers. Does not belong here:
what a verdict means for the user (``statements``), sending and reading (``subject``).

A check may let ``httpx`` errors and ``TimeoutError`` through: ``examine`` makes outcomes of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from dataclasses import replace
from typing import Any

import httpx

from model_foundry.inference import failures
from model_foundry.inference.conformance.outcome import (
    Outcome,
    excerpt,
    fails,
    holds,
    judged,
    not_applicable,
    unknown,
)
from model_foundry.inference.conformance.subject import MAX_TOKENS, REASONING_FIELDS, Reply, Subject, number

NO_SUCH_MODEL = "no-such-model-here"
MAX_CONTEXT = 65_536
"""A longer context is not tried to its end: filling it could keep the server busy for minutes."""
CANCELLED_TOKENS = 256
"""The one request for more than ``MAX_TOKENS``: it is closed after its first token, and the server is to stop then. Of
16 tokens nothing would be left to stop."""
KEPT_REQUESTS = 8
TELLING_S = 0.05
"""What is over sooner can't be told apart by time."""
MIXED_TEXT = "日本語と絵文字: 東京、大阪、札幌 😀🗾 – naïve"

_SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
_TOOL = {
    "type": "function",
    "function": {
        "name": "get_time",
        "description": "The time of day in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


# -- the server -------------------------------------------------------------------------------------------------------


async def lists_models(subject: Subject) -> Outcome:
    """The list of models is there, and names some."""
    state = subject.state
    if not state.ok:
        return fails(state.detail)
    return judged(bool(state.models), f"{len(state.models)}: {', '.join(state.models)}" if state.models else "none")


async def model_listed(subject: Subject) -> Outcome:
    """The model that is asked for is in the list."""
    listed = subject.state.models
    return judged(subject.model in listed, subject.model if subject.model in listed else f"listed: {', '.join(listed)}")


async def says_version(subject: Subject) -> Outcome:
    """It says which version it is."""
    version = subject.state.version
    return holds(version) if version else fails("no /version, /api/version or build_info")


async def says_context(subject: Subject) -> Outcome:
    """It says how long prompt and answer may be."""
    served = subject.served
    if subject.api == "ollama" and (served is None or served.context_length is None):
        await subject.streamed()  # it says so of loaded models only
        await subject.look_again()
        served = subject.served
    if served is None:
        return unknown(f"{subject.model} is not listed")
    return holds(f"{served.context_length} tokens") if served.context_length else fails("not said")


async def health(subject: Subject) -> Outcome:
    """``GET /health`` answers 200 while it serves."""
    return _there(await subject.request("GET", f"{subject.root}/health"))


async def metrics(subject: Subject) -> Outcome:
    """``GET /metrics`` answers with a page for Prometheus."""
    reply = await subject.request("GET", f"{subject.root}/metrics")
    return judged(reply.ok and "# TYPE" in reply.content, reply.said)


async def props(subject: Subject) -> Outcome:
    """``GET /props`` of llama.cpp."""
    if subject.state.kind != "llama.cpp":
        return not_applicable(f"only llama.cpp has it, this is {subject.state.kind}")
    reply = await subject.request("GET", f"{subject.root}/props")
    return judged(reply.ok and "default_generation_settings" in reply.content, reply.said)


async def slots(subject: Subject) -> Outcome:
    """``GET /slots`` of llama.cpp."""
    if subject.state.kind != "llama.cpp":
        return not_applicable(f"only llama.cpp has it, this is {subject.state.kind}")
    reply = await subject.request("GET", f"{subject.root}/slots")
    return judged(reply.ok and reply.content.lstrip().startswith("["), reply.said)


async def head(subject: Subject) -> Outcome:
    """HEAD of a path that GET has."""
    return _there(await subject.request("HEAD", subject.models_url))


async def keep_alive(subject: Subject) -> Outcome:
    """Requests in a row go over one connection, and none finds it closed."""
    ports = []
    async with httpx.AsyncClient(trust_env=False) as client:
        kept = replace(subject, client=client)
        for number_ in range(1, KEPT_REQUESTS + 1):
            try:
                reply = await kept.request("GET", subject.models_url)
            except httpx.RemoteProtocolError as error:
                return fails(f"request {number_} in a row found the connection closed: {error}")
            ports.append(reply.client_address)
    if None in ports:
        return unknown("the connection's address is not known")
    used = len(set(ports))
    if used == 1:
        return holds(f"{len(ports)} requests over one connection")
    return fails(f"{len(ports)} requests took {used} connections")


async def asks_for_key(subject: Subject) -> Outcome:
    """Without the key it refuses."""
    if not subject.target.headers:
        return not_applicable("no key was given")
    content = json.dumps(subject.body(max_tokens=1, stream=False)).encode()
    reply = await subject.request("POST", subject.chat_url, content, headers={})
    return judged(reply.status in (401, 403), f"without the key: HTTP {reply.status}")


def _there(reply: Reply) -> Outcome:
    return judged(reply.ok, reply.said)


# -- an answer --------------------------------------------------------------------------------------------------------


async def answers(subject: Subject) -> Outcome:
    """A chat is answered with text, reasoning, or a reason why it ended."""
    reply = await subject.streamed()
    if not reply.ok:
        return fails(reply.said)
    output = reply.text or reply.reasoning
    if not output and reply.finish_reason is None:
        return fails(f"nothing in it: {reply.said}")
    return holds(f"after {reply.took_s:.2f} s: {output!r}")


async def content_type(subject: Subject) -> Outcome:
    """A stream says that it is one."""
    expected = "application/x-ndjson" if subject.api == "ollama" else "text/event-stream"
    found = (await subject.streamed()).headers.get("content-type", "none")
    return judged(found.startswith(expected), found)


async def streams(subject: Subject) -> Outcome:
    """An answer of several tokens comes in several pieces."""
    reply = await subject.streamed()
    pieces, tokens = len(reply.output_moments), reply.completion_tokens
    if pieces > 1:
        return holds(f"{pieces} pieces over {reply.output_moments[-1] - reply.output_moments[0]:.3f} s")
    if tokens is not None and tokens <= 2:
        return unknown(f"the answer has {tokens} tokens")
    return fails(f"{pieces} piece")


async def first_chunk(subject: Subject) -> Outcome:
    """The first object of a stream carries output, or nothing but a role."""
    reply = await subject.streamed()
    if not reply.objects:
        return fails("no object came")
    if not reply.messages or reply.messages[0][0] != reply.objects[0].at:
        return fails(json.dumps(reply.objects[0].value, ensure_ascii=False))
    message = reply.messages[0][1]
    named = sorted(k for k, v in message.items() if v)
    return judged(bool(named), f"it carries {', '.join(named)}" if named else json.dumps(message))


async def end_mark(subject: Subject) -> Outcome:
    """A stream ends with the dialect's mark."""
    reply = await subject.streamed()
    mark = '"done": true' if subject.api == "ollama" else "data: [DONE]"
    return judged(reply.ended, mark if reply.ended else f"ends with {reply.content[-80:]!r}")


async def finish_reason(subject: Subject) -> Outcome:
    """An answer says why it ended."""
    reason = (await subject.streamed()).finish_reason
    return holds(reason) if reason else fails("none came")


async def whole(subject: Subject) -> Outcome:
    """With ``stream: false`` one JSON object comes."""
    reply = await subject.whole()
    one = reply.ok and len(reply.objects) == 1 and bool(reply.text or reply.reasoning or reply.finish_reason)
    return judged(one, f"{len(reply.body)} bytes, HTTP {reply.status}" if one else reply.said)


async def usage_asked(subject: Subject) -> Outcome:
    """A stream that asks for usage has both counts."""
    return _counts(await subject.streamed())


async def usage_unasked(subject: Subject) -> Outcome:
    """A stream that does not ask for usage has it too."""
    return _counts(await subject.chat(usage=False, max_tokens=4))


async def usage_whole(subject: Subject) -> Outcome:
    """An answer in one piece has both counts."""
    return _counts(await subject.whole())


async def usage_agrees(subject: Subject) -> Outcome:
    """Streamed or whole, the same answer has the same counts."""
    streamed, plain = await subject.streamed(), await subject.whole()
    pairs = [("prompt", streamed.prompt_tokens, plain.prompt_tokens)]
    if (streamed.text, streamed.reasoning) == (plain.text, plain.reasoning):
        pairs.append(("completion", streamed.completion_tokens, plain.completion_tokens))
    known = [(name, a, b) for name, a, b in pairs if a is not None and b is not None]
    if not known:
        return unknown("no counts to compare")
    said = ", ".join(f"{name} {a} streamed, {b} whole" for name, a, b in known)
    return judged(all(a == b for _, a, b in known), said)


async def timings(subject: Subject) -> Outcome:
    """The server says how long prompt and answer took."""
    reply = await subject.streamed()
    if subject.api == "ollama":
        names = [k for k in ("load_duration", "prompt_eval_duration", "eval_duration") if number(reply.final.get(k))]
        return judged("eval_duration" in names, ", ".join(names) or "none")
    found = [p.value["timings"] for p in reply.objects if isinstance(p.value.get("timings"), dict)]
    return holds(json.dumps(found[-1])) if found else fails("no `timings` in the stream")


async def cut_at_max_tokens(subject: Subject) -> Outcome:
    """An answer cut at ``max_tokens`` has no more, and says ``length``."""
    reply = await subject.chat(max_tokens=4)
    tokens, reason = reply.completion_tokens, reply.finish_reason
    said = f"max_tokens 4: {tokens if tokens is not None else 'unknown'} tokens, {reason}: {reply.text!r}"
    if not reply.ok:
        return fails(reply.said)
    if tokens is not None and tokens > 4:
        return fails(said)
    if reason == "length":
        return holds(said)
    return unknown(said) if tokens is None or tokens < 4 else fails(said)


async def repeats(subject: Subject) -> Outcome:
    """Temperature 0 and a seed give the same answer again."""
    first, second = [await subject.chat() for _ in range(2)]
    one, two = (r.reasoning + r.text for r in (first, second))
    if not one and not two:
        return unknown("no text came")
    return judged(one == two, repr(one) if one == two else f"{one!r}, then {two!r}")


async def stop(subject: Subject) -> Outcome:
    """The answer ends before a word of ``stop``, which is left out."""
    text = (await subject.streamed()).text
    words = [w for w in text.split() if len(w) < len(text) / 2 and text.find(w) > 0]
    if not words:
        return unknown(f"no word to stop at in {text!r}")
    word = words[len(words) // 2]
    reply = await subject.chat(stop=word)
    said = f"stop {word!r}: {reply.text!r}, {reply.finish_reason}"
    if not reply.ok:
        return fails(reply.said)
    return judged(word not in reply.text and len(reply.text) < len(text), said)


async def utf8(subject: Subject) -> Outcome:
    """The same text, as UTF-8 and as JSON escapes, is the same prompt; and the answer is UTF-8."""
    raw, escaped = [await subject.chat(MIXED_TEXT, ascii_only=a, max_tokens=4) for a in (False, True)]
    if not raw.ok or not escaped.ok:
        return fails(f"as UTF-8 {raw.said}; escaped {escaped.said}")
    try:
        raw.body.decode("utf-8")
    except UnicodeDecodeError as error:
        return fails(f"the answer is not UTF-8: {error}")
    counts = f"{raw.prompt_tokens} tokens as UTF-8, {escaped.prompt_tokens} escaped"
    if raw.prompt_tokens == escaped.prompt_tokens and raw.prompt_tokens is not None:
        return holds(counts)
    if raw.text == escaped.text and raw.reasoning == escaped.reasoning:
        return holds(f"the same answer to both: {raw.text!r}")
    return fails(counts) if raw.prompt_tokens is not None and escaped.prompt_tokens is not None else unknown(counts)


async def reasoning_field(subject: Subject) -> Outcome:
    """Reasoning comes in a field of its own."""
    reply = await subject.streamed()
    if "<think" in reply.text:
        return fails(f"it is in the text: {reply.text!r}")
    named = sorted({k for _, m in reply.messages for k in REASONING_FIELDS if m.get(k)})
    return holds(", ".join(named)) if named else not_applicable("this model does not reason")


async def parts(subject: Subject) -> Outcome:
    """Content as a list of text parts."""
    message = {"role": "user", "content": [{"type": "text", "text": "Say yes."}]}
    return _taken(await subject.chat(max_tokens=2, stream=False, messages=[message]))


async def tool_calls(subject: Subject) -> Outcome:
    """A request with ``tools`` is taken."""
    reply = await subject.chat("What time is it in Oslo? Use the tool.", tools=[_TOOL], stream=False)
    if not reply.ok:
        return fails(reply.said)
    return holds("taken, and called" if reply.calls_tools else f"taken, not called within {MAX_TOKENS} tokens")


async def json_schema(subject: Subject) -> Outcome:
    """A JSON schema for the answer is kept to."""
    wrapped = {"type": "json_schema", "json_schema": {"name": "verdict", "strict": True, "schema": _SCHEMA}}
    more: dict[str, Any] = {"format": _SCHEMA} if subject.api == "ollama" else {"response_format": wrapped}
    reply = await subject.chat("Is water wet?", stream=False, **more)
    if not reply.ok:
        return fails(reply.said)
    if not reply.text and reply.reasoning:
        return unknown("only reasoning came")
    try:
        value = json.loads(reply.text)
    except ValueError:
        # nothing but the schema names "ok"
        begun = reply.finish_reason == "length" and re.match(r'\s*\{\s*"ok"\s*(:\s*\w*)?$', reply.text)
        return holds(f"as far as it came: {reply.text!r}") if begun else fails(repr(reply.text))
    fits = isinstance(value, dict) and set(value) == {"ok"} and isinstance(value["ok"], bool)
    return judged(fits, repr(reply.text))


async def logprobs(subject: Subject) -> Outcome:
    """Log probabilities come when asked for."""
    reply = await subject.chat(max_tokens=2, stream=False, logprobs=True, top_logprobs=1)
    if not reply.ok:
        return fails(reply.said)
    for piece in reply.objects:
        choices = piece.value.get("choices")
        for holder in (piece.value, *(choices if isinstance(choices, list) else ())):
            if isinstance(holder, dict) and holder.get("logprobs"):
                return holds(json.dumps(holder["logprobs"], ensure_ascii=False))
    return fails("taken, but none came")


async def two_choices(subject: Subject) -> Outcome:
    """``n: 2`` gives two choices."""
    reply = await subject.chat(max_tokens=2, stream=False, n=2)
    if not reply.ok:
        return fails(reply.said)
    choices = reply.objects[0].value.get("choices") if reply.objects else None
    found = len(choices) if isinstance(choices, list) else 0
    return judged(found == 2, f"{found} choices, {reply.completion_tokens} completion tokens counted")


def _counts(reply: Reply) -> Outcome:
    if not reply.ok:
        return fails(reply.said)
    both = reply.prompt_tokens is not None and reply.completion_tokens is not None
    return judged(both, f"prompt {reply.prompt_tokens}, completion {reply.completion_tokens}")


def _taken(reply: Reply) -> Outcome:
    return holds(f"HTTP {reply.status}") if reply.ok else fails(reply.said)


# -- refusals ---------------------------------------------------------------------------------------------------------


async def unknown_fields(subject: Subject) -> Outcome:
    """A field that it does not know is no fault."""
    return _taken(await subject.chat(max_tokens=1, stream=False, no_such_field=1))


async def unknown_model(subject: Subject) -> Outcome:
    """A model that it does not have is a 404."""
    reply = await subject.chat(max_tokens=1, stream=False, model=NO_SUCH_MODEL)
    return judged(reply.status == 404, reply.said)


async def empty_messages(subject: Subject) -> Outcome:
    """No messages at all is a wrong request."""
    reply = await subject.chat(max_tokens=1, stream=False, messages=[])
    return judged(reply.refused, reply.said)


async def bad_types(subject: Subject) -> Outcome:
    """A field of another type is a wrong request, not a fault of the server."""
    number_as_text = {"options": "many"} if subject.api == "ollama" else {"max_tokens": "many"}
    bodies: list[dict[str, Any]] = [{"messages": "hello"}, number_as_text]
    said = []
    for body in bodies:
        reply = await subject.chat(**{"max_tokens": 1, "stream": False, **body})
        if not reply.refused:
            return fails(f"{json.dumps(body)}: {reply.said}")
        said.append(f"{json.dumps(body)}: HTTP {reply.status}")
    return holds("; ".join(said))


async def error_says_why(subject: Subject) -> Outcome:
    """A refusal says in JSON what is wrong."""
    reply = await subject.chat(max_tokens=1, stream=False, messages="hello")
    if reply.status < 400:
        return unknown("it did not refuse")
    message = failures.message_of(reply.content)
    told = bool(reply.objects) and bool(message) and message != excerpt(reply.content)
    return judged(told, message or "an empty body")


async def too_long(subject: Subject) -> Outcome:
    """A prompt beyond the context is refused."""
    return await _too_long(subject)


async def truncate_false(subject: Subject) -> Outcome:
    """With ``truncate: false``, a prompt beyond the context is refused with 400."""
    return await _too_long(subject, truncate=False, shift=False)


async def _too_long(subject: Subject, **more: Any) -> Outcome:
    context = subject.served.context_length if subject.served else None
    if context is None:
        return unknown("the context's length is not known")
    if context > MAX_CONTEXT:
        return unknown(f"not tried: filling a context of {context} tokens takes too long")
    words = context + context // 4 + 64  # each is a token at least
    reply = await subject.chat("hello " * words, max_tokens=1, stream=False, **more)
    said = f"{words} words for a context of {context}: {reply.said}"
    if reply.ok:
        return fails(f"answered, prompt counted as {reply.prompt_tokens} tokens; {said}")
    return judged(reply.status == 400, said) if more else holds(said)


# -- several requests -------------------------------------------------------------------------------------------------


async def parallel(subject: Subject) -> Outcome:
    """Two requests are answered at the same time: the second begins before the first has ended."""
    declared = subject.slots
    if declared is not None and declared < 2:
        return not_applicable("it has one slot")
    alone = await subject.chat()
    begin = time.monotonic()
    one, two = await asyncio.gather(subject.chat(), subject.chat("Name the months of the year."))
    both_s = time.monotonic() - begin
    if not one.ok or not two.ok:
        return fails((two if one.ok else one).said)
    said = f"one took {alone.took_s:.2f} s, two at once {both_s:.2f} s, ratio {both_s / max(alone.took_s, 1e-6):.2f}"
    if min(len(one.output_moments), len(two.output_moments)) > 1:
        begun = max(one.output_moments[0], two.output_moments[0])
        if begun < min(one.output_moments[-1], two.output_moments[-1]):
            return holds(f"{said}, their tokens interleave")
    if min(alone.took_s, both_s) < TELLING_S:
        return unknown(f"too fast to tell: {said}")
    return judged(both_s < 1.6 * alone.took_s, said)


async def cancel(subject: Subject) -> Outcome:
    """Closing the connection ends the work: told by its busy slots, else by how soon the next request begins."""
    usual = await subject.streamed()
    moments = usual.output_moments
    if len(moments) < 3:
        return unknown("it does not stream, so there is no moment to close at")
    left_s = (moments[-1] - moments[0]) / (len(moments) - 1) * (CANCELLED_TOKENS - 1)
    if left_s < 4 * TELLING_S:
        return unknown(f"too fast to tell: {CANCELLED_TOKENS} tokens take {left_s:.2f} s")
    counted = subject.state.running is not None
    if counted and (await subject.look_again()).running != 0:
        return unknown("others use it just now")
    if not counted and (subject.slots or 1) > 1:
        return unknown("it does not say which slots are busy, and has several")
    if not await _begin_and_close(subject):
        return unknown("the long answer was over at once")
    begin = time.monotonic()
    if counted:
        free_s = await _until_idle(subject, begin, left_s)
        said = f"idle {free_s:.2f} s after closing; the answer would have taken {left_s:.1f} s more"
        return judged(free_s < left_s / 2, said)
    reply = await subject.chat(max_tokens=1)
    free_s = reply.took_s - (moments[0] - usual.sent_at)
    said = f"the next request waited {max(0.0, free_s):.2f} s; the closed one had {left_s:.1f} s to go"
    return judged(free_s < left_s / 2, said)


async def _begin_and_close(subject: Subject) -> bool:
    """Asks for a long answer and hangs up after its first bytes with output; False when it had ended by then."""
    more: dict[str, Any] = {"ignore_eos": True} if subject.state.kind in ("llama.cpp", "vllm") else {}
    body = subject.body("Count from 1 to 1000.", max_tokens=CANCELLED_TOKENS, **more)
    headers = {"Content-Type": "application/json", **subject.target.headers}
    async with (
        asyncio.timeout(60),
        subject.client.stream("POST", subject.chat_url, json=body, headers=headers, timeout=None) as response,
    ):
        seen = 0
        async for chunk in response.aiter_bytes():
            seen += chunk.count(b"\n")
            if b"[DONE]" in chunk or b'"done":true' in chunk:
                return False
            if seen >= 4:  # a role's event, and the first with text
                return True
    return False


async def _until_idle(subject: Subject, begin: float, at_most_s: float) -> float:
    while time.monotonic() - begin < min(at_most_s, 20.0):
        with contextlib.suppress(TimeoutError):
            if (await subject.look_again()).running == 0:
                break
        await asyncio.sleep(0.02)
    return time.monotonic() - begin


# -- Ollama alone -----------------------------------------------------------------------------------------------------


async def prompt_eval_count(subject: Subject) -> Outcome:
    """The final object counts the prompt, also when it is cached."""
    await subject.streamed()
    again = await subject.chat()
    return judged(again.prompt_tokens is not None, f"prompt_eval_count {again.prompt_tokens} the second time")


async def load_by_empty_prompt(subject: Subject) -> Outcome:
    """A chat without messages loads the model."""
    reply = await subject.chat(stream=False, messages=[])
    return judged(reply.ok and reply.finish_reason == "load", reply.said)


async def nanoseconds(subject: Subject) -> Outcome:
    """Durations are nanoseconds: their sum is no more than the clock saw, and not far less."""
    reply = await subject.chat()
    names = ("load_duration", "prompt_eval_duration", "eval_duration")
    total_s = (number(reply.final.get("total_duration")) or 0) / 1e9
    parts_s = sum((number(reply.final.get(n)) or 0) / 1e9 for n in names)
    if not total_s:
        return fails("no total_duration")
    said = f"total {total_s:.3f} s, parts {parts_s:.3f} s, by the clock {reply.took_s:.3f} s"
    allowed_s = 1.1 * reply.took_s + TELLING_S
    return judged(0.05 * reply.took_s < total_s < allowed_s and parts_s < allowed_s, said)


async def loaded_listed(subject: Subject) -> Outcome:
    """After an answer ``/api/ps`` names the model."""
    await subject.streamed()
    state = await subject.look_again()
    return judged(subject.model in state.loaded, f"loaded: {', '.join(state.loaded) or 'none'}")
