"""How long from launching a run to its start and its end: forked from the run host, and the stock way, in one go.

    .venv/bin/python benchmarks/run_start.py [RUNS]

Starts two stacks, one after the other, that differ in ``run_launcher`` only; each materializes ``model_throughput``
(one step, one query on an empty lake) RUNS times, one at a time. Prints medians and their ratio.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from model_foundry.config import load
from model_foundry.embedded.supervisor import Supervisor
from model_foundry.runtime import Foundry

CONFIG = {
    "capabilities": ["cpu_inference"],
    "models": {"small": "cpu_inference"},
    "workers": {"none": {"url": "http://127.0.0.1:9", "api": "openai"}},
    "domains": {"general": {"candidates": ["small"]}},
}
LAUNCH = """mutation($p: ExecutionParams!) { launchPipelineExecution(executionParams: $p) {
    ... on LaunchRunSuccess { run { runId } } } }"""
RUN = "query($id: ID!) { runOrError(runId: $id) { ... on Run { status creationTime startTime endTime } } }"


def graphql(url: str, query: str, **variables: Any) -> Any:
    body = json.dumps({"query": query, "variables": variables}).encode()
    request = urllib.request.Request(f"{url}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)["data"]


def one_run(url: str) -> tuple[float, float]:
    """Seconds from creation to start and to end."""
    selector = {
        "repositoryLocationName": "model_foundry",
        "repositoryName": "__repository__",
        "pipelineName": "__ASSET_JOB",
        "assetSelection": [{"path": ["model_throughput"]}],
        "assetCheckSelection": [],
    }
    launched = graphql(url, LAUNCH, p={"selector": selector, "runConfigData": {}, "mode": "default"})
    run_id = launched["launchPipelineExecution"]["run"]["runId"]
    while True:
        run = graphql(url, RUN, id=run_id)["runOrError"]
        if run["endTime"]:
            assert run["status"] == "SUCCESS", run
            return run["startTime"] - run["creationTime"], run["endTime"] - run["creationTime"]
        time.sleep(0.05)


def measure(name: str, forked: bool, runs: int) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "foundry.yaml"
        file.write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
        settings = yaml.safe_load((Path(__file__).parents[1] / "dagster.yaml").read_text(encoding="utf-8"))
        if not forked:
            del settings["run_launcher"]
        (Path(folder) / "dagster.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
        with Supervisor(Foundry(load(file, environ={}), file), lambda _: None).running() as stack:
            one_run(stack.web_url)  # the first one warms caches
            times = [one_run(stack.web_url) for _ in range(runs)]
    start_s, end_s = (statistics.median(column) for column in zip(*times, strict=True))
    print(f"{name:<8} launch to start {start_s:5.2f} s, to end {end_s:5.2f} s   (median of {runs})", flush=True)
    return start_s, end_s


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    forked, stock = measure("forked", True, runs), measure("stock", False, runs)
    print(f"stock / forked: to start {stock[0] / forked[0]:.1f}, to end {stock[1] / forked[1]:.1f}")


if __name__ == "__main__":
    main()
