"""A sweep on a real llama.cpp server, killed in the middle, and gone on with."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from model_foundry.benchmarks.library import load_suite
from model_foundry.benchmarks.suite import Suite
from model_foundry_tests.benchmarks.conftest import LLAMA_MODEL, Bench, a_suite
from model_foundry_tests.parts import wait_for

RUN = """
import sys
from model_foundry.benchmarks.library import load_suite
from model_foundry.benchmarks.runner import run_sweep
from model_foundry.runtime import Foundry
foundry = Foundry.load(sys.argv[1])
run_sweep(foundry, load_suite(foundry.config, "little"), run_id="killed", models=["smollm2"], flush_every_s=0.1)
"""


def on_llama(bench: Bench, url: str, suite: Suite) -> Path:
    """Makes the real server a worker and the suite one that can be named; gives the configuration's file."""
    bench.scene.raw["models"][LLAMA_MODEL] = "cpu_inference"
    bench.scene.worker("llama", url, models=[LLAMA_MODEL], slots=2)
    folder = bench.scene.folder / "suites"
    folder.mkdir()
    (folder / f"{suite.name}.yaml").write_text(suite.model_dump_json(), encoding="utf-8")
    bench.scene.raw["benchmarks"] = {"suites": "suites"}
    return bench.scene.foundry.config_file


def test_after_kill_9_only_what_is_missing_is_asked_and_what_was_recorded_stays(bench: Bench, llama_url: str) -> None:
    # long enough that the kill comes in the middle, on an idle machine too
    params = {"max_tokens": 40, "temperature": 0, "ignore_eos": True}
    suite = a_suite(2, turns=2).model_copy(update={"params": params})
    config = on_llama(bench, llama_url, suite)
    foundry = bench.scene.foundry
    foundry.warehouse.migrate()
    with subprocess.Popen([sys.executable, "-c", RUN, str(config)]) as process:
        wait_for("some results", lambda: len(bench.rows()) > 3)
        process.send_signal(signal.SIGKILL)
    before = {r["request_id"]: r["sent_at"] for r in bench.rows()}
    [sweep] = bench.rows("from benchmark_sweeps")
    assert sweep["status"] == "running", "it had no time to say goodbye"
    assert len(before) < 12

    report = bench.run(load_suite(foundry.config, "little"), run_id="again", models=[LLAMA_MODEL], foundry=foundry)

    rows = {r["request_id"]: r for r in bench.rows()}
    assert (report.status, report.sweep_id, report.resumed) == ("done", sweep["sweep_id"], True)
    assert {i: rows[i]["sent_at"] for i in before} == before
    measured = {i: r for i, r in rows.items() if r["phase"] == "measured"}
    assert len(measured) == 12
    assert {r["status"] for r in measured.values()} == {"answered"}
    assert {i for i, r in measured.items() if r["run_id"] == "again"} == measured.keys() - before.keys()
    assert [r["status"] for r in bench.rows("from benchmark_sweeps")] == ["done"]
    assert {r["cached_tokens"] for r in measured.values() if r["turn"] == 0} == {0}, "no prompt comes from a cache"
    assert all(r["cached_tokens"] > 0 for r in measured.values() if r["turn"] == 1), "as in a real conversation"
    assert all(r["ttft_s"] > 0 and r["decode_tps"] > 0 and r["prefill_tps"] > 0 for r in measured.values())
