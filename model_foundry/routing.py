"""Routing: from a readable message and the configuration to a job in exactly one lane. Pure functions only.

Belongs here: which domain, model, lane and workers a job gets, and why. Does not belong here: reading bytes
(``envelopes``), telling domains apart (``domains``), who is alive or has a free slot (``inference.dispatch``).

The rule, first match wins:

1. a model is named       -> that model, in its capability's lane (or the named capability's, if a worker offers both)
2. a role is named        -> the role's model; the role's worker is asked first; for a role that is off in the profile
                             its substitute stands, if it has one that is on
3. neither                -> the domain's candidates in configured order; the first whose lane some worker serves

Before it: what asks for a lane of searches is a search, and has no model. A translation, and a prompt that asks for the
capability ``translation``, is for the translator (the first role of that kind that is on) when no model or role is
named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from model_foundry.config import SEARCH_API, TRANSLATION_LANE, FoundryConfig
from model_foundry.domains import classify, language_of
from model_foundry.jetstream.subjects import subject_matches
from model_foundry.languages import UnknownLanguage, language_name
from model_foundry.records import GROUNDS, UNROUTABLE_LANE, ErrorKind, Job, JobStatus, PromptEnvelope, Task


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that could answer, where, and whether anybody serves it there."""

    model: str
    lane: str
    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Route:
    """The decision for one prompt. ``error_kind`` is set when the job can't be used; the lane is then `unroutable`.

    ``role`` is the one that answers, which is not the one asked for where that is off.
    """

    domain: str
    domain_source: str
    language: str
    lane: str
    model: str | None
    reason: str
    candidates: tuple[Candidate, ...] = ()
    error_kind: ErrorKind | None = None
    error_message: str | None = None
    role: str | None = None


def partition_date(published_at: datetime, first_date: date) -> date:
    """The daily partition of a message: the UTC date of the stream's timestamp, never before the first partition."""
    return max(published_at.astimezone(UTC).date(), first_date)


def workers_for(config: FoundryConfig, model: str, lane: str, role: str | None = None) -> tuple[str, ...]:
    """The workers that declare the lane and serve the model, first choice first.

    The role's worker leads; then those that put this lane earlier in ``supports``; then the order of the file.
    """
    preferred = config.roles[role].worker if role in config.roles else None
    able = [name for name, w in config.workers.items() if lane in w.supports and config.serves(name, model)]
    return tuple(sorted(able, key=lambda name: (name != preferred, config.workers[name].supports.index(lane))))


def searchers_for(config: FoundryConfig, lane: str) -> tuple[str, ...]:
    """The search servers of a lane, first choice first."""
    able = [name for name, w in config.workers.items() if lane in w.supports and w.api == SEARCH_API]
    return tuple(sorted(able, key=lambda name: config.workers[name].supports.index(lane)))


def translator_of(config: FoundryConfig) -> str | None:
    """The role that translates: the first of the kind ``translator`` that is on."""
    return next((name for name in config.active_roles if config.roles[name].kind == "translator"), None)


def worker_ranks(config: FoundryConfig, workers: Sequence[str], lane: str, role: str | None = None) -> tuple[int, ...]:
    """The rank of each worker of :func:`workers_for`; workers of equal rank are taken by free slots."""
    preferred = config.roles[role].worker if role in config.roles else None
    later = len(config.capabilities)  # more than any place in `supports`: the role's worker comes before all others
    return tuple(
        config.workers[name].supports.index(lane) + (0 if preferred in (None, name) else later) for name in workers
    )


def candidates_of(config: FoundryConfig, domain: str, capability: str | None = None) -> tuple[Candidate, ...]:
    """The models that may answer for a domain, in configured order; a named capability narrows them.

    A domain that is not configured uses the default domain's candidates. When a capability is named and no candidate
    has it, every model of that capability is one.
    """
    names: Sequence[str] = (config.domains.get(domain) or config.domains[config.default_domain]).candidates
    if capability is not None:
        of_capability = [m for m, c in config.models.items() if c.capability == capability]
        names = [m for m in names if m in of_capability] or of_capability
    lanes = [(m, config.models[m].capability) for m in names]
    return tuple(Candidate(m, lane, workers_for(config, m, lane)) for m, lane in lanes)


