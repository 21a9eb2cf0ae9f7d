"""A streamed answer as it gathers: text, reasoning, tool calls, counts, the server's figures, the moments of tokens.

Belongs here: what both dialects have in common, and the formulas of ``records.Timings``. Does not belong here: the wire
formats (``openai``, ``ollama``), the I/O (``client``). Pure: moments are handed in, nothing here reads a clock.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

from model_foundry.inference.failures import Failure
from model_foundry.records import ErrorKind, JobStatus, Timings
from model_foundry.text import well_formed

EMPTY_ANSWER = "empty answer"
MAX_COUNT = 2**53
"""No server has counted so far; beyond it JSON numbers are not exact either."""


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


@dataclass(slots=True)
class Answer:
    """The state that a dialect's ``absorb`` adds to. Moments are seconds of one monotonic clock.

    ``terminal`` is the dialect's own end mark: ``[DONE]``, or ``done: true``. ``failure`` is set by an error that came
    inside the stream. ``chunks`` counts those with content, reasoning or a tool call.
    """

    max_bytes: int
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    figures: ServerFigures = field(default_factory=ServerFigures)
    server_stats: dict[str, Any] | None = None
    chunks: int = 0
    first_token_at: float | None = None
    first_output_at: float | None = None
    last_token_at: float | None = None
    terminal: bool = False
    failure: Failure | None = None
    notes: list[str] = field(default_factory=list)
    _text: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _size: int = 0

    @property
    def text(self) -> str:
        """The content so far."""
        return well_formed("".join(self._text))

    @property
    def reasoning(self) -> str:
        """The reasoning so far."""
        return well_formed("".join(self._reasoning))

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
        self._size += len(reasoning.encode(errors="replace")) + len(text.encode(errors="replace")) + (tool_bytes or 0)
        if self._size > self.max_bytes:
            raise AnswerTooLong(f"the answer is longer than {self.max_bytes} bytes (limits.max_answer_bytes)")
        self._text.append(text)
        self._reasoning.append(reasoning)

    def note(self, text: str) -> None:
        """Adds a remark once."""
        if text not in self.notes:
            self.notes.append(text)

    @property
    def tokens_source(self) -> str:
        """``server`` when it counted the completion's tokens or the prompt's, else ``missing``."""
        return "missing" if self.prompt_tokens is None and self.completion_tokens is None else "server"

    def timings(self, sent_at: float) -> Timings:
        """The figures, by the formulas of :class:`records.Timings`.

        A time per token needs two chunks: a whole answer in one chunk has no measurable pace.
        """
        tpot_s = e2e_s = unattributed_s = None
        if self.first_token_at is not None and self.last_token_at is not None:
            e2e_s = self.last_token_at - sent_at
            if self.chunks > 1 and self.completion_tokens is not None and self.completion_tokens > 1:
                tpot_s = (self.last_token_at - self.first_token_at) / (self.completion_tokens - 1)
        reported = [s for s in (self.figures.load_s, self.figures.prefill_s, self.figures.decode_s) if s is not None]
        if e2e_s is not None and reported:
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
        empty = not self.text and not self.reasoning and not self.tool_calls
        if not self.terminal and self.finish_reason is None:
            return JobStatus.INCOMPLETE, Failure(ErrorKind.TRUNCATED_STREAM, "the stream ended before the answer did")
        if empty and self.finish_reason is None:
            return JobStatus.INCOMPLETE, Failure(ErrorKind.TRUNCATED_STREAM, "the stream held no answer at all")
        if not self.terminal:
            self.note("the stream's end mark is missing; its finish_reason came")
        if empty:
            self.note(EMPTY_ANSWER)
        return JobStatus.ANSWERED, None


def loads(text: str) -> Any:
    """JSON from a server. NaN and Infinity, which JSON does not have, are read as null.

    Raises:
        ValueError: when it is not JSON.
    """
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None


def number(value: Any) -> float | None:
    """A finite number at or above zero as the server gave it, else None: unknown."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) and found >= 0 else None


def count(value: Any) -> int | None:
    """A count as the server gave it, else None: unknown, which is not zero."""
    found = number(value)
    return None if found is None or found > MAX_COUNT else int(found)


def per_second(tokens: float | None, seconds: float | None) -> float | None:
    """Tokens a second; None when either is unknown or no time has passed."""
    return tokens / seconds if tokens is not None and seconds else None


def text_of(content: Any) -> str:
    """The text in a message's content: text itself, or the text parts of a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(p["text"] for p in content if isinstance(p, dict) and isinstance(p.get("text"), str))
    return ""


def first_text(*values: Any) -> str:
    """The first text that is not empty: servers that give one thing under two names are not counted twice."""
    return next((v for v in values if isinstance(v, str) and v), "")
