"""The suites there are: the shipped ones, and those of one's own folders. Reads files, asks nobody.

Belongs here: finding suite files, reading them, what is wrong with one. Does not belong here: what a suite is
(``suite``), other forms of files (``importers``), the texts that a file only describes (``texts``).

A suite's file is named like the suite, so that a list of names reads no file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from model_foundry.benchmarks import checks
from model_foundry.benchmarks.suite import Check, Suite, SuitePrompt
from model_foundry.benchmarks.texts import expanded
from model_foundry.config import FoundryConfig, UniqueKeyLoader
from model_foundry.errors import ConfigError

SHIPPED = Path(__file__).parent / "suites"
MAX_SUITE_BYTES = 64 * 2**20
_ENDINGS = (".yaml", ".yml")


def suite_files(config: FoundryConfig) -> dict[str, Path]:
    """The file of each suite by its name: the shipped ones first, then the folders in the configuration's order.

    Raises:
        ConfigError: when a folder is not there or can't be listed, or two files have one name.
    """
    files: dict[str, Path] = {}
    for folder in (SHIPPED, *config.benchmarks.suites):
        if not folder.is_dir():
            raise ConfigError(
                f"benchmarks.suites has {folder}, which is no folder here",
                hint="Make it, or take it out of the configuration.",
            )
        try:
            found = sorted(f for f in folder.iterdir() if f.suffix in _ENDINGS and not f.name.startswith("."))
        except OSError as error:
            raise ConfigError(f"benchmarks.suites: {folder} can't be listed: {error.strerror}") from None
        for file in found:
            if file.stem in files:
                raise ConfigError(
                    f"two suites are named {file.stem!r}: {files[file.stem]} and {file}",
                    hint="Name one of them differently: its file, and `name` in it.",
                )
            files[file.stem] = file
    return files


def suite_names(config: FoundryConfig) -> list[str]:
    """Their names, in the order of :func:`suite_files`. No file is read.

    Raises:
        ConfigError: as :func:`suite_files`.
    """
    return list(suite_files(config))


def load_suite(config: FoundryConfig, name: str) -> Suite:
    """The suite of that name.

    Raises:
        ConfigError: when there is none, or its file can't be used.
    """
    files = suite_files(config)
    if name not in files:
        raise ConfigError(f"there is no suite {name!r}; allowed: {', '.join(files)}", hint="foundry bench suites")
    return read_suite(files[name])


def read_suite(file: Path) -> Suite:
    """The suite of one file, with the texts in it that it only describes.

    Raises:
        ConfigError: with every problem found; each names the prompt, the key, the value and what is allowed.
    """
    suite = parse_suite(_raw(file), source=str(file), folder=file.parent)
    if suite.name != file.stem:
        raise ConfigError(
            f"{file}: name is {suite.name!r}; allowed: {file.stem!r}, as the file is named",
            hint="Rename the file, or change `name`.",
        )
    return suite


def parse_suite(raw: Any, *, source: str, folder: Path | None = None) -> Suite:
    """Checks what a suite's file holds.

    Args:
        raw: as read from YAML or JSON.
        source: named in errors.
        folder: where the files lie that ``texts`` names; None when it may name none.

    Raises:
        ConfigError: as :func:`read_suite`.
    """
    if not isinstance(raw, dict):
        keys = ", ".join(Suite.model_fields)
        raise ConfigError(f"{source}: holds {type(raw).__name__}; allowed: a mapping with the keys {keys}")
    problems = list(_not_json(raw, ""))
    try:
        if not problems:
            suite = Suite.model_validate(expanded(raw, folder=folder))
            problems = [f"{_where(raw, at)}: {problem}" for at, problem in _check_problems(suite)]
    except ValidationError as error:
        problems = [_problem_line(raw, problem) for problem in error.errors()]
    except ValueError as error:
        problems = str(error).splitlines()
    if problems:
        raise ConfigError(f"{source} can't be used:\n" + "\n".join(f"  - {problem}" for problem in problems))
    return suite


def _raw(file: Path) -> Any:
    try:
        if file.stat().st_size > MAX_SUITE_BYTES:
            raise ConfigError(f"{file}: is larger than {MAX_SUITE_BYTES // 2**20} MiB, so it is no suite")
        return yaml.load(file.read_text(encoding="utf-8-sig"), Loader=UniqueKeyLoader)  # noqa: S506 (a SafeLoader)
    except OSError as error:
        raise ConfigError(f"{file}: can't be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not readable as YAML: {error}") from None


def _not_json(value: Any, path: str) -> Iterator[str]:
    """What can't be sent, such as a date, which YAML reads where no quotes are."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                yield f"{path or 'the file'}: key {key!r} is {type(key).__name__}; allowed: text, in quotes"
            yield from _not_json(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _not_json(inner, f"{path}[{number}]")
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{path}: is {value}; allowed: a finite number"
    elif value is not None and not isinstance(value, str | int | float | bool):
        yield f"{path}: is {value!s} ({type(value).__name__}); allowed: text in quotes, a number, true, false, null"


def _check_problems(suite: Suite) -> Iterator[tuple[tuple[str | int, ...], str]]:
    for n, prompt in enumerate(suite.prompts):
        for m, check in enumerate(prompt.checks):
            if (problem := checks.problem(check)) is not None:
                yield ("prompts", n, "checks", m), problem


def _where(raw: Mapping[str, Any], location: tuple[str | int, ...]) -> str:
    """A location as text, prompts by their ids: ``prompt 'add': checks[0].value``."""
    steps = list(location)
    head = ""
    if len(steps) > 1 and steps[0] == "prompts" and isinstance(steps[1], int):
        prompts = raw.get("prompts")
        prompt = prompts[steps[1]] if isinstance(prompts, list) and steps[1] < len(prompts) else None
        identity = prompt.get("id") if isinstance(prompt, dict) else None
        head = f"prompt {identity!r}" if identity is not None else f"prompts[{steps[1]}]"
        steps = steps[2:]
    path = ""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else str(step)
    return ": ".join(part for part in (head, path) if part) or "the file"


def _problem_line(raw: Mapping[str, Any], problem: Any) -> str:
    """One pydantic problem as 'where: what is wrong, what was found, what is allowed'."""
    location, kind, context = problem["loc"], problem["type"], problem.get("ctx", {})
    where = _where(raw, location)
    if kind == "value_error":
        return f"{where}: {context['error']}"
    if kind == "missing":
        return f"{where}: missing; it must be given"
    if kind == "extra_forbidden":
        return f"{where}: no such key; allowed here: {', '.join(_allowed_keys(location))}"
    value = problem.get("input")
    shown = json.dumps(value, ensure_ascii=False) if not isinstance(value, dict | list) else type(value).__name__
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    if kind == "literal_error":
        return f"{where}: is {shown}; allowed: {context['expected']}"
    if kind == "string_pattern_mismatch":
        return f"{where}: is {shown}; allowed: text that matches {context['pattern']}"
    return f"{where}: is {shown}; {problem['msg'][0].lower()}{problem['msg'][1:]}"


def _allowed_keys(location: tuple[str | int, ...]) -> list[str]:
    model: type[BaseModel] = Suite
    if "checks" in location[:-1]:
        model = Check
    elif "prompts" in location[:-1]:
        model = SuitePrompt
    return [*model.model_fields, *(["texts"] if model is Suite else [])]
