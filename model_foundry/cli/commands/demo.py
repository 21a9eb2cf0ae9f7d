"""``foundry demo``: the main job on the embedded parts, with prompts that come with the package."""

from __future__ import annotations

import json
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from model_foundry.cli.commands.session import print_flow
from model_foundry.cli.commands.up import announce, stop_on_signals
from model_foundry.cli.output import console, errors, print_json, rows_table
from model_foundry.config import DEMO_FOLDER
from model_foundry.demo.events import demo_events, demo_session
from model_foundry.demo.message import DemoMessage
from model_foundry.demo.prompts import demo_config, demo_prompts
from model_foundry.embedded.llama import gpu_devices
from model_foundry.embedded.supervisor import Supervisor
from model_foundry.jetstream.client import JetStream, with_jetstream
from model_foundry.runtime import Foundry
from model_foundry.sessions import flow_of
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
        now = datetime.now(UTC)
        tag = now.strftime("%Y%m%dT%H%M%S")
        prompts = with_jetstream(foundry.nats, lambda js: publish(js, demo_prompts(tag)))
        events = with_jetstream(foundry.nats, lambda js: publish(js, demo_events(tag, now)))
        faulty = sum(m.expected != "answered" for m in prompts.messages)
        say(f"Published {len(prompts.messages)} prompts, {faulty} of them faulty on purpose, and a session of events.")
        _wait_for_all(foundry, stack, prompts, events)
        _wait_for_runs(stack.web_url)
        good = report(foundry, prompts, events, demo_session(tag), as_json)
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


@dataclass(frozen=True)
class Published:
    """Messages, and the stream and sequences that took them."""

    messages: Sequence[DemoMessage]
    stream: str
    sequences: Sequence[int]

    @property
    def params(self) -> dict[str, Any]:
        """What the queries about these messages are asked with."""
        return {"stream": self.stream, "seqs": list(self.sequences)}


async def publish(js: JetStream, messages: Sequence[DemoMessage]) -> Published:
    """Publishes the demo's messages in their order."""
    acks = [await js.publish(m.subject, m.data, msg_id=m.msg_id, headers=dict(m.headers)) for m in messages]
    return Published(messages, acks[0].stream, [ack.seq for ack in acks])


def _say_what_stands_in(foundry: Foundry) -> None:
    for name, worker in foundry.config.workers.items():
        if worker.stand_in:
            console.print(f"[yellow]{name}[/]: {worker.stand_in}")


def _wait_for_all(foundry: Foundry, stack: Supervisor, prompts: Published, events: Published) -> None:
    """Shows how many messages have landed and how many prompts are done, until all are, or time runs out."""
    deadline_s = time.monotonic() + ANSWERS_TIMEOUT_S
    columns = (TextColumn("{task.description:<9}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors) as progress:
        events_landed = progress.add_task("events", total=len(events.sequences))
        landed = progress.add_task("prompts", total=len(prompts.sequences))
        answered = progress.add_task("answered", total=len(prompts.sequences))
        while time.monotonic() < deadline_s:
            stack.watch(once=True)
            [inbox] = foundry.warehouse.show("demo_progress", events.params)
            [jobs] = foundry.warehouse.show("demo_progress", prompts.params)
            progress.update(events_landed, completed=inbox["landed"])
            progress.update(landed, completed=jobs["landed"])
            progress.update(answered, completed=jobs["done"])
            if progress.finished:
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


def report(foundry: Foundry, prompts: Published, events: Published, session: str, as_json: bool) -> bool:
    """Prints the tables; True when every message came to the outcome it should."""
    warehouse = foundry.warehouse
    latency = warehouse.rows("from domain_latency order by all")
    mix = warehouse.rows("from worker_mix order by all")
    jobs, inbox = (warehouse.show("demo_outcomes", p.params) for p in (prompts, events))
    with warehouse.snapshot() as lake:
        flow = flow_of(lake, session)
    wrong = [
        f"{published.stream}, {line}"
        for published, outcomes in ((prompts, jobs), (events, inbox))
        for line in unexpected(published.messages, published.sequences, outcomes)
    ]
    wrong += [] if flow else [f"the session {session} has no flow"]
    if as_json:
        print_json(
            {
                "domain_latency": latency,
                "worker_mix": mix,
                "outcomes": jobs,
                "event_outcomes": inbox,
                "event_flow": flow and flow.figures,
                "unexpected": wrong,
                "all_accounted_for": not wrong,
            }
        )
        return not wrong
    _print_tables(latency, mix, jobs)
    if flow is not None:
        print_flow(flow)
        console.print(f"All of it, in order: foundry session {session}\n", markup=False)
    for published, outcomes in ((prompts, jobs), (events, inbox)):
        _print_accounts(published.stream, outcomes)
    for line in wrong:
        console.print(f"[bold red]{line}[/]")
    if not wrong:
        console.print("[bold green]Every message is accounted for.[/]")
    return not wrong


def _print_accounts(stream: str, outcomes: Rows) -> None:
    landed = Counter(row["outcome"] for row in outcomes)
    parts = (_count(landed[name], name) for name in ("job", "event", "duplicate", "reject") if landed[name])
    console.print(f"{stream}: {len(outcomes)} published = {' + '.join(parts)}", markup=False)


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
