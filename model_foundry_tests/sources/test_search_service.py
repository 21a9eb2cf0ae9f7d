"""Searches of the notes over NATS."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import nats
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_foundry.embedding import embed_notes
from model_foundry.event_intake import EventIntake
from model_foundry.intake import land_partition
from model_foundry.jetstream.client import with_jetstream
from model_foundry.records import EVENTS_LANE
from model_foundry.search_service import BadRequest, Request, SearchService, read_request
from model_foundry_tests.embeddings.conftest import Notes, notes  # noqa: F401 (a fixture)
from model_foundry_tests.flows.test_fleet_flows import TODAY
from model_foundry_tests.parts import in_loop


async def serve(notes_: Notes, client: Any) -> None:
    """Runs the service while a client does something."""
    foundry, stop, listening = notes_.scene.foundry, asyncio.Event(), asyncio.Event()

    def say(line: str) -> None:
        if line.startswith("answering"):
            listening.set()

    service = asyncio.create_task(SearchService(foundry, say).run(stop))
    try:
        await asyncio.wait_for(listening.wait(), 10)
        connection = await nats.connect(foundry.config.nats.url)
        try:
            await client(connection)
        finally:
            await connection.close()
    finally:
        stop.set()
        await asyncio.wait_for(service, 10)


@pytest.fixture
def searchable(notes: Notes) -> Notes:  # noqa: F811
    notes.worker()
    notes.write(cats="# Cats\ncat cat", trains="# Trains\ntrain")
    embed_notes(notes.scene.foundry, run_id="r")
    with_jetstream(notes.scene.foundry.nats, lambda js: js.ensure_stream(notes.scene.foundry.config.streams.events))
    return notes


def test_a_request_is_answered_with_the_nearest_notes_and_reported_as_an_event(searchable: Notes) -> None:
    answers = []

    async def client(connection: Any) -> None:
        body = {"query": "a cat", "top": 1, "correlation_id": "session-1"}
        answers.append(json.loads((await connection.request("search.notes", json.dumps(body).encode(), 10)).data))

    asyncio.run(serve(searchable, client))
    [answer] = answers
    assert [hit["source"] for hit in answer["hits"]] == ["cats.md"]
    assert (answer["query"], answer["model"], answer["worker"]) == ("a cat", "nomic", "w")
    land_partition(searchable.scene.foundry, EventIntake, (TODAY, EVENTS_LANE), run_id="r")
    [event] = searchable.rows("select * from searches")
    assert (event["correlation_id"], event["hits"]) == ("session-1", 1)


def test_on_the_events_subject_the_answer_comes_behind_the_acknowledgement_and_the_request_is_an_event(
    searchable: Notes,
) -> None:
    answers: list[dict[str, Any]] = []

    async def client(connection: Any) -> None:
        inbox = connection.new_inbox()
        subscription = await connection.subscribe(inbox)
        body = {"correlation_id": "s", "source": "obsidian", "payload": {"query": "train"}}
        await connection.publish("obsidian.semantic_search", json.dumps(body).encode(), reply=inbox)
        while not any("hits" in a for a in answers):
            answers.append(json.loads((await subscription.next_msg(10)).data))

    asyncio.run(serve(searchable, client))
    assert answers[-1]["hits"][0]["source"] == "trains.md"
    assert answers[-1]["hits"][0]["heading"] == "Trains"
    land_partition(searchable.scene.foundry, EventIntake, (TODAY, EVENTS_LANE), run_id="r")
    types = searchable.rows("select payload_type from events order by stream, seq")
    assert [row["payload_type"] for row in types] == ["search_request", "search"]


def test_what_is_no_request_is_told_what_is_wrong_and_a_search_that_fails_says_what_to_do(searchable: Notes) -> None:
    said: list[dict[str, Any]] = []

    async def client(connection: Any) -> None:
        bodies = (b"{", b'{"query": " "}', b'{"query": "x", "top": 0}')
        said.extend([json.loads((await connection.request("search.notes", body, 10)).data) for body in bodies])

    asyncio.run(serve(searchable, client))
    assert [s["error"]["kind"] for s in said] == ["invalid_request"] * 3
    assert "allowed: 1 to 100" in said[2]["error"]["message"]
    searchable.rows("select 1")
    searchable.scene.raw["notes"]["model"] = "other"
    searchable.scene.raw["models"]["other"] = "embedding"

    async def asks(connection: Any) -> None:
        said.append(json.loads((await connection.request("search.notes", b'{"query": "cat"}', 10)).data))

    asyncio.run(serve(searchable, asks))
    assert "is embedded by other yet" in said[-1]["error"]["message"]
    assert "Materialize the asset" in said[-1]["error"]["do"]


@pytest.mark.parametrize(
    ("body", "request_"),
    [
        ({"query": "a"}, Request("a")),
        ({"payload": {"query": "a", "top": 3}, "correlation_id": "c"}, Request("a", 3, None, "c")),
        ({"payload": {"query": "a", "reply_to": "results.x"}}, Request("a", 5, "results.x")),
        ({"payload": {"query": "a", "hits": 3, "latency_ms": 1}}, None),
    ],
)
def test_requests_are_read_bare_and_as_events(body: dict[str, Any], request_: Request | None) -> None:
    assert read_request(json.dumps(body).encode()) == request_


@given(
    st.binary(max_size=200) | st.dictionaries(st.text(max_size=5), st.integers()).map(lambda d: json.dumps(d).encode())
)
def test_nothing_but_a_bad_request_is_raised(data: bytes) -> None:
    with contextlib.suppress(BadRequest):
        read_request(data)


@in_loop
async def test_the_service_waits_for_a_nats_that_is_away(notes: Notes) -> None:  # noqa: F811
    there = notes.scene.raw["nats"]
    notes.scene.raw["nats"] = {"url": "nats://127.0.0.1:9", "connect_timeout_s": 0.5}
    foundry = notes.scene.foundry
    notes.scene.raw["nats"] = there
    stop, said = asyncio.Event(), asyncio.Event()
    service = asyncio.create_task(
        SearchService(foundry, lambda line: said.set() if "not listening" in line else None).run(stop)
    )
    await asyncio.wait_for(said.wait(), 10)
    stop.set()
    await asyncio.wait_for(service, 10)
