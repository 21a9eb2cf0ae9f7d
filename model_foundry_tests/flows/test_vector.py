"""``deploy/vector.yaml``: its options are Vector's, its program is run by Vector's own language, and what it makes of a
request lands as an event.

Vector itself, one binary, is in no package registry that a test could take it from. What it does around the program is
done here as its documentation says: the body becomes ``message``, the query's parameter ``subject``, the sink publishes
``message`` on the subject that its template names.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from vrl_python import VRLRuntime

from model_foundry.config import EventsConfig, StreamsConfig
from model_foundry.event_inbox import take_events
from model_foundry.jetstream.subjects import subject_matches
from model_foundry_tests.flows.conftest import Scene

VECTOR = yaml.safe_load((Path(__file__).parents[2] / "deploy" / "vector.yaml").read_text(encoding="utf-8"))
DEFAULT = "llm.telemetry"
OPTIONS = {
    # https://vector.dev/docs/reference/configuration/sources/http_server/ and …/transforms/remap/, …/sinks/nats/
    "telemetry": "type address path strict_path path_key host_key method headers query_parameters response_code "
    "response_source_body keepalive tls auth framing decoding acknowledgements",
    "to_events": "type inputs source file files drop_on_error drop_on_abort reroute_dropped timezone metric_tag_values",
    "events": "type inputs url subject encoding acknowledgements auth buffer connection_name healthcheck jetstream "
    "request tls",
}


def made_of(body: str, subject: str | None = None) -> list[tuple[str, str]]:
    """The messages that a request becomes: their subjects and bodies."""
    program = VECTOR["transforms"]["to_events"]["source"]
    request = {"message": body, "subject": subject, "path": "/telemetry", "source_type": "http_server"}
    made: Any = VRLRuntime().execute(program, request).processed_event
    return [(event["nats_subject"], event["message"]) for event in made]


def test_it_listens_at_the_telemetry_path_and_stores_in_jetstream_before_it_says_yes() -> None:
    source, sink = VECTOR["sources"]["telemetry"], VECTOR["sinks"]["events"]
    assert (source["type"], source["address"], source["path"]) == ("http_server", "0.0.0.0:8687", "/telemetry")
    assert (source["decoding"], source["framing"]) == ({"codec": "bytes"}, {"method": "bytes"}), "the body, as it came"
    assert (sink["type"], sink["jetstream"], sink["subject"]) == ("nats", True, "{{ nats_subject }}")
    assert sink["encoding"] == {"codec": "text"}, "the message, as it is"
    assert sink["acknowledgements"] == {"enabled": True}
    assert [VECTOR["transforms"]["to_events"]["inputs"], sink["inputs"]] == [["telemetry"], ["to_events"]]


def test_its_options_are_vectors() -> None:
    parts = {name: part for kind in ("sources", "transforms", "sinks") for name, part in VECTOR[kind].items()}
    assert parts.keys() == OPTIONS.keys()
    for name, part in parts.items():
        assert part.keys() <= set(OPTIONS[name].split()), name


@pytest.mark.parametrize(
    ("body", "asked", "subject"),
    [
        ('{"event_id":  "a"}', "llm.tool_call", "llm.tool_call"),
        ('{"event_id": "a", "subject": "obsidian.note"}', None, "obsidian.note"),
        ('{"event_id": "a", "subject": "obsidian.note"}', "llm.x", "llm.x"),
        ('{"specversion": "1.0", "type": "knowledge.embedding", "subject": "note 7"}', None, "knowledge.embedding"),
        ('{"type": "llm.a b"}', "llm.*", DEFAULT),
        ('{"type": 7, "subject": null}', "prompts.submit", DEFAULT),
        ("no json", None, DEFAULT),
        ("17", "llm.x", "llm.x"),
        ("null", None, DEFAULT),
        ("", None, DEFAULT),
        ('{"text": "日本語 🙂", "n": 12345678901234567890, "f": 1.50}', None, DEFAULT),
    ],
)
def test_one_body_is_one_message_unchanged_on_the_subject_that_was_asked_for(
    body: str, asked: str | None, subject: str
) -> None:
    assert made_of(body, asked) == [(subject, body)]


def test_an_array_is_a_message_for_each_of_its_items() -> None:
    assert made_of('[{"type": "llm.a", "n": 1}, {"b": "é"}, 3]') == [
        ("llm.a", '{"n":1,"type":"llm.a"}'),
        (DEFAULT, '{"b":"é"}'),
        (DEFAULT, "3"),
    ]
    assert made_of("[]") == []


def test_every_subject_that_it_may_choose_is_one_of_the_streams() -> None:
    patterns = StreamsConfig().events.subjects
    for subject in (DEFAULT, *EventsConfig().former_subjects, *EventsConfig().former_subjects.values()):
        assert made_of("{}", subject)[0][0] == subject
        assert any(subject_matches(subject, pattern) for pattern in patterns)


def test_what_it_makes_of_requests_lands(scene: Scene) -> None:
    bodies = [
        '{"event_id": "t-1", "correlation_id": "s", "subject": "llm.gateway"}',
        '[{"event_id": "t-2"}, {"event_id": "t-3"}]',
        "not an event",
    ]
    for subject, message in [made for body in bodies for made in made_of(body)]:
        scene.publish(message.encode(), subject=subject)
    record = take_events(scene.foundry, datetime.now(UTC).date(), run_id="r")
    assert [(ref.event_id, ref.subject) for ref in record.events] == [
        ("t-1", "llm.gateway"),
        ("t-2", DEFAULT),
        ("t-3", DEFAULT),
    ]
    assert record.rejects == 1
