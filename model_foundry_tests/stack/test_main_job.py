"""The main job as a person has it: ``foundry up`` in a process of its own, everything real, asked from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from model_foundry.config import load
from model_foundry.embedded import endpoints
from model_foundry.jetstream.client import with_jetstream
from model_foundry.runtime import Foundry
from model_foundry_tests.parts import wait_for

FOUNDRY = [sys.executable, "-m", "model_foundry.cli.main"]
SECRET_PROMPT = "Tell me about the violet submarine."
CONFIG = {
    "capabilities": ["cpu_inference", "gpu_inference"],
    "models": {"small": "cpu_inference", "twin": "gpu_inference"},
    "workers": {
        "cpu": {"url": "embedded", "api": "openai", "slots": 2, "models": {"small": "smollm2"}},
        "dead": {"url": "http://127.0.0.1:9", "api": "openai", "supports": ["gpu_inference"], "models": ["twin"]},
    },
    "domains": {"general": {"candidates": ["small"]}},
    "limits": {"default_max_tokens": 12, "max_attempts": 1},
}


class Stack:
    """A running ``foundry up`` and what a user does with it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "foundry.yaml"
        self.file.write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
        self.foundry = Foundry(load(self.file, environ={}), self.file)
        self.log = folder / "up.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*FOUNDRY, "up", "-c", str(self.file)], stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self.web_url = wait_for("foundry up", self._ready, 120)

    def _ready(self) -> str | None:
        assert self.process.poll() is None, self.log.read_text()
        found = endpoints.read(self.foundry.config.data_dir)
        return found.web_url if found else None

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*FOUNDRY, *arguments, "-c", str(self.file)], capture_output=True, text=True, check=False, timeout=150
        )

    def sql(self, query: str) -> list[dict[str, Any]]:
        return self.foundry.warehouse.rows(query)

    def publish(self, *bodies: bytes) -> list[int]:
        items = [("prompts.submit", body, None) for body in bodies]
        return [ack.seq for ack in with_jetstream(self.foundry.nats, lambda js: js.publish_many(items))]

    def graphql(self, query: str, **variables: Any) -> Any:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.web_url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as response:
            answer = json.load(response)
        assert "errors" not in answer, answer
        return answer["data"]

    def materialize(self, lane: str, **config: Any) -> tuple[str, dict[str, Any]]:
        """Materializes a partition as the web UI does; the run's status and what ``completions`` showed."""
        key = f"{datetime.now(UTC):%Y-%m-%d}|{lane}"
        tags = {"dagster/partition": key, "dagster/partition/date": key.split("|")[0], "dagster/partition/lane": lane}
        launched = self.graphql(
            LAUNCH,
            params={
                "selector": {
                    "repositoryLocationName": "model_foundry",
                    "repositoryName": "__repository__",
                    "pipelineName": "answer_prompts",
                    "assetSelection": [{"path": ["prompt_inbox"]}, {"path": ["completions"]}],
                    "assetCheckSelection": [],
                },
                "runConfigData": {"ops": {"completions": {"config": config}}} if config else {},
                "executionMetadata": {"tags": [{"key": k, "value": v} for k, v in tags.items()]},
                "mode": "default",
            },
        )["launchPipelineExecution"]
        run_id = launched["run"]["runId"]
        wait_for("the run", lambda: self.run_of(run_id)["status"] in ("SUCCESS", "FAILURE", "CANCELED"))
        run = self.run_of(run_id)
        [shown] = [m for m in run["assetMaterializations"] if m["assetKey"]["path"] == ["completions"]] or [None]
        entries = shown["metadataEntries"] if shown else []
        return run["status"], {e["label"]: e.get("intValue", e.get("text")) for e in entries}

    def run_of(self, run_id: str) -> Any:
        return self.graphql(RUN, id=run_id)["runOrError"]


LAUNCH = """mutation($params: ExecutionParams!) { launchPipelineExecution(executionParams: $params) {
    ... on LaunchRunSuccess { run { runId } } ... on PythonError { message stack }
    ... on RunConfigValidationInvalid { errors { message } } } }"""
RUN = """query($id: ID!) { runOrError(runId: $id) { ... on Run { status tags { key value } assetMaterializations {
    assetKey { path } metadataEntries { label ... on IntMetadataEntry { intValue }
    ... on TextMetadataEntry { text } } } } } }"""


