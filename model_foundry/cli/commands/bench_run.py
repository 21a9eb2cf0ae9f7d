"""``foundry bench run`` and ``foundry bench show``: a sweep here and now, and what sweeps found."""

from __future__ import annotations

import json
import sys
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from model_foundry.benchmarks import runner
from model_foundry.benchmarks.library import load_suite
from model_foundry.benchmarks.settings import SweepSettings, sweep_settings
from model_foundry.cli.output import ConfigOption, JsonOption, console, errors, print_json, print_table
from model_foundry.errors import ConfigError
from model_foundry.runtime import Foundry
from model_foundry.warehouse.engine import Rows

MAX_SWEEPS = 20


def run(
    suites: Annotated[list[str], typer.Argument(help="Suites, one after another; foundry bench suites lists them.")],
    model: Annotated[list[str] | None, typer.Option(help="A model; may be repeated [default: all].")] = None,
    worker: Annotated[list[str] | None, typer.Option(help="A worker; may be repeated [default: all].")] = None,
    repeats: Annotated[int, typer.Option(help="How often each prompt is asked, at least 3 times.")] = 3,
    concurrency: Annotated[
        list[int] | None, typer.Option(help="Clients of a closed loop; may be repeated [default: 1].")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Of an open loop: conversations a second.")] = None,
    arrival: Annotated[str | None, typer.Option(help="Of an open loop: poisson, constant, trace.")] = None,
    duration: Annotated[float | None, typer.Option(help="Of one repeat of an open loop, in seconds.")] = None,
    trace: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A recorded trace, whose moments are used.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of everything random [default: drawn].")] = None,
    limit: Annotated[int | None, typer.Option(help="So many prompts, spread over the suite.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Over the suite's own.")] = None,
    cold: Annotated[bool, typer.Option(help="Cold starts, where a server can unload a model.")] = True,
    warmups: Annotated[int, typer.Option(help="Requests for each client before a block is measured.")] = 1,
    new: Annotated[bool, typer.Option("--new", help="Begin anew, whatever was broken off.")] = False,
    wait: Annotated[
        float | None, typer.Option(min=0, help="Seconds that a worker is waited for [default: benchmarks.wait_s].")
    ] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Runs suites on models now, with a bar and the time left; Ctrl-C, and the same again, goes on where it was.

    Exit 0: all was asked; 1: something is left, and why is said; 130: Ctrl-C.
    """
    foundry = Foundry.load(config)
    settings = _settings(
        repeats=repeats,
        warmups=warmups,
        cold=cold,
        concurrency=concurrency,
        rate_rps=rate,
        arrival=arrival,
        duration_s=duration,
        trace=trace,
        limit=limit,
        params={"max_tokens": max_tokens} if max_tokens else {},
    )
    loaded = [load_suite(foundry.config, name) for name in suites]
    reports = []
    for suite in loaded:
        with _Shown(suite.name) as shown:
            try:
                reports.append(
                    runner.run_sweep(
                        foundry,
                        suite,
                        run_id=f"bench-{uuid.uuid4().hex[:12]}",
                        models=model or (),
                        workers=worker or (),
                        settings=settings,
                        seed=seed,
                        anew=new,
                        wait_s=foundry.config.benchmarks.wait_s if wait is None else wait,
                        on_progress=shown.take,
                    )
                )
            except KeyboardInterrupt:
                shown.stop()
                errors.print("stopped; what was answered is kept. The same command goes on where it was.")
                raise typer.Exit(130) from None
    if as_json:
        print_json([_as_json(foundry, report) for report in reports])
    else:
        for report in reports:
            _print_report(foundry, report)
    raise typer.Exit(1 if any(report.status != "done" for report in reports) else 0)


def show(
    sweep: Annotated[str | None, typer.Argument(help="A sweep's id [default: the last sweeps].")] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """The last sweeps; or what one of them found, by model, worker and load."""
    foundry = Foundry.load(config)
    foundry.warehouse.migrate()
    if sweep is None:
        rows = foundry.warehouse.show("sweeps", {"n": MAX_SWEEPS})
        if as_json:
            print_json(rows)
        else:
            _print_sweeps(rows)
        return
    found = foundry.warehouse.show("sweep", {"sweep_id": sweep})
    if not found:
        raise ConfigError(f"there is no sweep {sweep!r}", hint="foundry bench show lists the last ones.")
    figures, failed = _figures(foundry, sweep)
    if as_json:
        print_json({**found[0], "figures": figures, "errors": failed})
        return
    row = found[0]
    console.print(
        f"[bold]{row['sweep_id']}[/]  suite {row['suite']} {row['suite_digest']}, seed {row['seed']}, {row['status']}, "
        f"{row['planned']} requests planned, begun {row['started_at']:%Y-%m-%d %H:%M} UTC"
    )
    _print_figures(figures, failed)


def _settings(*, concurrency: list[int] | None, arrival: str | None, trace: Path | None, **given: Any) -> SweepSettings:
    """The settings of the options; closed loops only when asked for, or when there is no open one."""
    if trace is not None:
        from model_foundry.benchmarks.importers import read_trace

        given["trace_s"] = [arrived.at_s for arrived in read_trace(trace).arrivals]
        arrival = arrival or "trace"
    is_open = given["rate_rps"] is not None or arrival == "trace"
    if arrival is not None:
        if not is_open:
            raise ConfigError(f"--arrival {arrival} needs --rate, or --trace", hint="--rate 2 --arrival poisson")
        given["arrival"] = arrival
    given["concurrency"] = concurrency if concurrency is not None else [] if is_open else [1]
    return sweep_settings({k: v for k, v in given.items() if v is not None}, source="the options")


class _Shown:
    """A bar with the time left, and a line for each worker or machine; without a terminal, only waits are said."""

    def __init__(self, suite: str) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=errors,
        )
        self._task = self._bar.add_task(suite, total=None, left="")
        self._is_live = sys.stderr.isatty()
        self._live = Live(self._bar, console=errors, refresh_per_second=2, transient=True)
        self._said: set[str] = set()

    def __enter__(self) -> _Shown:
        if self._is_live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Takes it off the screen."""
        if self._is_live:
            self._live.stop()

    def take(self, progress: runner.Progress) -> None:
        """Shows how far the sweep is."""
        if self._is_live:
            left = "" if progress.left_s is None else f"{_span(progress.left_s)} left"
            self._bar.update(self._task, completed=progress.done, total=progress.total, left=left)
            lines = [
                Text(f"  {text}", style="dim", no_wrap=True, overflow="ellipsis") for text in progress.lines.values()
            ]
            self._live.update(Group(self._bar, *lines))
            return
        for text in progress.lines.values():
            if "waits" in text and ";" in text and text not in self._said:
                self._said.add(text)
                errors.print(text, markup=False)


def _span(seconds: float) -> str:
    """Seconds as people read them: ``40 s``, ``12 min``, ``3 h 20 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _figures(foundry: Foundry, sweep_id: str) -> tuple[Rows, Rows]:
    with foundry.warehouse.snapshot() as now:
        params = {"sweep_id": sweep_id}
        return now.show("sweep_figures", params), now.show("sweep_errors", params)


def _as_json(foundry: Foundry, report: runner.SweepReport) -> dict[str, Any]:
    figures, failed = _figures(foundry, report.sweep_id)
    return {**asdict(report), "figures": figures, "errors": failed}


def _print_report(foundry: Foundry, report: runner.SweepReport) -> None:
    asked = sum(report.asked.values())
    how = f"{report.status}, {asked} requests asked{' now, gone on with' if report.resumed else ''}, {report.left} left"
    console.print(f"[bold]{report.sweep_id}[/]  suite {report.suite}, seed {report.seed}: {how}")
    for note in report.notes:
        console.print(f"note: {note}", style="dim", markup=False, soft_wrap=True)
    for what, why in report.problems.items():
        errors.print(f"left: {what}: {why}", markup=False)
    _print_figures(*_figures(foundry, report.sweep_id))


def _print_figures(figures: Rows, failed: Rows) -> None:
    rows = [
        (
            row["model"],
            row["worker"],
            row["load"],
            row["n"],
            row["errors"],
            row["p50_ttft_s"],
            row["p50_e2e_s"],
            row["p95_e2e_s"] if row["n"] >= 59 else "n<59",
            row["p50_prefill_tps"],
            row["p50_decode_tps"],
            f"{row['passed']}/{row['checked']}" if row["checked"] else None,
        )
        for row in figures
    ]
    heads = ["model", "worker", "load", "n", "err", "ttft", "e2e", "p95", "PP", "TG", "passed"]
    notes = ["Medians in seconds, p95 of e2e; PP and TG are the server's tokens a second."]
    if disturbed := sum(row["disturbed"] for row in figures):
        notes.append(f"{disturbed} answers are left out: others were at work on the same hardware.")
    if joules := [
        f"{r['model']} at {r['worker']} {r['joules_per_token']:.3g}" for r in figures if r["joules_per_token"]
    ]:
        notes.append("Joules a token: " + ", ".join(joules) + ".")
    print_table("", heads, rows, note=" ".join(notes))
    if failed:
        print_table(
            "What went wrong",
            ["model", "worker", "status", "error", "requests"],
            [tuple(row.values()) for row in failed],
        )


def _print_sweeps(rows: Rows) -> None:
    print_table(
        "",
        ["sweep", "suite", "status", "recorded", "models", "begun"],
        [
            (
                row["sweep_id"],
                row["suite"],
                row["status"],
                f"{row['recorded']}/{row['planned']}",
                _listed(row["models"]),
                f"{row['started_at']:%m-%d %H:%M}",
            )
            for row in rows
        ],
        note="" if rows else "No sweep yet: foundry bench run SUITE",
    )


def _listed(text: str) -> str:
    return ", ".join(json.loads(text))
