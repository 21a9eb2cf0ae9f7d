"""``foundry submit``: publish one prompt, or a file of them, and wait for answers if asked."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from model_foundry.cli.output import ConfigOption, JsonOption, console, errors, print_json, read_jsonl
from model_foundry.errors import LakeError
from model_foundry.jetstream.client import JetStream, PubAck, with_jetstream
from model_foundry.jetstream.subjects import PROMPT_SUBJECT, result_subject
from model_foundry.records import StreamMessage
from model_foundry.runtime import Foundry
from model_foundry.warehouse.engine import Rows


def submit(
    prompt: Annotated[str | None, typer.Argument(help="The prompt; '-' reads it from standard input.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", exists=True, help="A JSONL file: one prompt message a line, as on the wire."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Which model must answer.")] = None,
    role: Annotated[str | None, typer.Option(help="Which role must answer.")] = None,
    domain: Annotated[str | None, typer.Option(help="What it is about; else it is classified.")] = None,
    capability: Annotated[str | None, typer.Option(help="Which lane must answer.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1)] = None,
    temperature: Annotated[float | None, typer.Option(min=0)] = None,
    seed: Annotated[int | None, typer.Option()] = None,
    correlation_id: Annotated[str | None, typer.Option(help="Ties prompts of one session together.")] = None,
    priority: Annotated[int | None, typer.Option(min=-10, max=10, help="Higher goes first.")] = None,
    deadline: Annotated[str | None, typer.Option(help="RFC 3339 time after which it is not sent any more.")] = None,
    ground: Annotated[
        list[str] | None,
        typer.Option("--ground", help="Search for sources first: web or notes; twice for both."),
    ] = None,
    query: Annotated[str | None, typer.Option(help="What to search for [default: the prompt].")] = None,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait for the answer and print it.")] = False,
    timeout_s: Annotated[float, typer.Option("--timeout", help="How long --wait waits, in seconds.", min=1)] = 300.0,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Publish one prompt (or a JSONL file of them); --wait prints the answer.

    Exit 0: published, and with --wait all answered; 1: an answer failed; 4: time ran out before all came.
    """
    foundry = Foundry.load(config)
    if (prompt is None) == (file is None):
        raise typer.BadParameter("give a prompt, or --file; one of the two")
    if file is not None:
        messages = read_jsonl(file)
    else:
        text = typer.get_text_stream("stdin").read() if prompt == "-" else prompt
        params = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
        messages = [
            {
                "prompt": text,
                "model": model,
                "role": role,
                "domain": domain,
                "capability": capability,
                "correlation_id": correlation_id,
                "priority": priority,
                "deadline": deadline,
                "ground": ground or None,
                "query": query,
                "params": {k: v for k, v in params.items() if v is not None} or None,
            }
        ]
    messages = [{k: v for k, v in {"job_id": new_job_id(), **m}.items() if v is not None} for m in messages]
    results = publish_and_wait(foundry, messages, wait, timeout_s, as_json=as_json)
    if results is not None:
        _show_results(results, several=len(messages) > 1, as_json=as_json)
        if any(result["status"] != "answered" for result in results):
            raise typer.Exit(1)


def publish_and_wait(
    foundry: Foundry, messages: Sequence[dict[str, Any]], wait: bool, timeout_s: float, *, as_json: bool
) -> list[dict[str, Any]] | None:
    """Publishes prompts that have their ids; gives their results, or prints where they are in the stream.

    Args:
        foundry: the parts.
        messages: as on the wire.
        wait: for the results.
        timeout_s: how long.
        as_json: how what was published is printed.

    Raises:
        typer.Exit: 4, when time ran out; what came is printed.
    """
    acks, results = with_jetstream(foundry.nats, lambda js: _publish(foundry, js, messages, wait, timeout_s))
    if not wait:
        _show_published(messages, acks, as_json)
        return None
    missing = {str(m["job_id"]) for m in messages} - {result["job_id"] for result in results}
    if missing:
        _show_results(results, several=len(messages) > 1, as_json=as_json)
        expected = len(results) + len(missing)
        errors.print(f"[bold red]time ran out[/] after {timeout_s:g} s: {len(results)} of {expected} results came")
        for row in _waiting(foundry, missing):
            errors.print(f"{escape(row['job_id'])} waits: {escape(row['reason'])}")
        raise typer.Exit(4)
    return results


