"""The Dagster skin in process: jobs, schedules, checks, on a real lake and a real NATS."""

from __future__ import annotations

from datetime import UTC, datetime

import dagster as dg

from model_foundry.warehouse.invariants import INVARIANTS
from model_foundry_tests.flows.conftest import Scene, Servers
from model_foundry_tests.flows.skin import Skin, metadata
from model_foundry_tests.inference.scripted import refusal

TODAY = datetime.now(UTC).date()


def test_a_prompt_run_lands_and_answers_and_nothing_pending_is_a_normal_outcome(skin: Skin, scene: Scene) -> None:
    scene.publish({"prompt": "Capital?", "model": "small", "correlation_id": "s-1"})
    first = skin.run("answer_prompts", "cpu_inference")
    assert metadata(first, "prompt_inbox")["jobs"] == 1
    shown = metadata(first, "completions")
    assert (shown["status"], shown["answered"], shown["results_published"]) == ("done", 1, 1)
    assert "s-1" in shown["by_correlation_id"]
    again = skin.run("answer_prompts", "cpu_inference")
    assert again.success
    assert metadata(again, "prompt_inbox")["status"] == metadata(again, "completions")["status"] == "empty"


def test_no_prompt_and_no_answer_is_written_to_the_event_log(
    skin: Skin, scene: Scene, instance: dg.DagsterInstance, servers: Servers
) -> None:
    """Not even by a server's refusal that quotes the prompt."""
    scene.worker("quoting", servers.start(refusal(400, b"can't answer: my secret diary")).url, models=["small"])
    del scene.raw["workers"]["w"]
    scene.publish({"prompt": "my secret diary", "model": "small"})
    run = Skin(scene, instance).run("answer_prompts", "cpu_inference")
    assert metadata(run, "completions")["failed"] == 1
    assert "secret diary" in scene.foundry.warehouse.rows("from jobs")[0]["error_message"]
    assert all("secret diary" not in str(event) for event in instance.all_logs(run.run_id))


def test_reconciliation_asks_for_what_is_overdue_unless_a_run_is_under_way(skin: Skin, scene: Scene) -> None:
    assert skin.tick("reconciliation") == []
    scene.publish({"prompt": "hi", "model": "small"}, b"no json")
    asked = {request.partition_key for request in skin.tick("reconciliation")}
    assert asked == {f"{TODAY}|cpu_inference", f"{TODAY}|unroutable"}
    skin.instance.create_run_for_job(
        skin.defs.resolve_job_def("answer_prompts"),
        status=dg.DagsterRunStatus.STARTED,
        tags={"dagster/partition": f"{TODAY}|cpu_inference"},
    )
    assert {request.partition_key for request in skin.tick("reconciliation")} == {f"{TODAY}|unroutable"}


def test_the_figures_are_refreshed_when_something_was_answered_since(skin: Skin, scene: Scene) -> None:
    assert skin.tick("figures") == []
    scene.publish({"prompt": "hi", "model": "small"})
    skin.run("answer_prompts", "cpu_inference")
    assert len(skin.tick("figures")) == 1
    refreshed = skin.run("refresh_figures")
    shown = metadata(refreshed, "domain_latency")
    assert shown["status"] == "done"
    assert "by_domain" in shown
    assert shown["chart"].startswith("![domain_latency](data:image/png")
    assert skin.tick("figures") == []


def test_the_upkeep_runs_and_shows_sizes_and_its_checks_pass(skin: Skin, scene: Scene) -> None:
    scene.publish({"prompt": "hi", "model": "small"}, b"no json")
    for lane in ("cpu_inference", "unroutable"):
        skin.run("answer_prompts", lane)
    tidied = skin.run("tidy_lake")
    shown = metadata(tidied, "lake_compaction")
    assert shown["files_before"] > shown["files_after"] > 0
    checks = {check.check_name: check.passed for check in tidied.get_asset_check_evaluations()}
    assert checks == dict.fromkeys(INVARIANTS, True)
    assert metadata(tidied, "lake_backup")["bytes"] > 0
    assert metadata(tidied, "lake_retention")["snapshots_deleted"] == 0


def test_lost_messages_fail_a_check_on_the_inbox(skin: Skin, scene: Scene) -> None:
    scene.publish(*({"prompt": "hi", "model": "small"} for _ in range(4)))
    skin.run("answer_prompts", "cpu_inference", {"ops": {"prompt_inbox": {"config": {"from_seq": 1, "to_seq": 1}}}})
    scene.purge(below=4)
    run = skin.run("answer_prompts", "cpu_inference")
    assert metadata(run, "prompt_inbox")["lost"] == 2
    assert len(skin.tick("figures")) == 1
    checks = {c.check_name: c.passed for c in skin.run("refresh_figures").get_asset_check_evaluations()}
    assert checks == {"no_message_was_lost": False, "no_rejects_today": True}
