"""What the server said, held against what the client saw: figures that can't be true are marked, and nothing is
made of them.

Belongs here: the checks, their bounds, and the notes they leave. Does not belong here: the figures' formulas
(``answer``), reading them (``openai``, ``ollama``). Pure.

A note begins with its flag, so that ``notes`` can be searched. What the server reported stays in its columns; what is
computed of a doubtful figure (a rate, a pace, what is unattributed) is None.

| flag | what was found | what becomes None |
| --- | --- | --- |
| ``cache_likely`` | a prefill rate that only a cached prompt has (ollama#10860) | prefill_tps |
| ``rate_doubtful`` | a rate that no machine has for one request | that rate |
| ``server_times_doubtful`` | longer than the client waited, or far shorter than the stream | rates, unattributed_s |
| ``tokens_doubtful`` | a count that the answer's bytes or chunks contradict | tpot_s, decode_tps |
| ``truncated_suspect`` | far fewer prompt tokens than were sent (ollama#3839, #17427) | nothing |
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from model_foundry.inference.answer import Answer
from model_foundry.inference.values import text_of

CACHE_LIKELY = "cache_likely"
RATE_DOUBTFUL = "rate_doubtful"
TIMES_DOUBTFUL = "server_times_doubtful"
TOKENS_DOUBTFUL = "tokens_doubtful"
TRUNCATED_SUSPECT = "truncated_suspect"

MAX_PREFILL_TPS = 200_000.0
"""Tokens a second of one prompt. Models under a billion parameters on one large card stay below it."""
MAX_DECODE_TPS = 20_000.0
"""Tokens a second of one answer; the fastest services give some thousands."""
MAX_PREFILL_TO_DECODE = 1000.0
"""Prefill is 5 to 300 times as fast as decoding on the CPUs and cards we know."""
TIME_TOLERANCE_S = 0.1
TIME_TOLERANCE_RATIO = 0.05
_FAR_SHORTER = 20
_FEWEST_TOKENS = 256
"""An estimate below it is too rough to suspect anything."""

_ASCII_CHARS_A_TOKEN = 4.5
_WIDE_TOKENS_A_CHAR = 0.6
_WIDE = re.compile("[\u2e80-\U0010ffff]")
_RUN = re.compile(r"(.)\1{3,}", re.DOTALL)


def examine(answer: Answer, sent_at: float, messages: Sequence[dict[str, Any]]) -> None:
    """Marks the answer's doubtful figures and takes away what is computed of them.

    Args:
        answer: once no more will come.
        sent_at: when the request was sent, in the answer's clock.
        messages: what was sent.
    """
    _examine_times(answer, sent_at)
    _examine_count(answer)
    _examine_rates(answer)
    _examine_prompt(answer, messages)


def fewest_tokens(messages: Sequence[dict[str, Any]]) -> int:
    """A low estimate of the tokens in messages, templates, tools and images left out.

    4.5 characters a token, which is English prose; CJK 0.6 tokens a character. Runs of one character, and of white
    space, count as one, because tokenizers have tokens for them.
    """
    total = 0.0
    for message in messages:
        text = _RUN.sub(r"\1", " ".join(text_of(message.get("content")).split()))
        wide = len(_WIDE.findall(text))
        total += (len(text) - wide) / _ASCII_CHARS_A_TOKEN + wide * _WIDE_TOKENS_A_CHAR
    return int(total)


def _examine_times(answer: Answer, sent_at: float) -> None:
    figures = answer.figures
    found = None
    if answer.figures_at is not None:
        total_s, waited_s = sum(figures.reported_s), answer.figures_at - sent_at
        before_s = (figures.load_s or 0.0) + (figures.prefill_s or 0.0)
        if _is_longer(total_s, waited_s):
            found = f"the server reports {total_s:.3g} s of work, and the client waited {waited_s:.3g} s"
        elif answer.first_token_at is not None and _is_longer(before_s, answer.first_token_at - sent_at):
            ttft_s = answer.first_token_at - sent_at
            found = f"the server reports {before_s:.3g} s before the first token, which came after {ttft_s:.3g} s"
    if found is None and answer.first_token_at is not None and answer.last_token_at is not None:
        streamed_s = answer.last_token_at - answer.first_token_at
        if figures.decode_s is not None and streamed_s > _FAR_SHORTER * figures.decode_s + 1:
            found = (
                f"the server reports {figures.decode_s:.3g} s of decoding, and the tokens came over {streamed_s:.3g} s"
            )
    if found:
        answer.times_are_doubtful = True
        figures.prefill_tps = figures.decode_tps = None
        answer.note(f"{TIMES_DOUBTFUL}: {found}")


def _examine_count(answer: Answer) -> None:
    tokens = answer.completion_tokens
    if tokens is None or answer.others:  # a count over several choices says nothing of the first
        return
    visible = tokens - (answer.reasoning_tokens or 0)
    found = None
    if answer.chunks == 0 and visible > 8:
        found = f"the server counts {tokens} tokens, and none came; maybe in a field that is not known here"
    elif answer.size > 128 * tokens + (64 if tokens else 0) or visible > 2 * answer.size + 64:
        found = f"the server counts {tokens} tokens for {answer.size} bytes"
    elif answer.chunks > 2 * tokens + 8:
        found = f"the server counts {tokens} tokens, and they came in {answer.chunks} chunks"
    if found:
        answer.count_is_doubtful = True
        answer.figures.decode_tps = None
        answer.note(f"{TOKENS_DOUBTFUL}: {found}")


def _examine_rates(answer: Answer) -> None:
    figures = answer.figures
    if figures.decode_tps is not None and figures.decode_tps > MAX_DECODE_TPS:
        answer.note(f"{RATE_DOUBTFUL}: the server's figures make {figures.decode_tps:.0f} tokens a second of decoding")
        figures.decode_tps = None
    rate = figures.prefill_tps
    if rate is None:
        return
    is_out_of_proportion = bool(figures.decode_tps) and rate > MAX_PREFILL_TO_DECODE * (figures.decode_tps or 0)
    if answer.prompt_may_be_cached and (rate > MAX_PREFILL_TPS or is_out_of_proportion):
        answer.note(f"{CACHE_LIKELY}: {rate:.0f} tokens a second of prefill; the server counts cached tokens in")
        figures.prefill_tps = None
    elif rate > MAX_PREFILL_TPS:
        answer.note(f"{RATE_DOUBTFUL}: the server's figures make {rate:.0f} tokens a second of prefill")
        figures.prefill_tps = None


def _examine_prompt(answer: Answer, messages: Sequence[dict[str, Any]]) -> None:
    if answer.prompt_tokens is None:
        return
    estimate = fewest_tokens(messages)
    if estimate >= _FEWEST_TOKENS and answer.prompt_tokens < estimate / 2:
        reason = "the server may have cut the prompt, or leaves its cached part out of the count"
        answer.note(
            f"{TRUNCATED_SUSPECT}: {answer.prompt_tokens} prompt tokens for a prompt of about {estimate}; {reason}"
        )


def _is_longer(server_s: float, client_s: float) -> bool:
    return server_s > client_s * (1 + TIME_TOLERANCE_RATIO) + TIME_TOLERANCE_S
