"""``foundry route``: what would happen to a prompt, and why. Nothing is sent."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from model_foundry.asking import measured_rates
from model_foundry.cli.output import ConfigOption, JsonOption, console, print_json, print_table
from model_foundry.envelopes.prompts import read_prompt
from model_foundry.errors import LakeError
from model_foundry.fleet.look import look_at_fleet
from model_foundry.fleet.preview import Verdict, preview
from model_foundry.jetstream.subjects import PROMPT_SUBJECT
from model_foundry.placing import Placement
from model_foundry.records import PromptEnvelope, StreamMessage
from model_foundry.routing import decide
from model_foundry.routing import route as route_job
from model_foundry.runtime import Foundry


def route(
    prompt: Annotated[str, typer.Argument(help="The prompt.")],
    model: Annotated[str | None, typer.Option(help="As the message's field.")] = None,
    role: Annotated[str | None, typer.Option(help="As the message's field.")] = None,
    domain: Annotated[str | None, typer.Option(help="As the message's field.")] = None,
    capability: Annotated[str | None, typer.Option(help="As the message's field.")] = None,
    offline: Annotated[bool, typer.Option("--offline", help="By the configuration alone; no worker is asked.")] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Preview: domain, candidates (model, lane, capability, workers, expected p50), and which worker, and why."""
    foundry = Foundry.load(config)
    fields = {"prompt": prompt, "model": model, "role": role, "domain": domain, "capability": capability}
    message = StreamMessage("PREVIEW", 0, 0, PROMPT_SUBJECT, datetime.now(UTC), (), json.dumps(fields).encode())
    envelope = read_prompt(message, max_message_bytes=foundry.config.limits.max_message_bytes)
    if not isinstance(envelope, PromptEnvelope):
        raise typer.BadParameter(envelope.reason)
    decision = decide(foundry.config, envelope)
    expected = expected_p50(foundry)
    candidates = [
        {
            "model": candidate.model,
            "lane": candidate.lane,
            "capability": foundry.config.models[candidate.model].capability,
            "workers": list(candidate.workers),
            "expected_p50_s": expected.get((decision.domain, candidate.model)),
            "chosen": candidate.model == decision.model and candidate.lane == decision.lane,
        }
        for candidate in decision.candidates
    ]
    verdicts: list[Verdict] = []
    if not offline and decision.error_kind is None:
        verdicts = _verdicts(foundry, envelope)
    if as_json:
        print_json(
            {
                "domain": decision.domain,
                "domain_source": decision.domain_source,
                "language": decision.language,
                "lane": decision.lane,
                "model": decision.model,
                "reason": decision.reason,
                "error_kind": decision.error_kind,
                "candidates": candidates,
                "workers": [asdict(verdict) for verdict in verdicts],
            }
        )
    else:
        console.print(f"[bold]domain[/]   {decision.domain} ({decision.domain_source}), language {decision.language}")
        console.print(f"[bold]lane[/]     {decision.lane}")
        console.print("[bold]because[/]  ", end="")
        console.print(decision.reason, markup=False)
        if candidates:
            console.print()
            rows = [
                (
                    "→" if c["chosen"] else "",
                    c["model"],
                    c["lane"],
                    _workers(foundry, c["workers"]),
                    c["expected_p50_s"],
                )
                for c in candidates
            ]
            print_table("", ["", "model", "lane", "workers", "expected p50 s"], rows)
        if verdicts:
            seen = [
                ("→" if v.takes else "", v.worker, v.state, f"{v.slots_held}/{v.slots}", v.expected_s, v.why)
                for v in verdicts
            ]
            note = "" if any(v.takes for v in verdicts) else "No worker can take it now: it would wait."
            print_table(
                f"Workers for {decision.model} now",
                ["", "worker", "state", "slots", "ends in s", "why"],
                seen,
                note=note,
            )
    raise typer.Exit(1 if decision.error_kind else 0)


def _verdicts(foundry: Foundry, envelope: PromptEnvelope) -> list[Verdict]:
    """What each worker of the fleet, as it is now, would say to it."""
    try:
        rates = measured_rates(foundry)
    except LakeError:
        rates = {}
    look = look_at_fleet(foundry)
    job = route_job(look.board.roster.config, envelope)
    return preview(look, Placement(foundry, look.board.roster, rates).item(job), rates)


def expected_p50(foundry: Foundry) -> dict[tuple[str, str], float]:
    """Measured median of warm answers in seconds by (domain, model); empty while there is no lake."""
    try:
        rows = foundry.warehouse.rows("from domain_latency where level = 'domain_model' and n > 0")
    except LakeError:
        return {}
    return {(row["domain"], row["model"]): row["p50_e2e_s"] for row in rows}


def _workers(foundry: Foundry, names: Any) -> str:
    stand_ins = {name for name in names if foundry.config.workers[name].stand_in}
    return ", ".join(f"{name} (stand-in)" if name in stand_ins else name for name in names) or "none"
