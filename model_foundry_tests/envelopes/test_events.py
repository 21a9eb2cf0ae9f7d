"""Reading event messages: the three envelopes, identity, times, redaction, rejects, and that nothing raises."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_foundry.config import EventsConfig
from model_foundry.envelopes.events import EventReading, read_event
from model_foundry.envelopes.fields import storable
from model_foundry.records import Event, Reject, StreamMessage
from model_foundry_tests.test_strict_json import JSON_VALUES

LIMIT_BYTES = 4096
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
READING = EventReading(LIMIT_BYTES, EventsConfig().former_subjects, role_kinds={"grandpa": "worker"})
Headers = tuple[tuple[str, str], ...]


def message(body: Any = None, *, subject: str = "llm.other", headers: Headers = (), **more: Any) -> StreamMessage:
    data = body if isinstance(body, bytes) else json.dumps({} if body is None else body).encode()
    return StreamMessage("EVENTS", 1_700_000_000, 7, subject, NOW, headers, data, **more)


def read(body: Any = None, *, reading: EventReading = READING, **more: Any) -> Event:
    result = read_event(message(body, **more), reading)
    assert isinstance(result, Event), result
    return result


def reason(body: Any = None, **more: Any) -> str:
    sent = message(body, **more)
    result = read_event(sent, READING)
    assert isinstance(result, Reject), result
    assert result.message is sent
    return result.reason


def payload(event: Event) -> Any:
    return None if event.payload is None else json.loads(event.payload)


# -- our own envelope ----------------------------------------------------------------------------------------------


def test_a_full_event_is_read_field_by_field() -> None:
    body = {
        "event_id": "e-1",
        "correlation_id": "s-1",
        "occurred_at": "2026-12-01T11:59:58.5+09:00",
        "source": "agent-1",
        "payload": {"a": [1, None]},
        "colour": "red",
    }
    event = read(body, subject="llm.other", headers=(("traceparent", "00-x"),))
    assert (event.event_id, event.correlation_id, event.source) == ("e-1", "s-1", "agent-1")
    assert event.occurred_at == event.happened_at == datetime(2026, 12, 1, 2, 59, 58, 500_000, tzinfo=UTC)
    assert (event.envelope, event.payload_encoding, event.traceparent) == ("own", "json", "00-x")
    assert payload(event) == {"a": [1, None]}
    assert json.loads(event.extra) == {"colour": "red"}


@pytest.mark.parametrize("body", [{}, {"payload": None, "event_id": None, "source": None, "occurred_at": None}])
def test_an_event_may_be_an_empty_object_and_null_equals_absent(body: dict[str, Any]) -> None:
    event = read(body)
    assert (event.event_id, event.payload, event.payload_encoding) == ("EVENTS-1700000000-7", None, None)
    assert event.happened_at == NOW


@pytest.mark.parametrize(
    ("body", "headers", "event_id"),
    [
        ({"event_id": "body"}, (("Nats-Msg-Id", "header"),), "body"),
        ({}, (("nats-msg-id", "header"), ("Nats-Msg-Id", "second")), "header"),
        ({"event_id": ""}, (("Nats-Msg-Id", ""),), "EVENTS-1700000000-7"),
    ],
)
def test_identity_is_the_events_id_else_the_header_else_stream_and_sequence(
    body: dict[str, Any], headers: Headers, event_id: str
) -> None:
    assert read(body, headers=headers).event_id == event_id


def test_a_message_may_be_called_what_it_is_called_by_default() -> None:
    named, plain = read({"event_id": "EVENTS-1700000000-7"}), read({})
    assert named.event_key == plain.event_key
    assert read({"event_id": "EVENTS-x-7"}).event_id == "EVENTS-x-7"


@given(*[st.tuples(st.none() | st.text(min_size=1, max_size=3), st.text(min_size=1, max_size=3))] * 2)
def test_only_the_same_source_and_id_have_the_same_key(one: tuple[str, str], other: tuple[str, str]) -> None:
    events = [
        read_event(message({"source": source, "event_id": event_id}), READING) for source, event_id in (one, other)
    ]
    keys = [event.event_key for event in events if isinstance(event, Event)]
    assert len(keys) < 2 or (keys[0] == keys[1]) == (one == other)


def test_two_sources_may_use_the_same_id() -> None:
    one, other = read({"event_id": "1", "source": "a"}), read({"event_id": "1", "source": "b"})
    assert one.event_key != other.event_key
    assert one.event_key == read({"event_id": "1", "source": "a", "payload": {}}, subject="llm.another").event_key


def test_a_correlation_comes_from_the_body_before_the_header() -> None:
    headers = (("correlation-ID", "header"),)
    assert read({}, headers=headers).correlation_id == "header"
    assert read({"correlation_id": "body"}, headers=headers).correlation_id == "body"


@pytest.mark.parametrize(
    ("received", "recorded"),
    [
        ("knowledge.chat.persist", "llm.chat.persist"),
        ("knowledge.embedding", "obsidian.semantic_search"),
        ("knowledge.flow.lineage", "llm.flow.lineage"),
        ("knowledge.tool_call", "llm.tool_call"),
        ("knowledge.tool_call.more", "knowledge.tool_call.more"),
        ("llm.tool_call", "llm.tool_call"),
    ],
)
def test_former_subjects_are_recorded_under_their_new_name(received: str, recorded: str) -> None:
    event = read({}, subject=received)
    assert (event.subject, event.message.subject) == (recorded, received)


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-12-01T09:00:00Z", (9, 0, 0, 0)),
        ("2026-12-01t09:00:00z", (9, 0, 0, 0)),
        ("2026-12-01 09:00:00.1234567Z", (9, 0, 0, 123456)),
        ("2026-12-01T09:00:00.5-02:30", (11, 30, 0, 500_000)),
        ("2026-12-01T09:00:00", (9, 0, 0, 0)),
    ],
)
def test_times_of_any_rfc_3339_form_are_read(text: str, utc: tuple[int, int, int, int]) -> None:
    event = read({"occurred_at": text})
    assert event.occurred_at == datetime(2026, 12, 1, *utc, tzinfo=UTC)
    assert ("occurred_at has no zone; read as UTC" in event.notes) == (len(text) == 19)


def test_a_time_of_the_future_is_kept_noted_and_not_where_the_event_stands() -> None:
    event = read({"occurred_at": "2027-01-01T00:00:00Z"})
    assert event.occurred_at == datetime(2027, 1, 1, tzinfo=UTC)
    assert event.happened_at == NOW
    assert "later than the stream took the message" in event.notes[0]
    assert read({"occurred_at": "2026-12-01T12:00:04Z"}).notes == ()


# -- CloudEvents ---------------------------------------------------------------------------------------------------

CLOUD = {"specversion": "1.0", "id": "c-1", "source": "/orchestrator", "type": "org.example.done"}


def test_a_structured_cloud_event_is_told_by_its_content_type_or_by_specversion() -> None:
    body = CLOUD | {
        "time": "2026-12-01T11:00:00Z",
        "data": {"a": 1},
        "correlationid": "s-1",
        "tenant": "t",
        "subject": "x",
    }
    for headers in ((), (("Content-Type", "application/cloudevents+json; charset=utf-8"),)):
        event = read(body, headers=headers)
        assert (event.envelope, event.event_id, event.source) == ("cloudevents_structured", "c-1", "/orchestrator")
        assert (event.type, event.correlation_id) == ("org.example.done", "s-1")
        assert event.occurred_at == datetime(2026, 12, 1, 11, tzinfo=UTC)
        assert payload(event) == {"a": 1}
        assert json.loads(event.extra) == {"tenant": "t", "subject": "x"}


@pytest.mark.parametrize(
    ("data", "encoding", "kept"),
    [
        ({"data": {"a": 1}}, "json", {"a": 1}),
        ({"data": [1, 2]}, "json", [1, 2]),
        ({"data": "text"}, "json", "text"),
        ({"data": False}, "json", False),
        ({"data": "<a/>", "datacontenttype": "text/xml"}, "text", "<a/>"),
        ({"data_base64": "AAE="}, "base64", "AAE="),
        ({"data_base64": "eyJhIjogMX0="}, "base64", "eyJhIjogMX0="),
        ({"data_base64": "eyJhIjogMX0=", "datacontenttype": "application/json"}, "json", {"a": 1}),
        ({"data_base64": "bnVsbA==", "datacontenttype": "application/json"}, None, None),
        ({"data_base64": "AAE=", "datacontenttype": "application/json"}, "base64", "AAE="),
        ({"data": None}, None, None),
        ({}, None, None),
    ],
)
def test_a_cloud_events_data_may_be_any_json_text_or_base64(
    data: dict[str, Any], encoding: str | None, kept: Any
) -> None:
    event = read(CLOUD | data)
    assert (event.payload_encoding, payload(event)) == (encoding, kept)


BINARY = (("ce-specversion", "1.0"), ("ce-id", "c-1"), ("CE-Source", "/o"), ("ce-type", "t"))


@pytest.mark.parametrize(
    ("data", "content_type", "encoding", "kept"),
    [
        (b'{"a": 1}', "application/json", "json", {"a": 1}),
        (b'{"a": 1}', "application/vnd.x+json; charset=utf-8", "json", {"a": 1}),
        (b'{"a": 1}', None, "json", {"a": 1}),
        (b"not json", None, "text", "not json"),
        (b"<a/>", "application/xml", "text", "<a/>"),
        (b"\xff\x00", "application/octet-stream", "base64", base64.b64encode(b"\xff\x00").decode()),
        (b"", "application/json", None, None),
        (b"null", "application/json", None, None),
        (b"null", None, None, None),
    ],
)
def test_a_binary_cloud_event_has_its_attributes_in_headers(
    data: bytes, content_type: str | None, encoding: str | None, kept: Any
) -> None:
    headers = BINARY + ((("Content-Type", content_type),) if content_type else ())
    event = read(data, headers=headers)
    assert (event.envelope, event.event_id, event.source, event.type) == ("cloudevents_binary", "c-1", "/o", "t")
    assert (event.payload_encoding, payload(event)) == (encoding, kept)


def test_base64_that_is_json_is_typed_as_json() -> None:
    data = base64.b64encode(json.dumps(CALL).encode()).decode()
    event = read(CLOUD | {"data_base64": data, "datacontenttype": "application/json"}, subject="llm.tool_call")
    assert event.payload_type == "tool_call"


def test_a_text_and_a_base64_of_the_same_letters_are_different_content() -> None:
    text = read(CLOUD | {"data": "aGk=", "datacontenttype": "text/plain"})
    other = read(CLOUD | {"data_base64": "aGk=", "datacontenttype": "text/plain"})
    assert text.payload == other.payload
    assert text.content_digest != other.content_digest


def test_what_is_known_of_landed_events_stays_what_it_was() -> None:
    """Keys and digests of JSON payloads stand in lakes: made otherwise, what comes again would be a new event."""
    event = read({"event_id": "e-1", "source": "ann", "correlation_id": "s", "payload": {"a": 1}, "b": 2})
    assert event.event_key == "49ef2949a14a55fc365c79b7bbc79263"
    assert event.content_digest == "cc8d50b92fd648607ea22a04140a5cc2"


# -- headers that nobody reads -------------------------------------------------------------------------------------


def test_unknown_headers_are_kept_beside_the_unknown_fields() -> None:
    headers = (("X-Tenant", "7"), ("x-hop", "a"), ("X-Hop", "b"), ("Nats-Expected-Stream", "EVENTS"), *BINARY)
    event = read({"a": 1}, headers=(*headers, ("Content-Type", "application/json")))
    kept = {"x-tenant": "7", "x-hop": ["a", "b"]}
    assert json.loads(event.extra) == {"headers": kept, "datacontenttype": "application/json"}
    own = read({"headers": "mine"}, headers=(("ce-id", "1"), ("Correlation-Id", "s")))
    assert json.loads(own.extra) == {"headers": "mine", "message_headers": {"ce-id": "1"}}


def test_headers_that_nobody_reads_make_no_other_content() -> None:
    assert read({}, headers=(("X-Tenant", "7"),)).content_digest == read({}).content_digest


@pytest.mark.parametrize("name", ["ce-\udcff", "\udcff"])
def test_the_name_of_a_header_may_be_broken(name: str) -> None:
    assert "udcff" in read(b"", headers=(*BINARY, (name, "1"))).extra


def test_binary_attributes_are_percent_decoded_and_broken_ones_kept() -> None:
    event = read(b"", headers=(*BINARY[:2], ("ce-source", "%E6%97%A5"), ("ce-type", "100%"), ("ce-note", "%ff")))
    assert (event.source, event.type) == ("日", "100%")
    assert json.loads(event.extra)["note"] == "%ff"


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("headers", "correlation_id"),
    [
        ((("ce-correlationid", "c"), ("Correlation-Id", "h"), ("ce-traceparent", TRACE)), "c"),
        ((("Correlation-Id", "h"), ("ce-traceparent", TRACE)), "h"),
        ((("ce-traceparent", TRACE),), "4bf92f3577b34da6a3ce929d0e0e4736"),
        ((("traceparent", TRACE),), "4bf92f3577b34da6a3ce929d0e0e4736"),
        ((("traceparent", "nonsense"),), None),
    ],
)
def test_a_cloud_events_correlation_is_its_extension_else_the_header_else_the_trace(
    headers: Headers, correlation_id: str | None
) -> None:
    assert read(b"", headers=BINARY + headers).correlation_id == correlation_id


# -- rejects -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "empty"),
        (b"no json", "Expecting value at line 1, column 1"),
        (b'{"a": 1', "line 1"),
        (b'{"a": NaN}', "NaN is no JSON number"),
        (b'{"a": 1, "a": 2}', "key 'a' stands twice"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b"[" * 70 + b"]" * 70, "more than 64 levels"),
        (b'{"payload": {"a": "\\ud800"}}', "lone surrogate"),
        (b"x" * (LIMIT_BYTES + 1), f"{LIMIT_BYTES + 1} bytes; at most {LIMIT_BYTES}"),
        ([1], "the body is a list; allowed: an object"),
        ("text", "the body is text; allowed: an object"),
        ({"event_id": 7}, "event_id is a number; allowed: text"),
        ({"event_id": "x" * 513}, "event_id has 513 bytes"),
        ({"event_id": "EVENTS-1700000000-8"}, "is what another message of the stream is called by default"),
        ({"event_id": "a\0b"}, "event_id holds a NUL character"),
        ({"source": "a\0b"}, "source holds a NUL character"),
        ({"correlation_id": "\0"}, "correlation_id holds a NUL character"),
        (CLOUD | {"id": "a\0"}, "id holds a NUL character"),
        (CLOUD | {"type": "a\0"}, "type holds a NUL character"),
        (CLOUD | {"correlationid": "a\0"}, "correlationid holds a NUL character"),
        (CLOUD | {"id": "EVENTS-9-9"}, "is what another message of the stream is called by default"),
        ({"correlation_id": {}}, "correlation_id is an object; allowed: text"),
        ({"source": True}, "source is true; allowed: text"),
        ({"payload": [1]}, "payload is a list; allowed: an object"),
        ({"payload": "x"}, "payload is text; allowed: an object"),
        ({"occurred_at": 1}, "occurred_at is a number; allowed: text"),
        ({"occurred_at": "yesterday"}, "occurred_at: 'yesterday' is no RFC 3339 time"),
        ({"occurred_at": "2026-02-30T00:00:00Z"}, "is no time"),
        ({"specversion": "0.3", "id": "1"}, "specversion is '0.3'; allowed: '1.0'"),
        ({"specversion": 1.0}, "specversion is a number; allowed: '1.0'"),
        ({"specversion": "1.0"}, "a CloudEvent without id, source, type"),
        (CLOUD | {"id": ""}, "a CloudEvent without id"),
        (CLOUD | {"type": None}, "a CloudEvent without type"),
        (CLOUD | {"id": 7}, "id is a number; allowed: text"),
        (CLOUD | {"time": "soon"}, "time: 'soon' is no RFC 3339 time"),
        (CLOUD | {"data": 1, "data_base64": "AA=="}, "both data and data_base64"),
        (CLOUD | {"data_base64": "***"}, "data_base64 is no base64"),
    ],
)
def test_what_can_not_be_read_is_a_reject_with_the_reason(body: Any, told: str) -> None:
    assert told in reason(body)


@pytest.mark.parametrize(
    ("body", "headers", "told"),
    [
        ([CLOUD], (("Content-Type", "application/cloudevents-batch+json"),), "a batch of CloudEvents"),
        (b"\x0a", (("Content-Type", "application/cloudevents+protobuf"),), "allowed: application/cloudevents+json"),
        (b"", (("ce-specversion", "0.3"),), "specversion is '0.3'"),
        (b"", (("ce-specversion", "1.0"), ("ce-id", "1")), "a CloudEvent without source, type"),
        (b"{", (*BINARY, ("content-type", "application/json")), "line 1"),
        (b'{"a": NaN}', (*BINARY, ("ce-datacontenttype", "application/json")), "NaN"),
        (b"{}", (("Nats-Msg-Id", "x" * 513),), "Nats-Msg-Id has 513 bytes"),
        (b"{}", (("Nats-Msg-Id", "a\0b"),), "Nats-Msg-Id holds a NUL character"),
        (b"{}", (("Nats-Msg-Id", "EVENTS-1700000000-8"),), "is what another message of the stream is called"),
        (b"{}", (("Correlation-Id", "a\0b"),), "Correlation-Id holds a NUL character"),
        (b"{}", (("traceparent", "a\0b"),), "traceparent holds a NUL character"),
        (b"{}", (("Foundry-Replay-Of", "a\0b"),), "Foundry-Replay-Of holds a NUL character"),
        (b"{}", (*BINARY[:2], ("ce-source", "a%00b"), ("ce-type", "t")), "source holds a NUL character"),
        (b"{}", (*BINARY, ("CE-Id", "c-2")), "header 'ce-id' stands twice"),
        (b"{}", (*BINARY, ("ce-x", "1"), ("ce-X", "1")), "header 'ce-x' stands twice"),
    ],
)
def test_a_cloud_event_that_can_not_be_read_is_a_reject(body: Any, headers: Headers, told: str) -> None:
    assert told in reason(body, headers=headers)


def test_a_subject_with_a_nul_is_a_reject() -> None:
    assert "subject holds a NUL character" in reason({}, subject="llm.a\0b")


# -- payloads ------------------------------------------------------------------------------------------------------

NODE = {"kind": "node", "node_id": "n", "node_type": "agent", "state": "declared"}
EDGE = {"kind": "edge", "edge_id": "e", "from": "a", "to": "b", "relation": "assigned"}
CALL = {"call_id": "c", "task": "t", "tool": "grep", "duration_ms": 1.5, "ok": True}


@pytest.mark.parametrize(
    ("subject", "given_payload", "type_"),
    [
        ("llm.flow.lineage", NODE, "flow_node"),
        ("llm.flow.lineage", NODE | {"role": None, "more": {}}, "flow_node"),
        ("knowledge.flow.lineage", EDGE, "flow_edge"),
        ("llm.tool_call", CALL, "tool_call"),
        ("llm.tool_call", CALL | {"duration_ms": 3}, "tool_call"),
        ("llm.chat.persist", {"task": "t", "role": "user"}, "chat_turn"),
        ("llm.chat.persist", {"task": "t", "role": "user", "content": "hi", "tokens": 3.0}, "chat_turn"),
        ("obsidian.semantic_search", {"hits": 3, "latency_ms": 12}, "search"),
    ],
)
def test_the_payloads_of_known_subjects_are_typed(subject: str, given_payload: dict[str, Any], type_: str) -> None:
    event = read({"payload": given_payload}, subject=subject)
    assert (event.payload_type, event.payload_problem) == (type_, None)


@pytest.mark.parametrize(
    ("subject", "given_payload", "problem"),
    [
        ("llm.tool_call", None, "no payload"),
        ("llm.tool_call", {"tool": "x"}, "call_id is missing"),
        ("llm.tool_call", CALL | {"ok": "yes"}, "ok: input should be a valid boolean"),
        ("llm.tool_call", CALL | {"duration_ms": "3"}, "duration_ms: input should be a valid number"),
        ("llm.tool_call", CALL | {"duration_ms": -1}, "duration_ms: input should be greater than or equal to 0"),
        ("llm.tool_call", CALL | {"duration_ms": 1.1e12}, "duration_ms: input should be less than or equal to"),
        ("llm.tool_call", CALL | {"duration_ms": 10**300}, "duration_ms: input should be less than or equal to"),
        ("llm.chat.persist", {"task": "t", "role": "user", "tokens": 1.5}, "tokens: input should be a valid integer"),
        ("llm.chat.persist", {"task": "t", "role": "user", "tokens": 10**19}, "tokens: input should be less than"),
        ("obsidian.semantic_search", {"hits": 1e300, "latency_ms": 1}, "hits: input should be less than or equal to"),
        ("obsidian.semantic_search", {"hits": 1, "latency_ms": 1e13}, "latency_ms: input should be less than"),
        ("llm.flow.lineage", {"kind": "circle"}, "kind is missing or unknown; allowed: node, edge"),
        (
            "llm.flow.lineage",
            NODE | {"state": "lost"},
            "state is none of 'declared', 'started', 'finished' or 'failed'",
        ),
        ("llm.other", {"anything": 1}, None),
    ],
)
def test_a_payload_that_does_not_fit_is_a_record_with_the_reason(
    subject: str, given_payload: dict[str, Any] | None, problem: str | None
) -> None:
    event = read({"payload": given_payload}, subject=subject)
    assert event.payload_type is None
    assert event.payload_problem == problem or (problem and (event.payload_problem or "").startswith(problem))
    assert payload(event) == given_payload


@pytest.mark.parametrize(
    ("role", "kind"),
    [("grandpa", "worker"), ("orchestrator", "orchestrator"), ("translator", "translator"), ("naughty", "worker")],
)
def test_a_nodes_role_has_the_configured_kind_or_the_one_that_it_is_named_after(role: str, kind: str) -> None:
    event = read({"payload": NODE | {"role": role}}, subject="llm.flow.lineage")
    assert json.loads(event.derived) == {"role_kind": kind}


# -- redaction -----------------------------------------------------------------------------------------------------


def test_named_fields_are_not_kept_at_any_depth_and_equal_arguments_can_still_be_told() -> None:
    reading = EventReading(LIMIT_BYTES, redact=frozenset({"content", "arguments"}))
    body = {
        "event_id": "1",
        "payload": CALL | {"arguments": {"path": "secret"}, "turns": [{"content": "secret", "n": 1}]},
        "content": "secret",
    }
    event = read(body, reading=reading, subject="llm.tool_call")
    plain = read(body, subject="llm.tool_call")
    assert "secret" not in (event.payload or "") + event.extra + event.derived + "".join(event.notes)
    assert payload(event)["turns"] == [{"content": None, "n": 1}]
    assert event.notes == ("redacted: arguments, content",)
    assert event.payload_type == "tool_call"
    assert event.derived == plain.derived
    assert event.content_digest == plain.content_digest
    assert "arguments_digest" in event.derived


@pytest.mark.parametrize(("body", "name"), [({"payload": {"a": 1}}, "payload"), (CLOUD | {"data": "text"}, "data")])
def test_a_whole_payload_can_be_left_out(body: dict[str, Any], name: str) -> None:
    event = read(body, reading=EventReading(LIMIT_BYTES, redact=frozenset({name})))
    assert (event.payload, event.payload_encoding, event.notes) == (None, None, (f"redacted: {name}",))


SECRET = {"content": "TOP"}
STRUCTURED = (("Content-Type", "application/cloudevents+json"),)
TWICE = b'{"content": "TOP", "content": "TOP"}'


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (CLOUD | {"data_base64": base64.b64encode(json.dumps(SECRET).encode()).decode()}, STRUCTURED),
        (CLOUD | {"data": json.dumps(SECRET)}, STRUCTURED),
        (CLOUD | {"data": json.dumps(SECRET), "datacontenttype": "text/plain"}, STRUCTURED),
        (json.dumps(SECRET).encode(), (*BINARY, ("Content-Type", "text/plain"))),
        (json.dumps(SECRET).encode() * 2, (*BINARY, ("Content-Type", "application/x-ndjson"))),
        (b"\xef\xbb\xbf" + json.dumps(SECRET).encode(), BINARY),
        (json.dumps(json.dumps(SECRET)).encode(), BINARY),
        (TWICE, BINARY),
        (b"\xff" + TWICE, BINARY),
    ],
)
def test_data_that_can_not_be_redacted_is_not_kept(body: Any, headers: Headers) -> None:
    event = read(body, headers=headers, reading=EventReading(LIMIT_BYTES, redact=frozenset({"content"})))
    assert (event.payload, event.payload_encoding) == (None, None)
    assert event.notes == ("payload not kept: it can't be redacted",)


def test_base64_that_is_json_is_redacted_as_json() -> None:
    data = base64.b64encode(json.dumps(SECRET | {"n": 1}).encode()).decode()
    body = CLOUD | {"data_base64": data, "datacontenttype": "application/json"}
    event = read(body, reading=EventReading(LIMIT_BYTES, redact=frozenset({"content"})))
    assert payload(event) == {"content": None, "n": 1}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (json.dumps(SECRET | {"n": 1}), '{"content":null,"n":1}'),
        (json.dumps([json.dumps(SECRET)]), '["{\\"content\\":null}"]'),
        (json.dumps(json.dumps(SECRET)), '"{\\"content\\":null}"'),
        (json.dumps(SECRET) * 2, None),
        (TWICE.decode(), None),
        ("\ufeff" + json.dumps(SECRET), None),
        ('{"c\\u006fntent": "TOP", }', None),
        (json.dumps({"n": 1}), '{"n": 1}'),
        ("[a link](somewhere)", "[a link](somewhere)"),
        ('"content", he said', '"content", he said'),
        ("", ""),
    ],
)
def test_json_inside_a_text_is_redacted_or_the_text_not_kept(text: str, kept: str | None) -> None:
    reading = EventReading(LIMIT_BYTES, redact=frozenset({"content"}))
    event = read({"payload": {"a": text}, "b": text}, reading=reading)
    assert payload(event) == {"a": kept}
    assert json.loads(event.extra) == {"b": kept}


def test_headers_are_redacted_whatever_the_case_of_their_names() -> None:
    reading = EventReading(LIMIT_BYTES, redact=frozenset({"X-Secret"}))
    event = read({}, headers=(("x-SECRET", "TOP"), *BINARY, ("ce-X-secret", "TOP")), reading=reading)
    assert "TOP" not in event.extra
    assert event.notes == ("redacted: x-secret",)


def wrapped(value: Any, how: list[str]) -> Any:
    """The value inside lists, objects and texts."""
    for step in how:
        value = {"list": [value, 1], "object": {"k": value}, "text": json.dumps(value)}[step]
    return value


@given(st.lists(st.sampled_from(["list", "object", "text"]), max_size=12))
def test_a_redacted_field_is_found_however_it_is_wrapped_in_json(how: list[str]) -> None:
    reading = EventReading(10**6, redact=frozenset({"content"}))
    event = read({"payload": {"a": wrapped(SECRET, how)}}, reading=reading)
    assert "TOP" not in (event.payload or "")
    assert event.notes


def test_texts_in_texts_of_many_levels_do_not_exhaust_the_reader() -> None:
    value: Any = SECRET
    for _ in range(8):
        value = json.dumps(wrapped(value, ["list"] * 60))
    event = read({"payload": {"a": value}}, reading=EventReading(10**7, redact=frozenset({"content"})))
    assert "TOP" not in (event.payload or "")


# -- whatever comes ------------------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=()), max_size=20)
OWN = ["event_id", "correlation_id", "occurred_at", "source", "payload"]
CLOUDS = ["specversion", "id", "source", "type", "time", "data", "data_base64", "datacontenttype"]
NAMES = st.sampled_from(OWN + CLOUDS)
HEADER_NAMES = st.sampled_from([f"ce-{name}" for name in CLOUDS] + ["content-type", "Nats-Msg-Id", "traceparent"])
HEADER_VALUES = st.sampled_from(["1.0", "application/json", "x"]) | TEXTS
HEADERS = st.lists(st.tuples(HEADER_NAMES | TEXTS, HEADER_VALUES), max_size=6)
SUBJECTS = st.sampled_from(["llm.tool_call", "llm.flow.lineage", "knowledge.embedding", "llm.other"]) | TEXTS
VALUES = JSON_VALUES | st.sampled_from(["1.0", "2026-12-01T00:00:00Z", CALL, NODE, EDGE])
BODIES = st.dictionaries(NAMES | TEXTS, VALUES)


def everything_can_be_stored(event: Event) -> None:
    texts = [getattr(event, name) for name in Event.__slots__ if name != "message"]
    json.dumps([text for text in texts if not isinstance(text, datetime)], ensure_ascii=False).encode()


@given(st.binary(), HEADERS.map(tuple), SUBJECTS)
def test_no_bytes_headers_or_subject_make_reading_raise(data: bytes, headers: Headers, subject: str) -> None:
    for reading in (READING, EventReading(LIMIT_BYTES, redact=frozenset({"a"}))):
        result = read_event(message(data, headers=headers, subject=subject), reading)
        if isinstance(result, Event):
            everything_can_be_stored(result)
        else:
            result.reason.encode()


@given(BODIES, HEADERS.map(tuple), SUBJECTS)
def test_every_object_is_one_event_or_one_reject_and_unknown_fields_are_kept(
    body: dict[str, Any], headers: Headers, subject: str
) -> None:
    try:
        data = json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        data = json.dumps(body).encode()
    result = read_event(message(data, headers=headers, subject=subject), EventReading(10**6))
    if isinstance(result, Reject):
        assert result.reason
        result.reason.encode()
        return
    everything_can_be_stored(result)
    if result.envelope == "own":
        extra = json.loads(result.extra)
        kept = extra.pop("message_headers" if "headers" in body else "headers", {})
        assert kept.keys() <= {storable(name.lower()) for name, _ in headers}
        assert extra == {name: value for name, value in body.items() if name not in OWN}
        assert payload(result) == body.get("payload")
