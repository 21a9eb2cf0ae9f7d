"""What a model server's ``/metrics`` says about its work: Prometheus text, the few figures of it that are of use here.

Belongs here: which samples of vLLM and llama.cpp mean what. Does not belong here: fetching them (``probe``), what a
server that makes no progress is called (``fleet``). Pure.

vLLM (``docs/design/metrics.md``): gauges ``vllm:num_requests_running``, ``vllm:num_requests_waiting``,
``vllm:kv_cache_usage_perc`` (0 to 1; ``gpu_cache_usage_perc`` once), counters ``vllm:generation_tokens_total``,
``vllm:prompt_tokens_total``; one sample an engine and model. llama.cpp (``tools/server/README.md``, with
``--metrics``): ``llamacpp:requests_processing``, ``llamacpp:requests_deferred``, ``llamacpp:tokens_predicted_total``,
``llamacpp:n_decode_total``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

_MAX_LINE = 8 * 1024
_SHARES = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_SUMS = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:generation_tokens_total",
    "vllm:prompt_tokens_total",
    "llamacpp:requests_processing",
    "llamacpp:requests_deferred",
    "llamacpp:tokens_predicted_total",
    "llamacpp:n_decode_total",
)
_WANTED = re.compile(rf"\s*({'|'.join((*_SUMS, *_SHARES))})(?=[\s{{])")


@dataclass(frozen=True, slots=True)
class ServerMetrics:
    """The figures; None is unknown.

    Attributes:
        kind: whose metrics these are; None when they are of neither.
        running: requests being answered now.
        waiting: requests that wait for a slot.
        kv_cache_usage: share of the KV cache in use, 0 to 1; that of the fullest engine.
        generated_tokens_total: since the server started. llama.cpp counts a request's tokens when it ends.
        work_total: a counter that moves whenever the server computes, prefill or decode: vLLM's tokens of prompts and
            answers; llama.cpp's calls of its decoder, because its tokens stand still while a long answer is made.
    """

    kind: str | None = None
    running: int | None = None
    waiting: int | None = None
    kv_cache_usage: float | None = None
    generated_tokens_total: float | None = None
    work_total: float | None = None


def read_metrics(text: str) -> ServerMetrics:
    """The figures in a metrics page, labels summed. What is not there or can't be read is None; never raises."""
    found = _samples(text)
    if any(name.startswith("vllm:") for name in found):
        generated, prompted = _sum(found, "vllm:generation_tokens_total"), _sum(found, "vllm:prompt_tokens_total")
        return ServerMetrics(
            "vllm",
            _whole(_sum(found, "vllm:num_requests_running")),
            _whole(_sum(found, "vllm:num_requests_waiting")),
            next((max(found[n]) for n in _SHARES if found.get(n) and all(0 <= v <= 1 for v in found[n])), None),
            generated,
            generated if generated is None or prompted is None else generated + prompted,
        )
    if found:
        return ServerMetrics(
            "llama.cpp",
            _whole(_sum(found, "llamacpp:requests_processing")),
            _whole(_sum(found, "llamacpp:requests_deferred")),
            generated_tokens_total=_sum(found, "llamacpp:tokens_predicted_total"),
            work_total=_sum(found, "llamacpp:n_decode_total"),
        )
    return ServerMetrics()


def _samples(text: str) -> dict[str, list[float]]:
    """Every sample of the wanted names; NaN for one that can't be read.

    Line by line, so that a line that is broken costs its figure only, and a page of histograms is passed over quickly.
    """
    found: dict[str, list[float]] = {}
    for line in text.splitlines():
        if match := _WANTED.match(line):
            found.setdefault(match[1], []).append(_value(line))
    return found


def _value(line: str) -> float:
    if len(line) > _MAX_LINE:
        return math.nan
    try:
        return float(next(iter(text_string_to_metric_families(line))).samples[0].value)
    except (ValueError, LookupError, OverflowError, StopIteration):
        return math.nan


def _sum(found: dict[str, list[float]], name: str) -> float | None:
    """The sum over labels; None when a sample is missing in it, because a part is not the whole."""
    values = found.get(name, [])
    total = sum(values)
    return total if values and math.isfinite(total) and min(values) >= 0 and total <= 2**53 else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