ALL_RUNS = "{ runsOrError { ... on Runs { results { status tags { key value } } } } }"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    made = Stack(tmp_path_factory.mktemp("stack"))
    yield made
    if made.process.poll() is None:
        os.killpg(made.process.pid, signal.SIGTERM)
        made.process.wait(60)


def test_submit_waits_for_the_answer_and_prints_it(stack: Stack) -> None:
    done = stack.run("submit", "What is the capital of France?", "--wait", "--json", "--correlation-id", "s-1")
    assert done.returncode == 0, done.stderr
    [result] = json.loads(done.stdout)
    assert result["status"] == "answered"
    assert result["text"].strip()
    assert result["correlation_id"] == "s-1"
    [row] = stack.sql(f"from completions where job_id = '{result['job_id']}'")
    stats = row["server_stats"] if isinstance(row["server_stats"], dict) else json.loads(row["server_stats"])
    assert row["completion_tokens"] == stats["usage"]["completion_tokens"] <= 12
    assert row["prompt_tokens"] == stats["usage"]["prompt_tokens"]
    assert 0 < row["ttft_s"] <= row["e2e_s"]


def test_every_kind_of_message_is_accounted_for_and_domains_add_up(stack: Stack) -> None:
    prompt = json.dumps({"prompt": SECRET_PROMPT, "job_id": "once", "correlation_id": "s 2/ü"}).encode()
    seqs = stack.publish(
        prompt,
        prompt,
        json.dumps({"prompt": "Hi", "model": "twin", "job_id": "unreachable"}).encode(),
        json.dumps({"prompt": "Hi", "model": "nope", "job_id": "unknown"}).encode(),
        b"not json",
        b"\xff\xfe",
        json.dumps({"prompt": "日本の首都はどこですか。", "job_id": "japanese"}, ensure_ascii=False).encode(),
    )
    wait_for(
        "all messages",
        lambda: (
            stack.sql(f"select count(*) as n from stream_messages where seq >= {seqs[0]}")[0]["n"] == len(seqs)
            and not stack.sql("from jobs anti join job_results using (job_id, finished_at) where status <> 'pending'")
            and [r["job_id"] for r in stack.sql("from waiting_jobs") if r["reason"]] == ["unreachable"]
            and len(stack.sql("from jobs where status = 'pending'")) == 1
        ),
    )
    found = {r["job_id"]: (r["status"], r["error_kind"]) for r in stack.sql(f"from jobs where seq >= {seqs[0]}")}
    assert found == {
        "once": ("answered", None),
        "unreachable": ("pending", None),
        "unknown": ("rejected", "unknown_model"),
        "japanese": ("answered", None),
    }
    [books] = stack.sql("from accounting")
    assert books["messages"] == books["records"] + books["duplicates"] + books["rejects"] == books["last_seq"]
    assert (books["duplicates"], books["rejects"]) == (1, 2)
    for level in ("domain", "domain_model", "domain_model_worker"):
        totals = stack.sql(f"select domain, sum(jobs) as n from domain_latency where level = '{level}' group by domain")
        jobs = stack.sql("select domain, count(*) as n from jobs group by domain")
        assert sorted((r["domain"], r["n"]) for r in totals) == sorted((r["domain"], r["n"]) for r in jobs)


def test_materializing_a_partition_with_nothing_pending_succeeds_and_says_so(stack: Stack) -> None:
    status, shown = stack.materialize("cpu_inference")
    assert status == "SUCCESS"
    assert (shown["status"], shown["answered"], shown["pending"]) == ("empty", 0, 0)


def test_what_nobody_can_answer_waits_and_the_materialization_says_why(stack: Stack) -> None:
    status, shown = stack.materialize("gpu_inference")
    assert status == "SUCCESS"
    assert (shown["status"], shown["pending"], shown["put_off"]) == ("waiting", 1, 1)


def test_runs_are_forks_of_the_run_host_and_carry_their_correlation_ids(stack: Stack) -> None:
    def ended() -> list[dict[str, Any]]:
        """Every run, once none is under way: the figures are refreshed on the minute."""
        runs: list[dict[str, Any]] = stack.graphql(ALL_RUNS)["runsOrError"]["results"]
        return runs if all(run["status"] in ("SUCCESS", "FAILURE", "CANCELED") for run in runs) else []

    results = wait_for("every run to end", ended)
    assert all(run["status"] == "SUCCESS" for run in results)
    tags = [{tag["key"]: tag["value"] for tag in run["tags"]} for run in results]
    assert all("foundry/run_host" in t for t in tags)
    assert any("correlation/s-1" in t for t in tags)


