"""Public sets of prompts, and a person's own tables, as suites.

Belongs here: telling the forms apart, what an entry of each means, writing a suite's file. Does not belong here: lines
and rows (``entries``), recorded arrivals (``traces``), reading a suite's file (``library``). Nothing is fetched: a file
is what a person has.

Forms, each with its source:

- ``mt-bench``: JSONL of ``question_id``, ``category``, ``turns`` (two), now and then ``reference`` (a list)
  (lm-sys/FastChat, ``fastchat/llm_judge/data/mt_bench/question.jsonl``; the Japanese set has the same form).
- ``humaneval``: JSONL of ``task_id``, ``prompt``, ``canonical_solution``, ``test``, ``entry_point``
  (openai/human-eval, ``data/HumanEval.jsonl.gz``).
- ``gsm8k``: JSONL of ``question``, ``answer`` with ``#### 42`` at its end (openai/grade-school-math).
- ``sharegpt``: JSON or JSONL of ``conversations``, each of ``from`` (human, gpt) and ``value``; also ``messages`` of
  ``role`` and ``content``.
- ``csv``: a table with a column ``prompt``; see :data:`CSV_COLUMNS`.
- ``azure-trace``: CSV of TIMESTAMP, ContextTokens, GeneratedTokens (Azure/AzurePublicDataset, LLM inference traces).
- ``burstgpt-trace``: CSV of Timestamp (s), Request tokens, Response tokens (HPMLL/BurstGPT).
- ``mooncake-trace``: JSONL of ``timestamp`` (ms), ``input_length``, ``output_length`` (kvcache-ai/Mooncake).

A line that can't be used is named with the reason and counted; the others are taken. When none can be used, that is an
error.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from model_foundry.benchmarks.entries import (
    Problem,
    Unfit,
    header,
    json_entries,
    nothing_usable,
    read_bytes,
    table_rows,
    text_of,
)
from model_foundry.benchmarks.library import parse_suite
from model_foundry.benchmarks.suite import Suite
from model_foundry.benchmarks.traces import TRACES, Trace, TraceForm, parse_trace, trace_suite
from model_foundry.errors import ConfigError

Form = Literal["mt-bench", "humaneval", "gsm8k", "sharegpt", "csv"] | TraceForm
FORMS: Final[tuple[str, ...]] = ("mt-bench", "humaneval", "gsm8k", "sharegpt", "csv", *TRACES)
CSV_COLUMNS = ("prompt", "turn_2", "turn_3", "id", "domain", "language", "system", "reference", "check", "value")
"""What a table may have: ``check`` is a kind of check, ``value`` its value. Other columns become metadata."""
CSV_ALIASES: Final[Mapping[str, str]] = {
    "question": "prompt", "instruction": "prompt", "category": "domain", "answer": "reference", "expected": "reference",
}  # fmt: skip
DOMAINS: Final[Mapping[str, str]] = {
    "coding": "code", "code": "code", "math": "reasoning", "reasoning": "reasoning", "translation": "translation",
    "summarization": "summarizing",
}  # fmt: skip
"""A category of MT-bench or a table, and its domain here; any other is ``general``."""

COMPLETE = "Complete this Python function. Answer with the whole function, in one code block.\n\n```python\n{}```"
LAST_LINE = "{}\n\nGive the result as a number on the last line, after ####."


@dataclass(frozen=True, slots=True)
class Imported:
    """A file as a suite.

    Attributes:
        form: as it was read.
        raw: the suite as its file holds it, texts that are only described included.
        suite: the same, checked and filled in.
        problems: what was not taken.
    """

    form: Form
    raw: dict[str, Any]
    suite: Suite
    problems: list[Problem]

    def yaml(self) -> str:
        """The suite's file."""
        return suite_yaml(self.raw)


