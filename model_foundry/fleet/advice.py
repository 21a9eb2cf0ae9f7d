"""Where a model or a domain is placed badly, by what was measured, and which line of the configuration would change it.

Belongs here: which measured place is held against which budget, what the evidence shows, what follows from it. Does not
belong here: the formulas (``statistics``), reading the lake (``sql/show/placement.sql``), changing anything: a proposal
is a text for a person to paste. Pure.

Each domain × model × worker with a budget is a row. It is

- ``over`` when more than 5% of its answers are over the budget: exact binomial test, p < 0.05 after Holm's correction
  over all rows, so that in a fleet that is exactly at its budgets any row is called over with at most 5% probability;
- ``within`` when the one-sided 95% upper bound of that share is at most 5%, each row by itself;
- ``not shown`` when neither is: there are too few answers to say.

Another place is better when it is shown within the exceeded budget in the same domain, or faster: lower median and
p < 0.05 of a one-sided Mann-Whitney test after Holm's correction over all such comparisons.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import yaml

from model_foundry.config import BudgetConfig, FoundryConfig
from model_foundry.routing import candidates_of, workers_for
from model_foundry.statistics import (
    LEVEL,
    MIN_N_P95,
    Exceedance,
    exceedance,
    holm,
    median_interval,
    more_to_show_within,
    p_faster,
    quantile,
)

NO_BUDGETS = (
    "No budgets. In foundry.yaml: fleet: {budgets: [{domain: code, p95_s: 10}]}; also by model, worker, or for all"
)
NOTHING_MEASURED = "No warm answer of the window matches a budget of fleet.budgets"
NOWHERE_BETTER = "over budget; no better place is measured"


class Verdict(StrEnum):
    """What a row's evidence shows."""

    OVER = "over"
    NOT_SHOWN = "not shown"
    WITHIN = "within"


@dataclass(frozen=True, slots=True)
class Cell:
    """The measured seconds of one domain × model × worker, ascending; ``math.inf`` for each that ran out of time."""

    domain: str
    model: str
    worker: str
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A measured place held against its budget. Seconds; unknown is None.

    Attributes:
        budget_s: at most 5% may take longer.
        n: warm answers, and attempts that ran out of time.
        over: those over the budget, all that ran out of time included.
        share: over / n.
        share_low: one-sided 95% lower bound of the share, exact, not corrected for the number of rows.
        share_high: upper bound, likewise.
        p_over: of the exact test that the share is at most 5%, after Holm over all rows.
        p50_s: the median; None when it lies among those that ran out of time.
        p50_low_s: lower end of its distribution-free 95% interval; None below 6 observations.
        p50_high_s: upper end; None also when it lies among those that ran out of time.
        p95_s: only from 59 on; None when it lies among those that ran out of time.
        p95_note: why there is none.
        more_needed: how many more answers, none over the budget, would show it within; 0 when it is, None when over.
        advice: what follows, in words.
    """

    domain: str
    model: str
    worker: str
    budget_s: float
    verdict: Verdict
    n: int
    over: int
    share: float
    share_low: float
    share_high: float
    p_over: float
    p50_s: float | None
    p50_low_s: float | None
    p50_high_s: float | None
    p95_s: float | None
    p95_note: str | None
    more_needed: int | None
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change that the evidence speaks for. Nothing is changed until a person pastes ``config``.

    Attributes:
        kind: ``take_off`` (a model off a worker) or ``prefer`` (a model in a domain).
        subject: the change in one line.
        why: the evidence: n, share over, bounds, p-values.
        config: YAML to paste into the configuration, in place of what stands at its keys.
    """

    kind: str
    subject: str
    why: str
    config: str


