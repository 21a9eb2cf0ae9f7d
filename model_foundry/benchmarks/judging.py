"""Judging pairs of answers through the fleet, both orders of each, and the gate of planted pairs.

Belongs here: which pairs are asked, what is decided without asking, when a judgement is complete. Does not belong here:
the texts (``judge_prompts``), statistics (``verdicts``), SQL (``warehouse.judgement_rows``).

Compared are the last turns of one conversation each: the first measured repeat of the model's newest sweep. A judgement
is recorded when both orders are there; what is recorded is not asked again, errors are.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from itertools import combinations
from typing import Any

from model_foundry.asking import Claimed, asked_fleet, measured_rates
from model_foundry.benchmarks.families import shared_families
from model_foundry.benchmarks.judge_prompts import (
    PROMPT_VERSION,
    Question,
    judge_messages,
    outcome_of,
    read_verdict,
)
from model_foundry.benchmarks.planted import PAIRS, PLANTED_DIGEST, PLANTED_SUITE
from model_foundry.benchmarks.suite import Suite
from model_foundry.benchmarks.verdicts import Interval, clopper_pearson
from model_foundry.errors import ConfigError
from model_foundry.inference.dispatch import WorkItem
from model_foundry.jetstream.client import JetStream
from model_foundry.records import Completion, Job, JobOutcome, JobStatus
from model_foundry.runtime import Foundry
from model_foundry.tasks import while_flushing
from model_foundry.warehouse.engine import Rows
from model_foundry.warehouse.judgement_rows import judgements_made, record_judgements

FLUSH_EVERY_S = 1.0
MAX_TOKENS = 1024
GATE_THRESHOLD = 0.7
"""The lower bound of the gate's interval must be above it; ``sql/views/judged_pairs.sql`` has the same."""
GATE_PAIRS = 20


@dataclass(frozen=True, slots=True)
class Pair:
    """Two answers to compare. ``row`` is what its judgement's row has already."""

    row: dict[str, Any]
    question: Question


@dataclass(slots=True)
class JudgeReport:
    """What one run did: judgements by outcome and by who decided, those that were there, those that wait and why."""

    outcomes: Counter[str] = field(default_factory=Counter)
    decided_by: Counter[str] = field(default_factory=Counter)
    unchanged: int = 0
    waiting: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gate:
    """How a judge did on the planted pairs: right in both orders, of those that were asked."""

    right: int
    n: int
    interval: Interval

    @property
    def passed(self) -> bool:
        """Whether its verdicts are shown."""
        return self.n >= GATE_PAIRS and self.interval.low is not None and self.interval.low >= GATE_THRESHOLD


def check_judge(foundry: Foundry, judge: str, models: Sequence[str], *, allow_same_family: bool) -> None:
    """Refuses a judge that is unknown or of a judged model's family.

    Raises:
        ConfigError: likewise.
    """
    config = foundry.config
    if judge not in config.models:
        raise ConfigError(f"there is no model {judge!r}; allowed: {', '.join(config.models)}")
    for model in models:
        shared = shared_families(judge, model, config.benchmarks.families)
        if shared and not allow_same_family:
            raise ConfigError(
                f"the judge {judge!r} is of the family of {model!r}: {', '.join(sorted(shared))}",
                hint="Take another judge, name the families in benchmarks.families, or allow it: --allow-same-family.",
            )


def planted_pairs(judge: str) -> list[Pair]:
    """The planted pairs; the good answer is a in every other one."""
    pairs = []
    for n, planted in enumerate(PAIRS):
        good_is_a = n % 2 == 0
        a, b = (planted.good, planted.bad) if good_is_a else (planted.bad, planted.good)
        row = _row(
            judge, PLANTED_SUITE, PLANTED_DIGEST, planted.name, 0, planted.domain, "(planted a)", "(planted b)", a, b
        )
        row["planted"] = "a" if good_is_a else "b"
        pairs.append(Pair(row, Question([planted.prompt], [a], [b], planted.reference, planted.language)))
    return pairs


