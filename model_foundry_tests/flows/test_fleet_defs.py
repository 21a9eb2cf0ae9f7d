"""The fleet in Dagster: recording it, warning, and waking what waited."""

from __future__ import annotations

from typing import Any

import dagster as dg

from model_foundry.answering import answer_partition
from model_foundry.intake import land_partition
from model_foundry.partition_run import PartitionRun
from model_foundry.prompt_intake import PromptIntake
from model_foundry.runtime import Foundry, switch_profile
from model_foundry_tests.flows.conftest import Scene, Servers
from model_foundry_tests.flows.skin import Skin, metadata
from model_foundry_tests.flows.test_fleet_flows import NOBODY, TODAY
from model_foundry_tests.inference.scripted import http

MODELS = [http(200, b'{"data": [{"id": "small"}]}')]


def checks(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {e.check_name: e.passed for e in result.get_asset_check_evaluations()}


def test_the_fleet_is_recorded_with_its_agents_figures_and_what_is_odd_is_warned_of(
    scene: Scene, servers: Servers, instance: dg.DagsterInstance
) -> None:
    scene.raw["fleet"]["gone_after_s"] = 60
    scene.worker("here", servers.start(MODELS).url, slots=2).worker("away", NOBODY)
    url = scene.raw["workers"]["here"]["url"]
    gpu = {"index": 0, "name": "RTX", "util_percent": 7, "vram_used_mb": 7900, "vram_total_mb": 8192}
    scene.beats("here", url, slots=1, gpu=gpu)
    result = Skin(scene, instance).run("record_fleet")
    shown = metadata(result, "worker_fleet")
    assert (shown["status"], shown["usable"], shown["healthy"], shown["down"]) == ("done", 1, 1, 1)
    rows = {r["worker"]: r for r in scene.foundry.warehouse.rows("from worker_fleet")}
    assert (rows["here"]["vram_used_mb"], rows["here"]["gpu_util_percent"], rows["here"]["slots"]) == (7900, 7, 2)
    assert rows["away"]["vram_used_mb"] is None
    assert checks(result) == {"no_worker_is_gone": False, "vram_has_room": False, "slots_agree": False}
    again = Skin(scene, instance).run("record_fleet")
    assert metadata(again, "worker_fleet")["status"] == "done"
    changes = scene.foundry.warehouse.rows("select worker, state from fleet_changes order by worker")
    assert [(r["worker"], r["state"]) for r in changes] == [("away", "down"), ("here", "healthy")]


def test_a_worker_that_comes_to_life_wakes_the_jobs_that_waited_for_it(
    scene: Scene, servers: Servers, instance: dg.DagsterInstance
) -> None:
    scene.publish({"prompt": "hi", "model": "small", "job_id": "j"})
    land_partition(scene.foundry, PromptIntake, (TODAY, "cpu_inference"), run_id="land")
    answer_partition(PartitionRun(scene.foundry, TODAY, "cpu_inference", run_id="run-1"))
    skin = Skin(scene, instance)
    asked, cursor = skin.sense("fleet_sensor")
    assert asked == []
    scene.beats("newcomer", servers.start(MODELS).url, models=["small"])
    asked, cursor = skin.sense("fleet_sensor", cursor)
    assert [(a.job_name, a.partition_key) for a in asked] == [
        ("record_fleet", None),
        ("answer_prompts", dg.MultiPartitionKey({"date": TODAY.isoformat(), "lane": "cpu_inference"})),
    ]
    assert asked[0].tags["foundry/because"] == "newcomer is healthy"
    asked, _ = skin.sense("fleet_sensor", cursor)
    assert asked == []


def test_switching_the_profile_needs_no_restart(scene: Scene, servers: Servers, instance: dg.DagsterInstance) -> None:
    scene.raw |= {
        "roles": {"boss": {"model": "big"}, "helper": {"model": "small"}},
        "profiles": {"full": ["boss", "helper"], "minimal": ["helper"]},
        "profile": "full",
    }
    scene.worker("w", NOBODY, supports=["cpu_inference", "gpu_inference"])
    skin = Skin(scene, instance)

    def lanes(cursor: str | None) -> tuple[list[Any], str | None]:
        scene.publish({"prompt": "hi", "role": "boss"})
        asked, after = skin.sense("prompt_sensor", cursor)
        return [a.partition_key.keys_by_dimension["lane"] for a in asked], after  # type: ignore[union-attr]

    found, cursor = lanes(None)
    assert found == ["gpu_inference"]
    switch_profile(scene.foundry.config, "minimal")
    assert Foundry.load(scene.folder / "foundry.yaml").config.profile == "minimal"
    found, cursor = lanes(cursor)
    assert found == ["unroutable"]
    switch_profile(scene.foundry.config, None)
    found, _ = lanes(cursor)
    assert found == ["gpu_inference"]
