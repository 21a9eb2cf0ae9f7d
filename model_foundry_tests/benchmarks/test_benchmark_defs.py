"""Benchmarks in Dagster: a sweep, what it shows, and what got worse."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest
import yaml

from model_foundry.benchmarks import comparing
from model_foundry.benchmarks.comparison import ALL_DOMAINS
from model_foundry.defs.benchmarks.assets import benchmark_assets
from model_foundry.errors import ConfigError
from model_foundry_tests.benchmarks.conftest import Bench, a_suite
from model_foundry_tests.flows.skin import Skin, metadata

SUITE = "mine"


@pytest.fixture
def measured(bench: Bench) -> Bench:
    """A foundry with a suite of its own and two models, of which ``b`` is slower."""
    folder = bench.scene.folder / "suites"
    folder.mkdir()
    suite = a_suite(8, checks=True).model_copy(update={"name": SUITE})
    (folder / f"{SUITE}.yaml").write_text(yaml.safe_dump(suite.model_dump(mode="json")), encoding="utf-8")
    bench.scene.raw["benchmarks"] = {"suites": ["suites"]}
    bench.worker("w", "a")
    slow = bench.worker("x", "b", slots=2)
    slow.pause_s = 0.05
    return bench


def swept(bench: Bench, instance: dg.DagsterInstance, model: str, **config: Any) -> dict[str, Any]:
    key = dg.MultiPartitionKey({"model": model, "suite": SUITE})
    given = {"ops": {"benchmark_results": {"config": config}}}
    return metadata(Skin(bench.scene, instance).run("benchmark", None, given, key=str(key)), "benchmark_results")


def test_a_sweep_in_dagster_is_compared_and_held_against_a_baseline(
    measured: Bench, instance: dg.DagsterInstance
) -> None:
    shown = swept(measured, instance, "a", with_models=["b"], seed=3)
    assert (shown["status"], shown["seed"]) == ("done", 3)
    assert measured.rows("select count(*) as n from benchmark_results where phase = 'measured'")[0]["n"] == 48
    assert "question" not in str(shown)
    foundry = measured.scene.foundry
    found = comparing.compare_suite(foundry, SUITE, run_id="r")
    again = comparing.compare_suite(foundry, SUITE, run_id="r")
    assert found.comparisons == again.comparisons
    assert len(measured.rows("from model_comparison")) == len(found.comparisons) > 0
    [by_model] = [c for c in found.comparisons if (c.domain, c.level, c.figure) == (ALL_DOMAINS, "model", "e2e_s")]
    assert by_model.verdict == "not_comparable"  # on different workers
    [by_worker] = [
        c for c in found.comparisons if (c.domain, c.level, c.figure) == (ALL_DOMAINS, "model_worker", "e2e_s")
    ]
    assert by_worker.verdict == "slower"
    overview = measured.rows(
        "select model, worker, sum(n)::int as n, min(passed_share) as passed from benchmark_overview group by all "
        "order by model"
    )
    assert [(r["model"], r["worker"], r["n"], r["passed"]) for r in overview] == [
        ("a", "w", 24, 1.0),
        ("b", "x", 24, 1.0),
    ]
    comparing.set_baseline(foundry, "before", [shown["sweep"]])
    same = comparing.compare_with_baseline(foundry, "before", SUITE)
    assert {c.verdict for c in same} == {"no_difference_shown", "too_few"}  # few in each domain
    skin = Skin(measured.scene, instance)
    result = dg.materialize(
        benchmark_assets(foundry.config),
        selection="model_comparison",
        partition_key=SUITE,
        instance=instance,
        resources=skin._resources,
    )
    shown_comparison = metadata(result, "model_comparison")
    assert (shown_comparison["status"], shown_comparison["results"]) == ("done", 48)
    assert [c.passed for c in result.get_asset_check_evaluations()] == [True]
    assert comparing.newest_baseline(foundry, SUITE) == "before"
    assert [(r["name"], r["sweep_ids"]) for r in comparing.baselines(foundry)] == [("before", [shown["sweep"]])]
    comparing.drop_baseline(foundry, "before")
    with pytest.raises(ConfigError, match="there is no baseline 'before'"):
        comparing.compare_with_baseline(foundry, "before", SUITE)


def test_a_baseline_of_what_is_not_there_is_refused(measured: Bench) -> None:
    with pytest.raises(ConfigError, match="there is no sweep 'x'"):
        comparing.set_baseline(measured.scene.foundry, "n", ["x"])
    with pytest.raises(ConfigError, match="at least one sweep"):
        comparing.set_baseline(measured.scene.foundry, "n", [])


def test_schedules_are_off_and_ask_for_every_model_in_one_run(measured: Bench, instance: dg.DagsterInstance) -> None:
    measured.scene.raw["benchmarks"]["nightly"] = {"cron": "0 1 * * *", "suites": [SUITE], "limit": 2}
    skin = Skin(measured.scene, instance)
    schedule = skin.defs.resolve_schedule_def("benchmark_nightly")
    assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED
    [request] = skin.tick("benchmark_nightly")
    config = request.run_config["ops"]["benchmark_results"]["config"]
    keys = dg.MultiPartitionKey.keys_by_dimension.fget(request.partition_key)  # type: ignore[attr-defined]
    assert keys["suite"] == SUITE
    assert {keys["model"], *config["with_models"]} == {"small", "big", "a", "b"}
    assert config["limit"] == 2
