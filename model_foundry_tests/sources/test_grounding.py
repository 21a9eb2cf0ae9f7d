"""Answers that are given sources: what is searched, what the model is told, what is recorded."""

from __future__ import annotations

from datetime import UTC, datetime

import dagster as dg
from hypothesis import given
from hypothesis import strategies as st

from model_foundry.config import GroundingConfig
from model_foundry.grounding import NOTHING_FOUND_TEXT, fitting, with_sources
from model_foundry.searching import query_of
from model_foundry.warehouse.sources import Source
from model_foundry_tests.builders import a_job
from model_foundry_tests.embeddings.conftest import WordServer
from model_foundry_tests.flows.skin import Skin, metadata
from model_foundry_tests.inference.scripted import refusal
from model_foundry_tests.sources.conftest import Grounded, found

LANE = "cpu_inference"
CONFIG = GroundingConfig()


def job(**fields: object) -> dict[str, object]:
    return {"prompt": "How hot does it get?", "model": "small", "job_id": "j", "ground": ["web"], **fields}


def run(grounded: Grounded, instance: dg.DagsterInstance, lane: str = LANE, **ops: object) -> dg.ExecuteInProcessResult:
    config = {"ops": {name: {"config": value} for name, value in ops.items()}} if ops else None
    return Skin(grounded.scene, instance).run("answer_prompts", lane, config)


def test_a_grounded_prompt_is_searched_for_first_and_its_answer_lists_its_sources(
    grounded: Grounded, instance: dg.DagsterInstance
) -> None:
    grounded.scene.publish(job())
    result = run(grounded, instance)
    assert grounded.search.queries == ["How hot does it get?"]
    [asked] = grounded.model.asked
    assert "[1] One of How hot does it get? (https://example.org/1)\nAbout One of How hot does it get?." in asked
    assert asked.endswith("---\n\nHow hot does it get?")
    answer = grounded.scene.results()["j"]
    assert answer["status"] == "answered"
    assert [(s["number"], s["kind"], s["source"]) for s in answer["sources"]] == [
        (1, "web", "https://example.org/1"),
        (2, "web", "https://example.org/2"),
    ]
    [row] = grounded.rows("from grounded_jobs")
    assert (row["sources"], row["status"], len(row["given"])) == (2, "answered", 2)
    assert grounded.rows("select messages from jobs")[0]["messages"].count("example.org") == 0  # as it was sent
    shown = metadata(result, "web_results")
    assert (shown["status"], shown["searches"], shown["results"]) == ("done", 1, 2)
    assert metadata(result, "job_sources")["from_web"] == 2
    order = [e.step_key for e in result.all_events if e.is_step_success]
    assert order == ["prompt_inbox", "web_results", "job_sources", "article_translations", "completions"] or (
        order.index("web_results") < order.index("job_sources") < order.index("completions")
    )


def test_the_sensor_asks_only_for_what_the_prompts_need(grounded: Grounded, instance: dg.DagsterInstance) -> None:
    skin = Skin(grounded.scene, instance)
    grounded.scene.publish({"prompt": "plain", "model": "small"})
    [plain], cursor = skin.sense("prompt_sensor")
    assert list(plain.asset_check_keys or ()) == []  # the figures' job looks after the checks
    assert {k.to_user_string() for k in plain.asset_selection or ()} == {"prompt_inbox", "completions"}
    grounded.scene.publish(job(), {"prompt": "cats", "capability": "web_search"}, {"prompt": ""})
    asked, _ = skin.sense("prompt_sensor", cursor)
    by_lane = {
        dg.MultiPartitionKey.keys_by_dimension.fget(a.partition_key)["lane"]: {  # type: ignore[attr-defined]
            k.to_user_string() for k in a.asset_selection or ()
        }
        for a in asked
    }
    assert by_lane == {
        LANE: {"prompt_inbox", "web_results", "job_sources", "completions"},
        "web_search": {"prompt_inbox", "web_results"},
        "unroutable": {"prompt_inbox", "completions"},
    }


def test_a_search_server_that_is_away_makes_its_jobs_wait_and_no_others(
    grounded: Grounded, instance: dg.DagsterInstance
) -> None:
    grounded.scene.raw["workers"]["searx"]["url"] = "http://127.0.0.1:9"
    grounded.scene.publish(job(), {"prompt": "plain", "model": "small", "job_id": "p"})
    result = run(grounded, instance)
    assert set(grounded.scene.results()) == {"p"}
    [waiting] = grounded.rows("select job_id, reason from waiting_jobs")
    assert waiting["job_id"] == "j"
    assert "for its sources: web search" in waiting["reason"]
    assert metadata(result, "web_results")["status"] == "waiting"
    grounded.scene.raw["workers"]["searx"]["url"] = grounded.search.url
    run(grounded, instance)
    assert grounded.scene.results()["j"]["status"] == "answered"
    assert grounded.rows("select count(*) as n from web_searches")[0]["n"] == 1


def test_a_search_server_without_json_makes_its_jobs_wait_and_says_what_to_do(
    grounded: Grounded, instance: dg.DagsterInstance
) -> None:
    grounded.search.fault = refusal(403, b"Forbidden")
    grounded.scene.publish(job())
    run(grounded, instance)
    [waiting] = grounded.rows("select reason from waiting_jobs")
    assert "add json to search.formats" in waiting["reason"]


