"""SearXNG's wire format, read."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_foundry.config import LimitsConfig
from model_foundry.inference import searxng
from model_foundry.inference.answer import Answer
from model_foundry.inference.client import ask, new_client
from model_foundry.inference.target import InferenceRequest, WorkerTarget, encoded
from model_foundry.records import Completion, ErrorKind, JobStatus
from model_foundry_tests.inference.scripted import ScriptedServer, Step, head, http, refusal
from model_foundry_tests.parts import in_loop
from model_foundry_tests.sources.conftest import found

LIMITS = LimitsConfig(request_first_token_timeout_s=5)


async def search(*script: Step, query: str = "gpu fan", **params: Any) -> tuple[Completion, ScriptedServer]:
    async with ScriptedServer(list(script)) as server, new_client() as client:
        target = WorkerTarget("searx", server.url + "/", "searxng")
        request = InferenceRequest("", [{"role": "user", "content": query}], params)
        return await ask(client, target, request, LIMITS), server


@in_loop
async def test_a_query_is_posted_as_a_form_that_asks_for_json() -> None:
    completion, server = await search(*found("A"), query="gpu\n fan ü", engines=["a", "b"], safesearch=1)
    [request] = server.received
    assert (request.method, request.path) == ("POST", "/search")
    assert request.body == {"q": "gpu fan ü", "format": "json", "engines": "a,b", "safesearch": "1"}
    assert completion.status is JobStatus.ANSWERED


@in_loop
async def test_results_are_kept_in_their_order_and_shown_as_text() -> None:
    entry = {
        "url": "https://e.org/1",
        "title": "T [x]",
        "content": "c\n d",
        "engine": "ddg",
        "score": 2,
        "publishedDate": "2026-01-02T03:04:05",
    }
    completion, _ = await search(*found(entry, "B", failed=[["brave", "CAPTCHA"], "old"]))
    first, second = completion.results
    assert (first.url, first.title, first.engine, first.score) == ("https://e.org/1", "T [x]", "ddg", 2.0)
    assert first.published_at is not None
    assert first.published_at.isoformat() == "2026-01-02T03:04:05+00:00"
    assert second.title == "B"
    assert completion.text.startswith("1. [T [x]](https://e.org/1)\n   c d\n2. [B](")
    assert completion.notes == ("engines_failed: brave: CAPTCHA, old: no reason given",)
    assert completion.finish_reason == "found"


@in_loop
async def test_nothing_found_is_an_answer() -> None:
    completion, _ = await search(*found())
    assert (completion.status, completion.results, completion.finish_reason) == (
        JobStatus.ANSWERED,
        (),
        "nothing_found",
    )


@in_loop
async def test_nothing_found_while_engines_failed_is_a_failure_that_names_them() -> None:
    completion, _ = await search(*found(failed=[["brave", "Suspended: CAPTCHA"]]))
    assert (completion.status, completion.error_kind) == (JobStatus.FAILED, ErrorKind.SERVER_ERROR)
    assert "brave: Suspended: CAPTCHA" in (completion.error_message or "")


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        (refusal(403, b"<!doctype html><title>403 Forbidden</title>"), "invalid_request", "add json to search.formats"),
        (refusal(429, b"Too Many Requests", Retry_After="7"), "rate_limited", "is full (HTTP 429): Too Many Requests"),
        (refusal(400, {"error": "No query"}), "invalid_request", "No query"),
        (refusal(500, b"oops"), "server_error", "oops"),
        (refusal(404, b"nothing here"), "model_not_found", "check workers.searx.models and url"),
        ([http(200, b"<!DOCTYPE html><html><title>SearXNG</title>")], "server_error", "a page of HTML"),
        ([http(200, b'{"answer": 42}')], "server_error", "no list of results"),
        ([http(200, b"{not json}")], "server_error", "is not JSON"),
        ([head("application/json"), b'{"query": "q", "resu'], "server_error", "is not JSON"),
    ],
)
@in_loop
async def test_what_is_no_answer_says_what_to_do(script: list[Step], kind: str, words: str) -> None:
    completion, _ = await search(*script)
    assert (completion.status, completion.error_kind) == (JobStatus.FAILED, kind)
    assert words in (completion.error_message or "")
    assert completion.results == ()
    if kind == "rate_limited":
        assert completion.retry_after_s == 7


@in_loop
async def test_an_answer_over_several_lines_is_read_too() -> None:
    body = json.dumps({"results": [{"url": "https://e.org", "title": "T", "content": ""}]}, indent=2).encode()
    completion, _ = await search(http(200, body))
    assert [r.url for r in completion.results] == ["https://e.org"]


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["url", "title", "content", "score", "publishedDate", "engine"]), ODD), ODD)
def test_odd_entries_cost_themselves_and_nothing_else(entry: dict[str, Any], failed: Any) -> None:
    good = {"url": "https://e.org", "title": "T", "content": "c"}
    answer = Answer(max_bytes=100_000)
    searxng.absorb_object(answer, {"results": [entry, 7, good], "unresponsive_engines": failed}, 1.0)
    assert answer.failure is None
    assert answer.results[-1].url == "https://e.org"
    assert all(r.score is None or abs(r.score) < float("inf") for r in answer.results)
    answer.text.encode()


@given(st.text(max_size=50))
def test_any_query_becomes_a_form(text: str) -> None:
    text = text.encode("utf-8", "ignore").decode()
    request = InferenceRequest("", [{"role": "user", "content": text}])
    form = parse_qs(encoded(searxng.body(request), searxng.CONTENT_TYPE).decode())
    assert form["format"] == ["json"]
    assert form.get("q", [""]) == [" ".join(text.split())]
