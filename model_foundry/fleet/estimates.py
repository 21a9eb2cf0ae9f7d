"""How long a job will keep a worker busy, by what that worker has shown. Pure, and cheap enough for every job of a
queue.

Belongs here: reading the measured rates (``sql/show/service_rates.sql``), estimating tokens, service and load. Does not
belong here: who gets the job (``inference.dispatch``), whether a place is good enough (``advice``). Unknown is None.

Count a prompt's tokens once (:func:`estimated_tokens`), then ask for each worker (:func:`expected_service_s`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

LATIN_CHARS_A_TOKEN = 4.0
"""Characters a token of Latin text: the rule of thumb that vendors of byte-pair tokenizers give for English."""
CJK_CHARS_A_TOKEN = 1.5
"""Characters a token of Chinese, Japanese or Korean text: between one token a character (older vocabularies) and two
characters a token (the large vocabularies of newer models)."""
SMALLEST_RATE_TPS = 1e-6
"""A rate below one token in eleven days is no rate; keeps every estimate finite."""

_CJK = re.compile("[\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]+")


@dataclass(frozen=True, slots=True)
class Rates:
    """What one worker has shown with one model: medians over its warm answered attempts, None where unknown.

    Attributes:
        n: warm answered attempts.
        prefill_tps: prompt tokens read a second, by the server's own counts.
        decode_tps: completion tokens written a second, by the server's own counts.
        completion_tokens: tokens an answer.
        prompt_tokens: tokens a prompt.
        e2e_s: seconds from sending the request to its last token.
        load_s: seconds that loading the model took, over the cold ones.
    """

    n: int
    prefill_tps: float | None = None
    decode_tps: float | None = None
    completion_tokens: float | None = None
    prompt_tokens: float | None = None
    e2e_s: float | None = None
    load_s: float | None = None


def rates_from_rows(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Rates]:
    """The rates by (worker, model), from the rows of ``sql/show/service_rates.sql``."""
    return {
        (row["worker"], row["model"]): Rates(
            n=int(row["n"]),
            prefill_tps=_known(row["prefill_tps"], SMALLEST_RATE_TPS),
            decode_tps=_known(row["decode_tps"], SMALLEST_RATE_TPS),
            completion_tokens=_known(row["completion_tokens"], 0),
            prompt_tokens=_known(row["prompt_tokens"], 0),
            e2e_s=_known(row["e2e_s"], 0),
            load_s=_known(row["load_s"], 0),
        )
        for row in rows
    }


def estimated_tokens(text: str) -> float:
    """About how many tokens a text is: its CJK characters / 1.5 + its other characters / 4.

    No tokenizer is asked: each model has its own, and a queue of tens of thousands of prompts is estimated at a time.
    What a chat template adds is not in it.
    """
    if text.isascii():
        return len(text) / LATIN_CHARS_A_TOKEN
    cjk = sum(map(len, _CJK.findall(text)))
    return cjk / CJK_CHARS_A_TOKEN + (len(text) - cjk) / LATIN_CHARS_A_TOKEN


def expected_service_s(rates: Rates | None, prompt_tokens: float, max_tokens: int | None) -> float | None:
    """Seconds that a warm worker will take for a prompt; None when nothing is known of the worker and model.

    prompt tokens / prefill_tps + min(max_tokens, median completion tokens) / decode_tps when these are measured, else
    the median e2e of its warm answers. What passes between the two (network, the server's own queue) is left out of the
    former and is in the latter.

    Args:
        rates: what the worker has shown with the model.
        prompt_tokens: of :func:`estimated_tokens`, over all of the prompt's messages.
        max_tokens: the most tokens that may be written, where the prompt or the configuration says so.
    """
    if rates is None:
        return None
    if rates.prefill_tps is None or rates.decode_tps is None or rates.completion_tokens is None:
        return rates.e2e_s
    written = rates.completion_tokens if max_tokens is None else min(max_tokens, rates.completion_tokens)
    return prompt_tokens / rates.prefill_tps + written / rates.decode_tps


def expected_load_s(rates: Rates | None) -> float | None:
    """Seconds that loading the model on the worker will take, by its cold answers; None when none was measured."""
    return None if rates is None else rates.load_s


def _known(value: Any, least: float) -> float | None:
    """A figure, or None where it is missing, not finite, or below what it can be."""
    return float(value) if value is not None and math.isfinite(value) and value >= least else None