def import_suite(
    file: Path,
    name: str,
    *,
    form: Form | None = None,
    domain: str | None = None,
    language: str | None = None,
    limit: int | None = None,
    max_turns: int | None = None,
    columns: Mapping[str, str] | None = None,
    seed: int = 0,
) -> Imported:
    """Reads a file as a suite.

    Args:
        file: plain, or compressed by gzip.
        name: of the suite.
        form: which one; told by its content when left out.
        domain: of all prompts; by their category when left out.
        language: of all prompts, ISO 639-1.
        limit: prompts at most, the first ones.
        max_turns: turns of a conversation at most, the first ones.
        columns: of a table: our name for a column of theirs.
        seed: of the texts that stand in for a trace's prompts.

    Raises:
        ConfigError: when the file can't be read, its form is not known, or no line of it can be used.
    """
    data = read_bytes(file)
    form = form or detect(data, source=str(file), columns=columns)
    problems: list[Problem] = []
    if limit is not None and limit < 1:
        raise ConfigError(f"limit is {limit}; allowed: from 1")
    if form == "azure-trace" or form == "burstgpt-trace" or form == "mooncake-trace":
        trace = parse_trace(data, form, file)
        problems = trace.problems
        raw = trace_suite(trace, name, limit=limit, domain=domain or "general", seed=seed)
    else:
        readers: dict[str, Callable[[], Iterator[tuple[int, dict[str, Any] | Problem]]]] = {
            "mt-bench": lambda: _each(json_entries(data), _mt_bench),
            "humaneval": lambda: _each(json_entries(data), _humaneval),
            "gsm8k": lambda: _each(json_entries(data), _gsm8k),
            "sharegpt": lambda: _each(json_entries(data), lambda e, n: _sharegpt(e, n, max_turns)),
            "csv": lambda: _each(_table(data, columns or {}, str(file)), _csv_row),
        }
        prompts: list[dict[str, Any]] = []
        first_line: dict[str, int] = {}
        for line, found in readers[form]():
            if limit is not None and len(prompts) >= limit:
                break
            if not isinstance(found, Problem):
                found = _usable(line, _with(found, domain, language), first_line)
            if isinstance(found, Problem):
                problems.append(found)
            else:
                prompts.append(found)
        raw = {"name": name, "title": _TITLES[form], "source": file.name, **_EXTRAS.get(form, {}), "prompts": prompts}
        if not prompts:
            raise nothing_usable(file, form, problems)
    return Imported(form, raw, parse_suite(raw, source=f"the suite {name!r} from {file}"), problems)


def read_trace(file: Path, *, form: Form | None = None) -> Trace:
    """Reads recorded arrivals.

    Raises:
        ConfigError: as :func:`import_suite`, or when the file is no trace.
    """
    data = read_bytes(file)
    form = form or detect(data, source=str(file))
    if form == "azure-trace" or form == "burstgpt-trace" or form == "mooncake-trace":
        return parse_trace(data, form, file)
    raise ConfigError(f"{file} is of the form {form}; allowed: {', '.join(TRACES)}")


# -- telling the forms apart ---------------------------------------------------------------------------------------


def detect(data: bytes, *, source: str, columns: Mapping[str, str] | None = None) -> Form:
    """The form of a file, by its first entries.

    Raises:
        ConfigError: when it is none of ours; says what was found.
    """
    head = data[: 2**20].lstrip(b" \t\r\n\0")
    if not head:
        raise ConfigError(f"{source}: is empty")
    if head[:1] not in b"{[":
        names = header(text_of(data))
        lower = {n.lower() for n in names}
        if {"contexttokens", "generatedtokens"} <= lower:
            return "azure-trace"
        if {"request tokens", "response tokens"} <= lower:
            return "burstgpt-trace"
        wanted = {CSV_ALIASES.get(n, n) for n in lower} | set(columns or {})
        if "prompt" in wanted and len(names) >= 1:
            return "csv"
        raise _unknown(source, f"a table with the columns {', '.join(names)[:200]}")
    keys: set[str] = set()
    for _, (_, entry) in zip(range(20), json_entries(data), strict=False):
        if not isinstance(entry, dict):
            continue
        keys |= set(map(str, entry))
        for form, needed in _KEYS.items():
            if any(n <= entry.keys() for n in needed):
                return form
    raise _unknown(source, f"JSON with the keys {', '.join(sorted(keys))[:200]}" if keys else "no JSON object")


_KEYS: Final[dict[Form, tuple[set[str], ...]]] = {
    "humaneval": ({"prompt", "test", "entry_point"},),
    "mt-bench": ({"turns"},),
    "gsm8k": ({"question", "answer"},),
    "sharegpt": ({"conversations"}, {"messages"}),
    "mooncake-trace": ({"timestamp", "input_length", "output_length"},),
}