def role_on(config: FoundryConfig, role: str) -> str | None:
    """The role itself when it is on, else the first of its substitutes, and of theirs, that is on; None without one."""
    seen: set[str] = set()
    name: str | None = role
    while name is not None and name not in config.active_roles:
        if name in seen or name not in config.roles:
            return None
        seen.add(name)
        name = config.roles[name].substitute
    return name


def decide(config: FoundryConfig, envelope: PromptEnvelope) -> Route:
    """Routes one readable prompt. Pure: the same envelope and configuration always give the same route."""
    if envelope.domain is not None:
        domain, source, why = envelope.domain, envelope.domain_source or "message", "given by the sender"
    elif envelope.translate is not None and TRANSLATION_LANE in config.domains:
        domain, source, why = TRANSLATION_LANE, "classified", "a translation is asked for"
    else:
        found = classify(envelope.prompt, config.domains, config.default_domain)
        domain, source, why = found.domain, "classified", found.reason
    language = language_of(envelope.prompt)

    def rejected(kind: ErrorKind, message: str) -> Route:
        return Route(domain, source, language, UNROUTABLE_LANE, envelope.model, message, (), kind, message)

    if envelope.problem is not None:
        return rejected(ErrorKind.INVALID_REQUEST, envelope.problem)
    if envelope.reply_to is not None and not any(
        subject_matches(envelope.reply_to, pattern) for pattern in config.limits.reply_subjects
    ):
        allowed = ", ".join(config.limits.reply_subjects)
        return rejected(ErrorKind.INVALID_REQUEST, f"reply_to is {envelope.reply_to!r}; allowed subjects: {allowed}")
    if envelope.capability is not None and envelope.capability not in config.capabilities:
        allowed = ", ".join(config.capabilities)
        return rejected(ErrorKind.UNKNOWN_CAPABILITY, f"capability is {envelope.capability!r}; allowed: {allowed}")
    if problem := _sources_problem(config, envelope):
        return rejected(ErrorKind.INVALID_REQUEST, problem)
    if envelope.capability in config.search_lanes:
        return _search_route(config, envelope, domain, source, language, rejected)
    translator = translator_of(config) if _is_for_translator(envelope) else None
    role = role_on(config, envelope.role) if envelope.role is not None else translator
    if envelope.role is not None and role is None:
        state = f"is off in profile {config.profile!r}" if envelope.role in config.roles else "is not configured"
        allowed = ", ".join(config.active_roles) or "(none)"
        return rejected(ErrorKind.UNKNOWN_ROLE, f"role {envelope.role!r} {state}; allowed: {allowed}")
    if envelope.model is not None and envelope.model not in config.models:
        allowed = ", ".join(config.models)
        return rejected(ErrorKind.UNKNOWN_MODEL, f"model is {envelope.model!r}; allowed: {allowed}")

    if envelope.model is not None or role is not None:
        model = envelope.model or config.roles[role or ""].model
        named = f"model {model} named" if envelope.model else f"role {role} stands for {model}"
        if envelope.role is not None and role != envelope.role:
            named = f"role {envelope.role} is off in profile {config.profile}, {role} answers for it: {named}"
        wanted = envelope.capability
        if wanted is None and envelope.translate and TRANSLATION_LANE in config.capabilities:
            wanted = TRANSLATION_LANE
        lane = _lane_of(config, model, wanted)
        if envelope.capability is not None and lane != envelope.capability:
            return rejected(
                ErrorKind.INVALID_REQUEST,
                f"capability is {envelope.capability!r}, but {model} needs {config.models[model].capability!r} "
                "and no worker serves it in the other lane",
            )
        choice = Candidate(model, lane, workers_for(config, model, lane, role))
        return Route(domain, source, language, lane, model, f"{named}: lane {lane}", (choice,), role=role)

    wanted = envelope.capability
    if envelope.translate is not None and wanted is None:
        wanted = TRANSLATION_LANE if TRANSLATION_LANE in config.capabilities else None
    choices = candidates_of(config, domain, wanted)
    if not choices:
        return rejected(ErrorKind.NO_WORKER, f"no model has the capability {wanted!r}; give one to a model in `models`")
    served = next((c for c in choices if c.workers), choices[0])
    reason = f"domain {domain} ({why}): {served.model} is its first candidate"
    if served is not choices[0]:
        reason = f"domain {domain} ({why}): {served.model} is its first candidate that a worker serves"
    return Route(domain, source, language, served.lane, served.model, f"{reason}, lane {served.lane}", choices)


