"""What came of a request, as a row of ``benchmark_results``. Pure.

Belongs here: the row. Does not belong here: asking (``runner``), recording (``warehouse.benchmark_rows``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from model_foundry.benchmarks.plan import Conversation, Pair, Phase, PlannedRequest
from model_foundry.benchmarks.settings import Load
from model_foundry.records import Completion, ErrorKind, JobStatus

NOT_UNLOADED = "the model could not be unloaded, so this is no cold start"
FOUND_BUSY = "the server was answering others' requests when the block began"


@dataclass(frozen=True, slots=True)
class SweepKey:
    """What all rows of a sweep have in common."""

    sweep_id: str
    suite: str
    suite_digest: str
    run_id: str


@dataclass(frozen=True, slots=True)
class Checked:
    """What the checks of an answer found: each ``{"check", "passed", "detail"}``; see ``checks.passed``, ``score``."""

    checks: Sequence[Mapping[str, Any]] = ()
    passed: bool | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """One request that ended.

    Attributes:
        pair: who was asked.
        phase: what it turned out to be: one that found its model not loaded is ``cold``, whatever was planned.
        load: under which load.
        conversation: of which it is a turn.
        request: as planned.
        completion: what came.
        send_delay_s: sent so long after its moment, in an open loop.
        checked: what the checks found.
        notes: beside the completion's.
    """

    pair: Pair
    phase: Phase
    load: Load
    conversation: Conversation
    request: PlannedRequest
    completion: Completion
    send_delay_s: float | None = None
    checked: Checked = Checked()
    notes: tuple[str, ...] = ()


def phase_of(planned: Phase, completion: Completion, was_loaded: bool | None) -> Phase:
    """The phase that a request turned out to be of.

    Args:
        planned: in the plan.
        completion: what came; ``cold`` says that the server spent time on loading.
        was_loaded: whether the model was in memory before, as far as the server told.
    """
    if was_loaded is False or completion.cold:
        return "cold"
    return "warmup" if planned == "cold" else planned


def not_sent(pair: Pair, before: JobStatus, kind: ErrorKind | None, turn: int, now: datetime) -> Completion:
    """The completion of a turn whose conversation ended before it."""
    return Completion(
        job_id="",
        attempt=1,
        worker=pair.worker,
        api=pair.api,
        model=pair.model,
        status=JobStatus.FAILED,
        sent_at=now,
        finished_at=now,
        queue_s=None,
        error_kind=kind or ErrorKind.TRUNCATED_STREAM,
        error_message=f"not sent: turn {turn} of its conversation was {before}",
    )


def result_row(key: SweepKey, outcome: Outcome, *, disturbed: bool, energy_j: float | None) -> dict[str, Any]:
    """The row. NaN and infinity become NULL."""
    pair, load, request, completion = outcome.pair, outcome.load, outcome.request, outcome.completion
    prompt, checked = outcome.conversation.prompt, outcome.checked
    cold = True if outcome.phase == "cold" else completion.cold
    row: dict[str, Any] = {
        **asdict(key),
        "request_id": request.request_id,
        "prompt_id": prompt.id,
        "turn": request.turn,
        "domain": prompt.domain,
        "language": prompt.language,
        "model": pair.model,
        "worker": pair.worker,
        "api": pair.api,
        "served_name": pair.served_name,
        "phase": outcome.phase,
        "repeat": outcome.conversation.repeat,
        "loop": load.loop,
        "concurrency": load.concurrency,
        "rate_rps": load.rate_rps,
        "arrival": load.arrival,
        "position": request.position,
        "planned_at_s": outcome.conversation.planned_at_s if request.turn == 0 else None,
        "send_delay_s": outcome.send_delay_s,
        "sent_at": completion.sent_at,
        "finished_at": completion.finished_at,
        "status": completion.status.value,
        "error_kind": completion.error_kind.value if completion.error_kind else None,
        "error_message": completion.error_message,
        "finish_reason": completion.finish_reason,
        "text": completion.text,
        "reasoning": completion.reasoning,
        "tool_calls": _json(completion.tool_calls),
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": completion.completion_tokens,
        "cached_tokens": completion.cached_tokens,
        "tokens_source": completion.tokens_source,
        **asdict(completion.timings),
        "cold": cold,
        "disturbed": disturbed,
        "energy_j": energy_j,
        "checks": _json(list(checked.checks)),
        "passed": checked.passed,
        "score": checked.score,
        "notes": _json([*outcome.notes, *completion.notes]),
    }
    return row


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