def _unknown(source: str, found: str) -> ConfigError:
    return ConfigError(
        f"{source}: is none of the forms known here; it has {found}; allowed: {', '.join(FORMS)}",
        hint="Name the form with --form, or a table's column with --column prompt=THEIRS.",
    )


# -- entries to prompts --------------------------------------------------------------------------------------------


def _each(
    entries: Iterable[tuple[int, Any]], read: Callable[[dict[str, Any], int], dict[str, Any]]
) -> Iterator[tuple[int, dict[str, Any] | Problem]]:
    """Each entry as a prompt; what ``read`` refuses, with its reason, as a problem."""
    for line, entry in entries:
        if isinstance(entry, Problem):
            yield line, entry
        elif not isinstance(entry, dict):
            yield line, Problem(line, f"holds {type(entry).__name__}; allowed: an object")
        else:
            try:
                yield line, read(entry, line)
            except Unfit as error:
                yield line, Problem(line, str(error))


def _usable(line: int, prompt: dict[str, Any], first_line: dict[str, int]) -> dict[str, Any] | Problem:
    """The prompt, when it can be asked and its id is new."""
    if (bad := _unstorable(prompt)) is not None:
        return Problem(line, bad)
    if prompt["id"] in first_line:
        return Problem(line, f"id {prompt['id']!r} is that of line {first_line[prompt['id']]}")
    try:
        parse_suite({"name": "one", "prompts": [prompt]}, source="")
    except ConfigError as error:
        reasons = [r.strip(" -") for r in str(error).splitlines()[1:]]
        return Problem(line, "; ".join(reasons) or str(error))
    first_line[prompt["id"]] = line
    return prompt


def _unstorable(value: Any) -> str | None:
    """Why a value can't be kept as text everywhere: NUL, halves of characters, numbers that are none."""
    if isinstance(value, str):
        if "\0" in value:
            return "holds a NUL character"
        if any("\ud800" <= c <= "\udfff" for c in value):
            return "holds half of a character (a lone surrogate)"
    elif isinstance(value, float) and not math.isfinite(value):
        return f"holds {value}, which is no number"
    elif isinstance(value, dict):
        return next((bad for k, v in value.items() if (bad := _unstorable(k) or _unstorable(v))), None)
    elif isinstance(value, list):
        return next((bad for v in value if (bad := _unstorable(v))), None)
    return None


def _with(prompt: dict[str, Any], domain: str | None, language: str | None) -> dict[str, Any]:
    changed = dict(prompt)
    if domain is not None:
        changed["domain"] = domain
    language = language or prompt.get("language") or _language(" ".join(prompt["turns"]))
    return changed if language is None else {**changed, "language": language}


def _language(text: str) -> str | None:
    """``ja`` when a text has kana enough; else nothing is said."""
    letters = sum(c.isalpha() for c in text)
    kana = len(re.findall(r"[ぁ-ゖァ-ヺ]", text))
    return "ja" if letters and kana / letters > 0.15 else None


_TITLES: Final[dict[str, str]] = {
    "mt-bench": "Questions of two turns, in MT-bench's form",
    "humaneval": "Functions to complete, with tests, in HumanEval's form",
    "gsm8k": "Word problems with a number as answer, in GSM8K's form",
    "sharegpt": "Conversations, in ShareGPT's form",
    "csv": "Prompts of a table",
}
_EXTRAS: Final[dict[str, dict[str, Any]]] = {
    "mt-bench": {"params": {"max_tokens": 1024, "temperature": 0}},
    "humaneval": {"params": {"max_tokens": 1024, "temperature": 0}},
    "gsm8k": {"params": {"max_tokens": 512, "temperature": 0}},
    "sharegpt": {"params": {"max_tokens": 512, "temperature": 0}},
    "csv": {"params": {"temperature": 0}},
}


def _needed_text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value.strip():
        raise Unfit(f"{key} is {_kind(entry, key)}; allowed: text")
    return value


def _kind(entry: Mapping[str, Any], key: str) -> str:
    if key not in entry:
        return "missing"
    value = entry[key]
    return "blank" if isinstance(value, str) and not value.strip() else type(value).__name__


def _id(entry: Mapping[str, Any], key: str, line: int) -> str:
    value = entry.get(key)
    if value is None or value == "":
        return f"line-{line}"
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise Unfit(f"{key} is {type(value).__name__}; allowed: text or a whole number")
    return str(value)