def suite_pairs(
    foundry: Foundry,
    suite: Suite,
    judge: str,
    pairs: Sequence[tuple[str, str]],
    *,
    checks_first: bool = True,
    limit: int | None = None,
) -> list[Pair]:
    """The pairs of a suite's prompts to which both models have a conversation in the lake.

    A failed or empty answer loses without asking; where checks decide, the judge isn't asked (``checks_first``). Such
    rows have the verdicts all the same, and ``words_*`` say who decided.
    """
    models = sorted({model for pair in pairs for model in pair})
    params = {"suite": suite.name, "suite_digest": suite.digest, "models": models}
    said: dict[tuple[str, str], Rows] = {}
    for answer in foundry.warehouse.show("answers_to_judge", params):
        said.setdefault((answer["model"], answer["prompt_id"]), []).append(answer)
    found = []
    for prompt in suite.prompts[:limit]:
        last = len(prompt.turns) - 1
        for model_a, model_b in pairs:
            one, two = said.get((model_a, prompt.id)), said.get((model_b, prompt.id))
            if not one or not two:
                continue
            a, b = ({r["turn"]: r for r in rows} for rows in (one, two))
            texts_a, texts_b = ([_text(rows.get(n)) for n in range(last + 1)] for rows in (a, b))
            row = _row(
                judge, suite.name, suite.digest, prompt.id, last, prompt.domain, model_a, model_b,
                texts_a[-1], texts_b[-1], one[0]["sweep_id"], two[0]["sweep_id"],
            )  # fmt: skip
            row["same_family"] = any(
                shared_families(judge, m, foundry.config.benchmarks.families) for m in (model_a, model_b)
            )
            passed = [rows[last]["passed"] if last in rows else None for rows in (a, b)]
            if not texts_a[-1] or not texts_b[-1]:
                verdict = "tie" if texts_a[-1] == texts_b[-1] else "a" if texts_a[-1] else "b"
                _decide(row, verdict, "answers", "not asked: an answer failed or is empty")
            elif checks_first and None not in passed and passed[0] != passed[1]:
                _decide(row, "a" if passed[0] else "b", "checks", "not asked: decided by checks")
            turns = [f"{prompt.system}\n\n{t}" if prompt.system and not n else t for n, t in enumerate(prompt.turns)]
            found.append(Pair(row, Question(turns, texts_a, texts_b, prompt.reference_of(last), prompt.language)))
    return found


def all_pairs(models: Sequence[str]) -> list[tuple[str, str]]:
    """Every two of them once, in the order of their names."""
    return list(combinations(sorted(set(models)), 2))


