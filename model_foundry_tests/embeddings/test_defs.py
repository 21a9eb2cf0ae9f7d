"""The asset ``embeddings`` and its schedule, in process."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pytest

from model_foundry_tests.embeddings.conftest import Notes, WordServer
from model_foundry_tests.flows.skin import Skin, metadata
from model_foundry_tests.inference.scripted import Step, http, refusal

TODAY = datetime.now(UTC).date().isoformat()


def run(notes: Notes, instance: dg.DagsterInstance, day: str = TODAY, **config: Any) -> dict[str, Any]:
    ops = {"ops": {"embeddings": {"config": config}}}
    done = Skin(notes.scene, instance).run("embed_notes", key=day, config=ops)
    assert done.success
    return metadata(done, "embeddings")


def test_a_run_shows_counts_dimensions_rates_and_failures_by_note(notes: Notes, instance: dg.DagsterInstance) -> None:
    notes.worker(server=WordServer(limit=100))
    assert run(notes, instance)["status"] == "empty"
    notes.write(a="A cat.", b="A train.", c="bread " * 30)
    shown = run(notes, instance)
    assert (shown["status"], shown["notes"], shown["embedded"], shown["failed"]) == ("done", 3, 2, 1)
    assert (shown["dimensions"], shown["model"]) == (4, "nomic")
    assert shown["chunks_per_s"] > 0
    assert shown["tokens_per_s"] > 0
    [without] = shown["without_vector"].records
    assert without.data == {"source": "c.md", "chunks": 1, "status": "failed", "error_kind": "context_overflow"}
    again = run(notes, instance)
    assert (again["embedded"], again["unchanged"], again["requests"]) == (0, 3, 0)
    assert run(notes, instance, again=True)["embedded"] == 2


@pytest.mark.parametrize(
    ("script", "failed", "why"),
    [
        (refusal(400, {"error": "can't embed: my secret diary"}), 1, None),
        (refusal(404, {"error": "no model for: my secret diary"}), 0, "worker w does not serve 'nomic' (HTTP 404)"),
        ([http(200, b'{"error": "my secret diary"}')], 0, None),
    ],
)
def test_no_text_of_a_note_is_written_to_the_event_log(
    notes: Notes, instance: dg.DagsterInstance, script: list[Step], failed: int, why: str | None
) -> None:
    """Not even by a server's refusal that quotes it."""
    server = notes.worker()
    notes.write(a="my secret diary")
    server.fault = script
    done = Skin(notes.scene, instance).run("embed_notes", key=TODAY)
    shown = metadata(done, "embeddings")
    assert (shown["failed"], shown["waiting"]) == (failed, 1 - failed)
    if why:
        assert [record.data["because"] for record in shown["workers_left_out"].records] == [why]
    assert "secret diary" in notes.rows()[0]["error_message"]
    assert all("secret diary" not in str(event) for event in instance.all_logs(done.run_id))


def test_a_past_day_shows_what_of_it_is_still_so_and_asks_nobody(notes: Notes, instance: dg.DagsterInstance) -> None:
    server = notes.worker()
    notes.write(a="A cat.")
    assert run(notes, instance, "2026-01-02")["status"] == "past"
    assert server.received == []


def test_the_schedule_is_on_only_where_notes_are_configured_and_waits_for_a_run(
    notes: Notes, instance: dg.DagsterInstance
) -> None:
    notes.worker()
    skin = Skin(notes.scene, instance)
    assert skin.defs.resolve_schedule_def("notes").default_status is dg.DefaultScheduleStatus.RUNNING
    assert [request.partition_key for request in skin.tick("notes")] == [TODAY]
    instance.create_run_for_job(skin.defs.resolve_job_def("embed_notes"), status=dg.DagsterRunStatus.STARTED)
    assert skin.tick("notes") == []
    del notes.scene.raw["notes"]
    without = Skin(notes.scene, instance)
    assert without.defs.resolve_schedule_def("notes").default_status is dg.DefaultScheduleStatus.STOPPED
    assert without.tick("notes") == []
    assert metadata(without.run("embed_notes", key=TODAY), "embeddings")["status"] == "not configured"


def test_the_upkeep_leaves_the_vectors_as_they_are_and_its_checks_pass(
    notes: Notes, instance: dg.DagsterInstance
) -> None:
    notes.worker()
    for n in range(3):
        notes.write(**{f"n{n}": f"cat {n}", "changing": f"train {n}"})
        run(notes, instance)
    before = notes.rows()
    tidied = Skin(notes.scene, instance).run("tidy_lake")
    assert all(check.passed for check in tidied.get_asset_check_evaluations())
    assert notes.rows() == before
    assert len(before) == 4