def _mt_bench(entry: dict[str, Any], line: int) -> dict[str, Any]:
    turns = entry.get("turns")
    if isinstance(turns, str):
        turns = [turns]
    if not isinstance(turns, list) or not turns or not all(isinstance(t, str) and t.strip() for t in turns):
        raise Unfit(f"turns is {_kind(entry, 'turns')} with something that is no text; allowed: a list of texts")
    reference = entry.get("reference")
    references = [reference] if isinstance(reference, str) else (reference or [])
    if not isinstance(references, list) or not all(r is None or isinstance(r, str | int | float) for r in references):
        raise Unfit("reference holds something that is no text; allowed: a list of texts, one a turn")
    category = entry.get("category")
    others = {k: v for k, v in entry.items() if k not in ("question_id", "turns", "reference")}
    return {
        "id": _id(entry, "question_id", line),
        "domain": DOMAINS.get(str(category).lower(), "general"),
        "turns": turns,
        "reference": [None if r is None or str(r).strip() == "" else str(r) for r in references],
        "metadata": others,
    }


def _humaneval(entry: dict[str, Any], line: int) -> dict[str, Any]:
    prompt, test = _needed_text(entry, "prompt"), _needed_text(entry, "test")
    entry_point = _needed_text(entry, "entry_point")
    solution = entry.get("canonical_solution")
    if not isinstance(solution, str | None):
        raise Unfit(f"canonical_solution is {type(solution).__name__}; allowed: text")
    prefix = prompt if prompt.endswith("\n") else prompt + "\n"
    return {
        "id": _id(entry, "task_id", line),
        "domain": "code",
        "turns": [COMPLETE.format(prefix.lstrip("\n"))],
        "language": "en",
        "reference": [f"```python\n{prompt}{solution}```" if solution else None],
        "checks": [
            {
                "kind": "python",
                "value": f"{test}\n\ncheck({entry_point})\n",
                "options": {"prefix": prompt, "entry_point": entry_point},
            }
        ],
        "metadata": {"entry_point": entry_point},
    }


def _gsm8k(entry: dict[str, Any], line: int) -> dict[str, Any]:
    question, answer = _needed_text(entry, "question"), _needed_text(entry, "answer")
    worked, mark, result = answer.rpartition("####")
    number = result.strip().replace(",", "").lstrip("$").rstrip("%.")
    if not mark or not re.fullmatch(r"-?\d+(?:\.\d+)?(?:/\d+)?", number):
        raise Unfit(f"answer ends in {result.strip()[:40]!r}; allowed: #### and a number")
    plain = re.sub(r"<<[^<>]*>>", "", worked).strip()
    return {
        "id": _id(entry, "id", line),
        "domain": "reasoning",
        "turns": [LAST_LINE.format(question.strip())],
        "reference": [f"{plain}\n#### {number}"],
        "checks": [{"kind": "numeric", "value": number}],
    }


_PEOPLE = ("human", "user")
_MODELS = ("gpt", "assistant", "chatgpt", "bing", "bard", "claude", "model")


def _sharegpt(entry: dict[str, Any], line: int, max_turns: int | None) -> dict[str, Any]:
    said = entry.get("conversations", entry.get("messages"))
    if not isinstance(said, list) or not said:
        raise Unfit("conversations is empty or no list")
    turns: list[str] = []
    answers: list[str | None] = []
    system: str | None = None
    for n, message in enumerate(said, start=1):
        if not isinstance(message, dict):
            raise Unfit(f"message {n} is {type(message).__name__}; allowed: an object")
        who = str(message.get("from", message.get("role", ""))).lower()
        text = message.get("value", message.get("content"))
        if not isinstance(text, str):
            raise Unfit(f"message {n} has {type(text).__name__} for its text")
        if who == "system" and not turns and system is None:
            system = text if text.strip() else None
        elif who in _PEOPLE:
            if len(turns) > len(answers):
                raise Unfit(f"message {n} is a person's behind a person's; allowed: one after the other")
            if max_turns is not None and len(turns) >= max_turns:
                break
            if not text.strip():
                raise Unfit(f"message {n} is blank")
            turns.append(text)
        elif who in _MODELS:
            if len(turns) == len(answers):
                raise Unfit(f"message {n} is an answer to nothing")
            answers.append(text if text.strip() else None)
        else:
            raise Unfit(f"message {n} is from {who[:40]!r}; allowed: {', '.join(('system', *_PEOPLE, *_MODELS))}")
    if not turns:
        raise Unfit("nobody asks anything in it")
    prompt: dict[str, Any] = {
        "id": _id(entry, "id", line),
        "domain": "general",
        "turns": turns,
        "reference": answers,
        "metadata": {k: v for k, v in entry.items() if k not in ("id", "conversations", "messages")},
    }
    return prompt if system is None else {**prompt, "system": system}