def _is_for_translator(envelope: PromptEnvelope) -> bool:
    """Whether the translator role answers: a translation, or its lane, with no model or role named."""
    if envelope.model is not None or envelope.role is not None:
        return False
    return envelope.translate is not None or envelope.capability == TRANSLATION_LANE


def _sources_problem(config: FoundryConfig, envelope: PromptEnvelope) -> str | None:
    """What of the sources or languages that are asked for can't be had here."""
    unknown = [repr(ground) for ground in envelope.ground if ground not in GROUNDS]
    if unknown:
        return f"ground is {', '.join(unknown)}; allowed: {', '.join(GROUNDS)}"
    if "web" in envelope.ground and not config.search_lanes:
        return "ground asks for web, and no worker has the api searxng; add one to `workers`"
    if "notes" in envelope.ground and config.notes is None:
        return "ground asks for notes, and the configuration has no section `notes`"
    if envelope.translate is not None:
        try:
            for code in (*envelope.translate.to, *filter(None, (envelope.translate.source,))):
                language_name(code)
        except UnknownLanguage as error:
            return f"translate: {error}"
    return None


def _search_route(
    config: FoundryConfig,
    envelope: PromptEnvelope,
    domain: str,
    source: str,
    language: str,
    rejected: Callable[[ErrorKind, str], Route],
) -> Route:
    """Where a search goes."""
    lane = envelope.capability or ""
    for name in ("model", "role", "ground", "translate"):
        if getattr(envelope, name):
            return rejected(
                ErrorKind.INVALID_REQUEST,
                f"capability {lane!r} is a search, which has no {name}; leave one of them out",
            )
    return Route(
        domain,
        source,
        language,
        lane,
        None,
        f"a search: lane {lane}",
        (Candidate("", lane, searchers_for(config, lane)),),
    )


def _task_of(config: FoundryConfig, envelope: PromptEnvelope, lane: str) -> Task:
    if lane in config.search_lanes:
        return Task.SEARCH
    return Task.TRANSLATE if envelope.translate is not None else Task.ANSWER


def route(config: FoundryConfig, envelope: PromptEnvelope) -> Job:
    """The job that a readable prompt becomes; ``rejected`` in the lane ``unroutable`` when it can't be used."""
    message, decision = envelope.message, decide(config, envelope)
    return Job(
        stream=message.stream,
        stream_created=message.stream_created,
        seq=message.seq,
        subject=message.subject,
        published_at=message.published_at,
        partition_date=partition_date(message.published_at, config.lake.first_date),
        job_id=envelope.job_id,
        correlation_id=envelope.correlation_id,
        domain=decision.domain,
        domain_source=decision.domain_source,
        language=decision.language,
        lane=decision.lane,
        model=decision.model,
        role=decision.role or envelope.role,
        capability=envelope.capability,
        prompt=envelope.prompt,
        messages=envelope.messages,
        params=envelope.params,
        priority=envelope.priority,
        deadline=envelope.deadline,
        reply_to=envelope.reply_to,
        metadata=envelope.metadata,
        traceparent=envelope.traceparent,
        extra=envelope.extra,
        notes=(
            envelope.notes
            if envelope.role is None or decision.role in (None, envelope.role)
            else (*envelope.notes, f"role {envelope.role} was asked for and is off")
        ),
        route_reason=decision.reason,
        status=JobStatus.REJECTED if decision.error_kind else JobStatus.PENDING,
        error_kind=decision.error_kind,
        error_message=decision.error_message,
        task=_task_of(config, envelope, decision.lane),
        ground=envelope.ground,
        query=envelope.query,
        translate=envelope.translate,
    )


def _lane_of(config: FoundryConfig, model: str, capability: str | None) -> str:
    """The model's own lane, or the named one when some worker serves the model there."""
    own = config.models[model].capability
    if capability is None or capability == own:
        return own
    return capability if workers_for(config, model, capability) else own
