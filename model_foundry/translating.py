"""Translating articles: paragraph by paragraph, into every language that is asked for.

Belongs here: which paragraphs are still to be translated, how they are asked for, when an article has ended. Does not
belong here: cutting it (``paragraphs``), who translates (``routing``, ``placing``), SQL (``warehouse.translations``).

Every paragraph is recorded as it comes, so a run that dies loses a second's work, and the next one goes on from there.
A paragraph that waits because nobody can translate it now makes the article wait; one that failed for good ends it as
incomplete, with the others kept.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from model_foundry.asking import Claimed, asked_fleet, measured_rates
from model_foundry.config import TranslationConfig
from model_foundry.inference.dispatch import WorkItem
from model_foundry.jetstream.client import JetStream
from model_foundry.languages import language_name
from model_foundry.paragraphs import paragraphs
from model_foundry.partition_run import PartitionRun
from model_foundry.records import Completion, ErrorKind, Job, JobOutcome, JobStatus, Task
from model_foundry.results import Results
from model_foundry.tasks import while_flushing
from model_foundry.warehouse.landing import put_off_jobs, record_completions
from model_foundry.warehouse.translations import Key, TranslationRow, record_translations, translation_rows

FLUSH_EVERY_S = 1.0
CUT_OFF = "the translation was cut off at max_tokens"
_ADDRESS = re.compile(r"https?://[^\s)>\]]+")
_CODE_SPAN = re.compile(r"`[^`\n]+`")
_LONG_CHARS = 40
"""A shorter text may be the same in both languages: a name, a heading."""


@dataclass(slots=True)
class TranslationReport:
    """What one run did.

    Attributes:
        by_status: articles that ended.
        paragraphs: in this run, by status.
        unchanged: paragraphs that were there already.
        published: results.
        job_ids: articles that the run had.
        put_off: why articles wait, by job.
    """

    by_status: dict[str, int] = field(default_factory=dict)
    paragraphs: dict[str, int] = field(default_factory=dict)
    unchanged: int = 0
    published: int = 0
    job_ids: list[str] = field(default_factory=list)
    put_off: dict[str, str] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """``empty``, ``done``, or ``waiting`` when nothing could be translated."""
        if self.by_status or self.published or self.paragraphs.get("answered"):
            return "done"
        return "waiting" if self.put_off else "empty"


@dataclass(frozen=True, slots=True)
class Piece:
    """A paragraph in one language, to be translated or kept."""

    job: Job
    language: str
    number: int
    text: str
    digest: str
    is_prose: bool

    @property
    def key(self) -> Key:
        """By which it is known in the lake."""
        return self.job.job_id, self.language, self.number

    def row(self, status: str, **more: Any) -> TranslationRow:
        """Its row."""
        return TranslationRow(*self.key, self.text, self.digest, status, **more)


def pieces_of(job: Job, config: TranslationConfig) -> list[Piece]:
    """Every paragraph of an article in every language that it is asked in. Pure."""
    asked, found = job.translate, []
    cut = paragraphs(job.prompt) if asked else []
    for language in asked.to if asked else ():
        how = [job.model or "", asked.source or "" if asked else "", config.prompt, str(sorted(job.params.items()))]
        for number, paragraph in enumerate(cut):
            digest = sha256("\0".join((*how, language, paragraph.text)).encode()).hexdigest()[:32]
            found.append(Piece(job, language, number, paragraph.text, digest, paragraph.is_prose))
    return found


def request_of(piece: Piece, config: TranslationConfig) -> Job:
    """The job that asks for one paragraph. Pure."""
    source = piece.job.translate.source if piece.job.translate else None
    words = {
        "source": language_name(source) if source else "its language",
        "target": language_name(piece.language),
        "text": piece.text,
    }
    content = re.sub(r"\{(source|target|text)\}", lambda found: words[found[1]], config.prompt)
    return replace(
        piece.job,
        job_id=f"{piece.job.job_id}#{piece.language}#{piece.number}",
        messages=[{"role": "user", "content": content}],
        task=Task.ANSWER,
    )


def doubts_about(source: str, text: str) -> tuple[str, ...]:
    """What of a translation looks wrong, each beginning with a flag. Pure."""
    found = []
    if source.strip() == text.strip() and len(source) > _LONG_CHARS:
        found.append("untranslated_suspect: it is the same as the source")
    for pattern, flag, what in ((_ADDRESS, "address_lost", "address"), (_CODE_SPAN, "code_lost", "code")):
        lost = [m for m in dict.fromkeys(pattern.findall(source)) if m not in text]
        if lost:
            found.append(f"{flag}: {len(lost)} {what} of the source {'is' if len(lost) == 1 else 'are'} not in it")
    return tuple(found)


def outcome_of(rows: Sequence[TranslationRow]) -> tuple[JobStatus, ErrorKind | None, str | None] | None:
    """How an article with these paragraphs ended; None while one waits or is missing. Pure."""
    if any(row.status == "waiting" for row in rows):
        return None
    bad = [row for row in rows if not row.is_there]
    if not bad:
        return JobStatus.ANSWERED, None, None
    for kind, status in ((ErrorKind.CANCELLED, JobStatus.CANCELLED), (ErrorKind.DEADLINE, JobStatus.EXPIRED)):
        if any(row.error_kind == kind for row in bad):
            return status, kind, f"{len(bad)} of {len(rows)} paragraphs were not translated"
    status = JobStatus.INCOMPLETE if any(row.status == "answered" for row in rows) else JobStatus.FAILED
    first = bad[0]
    text = (
        f"{len(bad)} of {len(rows)} paragraphs have no translation; "
        f"{first.language}, paragraph {first.paragraph + 1}: {first.error_message or first.status}"
    )
    return status, ErrorKind(first.error_kind) if first.error_kind else None, text


def translate_partition(run: PartitionRun) -> TranslationReport:
    """Translates the partition's pending articles, records every paragraph, publishes every result.

    Args:
        run: which run, which partition. With ``retry_failed`` articles that failed or are incomplete are taken up
            again, for the paragraphs that are missing; progress is of paragraphs.

    Raises:
        NatsUnavailableError, StreamError: when NATS can't be used.
        LakeError: when the lake can't.
    """
    jobs = run.claim(Task.TRANSLATE)
    work = _Work(run, jobs, translation_rows(run.warehouse, [job.job_id for job in jobs], **run.partition))
    work.plan()
    asyncio.run(work.everything())
    return work.report


class _Work:
    """The articles of one run."""

    def __init__(self, run: PartitionRun, jobs: Sequence[Job], there: Mapping[Key, TranslationRow]) -> None:
        self._run, self._config = run, run.foundry.config.translation
        self.report = TranslationReport(job_ids=[job.job_id for job in jobs])
        self._jobs = {job.job_id: job for job in jobs}
        self._there = dict(there)
        self._pieces: dict[str, list[Piece]] = {job.job_id: pieces_of(job, self._config) for job in jobs}
        self._claimed: list[Claimed] = []
        self._todo: dict[str, Piece] = {}
        self._gathered: list[TranslationRow] = []
        self._attempts: dict[str, list[Completion]] = {}
        self._ended: set[str] = set()
        self._done = 0

    def plan(self) -> None:
        """What is kept, what is there, and what is to be asked for."""
        for piece in (p for pieces in self._pieces.values() for p in pieces):
            row = self._there.get(piece.key)
            is_same = row is not None and row.source_digest == piece.digest
            final = row is not None and (row.is_there or (row.status != "waiting" and not self._run.retry_failed))
            if is_same and final:
                self.report.unchanged += 1
            elif not piece.is_prose:
                self._take(piece.row("kept", text=piece.text))
            else:
                self._there.pop(piece.key, None)
                request = request_of(piece, self._config)
                self._claimed.append(Claimed(request, part_of=piece.job.job_id))
                self._todo[request.job_id] = piece

    async def everything(self) -> None:
        """Asks for it, records and publishes as it comes."""
        run, claimed = self._run, self._claimed
        rates = await asyncio.to_thread(measured_rates, run.foundry) if claimed else {}
        async with JetStream(run.foundry.nats) as js:
            await js.ensure_stream(run.foundry.config.streams.results)
            self._results = Results(js, run)
            if claimed:
                async with asked_fleet(js, run.foundry, rates, claimed, run.run_id) as fleet:
                    work = fleet.dispatch(self._on_attempt, self._on_done, self._put_off)
                    await while_flushing(work, self._flush, FLUSH_EVERY_S)
            await self._flush()
            if self.report.put_off:
                await asyncio.to_thread(put_off_jobs, run.warehouse, self.report.put_off, **run.where)
            await self._results.publish_left()
            self.report.published = self._results.published

    def _take(self, row: TranslationRow) -> None:
        self._there[row.key] = row
        self._gathered.append(row)
        self.report.paragraphs[row.status] = self.report.paragraphs.get(row.status, 0) + 1

    def _on_attempt(self, item: WorkItem, completion: Completion) -> None:
        self._attempts.setdefault(item.job.job_id, []).append(completion)

    def _on_done(self, item: WorkItem, outcome: JobOutcome) -> None:
        piece = self._todo[item.job.job_id]
        attempts = self._attempts.pop(item.job.job_id, [])
        last = attempts[-1] if attempts else None
        notes = [f"attempt_failed: {a.worker}: {a.error_message}" for a in attempts[:-1]]
        text = last.text.strip() if last else ""
        status, kind, message = str(outcome.status), outcome.error_kind, outcome.error_message
        if outcome.status is JobStatus.ANSWERED and not text:
            status, kind, message = "incomplete", ErrorKind.TRUNCATED_STREAM, "the model answered with nothing"
        elif outcome.status is JobStatus.ANSWERED and last is not None and last.finish_reason == "length":
            status, kind, message = "incomplete", ErrorKind.TRUNCATED_STREAM, CUT_OFF
        elif outcome.status not in (JobStatus.ANSWERED, JobStatus.INCOMPLETE):
            status = "failed"
        if status == "answered":
            notes += doubts_about(piece.text, text)
        self._take(
            piece.row(
                status,
                text=text or None,
                model=piece.job.model,
                worker=last.worker if last else None,
                attempts=len(attempts),
                e2e_s=last.timings.e2e_s if last else None,
                prompt_tokens=last.prompt_tokens if last else None,
                completion_tokens=last.completion_tokens if last else None,
                error_kind=None if kind is None else str(kind),
                error_message=message,
                notes=tuple(notes),
            )
        )

    def _put_off(self, job_id: str, reason: str) -> None:
        piece = self._todo[job_id]
        self._take(piece.row("waiting", model=piece.job.model, error_message=reason))
        self.report.put_off[piece.job.job_id] = reason

    async def _flush(self) -> None:
        """Records what has gathered, ends the articles that are through, publishes them."""
        taken = self._gathered[:]
        self._gathered.clear()
        await asyncio.to_thread(record_translations, self._run.warehouse, taken, **self._run.where)
        ended = []
        for job_id, pieces in self._pieces.items():
            rows = [row for p in pieces if (row := self._there.get(p.key)) is not None]
            found = outcome_of(rows) if len(rows) == len(pieces) and job_id not in self._ended else None
            if found is not None:
                self._ended.add(job_id)
                self.report.by_status[found[0]] = self.report.by_status.get(found[0], 0) + 1
                ended.append(JobOutcome(job_id, *found, sum(r.attempts for r in rows), datetime.now(UTC)))
        if ended:
            await asyncio.to_thread(record_completions, self._run.warehouse, [], ended, **self._run.where)
            await self._results.publish([(self._jobs[outcome.job_id], outcome, None) for outcome in ended])
        if taken:
            self._done += len(taken)
            left = sum(piece.key not in self._there for piece in self._todo.values())
            self._run.on_progress(self._done, self._done + left)
