"""A streamed answer as it gathers: text, reasoning, tool calls, counts, the server's figures, the moments of tokens.

Belongs here: what both dialects have in common, and the formulas of ``records.Timings``. Does not belong here: the wire
formats (``openai``, ``ollama``), which figures can't be true (``doubts``), the I/O (``client``). Pure: moments are
handed in, nothing here reads a clock.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from model_foundry.inference.failures import Failure
from model_foundry.inference.tool_calls import ToolCalls
from model_foundry.inference.values import bounded, size_of
from model_foundry.records import ErrorKind, JobStatus, Timings, WebResult
from model_foundry.text import well_formed

EMPTY_ANSWER = "empty answer"
NOT_STREAMED = "the server answered whole, not streamed: its first token's time is that of the whole answer"
LOADED = {"load": "the model was loaded and asked nothing", "unload": "the model was unloaded"}
"""Ollama's ends of a request without a prompt."""
MAX_LOGPROBS_BYTES = 256 * 1024
MAX_STATS_BYTES = 64 * 1024
_MAX_CHOICES = 128


class AnswerTooLong(Exception):  # noqa: N818 (says what the answer is)
    """The answer is beyond the bound; what fits has been kept."""


@dataclass(slots=True)
class ServerFigures:
    """What the server says about itself. Seconds, tokens, tokens a second; None is unknown."""

    load_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    prefill_tps: float | None = None
    decode_tps: float | None = None

    @property
    def reported_s(self) -> list[float]:
        """The durations that are known."""
        return [s for s in (self.load_s, self.prefill_s, self.decode_s) if s is not None]


@dataclass(slots=True)
class _Budget:
    """Bytes that an answer may still take, all its choices together."""

    most: int
    used: int = 0

    def take(self, size: int) -> None:
        self.used += size
        if self.used > self.most:
            raise AnswerTooLong(f"the answer is longer than {self.most} bytes (limits.max_answer_bytes)")