def test_a_search_that_fails_for_good_fails_its_job_until_it_is_tried_again(
    grounded: Grounded, instance: dg.DagsterInstance
) -> None:
    grounded.search.fault = refusal(400, {"error": "bad engine"})
    grounded.scene.publish(job())
    run(grounded, instance)
    failed = grounded.scene.results()["j"]
    assert (failed["status"], failed["error"]["kind"]) == ("failed", "invalid_request")
    assert "bad engine" in failed["error"]["message"]
    assert grounded.model.asked == []
    grounded.search.fault = None
    run(grounded, instance, web_results={"retry_failed": True})
    assert grounded.scene.results()["j"]["status"] == "answered"


def test_a_job_whose_deadline_passed_before_its_search_is_expired(
    grounded: Grounded, instance: dg.DagsterInstance
) -> None:
    grounded.scene.publish(job(deadline="2026-01-01T00:00:00Z"))
    run(grounded, instance)
    assert grounded.scene.results()["j"]["status"] == "expired"
    assert (grounded.search.queries, grounded.model.asked) == ([], [])


def test_nothing_found_is_told_to_the_model_and_in_the_result(grounded: Grounded, instance: dg.DagsterInstance) -> None:
    grounded.search.by_query["rare"] = found()
    grounded.scene.publish(job(query="rare"))
    run(grounded, instance)
    assert grounded.model.asked[0].startswith(NOTHING_FOUND_TEXT)
    answer = grounded.scene.results()["j"]
    assert (answer["status"], answer["sources"]) == ("answered", [])
    assert "nothing_found" in grounded.rows("select notes from job_grounding")[0]["notes"]


def test_a_search_is_a_job_of_its_own_lane(grounded: Grounded, instance: dg.DagsterInstance) -> None:
    grounded.scene.publish({"prompt": "fan curves", "capability": "web_search", "job_id": "s"})
    result = run(grounded, instance, "web_search")
    answer = grounded.scene.results()["s"]
    assert (answer["status"], answer["worker"], answer["lane"]) == ("answered", "searx", "web_search")
    assert [r["title"] for r in answer["results"]] == ["One of fan curves", "Two of fan curves"]
    assert answer["text"].startswith("1. [One of fan curves](https://example.org/1)")
    assert grounded.rows("select count(*) as n from web_results")[0]["n"] == 2
    assert metadata(result, "web_results")["search_jobs"] == 1
    assert grounded.rows("select n from domain_latency where level = 'domain'")[0]["n"] == 0  # no model's latency


def test_notes_and_web_are_given_together_and_a_run_made_again_asks_nobody_again(
    grounded: Grounded, instance: dg.DagsterInstance
) -> None:
    scene = grounded.scene
    words = WordServer()
    grounded.start(words)
    scene.raw["capabilities"].append("embedding")
    scene.raw["models"]["nomic"] = "embedding"
    scene.raw["notes"] = {"folder": "notes", "model": "nomic"}
    scene.worker("e", words.url, supports=["embedding"])
    folder = scene.folder / "notes"
    folder.mkdir()
    (folder / "trains.md").write_text("# Rails\nthe train train leaves", encoding="utf-8")
    scene.publish(job(prompt="when does the train leave", ground=["notes", "web"]))
    run(grounded, instance)
    [waiting] = grounded.rows("select reason from waiting_jobs")
    assert "none of the notes is embedded" in waiting["reason"]
    Skin(scene, instance).run("embed_notes", key=datetime.now(UTC).date().isoformat())
    run(grounded, instance)
    answer = scene.results()["j"]
    assert [(s["kind"], s["source"]) for s in answer["sources"]] == [
        ("notes", "trains.md"),
        ("web", "https://example.org/1"),
        ("web", "https://example.org/2"),
    ]
    assert "[1] Rails (trains.md)" in grounded.model.asked[0]
    run(grounded, instance)
    assert (len(grounded.model.asked), len(grounded.search.queries)) == (1, 1)


def test_sources_are_given_after_the_prompts_have_landed_even_without_a_web_search(
    grounded: Grounded, instance: dg.DagsterInstance
) -> None:
    job_def = Skin(grounded.scene, instance).defs.resolve_job_def("answer_prompts")
    names = ["prompt_inbox", "job_sources", "completions"]
    chosen = job_def.get_subset(asset_selection={dg.AssetKey(name) for name in names})
    order = [node.name for node in chosen.graph.nodes_in_topological_order if node.name in names]
    assert order == names


# -- pure ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.text(min_size=1, max_size=400), max_size=12), st.integers(200, 2000))
def test_sources_keep_the_bound_and_their_numbers(texts: list[str], most: int) -> None:
    chosen = fitting([Source(0, "web", f"u{n}", None, text) for n, text in enumerate(texts)], most)
    assert [s.number for s in chosen] == list(range(1, len(texts) + 1))
    assert sum(len(s.text) for s in chosen) <= most
    if sum(map(len, texts)) <= most:
        assert [s.text for s in chosen] == texts


def test_sources_stand_before_the_last_users_text_and_the_rest_is_untouched() -> None:
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "and this?"}]},
        {"role": "assistant", "content": "hm"},
    ]
    told = with_sources(messages, [Source(1, "web", "https://u", "T", "text")], CONFIG)
    assert told[0] == messages[0]
    assert told[2] == messages[2]
    assert [part["type"] for part in told[1]["content"]] == ["text", "text"]
    assert "[1] T (https://u)\ntext" in told[1]["content"][0]["text"]
    assert messages[1]["content"] == [{"type": "text", "text": "and this?"}]


def test_a_query_is_the_jobs_own_or_the_beginning_of_its_prompt() -> None:
    assert query_of(a_job(query="  a\nb "), CONFIG) == "a b"
    long = query_of(a_job(prompt="word " * 200), CONFIG)
    assert len(long) <= CONFIG.query_chars
    assert long.endswith("word")
    assert len(query_of(a_job(prompt="長" * 999), CONFIG)) == CONFIG.query_chars
