"""The commands about the fleet, on a real bucket and a real lake."""

from __future__ import annotations

import json

from model_foundry.answering import answer_partition
from model_foundry.intake import land_partition
from model_foundry.partition_run import PartitionRun
from model_foundry.prompt_intake import PromptIntake
from model_foundry_tests.flows.conftest import Scene, Servers
from model_foundry_tests.flows.test_event_commands import foundry, told, words
from model_foundry_tests.flows.test_fleet_flows import GPU, NOBODY, TODAY
from model_foundry_tests.inference.scripted import http, sse_answer

MODELS = [http(200, b'{"data": [{"id": "small"}]}')]


def test_workers_shows_those_of_the_file_and_those_that_joined_and_exits_1_when_one_is_down(
    scene: Scene, servers: Servers
) -> None:
    scene.raw["fleet"]["gone_after_s"] = 60
    scene.worker("here", servers.start(MODELS).url, slots=2).worker("away", NOBODY)
    gpu = {"name": "RTX", "vram_used_mb": 4096, "vram_total_mb": 8192}
    scene.beats("joined", servers.start(MODELS).url, supports=[GPU], models=["big"], slots=3, gpu=gpu)
    done = foundry(scene, "workers", "--json")
    assert done.returncode == 1
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert {name: row["state"] for name, row in rows.items()} == {
        "here": "healthy",
        "away": "down",
        "joined": "misconfigured",
    }
    assert "does not list big; it has small" in rows["joined"]["detail"]
    assert (rows["joined"]["slots"], rows["joined"]["gpu"]["vram_used_mb"]) == (3, 4096)
    shown = words(foundry(scene, "workers"))
    assert "4.0/8.0" in shown
    assert "away: http://127.0.0.1:9 can't be reached" in shown


def test_route_says_which_worker_takes_it_and_why_the_others_do_not(scene: Scene, servers: Servers) -> None:
    scene.worker("here", servers.start(MODELS).url, models=["small"]).worker("away", NOBODY, models=["small"])
    scene.worker("card", NOBODY, supports=[GPU])
    found = told(foundry(scene, "route", "hi", "--model", "small", "--json"))
    assert [(w["worker"], w["takes"], w["why"].split(":")[0]) for w in found["workers"]] == [
        ("here", True, "the only one that can be used now"),
        ("away", False, "down"),
        ("card", False, "does not support cpu_inference"),
    ]
    assert told(foundry(scene, "route", "hi", "--model", "small", "--offline", "--json"))["workers"] == []


def test_a_profile_is_switched_and_reset_and_an_unknown_one_names_those_there_are(scene: Scene) -> None:
    scene.worker("w", NOBODY)
    scene.raw |= {
        "roles": {"boss": {"model": "small", "substitute": "helper"}, "helper": {"model": "small"}},
        "profiles": {"full": ["boss", "helper"], "minimal": ["helper"]},
        "profile": "full",
    }
    assert told(foundry(scene, "profile", "--json"))["profile"] == "full"
    switched = told(foundry(scene, "profile", "minimal", "--json"))
    assert (switched["profile"], switched["switched"]) == ("minimal", True)
    assert {r["role"]: r["on"] for r in switched["roles"]} == {"boss": False, "helper": True}
    decided = told(foundry(scene, "route", "hi", "--role", "boss", "--offline", "--json"))
    assert "boss is off in profile minimal, helper answers for it" in decided["reason"]
    unknown = foundry(scene, "profile", "tiny")
    assert unknown.returncode == 2
    assert "allowed: full, minimal" in words(unknown)
    assert told(foundry(scene, "profile", "--reset", "--json"))["switched"] is False


def test_a_job_that_waits_says_why_to_the_one_who_waits_for_it_and_can_be_cancelled(
    scene: Scene, servers: Servers
) -> None:
    scene.publish({"prompt": "hi", "model": "small", "job_id": "j"})
    land_partition(scene.foundry, PromptIntake, (TODAY, "cpu_inference"), run_id="land")
    answer_partition(PartitionRun(scene.foundry, TODAY, "cpu_inference", run_id="run-1"))
    (scene.folder / "again.jsonl").write_text('{"job_id": "j", "prompt": "hi"}\n', encoding="utf-8")
    waited = foundry(scene, "submit", "--file", "again.jsonl", "--wait", "--timeout", "1")
    assert waited.returncode == 4
    assert "j waits: no worker serves its model and capability" in words(waited)
    assert foundry(scene, "cancel", "j").returncode == 0
    scene.worker("w", servers.start(sse_answer()).url)
    report = answer_partition(PartitionRun(scene.foundry, TODAY, "cpu_inference", run_id="run-2", dead_runs=["run-1"]))
    assert report.by_status == {"cancelled": 1}
