"""Reading prompt messages: rejects, unusable jobs, defaults, and that nothing raises and nothing is lost."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_foundry.envelopes.fields import parse_rfc3339
from model_foundry.envelopes.prompts import read_prompt
from model_foundry.records import PromptEnvelope, Reject, StreamMessage
from model_foundry_tests.test_strict_json import JSON_VALUES

LIMIT_BYTES = 1 << 20


def message(
    body: Any = None,
    *,
    data: bytes | None = None,
    subject: str = "prompts.submit",
    headers: tuple[tuple[str, str], ...] = (),
) -> StreamMessage:
    return StreamMessage(
        stream="PROMPTS",
        stream_created=1_700_000_000,
        seq=7,
        subject=subject,
        published_at=datetime(2026, 12, 1, tzinfo=UTC),
        headers=headers,
        data=json.dumps({"prompt": "hi"} if body is None else body).encode() if data is None else data,
    )


def read(body: Any = None, **more: Any) -> PromptEnvelope:
    result = read_prompt(message(body, **more), max_message_bytes=LIMIT_BYTES)
    assert isinstance(result, PromptEnvelope), result
    return result


def reason(body: Any = None, **more: Any) -> str:
    sent = message(body, **more)
    result = read_prompt(sent, max_message_bytes=LIMIT_BYTES)
    assert isinstance(result, Reject), result
    assert result.message is sent
    return result.reason


def test_a_full_prompt_is_read_field_by_field() -> None:
    body = {
        "prompt": "書いて",
        "job_id": "j",
        "correlation_id": "c",
        "domain": "code",
        "model": "gemma3:12b",
        "role": "naughty",
        "capability": "gpu_inference",
        "params": {"max_tokens": 256, "temperature": 0, "seed": 1, "stop": ["x"], "top_k": 40},
        "priority": 3,
        "deadline": "2026-12-01T12:00:00Z",
        "reply_to": "results.me",
        "metadata": {"a": 1},
        "colour": None,
    }
    sent = message(body)
    assert read_prompt(sent, max_message_bytes=LIMIT_BYTES) == PromptEnvelope(
        message=sent,
        job_id="j",
        correlation_id="c",
        prompt="書いて",
        messages=[{"role": "user", "content": "書いて"}],
        domain="code",
        domain_source="message",
        model="gemma3:12b",
        role="naughty",
        capability="gpu_inference",
        params=body["params"],  # type: ignore[arg-type]
        priority=3,
        deadline=datetime(2026, 12, 1, 12, tzinfo=UTC),
        reply_to="results.me",
        metadata={"a": 1},
        extra={"colour": None},
    )


@pytest.mark.parametrize("name", ["job_id", "correlation_id", "domain", "model", "role", "capability", "reply_to"])
def test_a_nul_in_an_id_or_a_name_is_a_reject(name: str) -> None:
    assert f"{name} holds a NUL character" in reason({"prompt": "hi", name: "a\0b"})


def test_a_nul_in_a_subject_or_a_header_is_a_reject() -> None:
    assert "subject holds a NUL character" in reason(subject="prompts.submit.a\0b")
    for name in ("Nats-Msg-Id", "Correlation-Id", "traceparent"):
        assert f"{name} holds a NUL character" in reason(headers=((name, "a\0b"),))
    assert read({"prompt": "a\0b"}).prompt == "a\0b"


def test_no_prompt_may_take_the_default_id_of_another() -> None:
    told = "is what another message of the stream is called by default"
    assert told in reason({"prompt": "hi", "job_id": "PROMPTS-1700000000-8"})
    assert told in reason(headers=(("Nats-Msg-Id", "PROMPTS-1-1"),))
    for job_id in ("PROMPTS-1700000000-7", "PROMPTS-a-1", "EVENTS-1-1"):
        assert read({"prompt": "hi", "job_id": job_id}).job_id == job_id


def test_null_equals_absent_for_every_known_field() -> None:
    names = "messages job_id correlation_id domain model role capability params priority deadline reply_to metadata"
    envelope = read({"prompt": "hi"} | dict.fromkeys(names.split()))
    assert envelope.extra == {}
    assert (envelope.job_id, envelope.priority, envelope.params, envelope.problem) == (
        "PROMPTS-1700000000-7",
        0,
        {},
        None,
    )
    assert read({"prompt": "hi", "params": {"max_tokens": None, "model": None, "top_k": None}}).params == {
        "top_k": None
    }


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ([], "the body is a list; allowed: an object"),
        ("hi", "the body is text; allowed: an object"),
        ({"prompt": 1}, "prompt is a number; allowed: text"),
        ({"prompt": ["hi"]}, "prompt is a list; allowed: text"),
        ({"messages": {}}, "messages is an object; allowed: a list of messages"),
        ({"messages": ["hi"]}, "messages[0] is text; allowed: an object"),
        ({"messages": [{"content": "hi"}]}, "messages[0].role is null; allowed: text"),
        ({"messages": [{"role": 1}]}, "messages[0].role is a number; allowed: text"),
        (
            {"messages": [{"role": "user", "content": 5}]},
            "messages[0].content is a number; allowed: text, a list of parts or null",
        ),
        (
            {"messages": [{"role": "user", "content": ["hi"]}]},
            "messages[0].content[0] is text; allowed: an object",
        ),
        ({"job_id": 5}, "job_id is a number; allowed: text"),
        ({"correlation_id": True}, "correlation_id is true; allowed: text"),
        ({"domain": ["code"]}, "domain is a list; allowed: text"),
        ({"model": {}}, "model is an object; allowed: text"),
        ({"role": 1}, "role is a number; allowed: text"),
        ({"capability": 1}, "capability is a number; allowed: text"),
        ({"reply_to": 1}, "reply_to is a number; allowed: text"),
        ({"metadata": []}, "metadata is a list; allowed: an object"),
        ({"params": []}, "params is a list; allowed: an object"),
        ({"params": {"max_tokens": "9"}}, "params.max_tokens is text; allowed: a number"),
        ({"params": {"max_tokens": 1.5}}, "params.max_tokens is 1.5; allowed: a whole number"),
        ({"params": {"temperature": False}}, "params.temperature is false; allowed: a number"),
        ({"params": {"seed": True}}, "params.seed is true; allowed: a number"),
        ({"params": {"stop": 1}}, "params.stop is a number; allowed: text or a list of texts"),
        ({"params": {"stop": ["a", None]}}, "params.stop is a list; allowed: text or a list of texts"),
        ({"priority": "1"}, "priority is text; allowed: a number"),
        ({"priority": True}, "priority is true; allowed: a number"),
        ({"priority": 0.5}, "priority is 0.5; allowed: a whole number"),
        ({"deadline": 5}, "deadline is a number; allowed: text"),
        ({"deadline": ""}, "deadline: '' is no RFC 3339 time such as 2026-12-01T12:00:00Z"),
        ({"job_id": "é" * 257}, "job_id has 514 bytes; at most 512 are read"),
    ],
)
def test_what_cannot_be_read_is_a_reject_that_says_what_was_found_and_what_is_allowed(body: Any, told: str) -> None:
    given_body = {"prompt": "hi"} | body if isinstance(body, dict) and "messages" not in body else body
    assert reason(given_body) == told


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff\xfe", b'{"prompt":"a","prompt":"b"}', b'{"prompt":"\\ud800"}', b"NaN"]
)
def test_a_body_that_is_no_json_is_a_reject(data: bytes) -> None:
    assert reason(data=data)


def test_a_body_over_the_limit_is_a_reject_and_one_at_the_limit_is_not() -> None:
    data = b'{"prompt": "hi"}'
    assert isinstance(read_prompt(message(data=data), max_message_bytes=len(data)), PromptEnvelope)
    refused = read_prompt(message(data=data), max_message_bytes=len(data) - 1)
    assert isinstance(refused, Reject)
    assert refused.reason == "16 bytes; at most 15 are read (limits.max_message_bytes)"


@pytest.mark.parametrize(
    "subject",
    ["prompts", "prompts.submitted", "prompts.submit.", "prompts.submit.a.b", "prompts.cancel", "Prompts.submit", ""],
)
def test_any_other_subject_is_a_reject(subject: str) -> None:
    assert "prompts are prompts.submit and prompts.submit.<domain>" in reason(subject=subject)


def test_the_domain_of_the_message_wins_over_the_one_of_the_subject() -> None:
    from_subject = read(subject="prompts.submit.code")
    assert (from_subject.domain, from_subject.domain_source) == ("code", "subject")
    both = read({"prompt": "hi", "domain": "japanese"}, subject="prompts.submit.code")
    assert (both.domain, both.domain_source) == ("japanese", "message")
    assert both.notes == ("the subject says domain 'code'; the message's own wins",)
    assert read({"prompt": "hi", "domain": ""}, subject="prompts.submit.code").domain_source == "subject"
    assert (read().domain, read().domain_source) == (None, None)


def test_ids_come_from_the_body_then_the_first_header_in_any_case_then_the_sequence() -> None:
    headers = (
        ("nats-msg-id", "from-header"),
        ("Nats-Msg-Id", "second"),
        ("CORRELATION-ID", "trace"),
        ("TraceParent", "00-abc"),
    )
    by_header = read(headers=headers)
    assert (by_header.job_id, by_header.correlation_id, by_header.traceparent) == ("from-header", "trace", "00-abc")
    by_body = read({"prompt": "hi", "job_id": " J\t", "correlation_id": "c"}, headers=headers)
    assert (by_body.job_id, by_body.correlation_id) == (" J\t", "c")
    empty = read({"prompt": "hi", "job_id": ""}, headers=(("Nats-Msg-Id", ""), ("Nats-Msg-Id", "second")))
    assert (empty.job_id, empty.correlation_id, empty.traceparent) == ("PROMPTS-1700000000-7", None, None)


def test_ids_of_512_bytes_are_read_and_a_longer_one_that_is_not_used_does_no_harm() -> None:
    assert read({"prompt": "hi", "job_id": "é" * 256}).job_id == "é" * 256
    assert "Nats-Msg-Id has 513 bytes" in reason(headers=(("Nats-Msg-Id", "x" * 513),))
    assert read({"prompt": "hi", "job_id": "j"}, headers=(("Nats-Msg-Id", "x" * 513),)).job_id == "j"


def test_bytes_of_a_header_or_subject_that_are_no_text_become_text() -> None:
    envelope = read(subject="prompts.submit.\udcff", headers=(("Nats-Msg-Id", "a\udc80"), ("traceparent", "\ud800")))
    assert (envelope.domain, envelope.job_id, envelope.traceparent) == ("\\udcff", "a\\udc80", "\\ud800")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({}, "neither prompt nor messages is given"),
        ({"prompt": None}, "neither prompt nor messages is given"),
        ({"prompt": ""}, "the prompt is blank"),
        ({"prompt": " \n\t\u3000"}, "the prompt is blank"),
        ({"prompt": "a", "messages": [{"role": "user", "content": "b"}]}, "both prompt and messages are given"),
        ({"prompt": "", "messages": []}, "both prompt and messages are given"),
        ({"messages": []}, "messages holds no user message"),
        ({"messages": [{"role": "system", "content": "Be kind."}]}, "messages holds no user message"),
        ({"messages": [{"role": "user"}]}, "the last user message is blank"),
        ({"messages": [{"role": "user", "content": []}]}, "the last user message is blank"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "\u3000"}]}]}, "the last user message is"),
        ({"prompt": "hi", "priority": 11}, "priority is '11'; allowed: -10 to 10"),
        ({"prompt": "hi", "priority": -11}, "priority is '-11'"),
        ({"prompt": "hi", "priority": 1e300}, "allowed: -10 to 10"),
        ({"prompt": "hi", "params": {"stream": True}}, "params holds stream"),
        ({"prompt": "hi", "params": {"base_url": "x", "model": "m"}}, "params holds model, base_url"),
        ({"prompt": "hi", "params": {"messages": [], "prompt": "", "api_key": "k"}}, "messages, prompt, api_key"),
        ({"prompt": " ", "priority": 99}, "the prompt is blank; priority is '99'"),
    ],
)
def test_what_can_be_read_but_not_used_is_an_envelope_with_a_problem(body: Any, problem: str) -> None:
    assert problem in (read(body).problem or "no problem")


def test_whole_numbers_may_be_written_with_a_point_and_are_kept_as_integers() -> None:
    envelope = read({"prompt": "hi", "priority": 10.0, "params": {"max_tokens": 5.0, "temperature": 1}})
    assert (envelope.priority, envelope.params["max_tokens"], envelope.problem) == (10, 5, None)
    assert isinstance(envelope.priority, int)
    assert isinstance(envelope.params["max_tokens"], int)


def test_the_prompt_is_the_text_of_the_last_user_message() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:"}}
    talk = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "user", "content": [{"type": "text", "text": "a"}, image, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "prefill"},
    ]
    envelope = read({"messages": talk})
    assert (envelope.prompt, envelope.messages, envelope.problem) == ("a\nb", talk, None)
    only_image = read({"messages": [{"role": "user", "content": [image]}]})
    assert (only_image.prompt, only_image.problem) == ("", None)
    then_image = read({"messages": [{"role": "user", "content": "what is it?"}, {"role": "user", "content": [image]}]})
    assert (then_image.prompt, then_image.problem) == ("what is it?", None)


def test_a_stop_may_be_one_text() -> None:
    assert read({"prompt": "hi", "params": {"stop": "x"}}).params == {"stop": "x"}


def test_a_deadline_without_zone_is_utc_and_noted() -> None:
    envelope = read({"prompt": "hi", "deadline": "2026-12-01T12:00:00"})
    assert envelope.deadline == datetime(2026, 12, 1, 12, tzinfo=UTC)
    assert envelope.notes == ("deadline has no zone; read as UTC",)


# -- times ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-12-01T12:00:00Z", "2026-12-01T12:00:00+00:00"),
        ("2026-12-01t12:00:00z", "2026-12-01T12:00:00+00:00"),
        ("2026-12-01 12:00:00.5Z", "2026-12-01T12:00:00.500000+00:00"),
        ("2026-12-01T12:00:00.1234569Z", "2026-12-01T12:00:00.123456+00:00"),
        ("2026-12-01T12:00:00." + "9" * 10_000 + "Z", "2026-12-01T12:00:00.999999+00:00"),
        ("2026-12-01T12:00:00+09:00", "2026-12-01T03:00:00+00:00"),
        ("2026-12-01T12:00:00-00:00", "2026-12-01T12:00:00+00:00"),
        ("2026-12-01T00:00:00-23:59", "2026-12-01T23:59:00+00:00"),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00+00:00"),
        ("1990-12-31T15:59:60.25-08:00", "1991-01-01T00:00:00.250000+00:00"),
        ("2024-02-29T00:00:00Z", "2024-02-29T00:00:00+00:00"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+00:00"),
    ],
)
def test_every_form_of_rfc_3339_is_read(text: str, expected: str) -> None:
    time, notes = parse_rfc3339(text)
    assert (time.isoformat(), time.tzinfo, notes) == (expected, UTC, ())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tomorrow",
        "2026-12-01",
        "2026-12-01T12:00Z",
        "2026-12-01T12:00:00,5Z",
        "2026-12-01T12:00:00.Z",
        "2026-12-01T12:00:00+0900",
        "2026-12-01T12:00:00+24:00",
        "2026-12-01T12:00:00+09:60",
        "2026-12-01T24:00:00Z",
        "2026-12-01T12:60:00Z",
        "2026-12-01T12:00:60Z",
        "2026-12-30T23:59:60Z",
        "2026-12-31T23:59:61Z",
        "2026-02-29T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-00:01",
        "9999-12-31T23:59:60Z",
        "12026-12-01T12:00:00Z",
        "２０２６-12-01T12:00:00Z",
        "2026-12-01T12:00:00Z\n",
        " 2026-12-01T12:00:00Z",
        "1764590400",
    ],
)
def test_what_is_no_rfc_3339_time_is_refused_and_a_prompt_with_it_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no|has an offset"):
        parse_rfc3339(text)
    assert reason({"prompt": "hi", "deadline": text}).startswith("deadline: ")


@given(
    st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 12, 31)),
    st.integers(-23 * 60 - 59, 23 * 60 + 59),
)
def test_a_time_written_by_python_is_the_same_time(naive: datetime, offset_minutes: int) -> None:
    time = naive.replace(tzinfo=timezone(timedelta(minutes=offset_minutes)))
    assert parse_rfc3339(time.isoformat()) == (time, ())
    assert parse_rfc3339(naive.isoformat()) == (naive.replace(tzinfo=UTC), ("no zone; read as UTC",))


# -- whatever comes ------------------------------------------------------------------------------------------------

KNOWN = "prompt messages job_id correlation_id domain model role capability params priority deadline reply_to metadata"
TEXTS = st.text(max_size=20)
PARTS = st.lists(st.fixed_dictionaries({"type": st.sampled_from(["text", "image_url"])}, optional={"text": TEXTS}))
PLAUSIBLE = st.fixed_dictionaries(
    {},
    optional={
        "prompt": TEXTS | JSON_VALUES,
        "messages": st.lists(
            st.fixed_dictionaries(
                {"role": st.sampled_from(["user", "system"])}, optional={"content": TEXTS | PARTS | JSON_VALUES}
            )
        )
        | JSON_VALUES,
        "job_id": st.text(max_size=600) | JSON_VALUES,
        "domain": TEXTS | JSON_VALUES,
        "params": st.dictionaries(
            st.sampled_from(["max_tokens", "temperature", "seed", "stop", "model", "top_k"]), JSON_VALUES
        ),
        "priority": st.integers(-12, 12) | JSON_VALUES,
        "deadline": st.datetimes().map(datetime.isoformat) | JSON_VALUES,
        "metadata": st.dictionaries(TEXTS, JSON_VALUES),
        "other": JSON_VALUES,
    },
)
HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["Nats-Msg-Id", "correlation-id", "traceparent"]) | st.text(),
        st.text(st.characters(), max_size=600),
    )
).map(tuple)
SUBJECTS = st.sampled_from(["prompts.submit", "prompts.submit.code"]) | st.text(st.characters()).map(
    lambda token: "prompts.submit." + token
)


@given(st.binary(), HEADERS, SUBJECTS)
def test_no_bytes_headers_or_subject_make_reading_raise(
    data: bytes, headers: tuple[tuple[str, str], ...], subject: str
) -> None:
    sent = message(data=data, headers=headers, subject=subject)
    result = read_prompt(sent, max_message_bytes=LIMIT_BYTES)
    assert result.message is sent


@given(PLAUSIBLE | st.dictionaries(st.sampled_from(KNOWN.split()) | TEXTS, JSON_VALUES), HEADERS, SUBJECTS)
def test_every_key_is_accounted_for_and_every_text_can_be_stored(
    body: dict[str, Any], headers: tuple[tuple[str, str], ...], subject: str
) -> None:
    sent = message(body, headers=headers, subject=subject)
    result = read_prompt(sent, max_message_bytes=LIMIT_BYTES)
    assert result.message is sent
    if isinstance(result, Reject):
        assert result.reason.encode()
        return
    given_fields = {k: v for k, v in body.items() if v is not None}
    assert result.extra == {k: v for k, v in body.items() if k not in KNOWN.split()}
    for name in ("job_id", "correlation_id", "domain", "model", "role", "capability", "reply_to"):
        if given_fields.get(name):
            assert getattr(result, name) == given_fields[name]
    for name in ("priority", "metadata", "prompt", "messages"):
        if name in given_fields and not (name == "priority" and "priority is" in (result.problem or "")):
            assert getattr(result, name) == given_fields[name]
    assert (result.deadline is not None) == ("deadline" in given_fields)
    dropped = set(given_fields.get("params", {})) - set(result.params)
    assert all(given_fields["params"][key] is None for key in dropped)
    stored = [result.job_id, result.correlation_id, result.prompt, result.messages, result.domain, result.traceparent]
    json.dumps([*stored, result.extra, result.params, result.notes, result.problem], ensure_ascii=False).encode()


def test_a_priority_out_of_range_is_told_and_not_kept() -> None:
    envelope = read({"prompt": "hi", "priority": 3000000000})
    assert envelope.priority == 0
    assert "3000000000" in (envelope.problem or "")


@pytest.mark.parametrize("name", ["model", "role", "capability", "domain", "reply_to"])
def test_a_name_that_is_too_long_is_a_reject(name: str) -> None:
    assert f"{name} has 513 bytes; at most 512" in reason({"prompt": "hi", name: "x" * 513})
