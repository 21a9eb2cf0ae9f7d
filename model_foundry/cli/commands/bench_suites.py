"""``foundry bench suites`` and ``foundry bench import``: the suites there are, and making one of a public set."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from model_foundry.benchmarks import sandbox
from model_foundry.benchmarks.importers import CSV_COLUMNS, FORMS, Form, Imported, import_suite
from model_foundry.benchmarks.library import SHIPPED, read_suite, suite_files
from model_foundry.benchmarks.sandbox import SandboxError
from model_foundry.cli.output import ConfigOption, JsonOption, console, errors, print_json, print_table
from model_foundry.errors import ConfigError
from model_foundry.runtime import Foundry

SHOWN_PROBLEMS = 10


def suites(as_json: JsonOption = False, config: ConfigOption = None) -> None:
    """The suites there are: prompts by domain, checks, digest."""
    rows: list[dict[str, Any]] = []
    for name, file in suite_files(Foundry.load(config).config).items():
        suite = read_suite(file)
        rows.append(
            {
                "name": name,
                "title": suite.title,
                "prompts": len(suite.prompts),
                "turns": sum(len(p.turns) for p in suite.prompts),
                "with_checks": sum(bool(p.checks) for p in suite.prompts),
                "domains": dict(Counter(p.domain for p in suite.prompts)),
                "digest": suite.digest,
                "license": suite.license,
                "file": None if file.parent == SHIPPED else str(file),
            }
        )
    if as_json:
        print_json(rows)
        return
    print_table(
        "",
        ["suite", "prompts", "checked", "domains", "digest", "from"],
        [
            (
                row["name"],
                row["prompts"],
                row["with_checks"],
                ", ".join(f"{domain} {n}" for domain, n in row["domains"].items()),
                row["digest"],
                row["file"] or "shipped",
            )
            for row in rows
        ],
        note=_sandbox_note(),
    )


def _sandbox_note() -> str:
    try:
        level = sandbox.level()
    except SandboxError as error:
        return str(error)
    lacks = f"; it lacks: {', '.join(level.lacks)}" if level.lacks else ""
    return f"checked: prompts with checks. Code of models runs in the sandbox, level {level.name}{lacks}"


def import_file(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="What to import; plain, or a .gz.")],
    name: Annotated[str | None, typer.Option(help="Of the suite [default: as the file is named].")] = None,
    form: Annotated[str | None, typer.Option(help=f"One of {', '.join(FORMS)} [default: told by its content].")] = None,
    domain: Annotated[str | None, typer.Option(help="Of all its prompts [default: by their category].")] = None,
    language: Annotated[str | None, typer.Option(help="Of all its prompts, such as ja [default: ja is told].")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Prompts at most, the first ones.")] = None,
    turns: Annotated[int | None, typer.Option(min=1, help="Turns of a conversation at most.")] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help=f"A table's column, as OURS=THEIRS; ours: {', '.join(CSV_COLUMNS)}. May be repeated."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The suite's file [default: in the first of benchmarks.suites].")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Makes a suite of a public set or of a table of one's own. Exit 1 when lines were not taken; each is named."""
    if form is not None and form not in FORMS:
        raise ConfigError(f"--form is {form!r}; allowed: {', '.join(FORMS)}")
    target = out if out is not None else _folder(config) / f"{name or _name(file)}.yaml"
    chosen = name or (target.stem if out is not None else _name(file))
    if target.stem != chosen or target.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"--out is {target}; allowed: a file named {chosen}.yaml, as the suite is")
    if (SHIPPED / f"{chosen}.yaml").exists():
        raise ConfigError(f"a shipped suite is named {chosen!r}; allowed: any other name", hint="Give another --name.")
    if target.exists() and not force:
        raise ConfigError(f"{target} is there already", hint="Write over it with --force, or give another --name.")
    known: dict[str, Form] = {f: f for part in get_args(Form) for f in (get_args(part) or (part,))}
    imported = import_suite(
        file,
        chosen,
        form=known[form] if form else None,
        domain=domain,
        language=language,
        limit=limit,
        max_turns=turns,
        columns=_columns(column or []),
    )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(".part")
        part.write_text(imported.yaml(), encoding="utf-8")
        part.replace(target)
    except OSError as error:
        raise ConfigError(f"{target} can't be written: {error.strerror}") from None
    _show_import(imported, target, as_json=as_json)
    raise typer.Exit(1 if imported.problems else 0)


def _show_import(imported: Imported, target: Path, *, as_json: bool) -> None:
    suite, problems = imported.suite, imported.problems
    if as_json:
        print_json(
            {
                "name": suite.name,
                "form": imported.form,
                "prompts": len(suite.prompts),
                "domains": dict(Counter(p.domain for p in suite.prompts)),
                "digest": suite.digest,
                "file": str(target),
                "problems": [{"line": p.line, "reason": p.reason} for p in problems],
            }
        )
        return
    for problem in problems[:SHOWN_PROBLEMS]:
        errors.print(f"not taken: {problem}", markup=False)
    if len(problems) > SHOWN_PROBLEMS:
        errors.print(f"not taken: {len(problems) - SHOWN_PROBLEMS} more; --json lists them all")
    domains = ", ".join(f"{domain} {n}" for domain, n in Counter(p.domain for p in suite.prompts).items())
    console.print(
        f"{target}: suite {suite.name}, {len(suite.prompts)} prompts ({domains}), read as {imported.form}, "
        f"{len(problems)} not taken, digest {suite.digest}",
        markup=False,
        soft_wrap=True,
    )


def _folder(config: Path | None) -> Path:
    folders = Foundry.load(config).config.benchmarks.suites
    if not folders:
        raise ConfigError(
            "benchmarks.suites names no folder for suites of one's own",
            hint="Name one in the configuration, benchmarks: {suites: my-suites}, or give --out FILE.",
        )
    return folders[0]


def _name(file: Path) -> str:
    """A suite's name from a file's: HumanEval.jsonl.gz becomes humaneval."""
    return re.sub(r"[^a-z0-9._-]+", "-", file.name.split(".")[0].lower()).strip("-._")[:64] or "imported"


def _columns(given: list[str]) -> dict[str, str]:
    columns = {}
    for pair in given:
        ours, found, theirs = pair.partition("=")
        if not found or ours not in CSV_COLUMNS:
            raise ConfigError(f"--column is {pair!r}; allowed: OURS=THEIRS, ours one of {', '.join(CSV_COLUMNS)}")
        columns[ours] = theirs
    return columns
