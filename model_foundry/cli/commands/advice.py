"""``foundry advice``: what was measured against the budgets, and which lines of the configuration it speaks for."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from model_foundry.cli.output import ConfigOption, JsonOption, console, print_json, print_table
from model_foundry.fleet.advice import Advice, Row, Verdict, advise, cells_from_rows
from model_foundry.runtime import Foundry


def advice(
    days: Annotated[int, typer.Option(min=1, help="How many days of measurements count, up to now.")] = 7,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Which model is too slow where, by fleet.budgets, and what to change. Changes nothing; exit 1 when one is over."""
    foundry = Foundry.load(config)
    since = datetime.now(UTC) - timedelta(days=days)
    found = advise(foundry.config, cells_from_rows(foundry.warehouse.show("placement", {"since": since})))
    if as_json:
        print_json({"status": found.status, "since": since, **asdict(found)})
    else:
        show(found)
    raise typer.Exit(1 if found.count(Verdict.OVER) else 0)


def show(found: Advice) -> None:
    """Rows, proposals with their evidence, and the lines to paste."""
    if found.hint is not None:
        console.print(found.hint, markup=False)
        return
    print_table(
        "",
        ["domain", "model on worker", "budget s", "n", "over", "p50 s", "p95 s", "verdict"],
        [
            (
                row.domain,
                f"{row.model} on {row.worker}",
                row.budget_s,
                row.n,
                over(row),
                row.p50_s,
                row.p95_note or f"{row.p95_s:.3g}",
                str(row.verdict),
            )
            for row in found.rows
        ],
        note="over: share over the budget (95% bounds from-to); a p95 within its budget has at most 5%.",
    )
    proposed = [p.subject for p in found.proposals]
    for row in found.rows:
        if row.verdict is not Verdict.WITHIN and not any(subject in row.advice for subject in proposed):
            console.print(f"{row.domain}, {row.model} on {row.worker}: {row.advice}", markup=False)
    for proposal in found.proposals:
        console.print()
        console.print(proposal.subject, style="bold", markup=False)
        console.print(proposal.why, markup=False)
    if found.config:
        console.print("\nPaste in place of what stands at these keys:", style="bold")
        console.print(found.config, markup=False, soft_wrap=True, end="")


def over(row: Row) -> str:
    """The share over the budget with its bounds, in percent."""
    return f"{100 * row.share:.0f}% ({100 * row.share_low:.0f}-{100 * row.share_high:.0f})"
