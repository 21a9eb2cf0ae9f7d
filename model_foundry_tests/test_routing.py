from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_foundry.jetstream.subjects import subject_matches
from model_foundry.records import UNROUTABLE_LANE, ErrorKind, JobStatus
from model_foundry.routing import (
    candidates_of,
    decide,
    partition_date,
    route,
    worker_ranks,
    workers_for,
)
from model_foundry_tests.builders import a_config, a_message, an_envelope, raw_config

CONFIG = a_config()


def test_a_named_model_goes_to_its_capabilitys_lane() -> None:
    job = route(CONFIG, an_envelope(model="big"))
    assert (job.lane, job.model, job.status) == ("gpu_inference", "big", JobStatus.PENDING)


def test_a_named_role_stands_for_its_model_and_its_worker_is_asked_first() -> None:
    job = route(CONFIG, an_envelope(role="coder"))
    assert (job.lane, job.model) == ("gpu_inference", "big")
    assert workers_for(CONFIG, "big", "gpu_inference", "coder")[0] == "card"


def test_the_roles_worker_is_first_even_where_it_lists_the_lane_later() -> None:
    workers = raw_config()["workers"]
    roles = {"helper": {"model": "small", "worker": "card"}}
    config = a_config(workers=workers, roles=roles, profiles={})
    names = workers_for(config, "small", "cpu_inference", "helper")
    ranks = dict(zip(names, worker_ranks(config, names, "cpu_inference", "helper"), strict=True))
    assert ranks["card"] < ranks["moon"]


def test_without_model_and_role_the_domains_first_candidate_answers() -> None:
    assert route(CONFIG, an_envelope(domain="code", domain_source="message")).model == "big"
    job = route(CONFIG, an_envelope(prompt="What is the capital of Australia?"))
    assert (job.domain, job.domain_source, job.model, job.lane) == ("general", "classified", "small", "cpu_inference")


def test_a_candidate_that_no_worker_serves_is_passed_over() -> None:
    config = a_config(workers={"moon": raw_config()["workers"]["moon"]}, roles={}, profiles={})
    job = route(config, an_envelope(domain="code"))
    assert (job.model, job.lane) == ("small", "cpu_inference")


def test_when_no_candidate_is_served_the_job_keeps_its_lane_and_fails_there_visibly() -> None:
    config = a_config(workers={"moon": raw_config()["workers"]["moon"]}, roles={}, profiles={})
    job = route(config, an_envelope(domain="japanese"))
    assert (job.lane, job.status) == ("gpu_inference", JobStatus.PENDING)
    assert workers_for(config, "big", job.lane) == ()


def test_a_named_capability_narrows_the_candidates() -> None:
    assert route(CONFIG, an_envelope(domain="general", capability="gpu_inference")).model == "big"


def test_a_model_can_be_asked_for_in_another_lane_when_a_worker_offers_it_there() -> None:
    job = route(CONFIG, an_envelope(model="small", capability="gpu_inference"))
    assert (job.lane, job.status) == ("gpu_inference", JobStatus.PENDING)
    assert workers_for(CONFIG, "small", "gpu_inference") == ("card",)


def test_a_model_is_not_sent_to_a_lane_where_nobody_can_do_it() -> None:
    config = a_config(workers={"moon": raw_config()["workers"]["moon"]}, roles={}, profiles={})
    job = route(config, an_envelope(model="big", capability="cpu_inference"))
    assert (job.status, job.error_kind) == (JobStatus.REJECTED, ErrorKind.INVALID_REQUEST)
    assert "'cpu_inference'" in (job.error_message or "")
    assert "'gpu_inference'" in (job.error_message or "")


@pytest.mark.parametrize(
    ("fields", "kind", "words"),
    [
        ({"model": "gemma3:270b"}, ErrorKind.UNKNOWN_MODEL, ["gemma3:270b", "small, big"]),
        ({"role": "boss"}, ErrorKind.UNKNOWN_ROLE, ["boss", "coder, helper"]),
        ({"capability": "tpu"}, ErrorKind.UNKNOWN_CAPABILITY, ["tpu", "cpu_inference, gpu_inference"]),
        ({"reply_to": "$SYS.x"}, ErrorKind.INVALID_REQUEST, ["$SYS.x", "results.>"]),
        ({"problem": "prompt is blank"}, ErrorKind.INVALID_REQUEST, ["prompt is blank"]),
    ],
)
def test_what_can_not_be_used_is_a_rejected_job_in_its_own_lane(
    fields: dict[str, str], kind: ErrorKind, words: list[str]
) -> None:
    job = route(CONFIG, an_envelope(**fields))
    assert (job.status, job.lane, job.error_kind) == (JobStatus.REJECTED, UNROUTABLE_LANE, kind)
    for word in words:
        assert word in (job.error_message or "")


