"""What a model server is expected to do, in either dialect, and what it means for the user when it does not.

Belongs here: the statements, in the order in which they are tried. Does not belong here: how (``checks``).

Required is what this project can't do without. Everything else is worth knowing: a server where it does not hold is
used all the same, with the consequence that is named.
"""

from __future__ import annotations

from collections.abc import Iterable

from model_foundry.inference.conformance import checks
from model_foundry.inference.conformance.outcome import BOTH, OLLAMA, OPENAI, Api, Check, Statement


def _all() -> Iterable[Statement]:
    def must(id_: str, title: str, check: Check, consequence: str, apis: frozenset[Api] = BOTH) -> Statement:
        return Statement(id_, title, apis, True, consequence, check)

    def should(id_: str, title: str, check: Check, consequence: str, apis: frozenset[Api] = BOTH) -> Statement:
        return Statement(id_, title, apis, False, consequence, check)

    # -- the server itself; nothing here asks the model
    yield must(
        "lists-models",
        "It lists its models.",
        checks.lists_models,
        "The worker is shown as down or misconfigured, and gets no jobs.",
    )
    yield must(
        "model-listed",
        "The model that is asked for is listed.",
        checks.model_listed,
        "Jobs for this model are not sent here; name it in `models` as the server does.",
    )
    yield should(
        "says-version", "It says its version.", checks.says_version, "Figures can't be told apart by server version."
    )
    yield should(
        "health",
        "GET /health answers.",
        checks.health,
        "None here: the list of models is asked instead. Load balancers may want it.",
        OPENAI,
    )
    yield should(
        "metrics",
        "GET /metrics gives its figures.",
        checks.metrics,
        "Requests that wait inside the server are not seen; start llama.cpp with --metrics.",
        OPENAI,
    )
    yield should(
        "props",
        "GET /props says slots and context.",
        checks.props,
        "Slots and context must be set by hand.",
        OPENAI,
    )
    yield should(
        "slots",
        "GET /slots says which slots are busy.",
        checks.slots,
        "Who else uses the server is not seen; start llama.cpp with --slots.",
        OPENAI,
    )
    yield should("head", "HEAD is answered like GET.", checks.head, "None here. Some monitors ask by HEAD.")
    yield should(
        "keep-alive",
        "A connection can be used again.",
        checks.keep_alive,
        "None here: each request has its own connection, see decision 0002.",
    )
    # -- an answer
    yield must("answers", "It answers a chat.", checks.answers, "No job can be answered here.")
    yield should(
        "asks-for-key",
        "Without its key it refuses.",
        checks.asks_for_key,
        "Anybody who reaches the server can use it; the key protects nothing.",
    )
    yield should(
        "content-type",
        "A stream is labelled as one.",
        checks.content_type,
        "None here: the body decides. Proxies may hold the stream back until its end.",
    )
    yield should(
        "streams",
        "An answer comes in pieces.",
        checks.streams,
        "Time to first token is that of the whole answer, and time per token is unknown. A proxy that buffers?",
    )
    yield should(
        "first-chunk",
        "The first piece carries output, or only a role.",
        checks.first_chunk,
        "Clients that take any first piece for a token report too short a time to first token.",
    )
    yield must(
        "end-mark",
        "A stream ends with its end mark.",
        checks.end_mark,
        "An answer that broke off looks like a whole one, or every answer is taken for incomplete.",
    )
    yield should(
        "finish-reason",
        "An answer says why it ended.",
        checks.finish_reason,
        "An answer cut at max_tokens can't be told from one that was finished.",
    )
    yield should(
        "whole",
        "stream: false gives one JSON object.",
        checks.whole,
        "None here: every request is streamed. Other clients can't use the server.",
    )
    yield should(
        "usage-asked",
        "A stream counts its tokens when asked.",
        checks.usage_asked,
        "Tokens, and so tokens a second, are unknown for every answer.",
        OPENAI,
    )
    yield should(
        "counts",
        "The last object counts the tokens.",
        checks.usage_asked,
        "Tokens, and so tokens a second, are unknown for every answer.",
        OLLAMA,
    )
    yield should(
        "usage-unasked",
        "A stream counts its tokens unasked.",
        checks.usage_unasked,
        "None here: the counts are always asked for. Other clients don't see any.",
        OPENAI,
    )
    yield should(
        "usage-whole",
        "An answer in one piece counts its tokens.",
        checks.usage_whole,
        "None here: every request is streamed.",
    )
    yield should(
        "usage-agrees",
        "Streamed or not, the counts agree.",
        checks.usage_agrees,
        "One of the counts is wrong; compare tokens a second between servers with care.",
    )
    yield should(
        "timings",
        "It says how long prompt and answer took.",
        checks.timings,
        "prefill_tps and decode_tps are NULL; tpot_s, measured by us, remains.",
    )
    yield should(
        "cut-at-max-tokens",
        "An answer cut at max_tokens says length.",
        checks.cut_at_max_tokens,
        "Cut answers pass for finished ones, or max_tokens is not kept to.",
    )
    yield should(
        "repeats",
        "Temperature 0 and a seed repeat an answer.",
        checks.repeats,
        "Benchmarks and comparisons differ from run to run by chance.",
    )
    yield should(
        "stop",
        "stop ends an answer and is left out.",
        checks.stop,
        "Prompts that use `stop` get text after it, or the stop word itself.",
    )
    yield must(
        "utf8",
        "Japanese and emoji arrive as they were sent.",
        checks.utf8,
        "The model reads other text than was sent, and nobody notices.",
    )
    yield should(
        "reasoning-field",
        "Reasoning comes in a field of its own.",
        checks.reasoning_field,
        "Reasoning is recorded as the answer's text; set the server's reasoning parser.",
    )
    yield should(
        "parts",
        "Content may be a list of parts.",
        checks.parts,
        "Prompts whose content is a list of parts are refused.",
        OPENAI,
    )
    yield should("tools", "A request with tools is taken.", checks.tool_calls, "Prompts with `tools` are refused.")
    yield should(
        "json-schema",
        "A JSON schema is kept to.",
        checks.json_schema,
        "Prompts that ask for JSON may get something else.",
    )
    yield should(
        "logprobs", "Log probabilities come when asked for.", checks.logprobs, "Prompts that ask for them get none."
    )
    yield should(
        "two-choices",
        "n: 2 gives two choices.",
        checks.two_choices,
        "None here: only the first choice is kept.",
        OPENAI,
    )
    # -- refusals
    yield should(
        "unknown-fields",
        "Fields that it does not know are ignored.",
        checks.unknown_fields,
        "A prompt with a parameter that this server does not know fails with invalid_request.",
    )
    yield should(
        "unknown-model",
        "A model that it does not have is a 404.",
        checks.unknown_model,
        "A wrong name in `models` goes unnoticed, or is taken for another fault.",
    )
    yield should(
        "empty-messages",
        "No messages at all is refused.",
        checks.empty_messages,
        "None here: such prompts are rejected before they are sent. Others get an invented answer.",
        OPENAI,
    )
    yield should(
        "bad-types",
        "A field of the wrong type is refused with 4xx.",
        checks.bad_types,
        "A faulty prompt looks like a faulty worker: it is tried elsewhere, and the worker cools down.",
    )
    yield should(
        "error-says-why",
        "A refusal says in JSON what is wrong.",
        checks.error_says_why,
        "Failed jobs carry no reason that a person can use.",
    )
    yield should(
        "says-context",
        "It says how long its context is.",
        checks.says_context,
        "Whether a prompt fits is not known before it is sent.",
    )
    yield should(
        "too-long",
        "A prompt that does not fit is refused.",
        checks.too_long,
        "Half of a long prompt is answered as if it were all of it. Keep max_tokens and prompts short.",
        OPENAI,
    )
    yield should(
        "truncate-false",
        "truncate: false refuses what does not fit (400).",
        checks.truncate_false,
        "Half of a long prompt is answered as if it were all of it. Raise num_ctx, or update Ollama.",
        OLLAMA,
    )
    # -- Ollama alone
    yield should(
        "prompt-eval-count",
        "A cached prompt is counted too.",
        checks.prompt_eval_count,
        "Prompt tokens are NULL whenever the prompt was cached.",
        OLLAMA,
    )
    yield should(
        "load",
        "No messages load the model.",
        checks.load_by_empty_prompt,
        "A model can't be warmed up without an answer; the first answer is a cold one.",
        OLLAMA,
    )
    yield should(
        "nanoseconds",
        "Durations are nanoseconds.",
        checks.nanoseconds,
        "prefill_tps, decode_tps and load_s are wrong by powers of ten.",
        OLLAMA,
    )
    yield should(
        "loaded-listed",
        "/api/ps names the model once it is loaded.",
        checks.loaded_listed,
        "Cold and warm answers can't be told apart, and swaps are not foreseen.",
        OLLAMA,
    )
    # -- several requests
    yield should(
        "parallel",
        "Two requests are answered at once.",
        checks.parallel,
        "More `slots` only wait inside the server, where their time counts as latency: set `slots: 1`.",
    )
    yield should(
        "cancel",
        "A closed connection frees its slot.",
        checks.cancel,
        "Cancelled and timed-out jobs go on computing, and those after them wait.",
    )


STATEMENTS: tuple[Statement, ...] = tuple(_all())