def test_prompt_and_answer_texts_are_not_in_dagsters_storage(stack: Stack) -> None:
    answer = stack.sql("select text from completions where job_id = 'once'")[0]["text"].strip()
    for file in (stack.foundry.config.data_dir / "dagster").rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            assert SECRET_PROMPT.encode() not in data, file
            assert answer[:24].encode() not in data, file


def test_doctor_workers_and_route_tell_the_same_story_in_json(stack: Stack) -> None:
    doctor = stack.run("doctor", "--json")
    findings = {f["part"]: f for f in json.loads(doctor.stdout)}
    assert doctor.returncode == 1
    assert findings["worker dead"]["state"] == "fault"
    assert findings["worker dead"]["todo"]
    assert findings["nats"]["state"] == findings["lake"]["state"] == findings["dagster"]["state"] == "ok"
    workers = {w["name"]: w["state"] for w in json.loads(stack.run("workers", "--json").stdout)}
    assert workers == {"cpu": "healthy", "dead": "down"}
    route = json.loads(stack.run("route", "What is the capital of France?", "--json").stdout)
    assert (route["lane"], route["model"]) == ("cpu_inference", "small")
    assert route["candidates"][0]["expected_p50_s"] > 0


def test_sql_prints_json_and_refuses_to_write(stack: Stack) -> None:
    done = stack.run("sql", "select count(*) as n from jobs", "--json")
    assert json.loads(done.stdout)[0]["n"] == len(stack.sql("from jobs"))
    refused = stack.run("sql", "delete from jobs")
    assert refused.returncode == 1
    assert "read-only" in refused.stderr


def test_a_second_up_over_the_same_data_says_so(stack: Stack) -> None:
    second = stack.run("up")
    assert second.returncode == 3
    assert "already runs" in second.stderr
    assert str(stack.process.pid) in second.stderr


def test_a_part_that_is_killed_is_started_again_and_no_prompt_is_lost(stack: Stack) -> None:
    [nats] = [p for p in psutil.Process(stack.process.pid).children() if p.name() == "nats-server"]
    nats.kill()
    nats.wait(10)
    wait_for(
        "a new nats-server",
        lambda: [
            p for p in psutil.Process(stack.process.pid).children() if p.name() == "nats-server" and p.pid != nats.pid
        ],
    )
    done = wait_for("NATS again", lambda: (r := stack.run("submit", "Still there?", "--wait")).returncode == 0 and r)
    assert done.stdout.strip()


def test_a_run_that_is_killed_is_run_again_and_its_jobs_are_answered(stack: Stack) -> None:
    body = {"prompt": "Count slowly.", "job_id": "long", "params": {"max_tokens": 1500, "ignore_eos": True}}
    stack.publish(json.dumps(body).encode())

    def child() -> psutil.Process | None:
        claimed = stack.sql("from job_claims where job_id = 'long'")
        hosts = [p for p in psutil.Process(stack.process.pid).children() if "model_foundry.run_host" in p.cmdline()]
        runs = [run for host in hosts for run in host.children()]
        return runs[0] if claimed and runs else None

    run = wait_for("the run to work on it", child)
    run.kill()
    wait_for("the answer", lambda: stack.sql("from jobs where job_id = 'long' and status = 'answered'"))
    ended = [r["status"] for r in stack.graphql(ALL_RUNS)["runsOrError"]["results"]]
    assert ended.count("FAILURE") == 1


def test_at_rest_the_stack_is_small_and_sigterm_leaves_nothing_behind(stack: Stack) -> None:
    root = psutil.Process(stack.process.pid)

    def family() -> list[psutil.Process]:
        return [root, *root.children(recursive=True)]

    def rss_bytes() -> float:
        return sum(p.memory_info().rss for p in family() if p.is_running())

    wait_for("no run under way", lambda: not any(p.parent().pid != root.pid for p in family()[1:]))
    assert rss_bytes() < 1.5e9
    before = family()
    os.kill(stack.process.pid, signal.SIGTERM)
    assert stack.process.wait(60) == 0
    _, alive = psutil.wait_procs(before, timeout=5)
    assert alive == []
    assert endpoints.read(stack.foundry.config.data_dir) is None