@dataclass(slots=True)
class Answer:
    """The state that a dialect's ``absorb`` adds to. Moments are seconds of one monotonic clock.

    ``terminal`` is the dialect's own end mark: ``[DONE]``, or ``done: true``. ``failure`` is set by an error that came
    inside the stream. ``chunks`` counts those with content, reasoning or a tool call; ``size`` is their bytes.
    ``figures_at`` is when the server's times came. ``asks_nothing``: a request without messages, which only loads a
    model. ``reasoning_tokens`` are those of ``completion_tokens`` that the server says were thought.
    ``prompt_may_be_cached``: the server counts cached prompt tokens in and doesn't say how many.
    ``results`` are those of a search. ``count_is_doubtful`` and ``times_are_doubtful``: see ``doubts``; no figure is
    made of such ones.
    ``on_output`` is called with the text and the reasoning of each chunk that has any; it must not block.
    """

    max_bytes: int
    asks_nothing: bool = False
    on_output: Callable[[str, str], None] | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    prompt_may_be_cached: bool = False
    figures: ServerFigures = field(default_factory=ServerFigures)
    figures_at: float | None = None
    server_stats: dict[str, Any] | None = None
    chunks: int = 0
    size: int = 0
    first_token_at: float | None = None
    first_output_at: float | None = None
    last_token_at: float | None = None
    terminal: bool = False
    failure: Failure | None = None
    notes: list[str] = field(default_factory=list)
    count_is_doubtful: bool = False
    times_are_doubtful: bool = False
    calls: ToolCalls = field(default_factory=ToolCalls)
    others: dict[int, Answer] = field(default_factory=dict)
    results: tuple[WebResult, ...] = ()
    _text: io.StringIO = field(default_factory=io.StringIO)
    _reasoning: io.StringIO = field(default_factory=io.StringIO)
    _logprobs: list[Any] = field(default_factory=list)
    _logprobs_size: int = 0
    _budget: _Budget | None = None

    @property
    def text(self) -> str:
        """The content so far."""
        return well_formed(self._text.getvalue())

    @property
    def reasoning(self) -> str:
        """The reasoning so far."""
        return well_formed(self._reasoning.getvalue())

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        """The tool calls so far."""
        return self.calls.calls()

    @property
    def is_empty(self) -> bool:
        """Whether nothing has come yet."""
        return not self._text.tell() and not self._reasoning.tell() and not len(self.calls)

    def choice(self, index: int) -> Answer | None:
        """Where a choice's pieces go: choice 0 is this answer, others share its bound. None for one too many."""
        if index == 0:
            return self
        if index not in self.others:
            if len(self.others) >= _MAX_CHOICES:
                self.note(f"choices beyond {_MAX_CHOICES} are not kept")
                return None
            self.note("more than one choice came; the first is the text, server_stats.other_choices has the others")
            self.others[index] = Answer(self.max_bytes, _budget=self._shared_budget())
        return self.others[index]

    def add(self, at: float, *, text: str = "", reasoning: str = "", tool_bytes: int | None = None) -> None:
        """Takes one chunk's output. One without any output is no token and sets no moment.

        Args:
            at: when the chunk came.
            text: content.
            reasoning: what the model thought.
            tool_bytes: size of the tool calls' pieces; None when there were none.

        Raises:
            AnswerTooLong: when the answer is now beyond its bound.
        """
        if not text and not reasoning and tool_bytes is None:
            return
        self.chunks += 1
        self.first_token_at = at if self.first_token_at is None else self.first_token_at
        if self.first_output_at is None and (text or tool_bytes is not None):
            self.first_output_at = at
        self.last_token_at = at
        size = len(reasoning.encode(errors="replace")) + len(text.encode(errors="replace")) + (tool_bytes or 0)
        self.size += size
        self._shared_budget().take(size)
        self._text.write(text)
        self._reasoning.write(reasoning)
        if self.on_output is not None and (text or reasoning):
            self.on_output(text, reasoning)

    def add_logprobs(self, entries: Any) -> None:
        """Keeps the log probabilities of tokens, up to a bound of their own."""
        for entry in entries if isinstance(entries, list) else ():
            self._logprobs_size += size_of(entry)
            if self._logprobs_size > MAX_LOGPROBS_BYTES:
                self.note(f"logprobs: only the first {MAX_LOGPROBS_BYTES} bytes are kept")
                return
            self._logprobs.append(entry)

    def note(self, text: str) -> None:
        """Adds a remark once."""
        if text not in self.notes:
            self.notes.append(text)

    @property
    def tokens_source(self) -> str:
        """``server`` when it counted the completion's tokens or the prompt's, else ``missing``."""
        return "missing" if self.prompt_tokens is None and self.completion_tokens is None else "server"

    def kept_stats(self) -> dict[str, Any] | None:
        """The server's own statistics, bounded, with ``logprobs`` and ``other_choices`` where there are any."""
        stats, whole = bounded(self.server_stats or {}, MAX_STATS_BYTES)
        if not whole:
            self.note(f"server_stats: longer than {MAX_STATS_BYTES} bytes; the short parts are kept")
        if self._logprobs:
            stats = {**stats, "logprobs": self._logprobs}
        if self.others:
            stats = {**stats, "other_choices": [self.others[n]._as_choice(n) for n in sorted(self.others)]}
        return stats or None

    def timings(self, sent_at: float) -> Timings:
        """The figures, by the formulas of :class:`records.Timings`.

        A time per token needs two chunks: a whole answer in one chunk has no measurable pace. It also needs a count
        of the tokens that were timed, which one over several choices is not.
        """
        tpot_s = e2e_s = unattributed_s = None
        if self.first_token_at is not None and self.last_token_at is not None:
            e2e_s = self.last_token_at - sent_at
            has_pace = self.chunks > 1 and not self.count_is_doubtful and not self.others
            if has_pace and self.completion_tokens is not None and self.completion_tokens > 1:
                tpot_s = (self.last_token_at - self.first_token_at) / (self.completion_tokens - 1)
        reported = self.figures.reported_s
        if e2e_s is not None and reported and not self.times_are_doubtful:
            unattributed_s = e2e_s - sum(reported)
        return Timings(
            ttft_s=None if self.first_token_at is None else self.first_token_at - sent_at,
            ttfo_s=None if self.first_output_at is None else self.first_output_at - sent_at,
            tpot_s=tpot_s,
            e2e_s=e2e_s,
            load_s=self.figures.load_s,
            prefill_s=self.figures.prefill_s,
            decode_s=self.figures.decode_s,
            unattributed_s=unattributed_s,
            prefill_tps=self.figures.prefill_tps,
            decode_tps=self.figures.decode_tps,
        )

    def conclude(self) -> tuple[JobStatus, Failure | None]:
        """What the stream's end means, once no more will come and nobody cut it short."""
        if self.failure is not None:
            return JobStatus.FAILED, self.failure
        if not self.terminal and self.finish_reason is None:
            return JobStatus.INCOMPLETE, Failure(ErrorKind.TRUNCATED_STREAM, "the stream ended before the answer did")
        if self.is_empty and self.finish_reason is None:
            return JobStatus.INCOMPLETE, Failure(ErrorKind.TRUNCATED_STREAM, "the stream held no answer at all")
        loaded = LOADED.get(self.finish_reason or "") if self.is_empty else None
        if loaded and not self.asks_nothing:
            return JobStatus.INCOMPLETE, Failure(ErrorKind.TRUNCATED_STREAM, f"no answer: {loaded}")
        if not self.terminal:
            self.note("the stream's end mark is missing; its finish_reason came")
        if self.is_empty:
            self.note(loaded or EMPTY_ANSWER)
        return JobStatus.ANSWERED, None

    def _shared_budget(self) -> _Budget:
        if self._budget is None:
            self._budget = _Budget(self.max_bytes)
        return self._budget

    def _as_choice(self, index: int) -> dict[str, Any]:
        kept: dict[str, Any] = {"index": index, "text": self.text, "finish_reason": self.finish_reason}
        if self._reasoning.tell():
            kept["reasoning"] = self.reasoning
        if len(self.calls):
            kept["tool_calls"] = self.tool_calls
        if self._logprobs:
            kept["logprobs"] = self._logprobs
        return kept