def judge_pairs(
    foundry: Foundry,
    pairs: Sequence[Pair],
    judge: str,
    *,
    run_id: str,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> JudgeReport:
    """Judges what has no judgement yet, in both orders, and records it in small batches.

    Raises:
        NatsUnavailableError, StreamError: when the fleet can't be used.
        LakeError: when the lake can't.
    """
    report, made = JudgeReport(), set()
    for suite, digest in {(p.row["suite"], p.row["suite_digest"]) for p in pairs}:
        rows = judgements_made(
            foundry.warehouse, judge_model=judge, prompt_version=PROMPT_VERSION, suite=suite, suite_digest=digest
        )
        made |= {row["judgement_id"] for row in rows if row["outcome"] != "error"}
    todo = [p for p in pairs if p.row["judgement_id"] not in made]
    report.unchanged = len(pairs) - len(todo)
    asyncio.run(_judge(foundry, todo, judge, run_id, report, on_progress))
    return report


def gate_of(foundry: Foundry, judge: str) -> Gate:
    """How the judge did, with the texts and the pairs of today."""
    rows = judgements_made(
        foundry.warehouse,
        judge_model=judge,
        prompt_version=PROMPT_VERSION,
        suite=PLANTED_SUITE,
        suite_digest=PLANTED_DIGEST,
    )
    asked = [row for row in rows if row["outcome"] != "error"]
    right = sum(row["outcome"] == row["planted"] for row in asked)
    return Gate(right, len(asked), clopper_pearson(right, len(asked)))


async def _judge(
    foundry: Foundry,
    pairs: Sequence[Pair],
    judge: str,
    run_id: str,
    report: JudgeReport,
    on_progress: Callable[[int, int], None],
) -> None:
    gathered: list[dict[str, Any]] = []
    jobs: dict[str, tuple[Pair, bool]] = {}
    last: dict[str, Completion] = {}
    done = 0

    def end(pair: Pair) -> None:
        row = {**pair.row, "judged_at": datetime.now(UTC), "run_id": run_id}
        row["outcome"] = outcome_of(row["verdict_ab"], row["verdict_ba"])
        report.outcomes[row["outcome"]] += 1
        report.decided_by[row["decided_by"]] += 1
        gathered.append(row)

    claimed = []
    for pair in pairs:
        if pair.row["verdict_ab"]:
            end(pair)
            continue
        for swapped in (False, True):
            job = _job(foundry, pair, judge, swapped=swapped)
            jobs[job.job_id] = pair, swapped
            claimed.append(Claimed(job))

    def on_done(item: WorkItem, outcome: JobOutcome) -> None:
        pair, swapped = jobs[item.job.job_id]
        order, said = "ba" if swapped else "ab", last.get(item.job.job_id)
        answered = outcome.status is JobStatus.ANSWERED and said is not None
        pair.row[f"verdict_{order}"] = read_verdict(said.text, swapped=swapped) if said and answered else "error"
        pair.row[f"words_{order}"] = said.text if said and answered else outcome.error_message or str(outcome.status)
        pair.row["judge_worker"] = said.worker if said else pair.row["judge_worker"]
        if pair.row["verdict_ab"] and pair.row["verdict_ba"]:
            end(pair)

    async def flush() -> None:
        nonlocal done
        taken = gathered[:]
        gathered.clear()
        if taken:
            await asyncio.to_thread(record_judgements, foundry.warehouse, taken)
            done += len(taken)
            on_progress(done, len(pairs))

    if claimed:
        rates = await asyncio.to_thread(measured_rates, foundry)
        async with JetStream(foundry.nats) as js, asked_fleet(js, foundry, rates, claimed, run_id) as fleet:
            work = fleet.dispatch(
                lambda item, completion: last.__setitem__(item.job.job_id, completion),
                on_done,
                lambda job_id, reason: report.waiting.__setitem__(job_id, reason),
            )
            await while_flushing(work, flush, FLUSH_EVERY_S)
    await flush()


def _text(answer: dict[str, Any] | None) -> str:
    return answer["text"].strip() if answer and answer["status"] == "answered" else ""


def _decide(row: dict[str, Any], verdict: str, decided_by: str, words: str) -> None:
    row |= {"verdict_ab": verdict, "verdict_ba": verdict, "decided_by": decided_by}
    row |= {"words_ab": words, "words_ba": words}


def _row(
    judge: str, suite: str, digest: str, prompt_id: str, turn: int, domain: str, model_a: str, model_b: str,
    a: str, b: str, sweep_a: str | None = None, sweep_b: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    key = (judge, PROMPT_VERSION, suite, digest, prompt_id, str(turn), model_a, model_b, a, b)
    return {
        "judgement_id": sha256("\0".join(key).encode()).hexdigest()[:32],
        "suite": suite, "suite_digest": digest, "prompt_id": prompt_id, "turn": turn, "domain": domain,
        "sweep_a": sweep_a, "sweep_b": sweep_b, "model_a": model_a, "model_b": model_b,
        "judge_model": judge, "judge_worker": None, "prompt_version": PROMPT_VERSION, "decided_by": "judge",
        "same_family": False, "verdict_ab": "", "verdict_ba": "", "words_ab": "", "words_ba": "",
        "chars_a": len(a), "chars_b": len(b), "planted": None,
    }  # fmt: skip


def _job(foundry: Foundry, pair: Pair, judge: str, *, swapped: bool) -> Job:
    """The request of one order: temperature 0, a nonce of its own."""
    now = datetime.now(UTC)
    messages = judge_messages(pair.question, swapped=swapped, nonce=secrets.token_hex(8))
    lane = foundry.config.models[judge].capability
    return Job(
        stream="", stream_created=0, seq=0, subject="", published_at=now, partition_date=now.date(),
        job_id=f"{pair.row['judgement_id']}#{'ba' if swapped else 'ab'}", correlation_id=None,
        domain=pair.row["domain"], domain_source="suite", language=pair.question.language or "", lane=lane,
        model=judge, role=None, capability=lane, prompt=messages[-1]["content"], messages=messages,
        params={"temperature": 0, "max_tokens": MAX_TOKENS}, priority=0, deadline=None, reply_to=None, metadata=None,
        traceparent=None, extra={}, notes=(), route_reason="judge", status=JobStatus.PENDING,
    )  # fmt: skip
