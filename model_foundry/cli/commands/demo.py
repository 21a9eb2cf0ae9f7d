"""``foundry demo``: the main job on the embedded parts, with prompts that come with the package."""

from __future__ import annotations

import json
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from model_foundry.cli.commands.up import announce, stop_on_signals
from model_foundry.cli.output import console, errors, print_json, rows_table
from model_foundry.config import DEMO_FOLDER
from model_foundry.demo.prompts import DemoMessage, demo_config, demo_messages
from model_foundry.embedded.llama import gpu_devices
from model_foundry.embedded.supervisor import Supervisor
from model_foundry.jetstream.client import JetStream, PubAck, with_jetstream
from model_foundry.runtime import Foundry
from model_foundry.warehouse.engine import Rows

ANSWERS_TIMEOUT_S = 300.0
RUNS_TIMEOUT_S = 60.0


def demo(
    once: Annotated[
        bool, typer.Option("--once", help="Stop when all is answered; exit 0 only if nothing was lost.")
    ] = False,
    folder: Annotated[Path, typer.Option(help="Where the demo's configuration and data live.", file_okay=False)] = Path(
        DEMO_FOLDER
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print the tables as JSON, for scripts.")] = False,
) -> None:
    """Start the embedded parts, publish real prompts, wait, print the tables.

    Without --once everything keeps running afterwards, so that you can look around in the web UI.
    """
    foundry = Foundry.load(prepare(folder))
    say: Callable[[str], None] = (lambda _: None) if as_json else console.print
    good = False
    with stop_on_signals(), Supervisor(foundry, say).running() as stack:
        if not as_json:
            announce(foundry, stack)
            _say_what_stands_in(foundry)
        messages = demo_messages(datetime.now(UTC).strftime("%Y%m%dT%H%M%S"))
        acks = with_jetstream(foundry.nats, lambda js: publish(js, messages))
        sequences = [ack.seq for ack in acks]
        faulty = sum(m.expected != "answered" for m in messages)
        say(f"Published {len(messages)} prompts, {faulty} of them faulty on purpose.")
        _wait_for_answers(foundry, stack, acks[0].stream, sequences)
        _wait_for_runs(stack.web_url)
        good = report(foundry, acks[0].stream, messages, sequences, as_json)
        if not once:
            say(f"Look around: {stack.web_url}/asset-groups   Ctrl-C stops everything.")
            stack.watch()
    if once:
        if not as_json:
            console.print(
                f"Ask it anything: foundry sql 'from job_overview'   (config: {foundry.config_file})", soft_wrap=True
            )
        raise typer.Exit(0 if good else 1)


def prepare(folder: Path) -> Path:
    """The demo's configuration file, put into its folder unless one is there already."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "foundry.yaml"
    if not file.exists():
        template = (Path(__file__).parents[2] / "demo" / "foundry.yaml").read_text(encoding="utf-8")
        file.write_text(demo_config(template, gpu_devices()), encoding="utf-8")
    return file


async def publish(js: JetStream, messages: Sequence[DemoMessage]) -> list[PubAck]:
    """Publishes the demo's messages."""
    return await js.publish_many([(m.subject, m.data, m.msg_id) for m in messages])


def _say_what_stands_in(foundry: Foundry) -> None:
    for name, worker in foundry.config.workers.items():
        if worker.stand_in:
            console.print(f"[yellow]{name}[/]: {worker.stand_in}")


def _wait_for_answers(foundry: Foundry, stack: Supervisor, stream: str, sequences: list[int]) -> None:
    """Shows how many messages have landed and how many are done, until all are, or time runs out."""
    deadline_s = time.monotonic() + ANSWERS_TIMEOUT_S
    columns = (TextColumn("{task.description:<9}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors) as progress:
        landed = progress.add_task("landed", total=len(sequences))
        done = progress.add_task("answered", total=len(sequences))
        while time.monotonic() < deadline_s:
            stack.watch(once=True)
            counts = foundry.warehouse.show("demo_progress", {"stream": stream, "seqs": sequences})[0]
            progress.update(landed, completed=counts["landed"])
            progress.update(done, completed=counts["done"])
            if counts["done"] == len(sequences):
                return
            time.sleep(0.5)


def _wait_for_runs(web_url: str) -> None:
    """Waits until Dagster has no run under way, so that a stop interrupts none."""
    query = "{runsOrError(filter:{statuses:[QUEUED,NOT_STARTED,STARTING,STARTED]}){... on Runs{results{runId}}}}"
    request = urllib.request.Request(  # noqa: S310 (loopback)
        f"{web_url}/graphql", json.dumps({"query": query}).encode(), {"Content-Type": "application/json"}
    )
    deadline_s = time.monotonic() + RUNS_TIMEOUT_S
    while time.monotonic() < deadline_s:
        with urllib.request.urlopen(request, timeout=15) as response:  # noqa: S310 (loopback)
            if not json.load(response)["data"]["runsOrError"]["results"]:
                return
        time.sleep(0.3)


def report(foundry: Foundry, stream: str, messages: Sequence[DemoMessage], sequences: list[int], as_json: bool) -> bool:
    """Prints the tables; True when every message came to the outcome it should."""
    warehouse = foundry.warehouse
    latency = warehouse.rows("from domain_latency order by all")
    mix = warehouse.rows("from worker_mix order by all")
    outcomes = warehouse.show("demo_outcomes", {"stream": stream, "seqs": sequences})
    wrong = unexpected(messages, sequences, outcomes)
    if as_json:
        print_json(
            {
                "domain_latency": latency,
                "worker_mix": mix,
                "outcomes": outcomes,
                "unexpected": wrong,
                "all_accounted_for": not wrong,
            }
        )
        return not wrong
    _print_tables(latency, mix, outcomes)
    landed = Counter(row["outcome"] for row in outcomes)
    parts = " + ".join(_count(landed[name], name) for name in ("job", "duplicate", "reject") if landed[name])
    console.print(f"{len(sequences)} published = {parts}")
    for line in wrong:
        console.print(f"[bold red]{line}[/]")
    if not wrong:
        console.print("[bold green]Every prompt is accounted for.[/]")
    return not wrong


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _print_tables(latency: Rows, mix: Rows, outcomes: Rows) -> None:
    heads = {"domain": "domain", "jobs": "jobs", "answered": "answered", "failed": "failed", "n": "n"}
    heads |= {"avg_e2e_s": "avg s", "p50_e2e_s": "p50 s", "p95": "p95 s", "max_e2e_s": "slowest s"}
    shown = [{**row, "p95": row["p95_e2e_s"] if row["p95_note"] is None else "n<59"} for row in latency]
    console.print()
    rows_table("Latency by domain", [row for row in shown if row["level"] == "domain"], heads)
    by_worker = {"domain": "domain", "worker": "worker", "jobs": "jobs", "n": "n", "p50_e2e_s": "p50 s", "p95": "p95 s"}
    rows_table(
        "… by domain and worker",
        [row for row in shown if row["level"] == "domain_model_worker" and row["worker"]],
        by_worker | {"max_e2e_s": "slowest s"},
        note="n: warm answers; a p95 needs 59 of them. Figures of all demo runs in this folder.",
    )
    mix_heads = {"worker": "worker", "n": "n", "share": "of all", "slow_n": "slow n", "slow_share": "of slowest 5%"}
    mix_heads |= {"p50_e2e_s": "p50 s", "max_e2e_s": "slowest s"}
    rows_table("Worker mix: who makes the slowest 5%", [row for row in mix if row["level"] == "all"], mix_heads)
    bad = [row for row in outcomes if row["status"] != "answered"]
    rows_table("Not answered", bad, {"seq": "seq", "status": "status", "error_kind": "kind", "reason": "reason"})


def unexpected(messages: Sequence[DemoMessage], sequences: Sequence[int], outcomes: Rows) -> list[str]:
    """What did not come out as it should: a sentence each. Pure."""
    by_seq = {row["seq"]: row["status"] for row in outcomes}
    wrong = []
    for message, seq in zip(messages, sequences, strict=True):
        status = by_seq.get(seq, "missing")
        if status != message.expected:
            wrong.append(f"message {seq}: expected {message.expected}, found {status}")
    return wrong