def test_a_role_that_the_profile_leaves_out_is_unknown_and_the_message_says_so() -> None:
    job = route(a_config(profile="minimal"), an_envelope(role="coder"))
    assert job.error_kind == ErrorKind.UNKNOWN_ROLE
    assert "off in profile 'minimal'" in (job.error_message or "")


def test_a_role_that_is_off_is_answered_by_its_substitute_if_it_has_one_that_is_on() -> None:
    roles = {
        "coder": {"model": "big", "worker": "card", "substitute": "reader"},
        "reader": {"model": "big", "substitute": "helper"},
        "helper": {"model": "small", "worker": "moon"},
    }
    config = a_config(profile="minimal", roles=roles)
    job = route(config, an_envelope(role="coder"))
    assert (job.status, job.role, job.model, job.lane) == (JobStatus.PENDING, "helper", "small", "cpu_inference")
    assert "coder is off in profile minimal, helper answers for it" in job.route_reason
    assert job.notes == ("role coder was asked for and is off",)
    assert route(a_config(roles=roles), an_envelope(role="coder")).role == "coder"


def test_substitutes_that_go_round_in_a_circle_are_none() -> None:
    roles = {"coder": {"model": "big", "substitute": "x"}, "x": {"model": "big", "substitute": "coder"}}
    config = a_config(profile="none", profiles={"none": []}, roles=roles)
    assert route(config, an_envelope(role="coder")).error_kind == ErrorKind.UNKNOWN_ROLE


def test_an_unconfigured_domain_of_the_sender_is_kept_and_uses_the_default_candidates() -> None:
    job = route(CONFIG, an_envelope(domain="poetry", domain_source="message"))
    assert (job.domain, job.model) == ("poetry", "small")
    assert [c.model for c in candidates_of(CONFIG, "poetry")] == ["small", "big"]


def test_workers_that_prefer_the_lane_come_first_and_ranks_say_so() -> None:
    assert workers_for(CONFIG, "small", "cpu_inference") == ("moon", "card")
    assert worker_ranks(CONFIG, ("moon", "card"), "cpu_inference") == (0, 1)


def test_the_partition_is_the_utc_date_of_the_stream_timestamp() -> None:
    tokyo_morning = datetime(2026, 12, 2, 8, 0, tzinfo=timezone(timedelta(hours=9)))
    assert partition_date(tokyo_morning, date(2026, 1, 1)) == date(2026, 12, 1)


def test_a_message_older_than_the_first_partition_lands_in_the_first_partition() -> None:
    old = a_message(published_at=datetime(2019, 5, 5, tzinfo=UTC))
    assert route(CONFIG, an_envelope(message=old)).partition_date == CONFIG.lake.first_date


@pytest.mark.parametrize(
    ("subject", "pattern", "matches"),
    [
        ("results.a", "results.>", True),
        ("results.a.b", "results.>", True),
        ("results", "results.>", False),
        ("resultsx.a", "results.>", False),
        ("_INBOX.abc.1", "_INBOX.>", True),
        ("a.b", "a.*", True),
        ("a.b.c", "a.*", False),
        ("a.*", "a.>", False),
        ("a.>", "a.>", False),
        ("a..b", "a.>", False),
        ("a.b c", "a.>", False),
    ],
)
def test_a_subject_matches_as_nats_matches(subject: str, pattern: str, matches: bool) -> None:
    assert subject_matches(subject, pattern) is matches


@given(
    prompt=st.text(max_size=200),
    model=st.none() | st.sampled_from(["small", "big", "nope"]),
    role=st.none() | st.sampled_from(["coder", "helper", "nope"]),
    capability=st.none() | st.sampled_from(["cpu_inference", "gpu_inference", "nope"]),
    domain=st.none() | st.sampled_from(["code", "general", "poetry"]),
)
def test_every_readable_prompt_is_routed_to_exactly_one_known_lane(
    prompt: str, model: str | None, role: str | None, capability: str | None, domain: str | None
) -> None:
    envelope = an_envelope(prompt=prompt, model=model, role=role, capability=capability, domain=domain)
    decision = decide(CONFIG, envelope)
    assert decision == decide(CONFIG, envelope)
    assert decision.lane in CONFIG.lanes
    assert (decision.lane == UNROUTABLE_LANE) == (decision.error_kind is not None)
    assert decision.error_kind is None or decision.error_message
    assert decision.error_kind is not None or decision.model in CONFIG.models