def _waiting(foundry: Foundry, job_ids: Collection[str]) -> Rows:
    """Why jobs wait, of those of which a run has found out; the first few."""
    query = "from waiting_jobs where reason is not null and job_id in (select unnest($ids::varchar[])) limit 5"
    try:
        return foundry.warehouse.rows(query, {"ids": list(job_ids)})
    except LakeError:
        return []


def new_job_id() -> str:
    """A new id for a prompt that names none."""
    return f"job-{uuid.uuid4().hex[:16]}"


async def _publish(
    foundry: Foundry, js: JetStream, messages: Sequence[dict[str, Any]], wait: bool, timeout_s: float
) -> tuple[list[PubAck], list[dict[str, Any]]]:
    streams = foundry.config.streams
    await js.ensure_stream(streams.prompts)
    results_state = await js.ensure_stream(streams.results)
    acks = await js.publish_many(
        [(PROMPT_SUBJECT, json.dumps(m, ensure_ascii=False).encode(), str(m["job_id"])) for m in messages]
    )
    results: list[dict[str, Any]] = []
    if wait:
        subjects = {result_subject(str(m["job_id"])) for m in messages}
        with _progress(len(subjects)) as progress:
            task = progress.add_task("answers", total=len(subjects))

            def on_message(message: StreamMessage) -> None:
                results.append(json.loads(message.data))
                progress.update(task, completed=len(results))

            await js.wait_for_subjects(results_state.name, subjects, timeout_s, on_message)
    return acks, results


def _progress(total: int) -> Progress:
    """A bar for several, nothing but a clock for one; silent when nobody looks."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=errors,
        transient=True,
        disable=not sys.stderr.isatty(),
    )


def _show_published(messages: Sequence[dict[str, Any]], acks: Sequence[PubAck], as_json: bool) -> None:
    rows = [
        {"job_id": m["job_id"], "stream": ack.stream, "seq": ack.seq, "duplicate": ack.duplicate}
        for m, ack in zip(messages, acks, strict=True)
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        again = " (published before)" if row["duplicate"] else ""
        console.print(f"{row['job_id']}  {row['stream']} {row['seq']}{again}", markup=False)


def _show_results(results: Sequence[dict[str, Any]], *, several: bool, as_json: bool) -> None:
    if as_json:
        print_json(list(results))
        return
    for result in results:
        if several:
            console.print(f"[bold]{escape(result['job_id'])}[/]")
        if result["status"] == "answered":
            _show_answer(result)
        else:
            error = result.get("error") or {}
            said = escape(f"{error.get('kind', '')}: {error.get('message', '')}")
            errors.print(f"[bold red]{result['status']}[/] {said}")


def _show_answer(result: dict[str, Any]) -> None:
    for language, text in (result.get("translations") or {"": result["text"]}).items():
        if language:
            console.print(f"[bold]{escape(language)}[/]")
        console.print(text, markup=False)
    for source in result.get("sources") or ():
        title = f"{source['title']}  " if source["title"] else ""
        console.print(f"[{source['number']}] {title}{source['source']}", markup=False, style="dim")
    timings = result["timings"]
    line = f"{result['model'] or 'a search'} on {result['worker'] or 'several'} ({result['domain']}, {result['lane']})"
    if timings.get("e2e_s") is not None:
        line += f", first token {timings['ttft_s']:.2f} s, all {timings['e2e_s']:.2f} s"
    errors.print(f"[dim]{escape(line)}[/]")
