"""The advice as an asset and as a command, over a real lake."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from model_foundry.config import load, parse
from model_foundry.defs.fleet.advice import placement_advice_asset
from model_foundry.defs.resources import FoundryResource, LakeResource
from model_foundry.records import ErrorKind, JobStatus
from model_foundry.runtime import Foundry
from model_foundry_tests.builders import raw_config
from model_foundry_tests.lake.rows import a_job, an_attempt, finish, land

BUDGETS = {"budgets": [{"p95_s": 10, "domain": "general"}]}


class Lab:
    """A folder with a configuration and a lake with answers of now."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.raw = raw_config(**changes)
        self.file = folder / "foundry.yaml"
        self.file.write_text(yaml.safe_dump(self.raw, sort_keys=False), encoding="utf-8")
        self.foundry = Foundry(load(self.file, environ={}), self.file)
        self.foundry.warehouse.migrate()
        self.seq = 0

    def attempts(self, n: int, *, age: timedelta = timedelta(), model: str = "small", **attempt: Any) -> Lab:
        """Lands jobs of the domain ``general`` and records one attempt at each."""
        jobs = [a_job(self.seq + i, domain="general", model=model) for i in range(1, n + 1)]
        self.seq += n
        land(self.foundry.warehouse, *jobs)
        sent_at = datetime.now(UTC) - age - timedelta(minutes=1)
        finish(self.foundry.warehouse, *((job, an_attempt(job, sent_at=sent_at, **attempt)) for job in jobs))
        return self

    def materialize(self, **config: Any) -> dict[str, Any]:
        """The asset's metadata."""
        result = dg.materialize(
            [placement_advice_asset()],
            resources={
                "foundry": FoundryResource(config_file=str(self.file)),
                "lake": LakeResource(config_file=str(self.file), database=""),
            },
            run_config={"ops": {"placement_advice": {"config": config}}},
        )
        [event] = result.asset_materializations_for_node("placement_advice")
        return {name: value.value for name, value in event.metadata.items()}

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "model_foundry.cli.main", "advice", *arguments]
        return subprocess.run(argv, cwd=self.file.parent, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def slow_moon(tmp_path: Path) -> Lab:
    """``small`` takes 26 s and longer on moon, and under a second on card."""
    lab = Lab(tmp_path, fleet=BUDGETS).attempts(10, worker="moon", e2e_s=40.0)
    return lab.attempts(60, worker="card", e2e_s=0.5)


def test_the_asset_shows_rows_proposals_and_the_lines_to_paste(slow_moon: Lab) -> None:
    shown = slow_moon.materialize()
    assert (shown["status"], shown["over"], shown["within"], shown["dagster/row_count"]) == ("done", 1, 1, 2)
    first, second = (record.data for record in shown["rows"].records)
    assert (first["worker"], first["verdict"], first["n"], first["p95_s"]) == ("moon", "over", 10, "n<59")
    assert (second["worker"], second["verdict"], second["over"]) == ("card", "within", 0)
    [proposal] = [record.data for record in shown["proposals"].records]
    assert proposal["change"] == "take small off moon"
    assert shown["config"] == "```yaml\nworkers:\n  moon:\n    models: []\n```"
    assert "as_of" in shown
    pasted = yaml.safe_load(shown["config"].removeprefix("```yaml").removesuffix("```"))
    slow_moon.raw["workers"]["moon"] |= pasted["workers"]["moon"]
    assert parse(slow_moon.raw)


def test_cold_answers_and_refusals_do_not_count_and_running_out_of_time_does(tmp_path: Path) -> None:
    lab = Lab(tmp_path, fleet=BUDGETS).attempts(2, worker="moon", e2e_s=1.0).attempts(10, cold=True, e2e_s=90.0)
    failed = {"status": JobStatus.FAILED, "ttft_s": None, "e2e_s": None}
    lab.attempts(4, error_kind=ErrorKind.CONNECTION, **failed).attempts(3, error_kind=ErrorKind.TIMEOUT, **failed)
    lab.attempts(1, status=JobStatus.INCOMPLETE, error_kind=ErrorKind.STALLED)
    [row] = (record.data for record in lab.materialize()["rows"].records)
    assert (row["n"], row["over"]) == (6, 4)


def test_the_window_is_of_as_many_days_as_asked_for(tmp_path: Path) -> None:
    lab = Lab(tmp_path, fleet=BUDGETS).attempts(3, age=timedelta(days=2)).attempts(1)
    assert [lab.materialize(days=days)["rows"].records[0].data["n"] for days in (1, 3)] == [1, 4]


@pytest.mark.parametrize(("fleet", "hint"), [({}, "fleet: {budgets:"), (BUDGETS, "No warm answer")])
def test_without_budgets_or_answers_it_is_empty_and_says_why(tmp_path: Path, fleet: dict[str, Any], hint: str) -> None:
    shown = Lab(tmp_path, fleet=fleet).materialize()
    assert shown["status"] == "empty"
    assert hint in shown["hint"]


def test_the_command_fits_80_columns_and_exits_1_when_something_is_over(slow_moon: Lab) -> None:
    done = slow_moon.command()
    assert done.returncode == 1, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "take small off moon" in done.stdout
    assert done.stdout.endswith("workers:\n  moon:\n    models: []\n")
    found = json.loads(slow_moon.command("--json", "--days", "1").stdout)
    assert (found["status"], found["rows"][0]["verdict"], found["rows"][0]["p95_s"]) == ("done", "over", None)
    assert found["proposals"][0]["config"] == found["config"]


def test_the_command_says_how_to_name_a_budget(tmp_path: Path) -> None:
    done = Lab(tmp_path).command()
    assert done.returncode == 0
    assert "fleet: {budgets:" in done.stdout
