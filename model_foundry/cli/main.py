"""The entry point: puts the commands together and turns errors into a message, a hint and an exit code.

Exit codes, for scripts: 0 done; 1 done, but the outcome is not good (a prompt failed, a check failed); 2 wrong usage or
configuration; 3 something that is needed does not run (NATS, the lake, an embedded part); 4 time ran out; 130 Ctrl-C.
"""

from __future__ import annotations

import sys

import typer
from rich.console import Console

from model_foundry.cli.commands import (
    advice,
    bench,
    bench_compare,
    bench_judge,
    bench_run,
    bench_suites,
    cancel,
    demo,
    doctor,
    events,
    profile,
    route,
    search,
    session,
    sql,
    submit,
    translate,
    up,
    worker,
    workers,
)
from model_foundry.errors import ConfigError, FoundryError

app = typer.Typer(
    name="foundry",
    help="Prompts over NATS JetStream, answered by your own model servers, as Dagster assets, figures in DuckDB.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("up")(up.up)
app.command("demo")(demo.demo)
app.command("submit")(submit.submit)
app.command("translate")(translate.translate)
app.command("publish")(events.publish)
app.command("workers")(workers.workers)
app.command("worker")(worker.worker)
app.command("route")(route.route)
app.command("cancel")(cancel.cancel)
app.command("profile")(profile.profile)
app.command("advice")(advice.advice)
app.command("session")(session.session)
app.add_typer(events.events_app, name="events", no_args_is_help=True)
app.command("search")(search.search_notes)
app.add_typer(bench.bench_app, name="bench", no_args_is_help=True)
bench.bench_app.command("run")(bench_run.run)
bench.bench_app.command("judge")(bench_judge.judge)
bench.bench_app.command("gate")(bench_judge.gate)
bench.bench_app.command("show")(bench_run.show)
bench.bench_app.command("compare")(bench_compare.compare)
bench.bench_app.add_typer(bench_compare.baseline_app, name="baseline")
bench.bench_app.command("suites")(bench_suites.suites)
bench.bench_app.command("import")(bench_suites.import_file)
app.command("sql")(sql.sql)
app.command("doctor")(doctor.doctor)


def main() -> None:
    """Runs the command line."""
    console = Console(stderr=True, highlight=False)
    try:
        app()
    except FoundryError as error:
        console.print(f"[bold red]error:[/] {_plain(str(error))}", soft_wrap=True)
        if error.hint:
            console.print(f"[bold]do:[/] {_plain(error.hint)}", soft_wrap=True)
        sys.exit(2 if isinstance(error, ConfigError) else 3)
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away (`foundry sql … | head`); that is no error
        sys.exit(0)


def _plain(text: str) -> str:
    return text.replace("[", r"\[")


if __name__ == "__main__":
    main()