@dataclass(frozen=True, slots=True)
class Advice:
    """All rows, worst verdict first; the proposals; all their changes as one YAML text, fit to be pasted at once."""

    rows: tuple[Row, ...] = ()
    proposals: tuple[Proposal, ...] = ()
    config: str = ""
    hint: str | None = None

    @property
    def status(self) -> str:
        """``empty`` when nothing can be said, and ``hint`` why; else ``done``."""
        return "done" if self.rows else "empty"

    def count(self, verdict: Verdict) -> int:
        """How many rows have the verdict."""
        return sum(row.verdict is verdict for row in self.rows)


def cells_from_rows(rows: Iterable[Mapping[str, Any]]) -> list[Cell]:
    """The measured places, from the rows of ``sql/show/placement.sql``."""
    return [
        Cell(row["domain"], row["model"], row["worker"], (*row["seconds"], *[math.inf] * row["timeouts"]))
        for row in rows
        if row["seconds"] or row["timeouts"]
    ]


def budget_for(budgets: Iterable[BudgetConfig], domain: str, model: str, worker: str) -> BudgetConfig | None:
    """The budget that counts for a place: of those that match, the one that names most; among equals the strictest."""
    matching = [
        budget
        for budget in budgets
        if budget.domain in (None, domain) and budget.model in (None, model) and budget.worker in (None, worker)
    ]
    return min(matching, key=lambda b: (-_named(b), b.p95_s), default=None)


def advise(config: FoundryConfig, cells: Sequence[Cell]) -> Advice:
    """What the measured places show against ``fleet.budgets``, and what follows from it."""
    if not config.fleet.budgets:
        return Advice(hint=NO_BUDGETS)
    rows = _judged(config, cells)
    if not rows:
        return Advice(hint=NOTHING_MEASURED)
    questions = [*_questions_of_workers(config, rows, cells), *_questions_of_domains(config, rows, cells)]
    answers = _compared(questions)
    removals, reasons = _removals(config, [a for a in answers if a.question.row is not None])
    preferences = _preferences([a for a in answers if a.question.row is None])
    changes = [*_changes_of_removals(config, removals), *_changes_of_preferences(config, preferences)]
    proposals = tuple(proposal for proposal, _ in changes)
    advised = [_with_advice(config, row, removals, preferences, reasons) for row in rows]
    order = list(Verdict)
    return Advice(
        rows=tuple(sorted(advised, key=lambda r: (order.index(r.verdict), r.p_over, r.domain, r.model, r.worker))),
        proposals=proposals,
        config=_yaml(_merged([change for _, change in changes])) if changes else "",
    )


# -- the rows -----------------------------------------------------------------------------------------------------


def _named(budget: BudgetConfig) -> int:
    return sum(name is not None for name in (budget.domain, budget.model, budget.worker))


def _judged(config: FoundryConfig, cells: Sequence[Cell]) -> list[Row]:
    """Each measured place that has a budget."""
    found: list[tuple[Cell, float, Exceedance]] = []
    for cell in cells:
        budget = budget_for(config.fleet.budgets, cell.domain, cell.model, cell.worker)
        if budget is not None:
            found.append((cell, budget.p95_s, exceedance(cell.seconds, budget.p95_s)))
    adjusted = holm([shown.p_over for _, _, shown in found])
    return [
        _row(cell, budget_s, shown, p, len(found)) for (cell, budget_s, shown), p in zip(found, adjusted, strict=True)
    ]


def _row(cell: Cell, budget_s: float, shown: Exceedance, p_over: float, rows: int) -> Row:
    """One row, its verdict, and its advice as far as it needs no other row."""
    more: int | None = more_to_show_within(shown.over, shown.n)
    if p_over < LEVEL:
        verdict, more, advice = Verdict.OVER, None, NOWHERE_BETTER
    elif shown.p_within <= LEVEL:
        verdict, advice = Verdict.WITHIN, "within its budget"
    else:
        verdict = Verdict.NOT_SHOWN
        advice = f"too few answers to say; {more} more, none over, would show it within"
        if shown.p_over < LEVEL:
            advice = f"over by itself (p {shown.p_over:.2g}), but not as one of {rows} rows (Holm: {p_over:.2g})"
    p95_s = quantile(cell.seconds, 0.95) if shown.n >= MIN_N_P95 else None
    note = None if p95_s is not None else (f"n<{MIN_N_P95}" if shown.n < MIN_N_P95 else "ran out of time")
    low, high = median_interval(cell.seconds)
    return Row(
        domain=cell.domain,
        model=cell.model,
        worker=cell.worker,
        budget_s=budget_s,
        verdict=verdict,
        n=shown.n,
        over=shown.over,
        share=shown.share,
        share_low=shown.low,
        share_high=shown.high,
        p_over=p_over,
        p50_s=quantile(cell.seconds, 0.5),
        p50_low_s=low,
        p50_high_s=high,
        p95_s=p95_s,
        p95_note=note,
        more_needed=more,
        advice=advice,
    )


