"""``foundry bench judge`` and ``foundry bench gate``: verdicts on pairs, and whether the judge is believed."""

from __future__ import annotations

import uuid
from typing import Annotated

import typer

from model_foundry.benchmarks import judging
from model_foundry.benchmarks.library import load_suite
from model_foundry.cli.output import ConfigOption, console, errors
from model_foundry.errors import ConfigError
from model_foundry.runtime import Foundry

JudgeOption = Annotated[str, typer.Option("--judge", help="The model that judges.")]


def judge(
    suite: Annotated[str, typer.Argument(help="A suite that sweeps have answers of.")],
    judge_model: JudgeOption,
    model: Annotated[list[str], typer.Option(help="A judged model; two or more.")],
    limit: Annotated[int | None, typer.Option(min=1, help="Prompts at most, the first ones.")] = None,
    checks_first: Annotated[bool, typer.Option(help="Don't ask where checks decide.")] = True,
    allow_same_family: Annotated[bool, typer.Option("--allow-same-family", help="Let a judge judge its own.")] = False,
    config: ConfigOption = None,
) -> None:
    """Judges pairs of answers in both orders, after the gate. Exit 1: the judge is not trusted, or something waits."""
    if len(set(model)) < 2:
        raise ConfigError("--model is given for fewer than two models; allowed: two or more")
    foundry = Foundry.load(config)
    judging.check_judge(foundry, judge_model, model, allow_same_family=allow_same_family)
    foundry.warehouse.migrate()
    trusted = _gate(foundry, judge_model)
    pairs = judging.suite_pairs(
        foundry,
        load_suite(foundry.config, suite),
        judge_model,
        judging.all_pairs(model),
        checks_first=checks_first,
        limit=limit,
    )
    report = judging.judge_pairs(foundry, pairs, judge_model, run_id=f"judge-{uuid.uuid4().hex[:12]}")
    _say(report)
    raise typer.Exit(0 if trusted and not report.waiting else 1)


def gate(judge_model: JudgeOption, config: ConfigOption = None) -> None:
    """Asks a judge the planted pairs. Exit 1: it is not trusted."""
    foundry = Foundry.load(config)
    judging.check_judge(foundry, judge_model, [], allow_same_family=True)
    foundry.warehouse.migrate()
    raise typer.Exit(0 if _gate(foundry, judge_model) else 1)


def _gate(foundry: Foundry, judge_model: str) -> bool:
    pairs = judging.planted_pairs(judge_model)
    report = judging.judge_pairs(foundry, pairs, judge_model, run_id=f"gate-{uuid.uuid4().hex[:12]}")
    found = judging.gate_of(foundry, judge_model)
    low, high = found.interval.low, found.interval.high
    span = (
        "" if low is None or high is None else f" (95%: {low:.2f} to {high:.2f}, needed: from {judging.GATE_THRESHOLD})"
    )
    word = "trusted" if found.passed else "judge not trusted"
    console.print(f"gate of {judge_model}: {found.right} of {found.n} right in both orders{span}: {word}", markup=False)
    if report.waiting:
        errors.print(f"{len(report.waiting)} requests wait: {next(iter(report.waiting.values()))}", markup=False)
    return found.passed


def _say(report: judging.JudgeReport) -> None:
    counts = ", ".join(f"{outcome} {n}" for outcome, n in sorted(report.outcomes.items())) or "nothing new"
    console.print(f"{counts}; {report.unchanged} were there already", markup=False)
    if report.waiting:
        errors.print(f"{len(report.waiting)} requests wait: {next(iter(report.waiting.values()))}", markup=False)