def _table(data: bytes, columns: Mapping[str, str], source: str) -> Iterator[tuple[int, dict[str, Any] | Problem]]:
    """Rows by our names of columns."""
    theirs = {n: n for n in header(text_of(data))}
    if missing := [f"{ours}={name}" for ours, name in columns.items() if name not in theirs]:
        raise ConfigError(f"{source}: there is no column for {missing[0]}; allowed: {', '.join(theirs)}")
    if unknown := [ours for ours in columns if ours not in CSV_COLUMNS]:
        raise ConfigError(f"a column {unknown[0]!r} is not known; allowed: {', '.join(CSV_COLUMNS)}")
    ours_of = {name: ours for ours, name in columns.items()}
    for name in theirs:
        lower = CSV_ALIASES.get(name.lower(), name.lower())
        if name not in ours_of and lower in CSV_COLUMNS and lower not in ours_of.values():
            ours_of[name] = lower
    if "prompt" not in ours_of.values():
        raise ConfigError(
            f"{source}: no column is named prompt; found: {', '.join(theirs)}",
            hint="Name it: --column prompt=THEIRS",
        )
    for line, row in table_rows(data, source):
        if isinstance(row, Problem):
            yield line, row
        else:
            yield line, {ours_of.get(k, f"metadata.{k}"): v for k, v in row.items()}


def _csv_row(row: dict[str, Any], line: int) -> dict[str, Any]:
    turns = [row[k] for k in ("prompt", "turn_2", "turn_3") if row.get(k, "").strip()]
    if not row["prompt"].strip():
        raise Unfit("prompt is blank")
    category = row.get("domain", "").strip()
    prompt: dict[str, Any] = {
        "id": row.get("id", "").strip() or f"line-{line}",
        "domain": DOMAINS.get(category.lower(), category.lower().replace(" ", "_") or "general"),
        "turns": turns,
        "metadata": {k.removeprefix("metadata."): v for k, v in row.items() if k.startswith("metadata.") and v},
    }
    if row.get("reference", "").strip():
        prompt["reference"] = [*([None] * (len(turns) - 1)), row["reference"]]
    for key in ("system", "language"):
        if row.get(key, "").strip():
            prompt[key] = row[key].strip()
    kind = row.get("check", "").strip()
    if kind:
        prompt["checks"] = [{"kind": kind, "value": _check_value(kind, row.get("value", ""))}]
    elif row.get("value", "").strip():
        raise Unfit("value is given without check")
    return prompt


def _check_value(kind: str, text: str) -> Any:
    """A check's value from a cell: JSON where the kind needs more than text."""
    if kind in ("json_schema", "tool_call", "length"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Unfit(f"value is no JSON, which {kind} needs: {error}") from None
    return text.strip() if kind in ("numeric", "choice") else text


# -- writing --------------------------------------------------------------------------------------------------------


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes texts of several lines as such."""


_ODD = re.compile("[^\n\t\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
"""What must be escaped: control characters, and the line ends that only YAML takes for such."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if _ODD.search(text) else "|" if "\n" in text and not re.search(r"[ \t]\n|\t", text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def suite_yaml(raw: Mapping[str, Any]) -> str:
    """A suite as the text of its file; reading it gives the same suite."""
    return yaml.dump(_without_empty(dict(raw)), Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=120)


def _without_empty(raw: dict[str, Any]) -> dict[str, Any]:
    """What is empty in a prompt is left out, as it is the default."""
    prompts = [
        {key: value for key, value in prompt.items() if value not in ([], {}, None)} for prompt in raw["prompts"]
    ]
    return {**raw, "prompts": prompts}
