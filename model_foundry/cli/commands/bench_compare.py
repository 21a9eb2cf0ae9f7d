"""``foundry bench compare`` and ``foundry bench baseline``: what sweeps show, and against what was before."""

from __future__ import annotations

import uuid
from dataclasses import asdict
from typing import Annotated

import typer

from model_foundry.benchmarks import comparing
from model_foundry.benchmarks.comparison import ALL_DOMAINS, Comparison
from model_foundry.cli.output import ConfigOption, JsonOption, console, errors, print_json, print_table
from model_foundry.runtime import Foundry

baseline_app = typer.Typer(help="Named sweeps to compare with.", no_args_is_help=True)


def compare(
    suite: Annotated[str, typer.Argument(help="Which suite's results.")],
    against: Annotated[str | None, typer.Option(help="A baseline: each model now against itself then.")] = None,
    domain: Annotated[str | None, typer.Option(help="One domain [default: all together; 'every' shows each].")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap and the random flips.")] = 0,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Which model is faster or better, and is it sure? In words, from the newest sweeps.

    Exit 1: with --against, something is shown to be worse than it was.
    """
    foundry = Foundry.load(config)
    if against is None:
        run_id = f"bench-{uuid.uuid4().hex[:12]}"
        found = list(comparing.compare_suite(foundry, suite, run_id=run_id, seed=seed).comparisons)
    else:
        found = comparing.compare_with_baseline(foundry, against, suite, seed=seed)
    chosen = [c for c in found if domain == "every" or c.domain == (domain or ALL_DOMAINS)] or (
        found if domain is None else []
    )
    if as_json:
        print_json([asdict(c) for c in chosen])
    elif not chosen:
        errors.print(f"nothing to compare in {suite}: run it on two models or workers first (foundry bench run)")
    else:
        _show(chosen)
    if against is not None and comparing.regressions(found, foundry.config.benchmarks.regression.worse_by):
        raise typer.Exit(1)


def _show(found: list[Comparison]) -> None:
    for c in sorted(found, key=lambda c: (c.domain, c.verdict in ("no_difference_shown", "too_few"))):
        style = None if c.verdict in ("faster", "slower", "better", "worse") else "dim"
        console.print(f"{c.domain}  {c.words}", style=style, markup=False)


@baseline_app.command("set")
def set_baseline(
    name: Annotated[str, typer.Argument(help="Its name; an earlier one of that name is replaced.")],
    sweeps: Annotated[list[str], typer.Argument(help="Sweeps that are done; foundry bench show lists them.")],
    note: Annotated[str | None, typer.Option(help="Why.")] = None,
    config: ConfigOption = None,
) -> None:
    """Name sweeps as a baseline."""
    comparing.set_baseline(Foundry.load(config), name, sweeps, note)
    console.print(f"{name}: {', '.join(sweeps)}", markup=False)


@baseline_app.command("list")
def list_baselines(as_json: JsonOption = False, config: ConfigOption = None) -> None:
    """The baselines, the newest first."""
    rows = comparing.baselines(Foundry.load(config))
    if as_json:
        print_json(rows)
    elif rows:
        columns = ["name", "suites", "sweep_ids", "created_at", "note"]
        shown = [row | {"sweep_ids": ", ".join(row["sweep_ids"]), "suites": ", ".join(row["suites"])} for row in rows]
        print_table("Baselines", columns, [[row[c] for c in columns] for row in shown])
    else:
        errors.print("there is none; foundry bench baseline set NAME SWEEP makes one")


@baseline_app.command("drop")
def drop_baseline(
    name: Annotated[str, typer.Argument(help="Which one; its sweeps stay.")], config: ConfigOption = None
) -> None:
    """Forget a baseline."""
    comparing.drop_baseline(Foundry.load(config), name)