# -- which other place is better ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Question:
    """Is another place better than one that is over its budget?

    ``row`` is the row that is over when another worker for the same model is asked about; None when it is another model
    for the domain.
    """

    domain: str
    model: str
    other: str
    budget_s: float
    here: tuple[float, ...]
    there: tuple[float, ...]
    row: Row | None = None
    over_there: bool = False


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the tests say: ``p`` that the other place is not faster, after Holm over all questions."""

    question: _Question
    shown: Exceedance
    p: float
    faster: bool

    @property
    def within(self) -> bool:
        """Whether the other place is shown within the budget that is exceeded here."""
        return self.shown.p_within <= LEVEL

    @property
    def better(self) -> bool:
        """Whether the evidence speaks for the other place."""
        return self.within or self.faster

    def words(self) -> str:
        """The evidence for the other place."""
        q, shown, parts = self.question, self.shown, []
        if self.within:
            parts.append(f"within {q.budget_s:g} s there ({_share(shown)}, at most {_percent(shown.high)})")
        if self.faster:
            here, there = (_seconds(quantile(s, 0.5)) for s in (q.here, q.there))
            parts.append(f"faster there (median {there} of {shown.n} against {here}, Mann-Whitney p {self.p:.2g})")
        return f"{q.other}: {' and '.join(parts)}"


def _questions_of_workers(config: FoundryConfig, rows: Sequence[Row], cells: Sequence[Cell]) -> list[_Question]:
    """For every row that is over: each other worker that serves the model in its lane and is measured in the domain."""
    measured = {(c.domain, c.model, c.worker): c.seconds for c in cells}
    return [
        _Question(
            row.domain,
            row.model,
            worker,
            row.budget_s,
            measured[row.domain, row.model, row.worker],
            measured[row.domain, row.model, worker],
            row,
        )
        for row in rows
        if row.verdict is Verdict.OVER and _is_placed(config, row)
        for worker in workers_for(config, row.model, config.models[row.model].capability)
        if worker != row.worker and (row.domain, row.model, worker) in measured
    ]


def _questions_of_domains(config: FoundryConfig, rows: Sequence[Row], cells: Sequence[Cell]) -> list[_Question]:
    """For every domain whose first candidate is over on all its workers: each later candidate measured in it."""
    measured = {(c.domain, c.model, c.worker): c.seconds for c in cells}
    judged = {(r.domain, r.model, r.worker): r for r in rows}
    found = []
    for domain in config.domains:
        served = [c for c in candidates_of(config, domain) if c.workers]
        first = [judged.get((domain, c.model, worker)) for c in served[:1] for worker in c.workers]
        over = [row for row in first if row is not None and row.verdict is Verdict.OVER]
        if not over or len(over) < len(first):
            continue
        here = _pooled(measured[domain, row.model, row.worker] for row in over)
        for candidate in served[1:]:
            places = [
                (domain, candidate.model, w) for w in candidate.workers if (domain, candidate.model, w) in measured
            ]
            if places and candidate.model != over[0].model:
                there = _pooled(measured[place] for place in places)
                also_over = any(judged[p].verdict is Verdict.OVER for p in places if p in judged)
                budget_s = min(row.budget_s for row in over)
                question = _Question(domain, over[0].model, candidate.model, budget_s, here, there, None, also_over)
                found.append(question)
    return found


def _compared(questions: Sequence[_Question]) -> list[_Answer]:
    """Each question with its tests; one correction over all of them."""
    ps = holm([p_faster(q.there, q.here) for q in questions])
    return [
        _Answer(
            q,
            exceedance(q.there, q.budget_s),
            p,
            p < LEVEL and _median(q.there) < _median(q.here),
        )
        for q, p in zip(questions, ps, strict=True)
    ]


def _is_placed(config: FoundryConfig, row: Row) -> bool:
    """Whether the configuration still has the model on the worker: what was measured may be of before a change."""
    return row.model in config.models and row.worker in config.workers and config.serves(row.worker, row.model)


def _median(sample: Sequence[float]) -> float:
    """The median, ``math.inf`` when it lies among those that ran out of time."""
    found = quantile(sample, 0.5)
    return math.inf if found is None else found


def _pooled(samples: Iterable[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(heapq.merge(*samples))


# -- proposals -----------------------------------------------------------------------------------------------------

_Removals = dict[tuple[str, str], list[_Answer]]
"""By (model, worker): why another worker is better, at least one answer each."""


def _removals(config: FoundryConfig, answers: Sequence[_Answer]) -> tuple[_Removals, dict[tuple[str, str], str]]:
    """Which model to take off which worker, so that all of it together leaves each with a better place.

    A worker that is better in one domain and worse in another is no better place. Of a circle of workers, each better
    than the next in some domain, the one with the weakest evidence keeps the model. The second mapping says why not.
    """
    better: defaultdict[tuple[str, str], list[_Answer]] = defaultdict(list)
    for answer in answers:
        if answer.better and answer.question.row is not None:
            better[answer.question.model, answer.question.row.worker].append(answer)
    beaten = {(m, worker, a.question.other) for (m, worker), found in better.items() for a in found}
    accepted: _Removals = {}
    reasons: dict[tuple[str, str], str] = {}
    for (model, worker), found in sorted(better.items(), key=lambda item: (_strength(item[1]), item[0])):
        mutual = {a.question.other for a in found if (model, a.question.other, worker) in beaten}
        left = {w for m, w in accepted if m == model}
        places = {a.question.other for a in found} - mutual - left
        others_stay = all({a.question.other for a in accepted[model, w]} - left - {worker} for w in left)
        if places and others_stay:
            accepted[model, worker] = [a for a in found if a.question.other not in mutual]
        elif mutual:
            names = ", ".join(sorted(mutual))
            reasons[model, worker] = f"over budget; {names} is better here and worse in another domain"
        else:
            reasons[model, worker] = "over budget; its better places are to lose the model themselves"
    return accepted, reasons


def _strength(answers: Sequence[_Answer]) -> float:
    return min(a.question.row.p_over for a in answers if a.question.row is not None)


def _preferences(answers: Sequence[_Answer]) -> dict[str, _Answer]:
    """Which model each domain should prefer: one shown within before one that is only faster, then the lower median."""
    found: defaultdict[str, list[_Answer]] = defaultdict(list)
    for answer in answers:
        if answer.faster or (answer.within and not answer.question.over_there):
            found[answer.question.domain].append(answer)
    return {
        domain: min(better, key=lambda a: (not a.within, _median(a.question.there))) for domain, better in found.items()
    }


def _changes_of_removals(config: FoundryConfig, removals: _Removals) -> list[tuple[Proposal, dict[str, Any]]]:
    """The proposals to take a model off a worker. Those of one worker share a line: pasting one undoes no other."""
    changes = []
    for (model, worker), answers in removals.items():
        gone = [m for m, w in removals if w == worker]
        kept = {m: name for m, name in _models_of(config, worker).items() if m not in gone}
        line = list(kept) if all(m == name for m, name in kept.items()) else kept
        change = {"workers": {worker: {"models": line}}}
        words = []
        for domain in dict.fromkeys(a.question.domain for a in answers):
            of_domain = [a for a in answers if a.question.domain == domain]
            row = of_domain[0].question.row
            if row is not None:
                words.append(f"{domain}: {_over_words(row)}; {'; '.join(a.words() for a in of_domain)}.")
        if len(gone) > 1:
            others = ", ".join(m for m in gone if m != model)
            words.append(f"The line also leaves out {others}, see there.")
        if not kept:
            words.append(f"Nothing is left for {worker} to serve.")
        roles = [name for name, role in config.roles.items() if role.model == model and role.worker == worker]
        if roles:
            words.append(f"Its place is also named by: {', '.join(f'roles.{name}.worker' for name in roles)}.")
        changes.append((Proposal("take_off", f"take {model} off {worker}", " ".join(words), _yaml(change)), change))
    return changes


def _changes_of_preferences(
    config: FoundryConfig, preferences: Mapping[str, _Answer]
) -> list[tuple[Proposal, dict[str, Any]]]:
    """The proposals that a domain tries another model first."""
    changes = []
    for domain, answer in preferences.items():
        question = answer.question
        rest = [m for m in config.domains[domain].candidates if m != question.other]
        change = {"domains": {domain: {"candidates": [question.other, *rest]}}}
        here = exceedance(question.here, question.budget_s)
        why = (
            f"{question.model}, its first candidate, is over budget on every worker that serves it: {_share(here)} "
            f"over {question.budget_s:g} s, at least {_percent(here.low)}; {answer.words()}."
        )
        proposal = Proposal("prefer", f"domain {domain} prefers {question.other}", why, _yaml(change))
        changes.append((proposal, change))
    return changes


def _with_advice(
    config: FoundryConfig,
    row: Row,
    removals: _Removals,
    preferences: Mapping[str, _Answer],
    reasons: Mapping[tuple[str, str], str],
) -> Row:
    """A row that is over, with what follows from it."""
    if row.verdict is not Verdict.OVER:
        return row
    place = (row.model, row.worker)
    says = []
    if any(a.question.domain == row.domain for a in removals.get(place, ())):
        says.append(f"take {row.model} off {row.worker}")
    preferred = preferences.get(row.domain)
    if preferred is not None and preferred.question.model == row.model:
        says.append(f"domain {row.domain} prefers {preferred.question.other}")
    if says:
        return replace(row, advice="over budget; " + " and ".join(says))
    if not _is_placed(config, row):
        return replace(row, advice="over budget; the configuration does not have it there (any more)")
    return replace(row, advice=reasons.get(place, NOWHERE_BETTER))


def _models_of(config: FoundryConfig, worker: str) -> dict[str, str]:
    """The models that a worker serves, each with the server's name of it."""
    listed = config.workers[worker].models
    return {m: m for m in config.models if config.serves(worker, m)} if listed is None else dict(listed)


# -- words ---------------------------------------------------------------------------------------------------------


def _over_words(row: Row) -> str:
    share = f"{row.over} of {row.n} ({_percent(row.share)}, at least {_percent(row.share_low)})"
    return f"{share} took longer than {row.budget_s:g} s, p {row.p_over:.2g}"


def _share(shown: Exceedance) -> str:
    return f"{shown.over} of {shown.n}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _seconds(value: float | None) -> str:
    return "beyond the time limit" if value is None else f"{value:.3g} s"


def _yaml(change: Mapping[str, Any]) -> str:
    """YAML with the innermost lists and mappings on one line, however long."""
    text: str = yaml.safe_dump(change, default_flow_style=None, sort_keys=False, allow_unicode=True, width=10_000)
    return text


def _merged(changes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Changes of the same depth as one; what stands at a worker's or domain's key replaces."""
    merged: dict[str, Any] = {}
    for change in changes:
        for section, names in change.items():
            for name, keys in names.items():
                merged.setdefault(section, {}).setdefault(name, {}).update(keys)
    return merged
