"""Whether an answer passes: deterministic checks, one function a kind. Pure but for ``python``, which uses the sandbox.

Belongs here: the kinds, what each takes, reading an answer (numbers, choices, JSON, code). Does not belong here: what a
judge says of it, running code (``sandbox``), finding numbers and letters (``reading``).

A check that fails says what it found. One that can't be run at all (a broken sandbox, a pattern that takes too long)
has ``passed`` None: that says nothing of the answer.
"""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, Final

import jsonschema
import regex
from referencing import Registry
from referencing.exceptions import Unresolvable

from model_foundry.benchmarks import reading, sandbox
from model_foundry.benchmarks.reading import Number
from model_foundry.benchmarks.sandbox import SandboxError, SandboxLimits
from model_foundry.benchmarks.suite import Check, SuitePrompt
from model_foundry.errors import FoundryError

REGEX_TIMEOUT_S = 2.0
"""What one search of a pattern may take."""
DEFAULT_RELATIVE = 1e-9
"""How far from the expected number one is that still counts as the same, where a check says nothing."""
UNITS = ("words", "characters", "sentences", "lines", "paragraphs")
_SHOWN_CHARS = 160
_REGISTRY: Registry[Any] = Registry()
"""Holds nothing and fetches nothing: a schema's references stay within it."""


class CheckCantRun(FoundryError):  # noqa: N818 (says what is so)
    """A check that could not be run; nothing is said about the answer."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check found.

    Attributes:
        check: its kind, with a number where a prompt has several of that kind: ``contains``, ``contains 2``.
        passed: whether the answer passes; None when the check could not be run.
        detail: in words, for people; of a failed check what was found and what was expected.
    """

    check: str
    passed: bool | None
    detail: str

    def as_json(self) -> dict[str, Any]:
        """As it stands in the lake."""
        return {"check": self.check, "passed": self.passed, "detail": self.detail}


@dataclass(frozen=True, slots=True)
class Answer:
    """What is checked.

    Attributes:
        text: without reasoning.
        tool_calls: as OpenAI writes whole ones: ``{"function": {"name", "arguments"}}``, arguments as text.
    """

    text: str
    tool_calls: Sequence[Mapping[str, Any]] = ()


def run_checks(
    prompt: SuitePrompt, turn: int, text: str, tool_calls: Sequence[Mapping[str, Any]] = ()
) -> list[CheckResult]:
    """Every check of one turn's answer, in the prompt's order. Empty when the turn has none.

    Args:
        prompt: asked.
        turn: from 0.
        text: the answer; reasoning within tags is left out.
        tool_calls: as OpenAI writes whole ones.

    With a check of the kind ``python`` this takes up to its time limit, so call it in a thread.
    """
    answer = Answer(reading.without_reasoning(text), tool_calls)
    results, seen = [], dict.fromkeys(_KINDS, 0)
    for check in prompt.checks_of(turn):
        seen[check.kind] += 1
        name = check.kind if seen[check.kind] == 1 else f"{check.kind} {seen[check.kind]}"
        results.append(run_check(check, answer, name=name))
    return results


def run_check(check: Check, answer: Answer, *, name: str | None = None) -> CheckResult:
    """One check of one answer."""
    try:
        passed, detail = _KINDS[check.kind].run(check, answer)
    except (SandboxError, CheckCantRun) as error:
        return CheckResult(name or check.kind, None, f"could not be run: {error}")
    return CheckResult(name or check.kind, passed, detail)


def passed(results: Sequence[CheckResult]) -> bool | None:
    """Whether all checks passed: False when one failed; None when there are none, or one could not be run."""
    if any(r.passed is False for r in results):
        return False
    return None if not results or any(r.passed is None for r in results) else True


def score(results: Sequence[CheckResult]) -> float | None:
    """The share of checks passed, 0 to 1; None when there are none, or one could not be run."""
    if not results or any(r.passed is None for r in results):
        return None
    return sum(r.passed is True for r in results) / len(results)


def problem(check: Check) -> str | None:
    """What is wrong with a check itself, with what is allowed; None when it can be run."""
    kind = _KINDS[check.kind]
    if unknown := sorted(set(check.options) - set(kind.options)):
        allowed = ", ".join(kind.options) or "none"
        return f"{check.kind} has the option {unknown[0]!r}; allowed: {allowed}"
    for option, value in check.options.items():
        if (wrong := _OPTIONS[option](value)) is not None:
            return f"{check.kind}: option {option} is {_shown(value)}; allowed: {wrong}"
    found = kind.problem(check)
    return None if found is None else f"{check.kind}: {found}"


# -- texts ----------------------------------------------------------------------------------------------------------


def _exact(check: Check, answer: Answer) -> tuple[bool, str]:
    """The whole answer is one of the values, spaces around and Unicode forms aside."""
    values = _texts(check.value)
    normal = partial(reading.normal, fold=not check.options.get("case", False))
    found = normal(answer.text)
    bare: Callable[[str], str] = str if check.options.get("strict", False) else reading.bare
    if any(bare(found) == bare(normal(v)) for v in values):
        return True, f"is {_shown(found)}"
    return False, f"is {_shown(answer.text.strip())}; expected {_either(values)}"


def _contains(check: Check, answer: Answer) -> tuple[bool, str]:
    """All values stand in the answer (``any``: one of them; ``not``: none of them; ``word``: as whole words)."""
    values = _texts(check.value)
    fold = not check.options.get("case", False)
    text = reading.normal(answer.text, fold=fold)
    word = check.options.get("word", False)
    there = [v for v in values if reading.has(text, reading.normal(v, fold=fold), word=word)]
    missing = [v for v in values if v not in there]
    if check.options.get("not", False):
        has_text = bool(text)  # an empty answer avoids every word, and is no good one
        return has_text and not there, (
            f"holds {_either(there)}" if there else "holds none of them" if has_text else "the answer is empty"
        )
    if check.options.get("any", False):
        return bool(there), f"holds {_either(there)}" if there else f"holds none of {_either(values)}"
    return not missing, f"lacks {_all(missing)}" if missing else f"holds {_all(there)}"


def _regex(check: Check, answer: Answer) -> tuple[bool, str]:
    """The pattern is found (``full``: matches the whole answer; ``not``: is not found)."""
    pattern = _compiled(check)
    text = answer.text.strip()
    search = pattern.fullmatch if check.options.get("full", False) else pattern.search
    try:
        match = search(text, timeout=REGEX_TIMEOUT_S)
    except TimeoutError:
        raise CheckCantRun(f"the pattern took more than {REGEX_TIMEOUT_S:g} s: {_shown(check.value)}") from None
    if check.options.get("not", False):
        return bool(text) and match is None, f"found {_shown(match[0])}" if match else "not found"
    return match is not None, f"found {_shown(match[0])}" if match else f"nothing matches {_shown(check.value)}"


def _compiled(check: Check) -> regex.Pattern[str]:
    flags = regex.V0 | (0 if check.options.get("case", False) else regex.IGNORECASE) | regex.MULTILINE
    return regex.compile(check.value, flags | (regex.DOTALL if check.options.get("dotall", False) else 0))


def _length(check: Check, answer: Answer) -> tuple[bool, str]:
    """So many words, characters, sentences, lines or paragraphs, from ``min`` to ``max``."""
    unit = check.value["unit"]
    low, high = check.value.get("min", 1), check.value.get("max", math.inf)
    n = reading.count(answer.text, unit)
    allowed = f"{low} to {high}" if high is not math.inf else f"at least {low}"
    return low <= n <= high, f"{n} {unit}; allowed: {allowed}"


# -- values ---------------------------------------------------------------------------------------------------------


def _numeric(check: Check, answer: Answer) -> tuple[bool, str]:
    """The answer's number is the value (``any``: any of its numbers), within ``tolerance`` or ``relative``."""
    expected = _number(check.value)
    decimal = check.options.get("decimal", ".")
    if check.options.get("any", False):
        found = reading.numbers(answer.text, decimal=decimal)
    else:
        final = reading.final_number(answer.text, decimal=decimal)
        found = [] if final is None else [final]
    if not found:
        return False, f"no number; expected {check.value}"
    near = [n for n in found if _is_near(n, expected, check)]
    shown = ", ".join(n.text for n in (near or found)[:5])
    return bool(near), f"found {shown}; expected {check.value}"


def _is_near(found: Number, expected: Number, check: Check) -> bool:
    """Whether they are the same. A percent sign says a hundredth, or is a unit; which one, the expected value tells."""
    margin = Fraction(check.options["tolerance"]) if "tolerance" in check.options else None
    wanted = expected.value
    if expected.is_percent:  # 45 %: "45 %", "45" and "0.45" are meant
        pairs = [(found.value, wanted)] + ([] if found.is_percent else [(found.value * 100, wanted)])
    elif found.is_percent:
        pairs = [(found.value / 100, wanted)] + ([(found.value, wanted)] if abs(wanted) >= 1 else [])
    else:
        pairs = [(found.value, wanted)]
    relative = Fraction(check.options.get("relative", 0 if margin is not None else DEFAULT_RELATIVE))
    return any(abs(a - b) <= max(margin or 0, relative * abs(b)) for a, b in pairs)


def _choice(check: Check, answer: Answer) -> tuple[bool, str]:
    """The letter that the answer chooses is the value. ``choices``: the letters, or letter: what it stands for."""
    choices = _choices(check)
    found = reading.choice(answer.text, choices)
    if found is None:
        return False, f"no choice of {', '.join(choices)}; expected {check.value}"
    return found == str(check.value).upper(), f"chose {found}; expected {check.value}"


def _choices(check: Check) -> dict[str, str | None]:
    choices = check.options.get("choices", "ABCD")
    if isinstance(choices, dict):
        return {str(k).upper(): str(v) for k, v in choices.items()}
    return dict.fromkeys(str(c).upper() for c in choices)


def _json_schema(check: Check, answer: Answer) -> tuple[bool, str]:
    """The answer's JSON fits the schema (``strict``: the whole answer is JSON, with nothing around it)."""
    try:
        value = reading.json_value(answer.text, strict=check.options.get("strict", False))
    except ValueError as error:
        return False, f"no JSON: {error}"
    wrong = schema_problem(check.value, value)
    return wrong is None, wrong or "fits the schema"


def schema_problem(schema: Any, value: Any) -> str | None:
    """Where a value does not fit a JSON Schema, and why; None when it fits.

    Raises:
        CheckCantRun: when the schema refers to what is not in it.
    """
    validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        error = jsonschema.exceptions.best_match(validator(schema, registry=_REGISTRY).iter_errors(value))
    except RecursionError:
        return "it is nested too deep"
    except Unresolvable as unknown:
        raise CheckCantRun(f"the schema refers to what is not in it: {unknown}") from None
    if error is None:
        return None
    return f"at {error.json_path}: {_cut(error.message)}"


# -- code and tools -------------------------------------------------------------------------------------------------


def _python(check: Check, answer: Answer) -> tuple[bool, str]:
    """The answer's code passes the tests. ``prefix``: the code that the answer goes on with."""
    options = check.options
    programs = reading.programs(answer.text, prefix=options.get("prefix", ""), entry_point=options.get("entry_point"))
    if not programs:
        return False, "the answer holds no code"
    limits = SandboxLimits()
    limits = replace(
        limits,
        wall_s=float(options.get("timeout_s", limits.wall_s)),
        memory_bytes=int(options["memory_mb"]) * 2**20 if "memory_mb" in options else limits.memory_bytes,
    )
    outcome = sandbox.run_python(programs, check.value, entry_point=options.get("entry_point"), limits=limits)
    return outcome.passed, _cut(outcome.detail, 500)


def _tool_call(check: Check, answer: Answer) -> tuple[bool, str]:
    """Every expected call is among the answer's, in any order, and no other (``more``: others may be)."""
    expected = [check.value] if isinstance(check.value, dict) else list(check.value)
    calls, broken = _calls(answer.tool_calls)
    if broken is not None:
        return False, broken
    if not expected:
        return not calls, f"calls {_names(calls)}; expected none" if calls else "calls none"
    left, reasons = list(calls), []
    for want in expected:
        wrong = {n: _call_problem(want, call) for n, call in enumerate(left)}
        fit = next((n for n, reason in wrong.items() if reason is None), None)
        if fit is None:
            near = [r for n, r in wrong.items() if r is not None and left[n][0] == want["name"]]
            reasons.append(near[0] if near else f"calls {_names(left)}; expected {want['name']}")
        else:
            del left[fit]
    if reasons:
        return False, "; ".join(reasons)
    if left and not check.options.get("more", False):
        return False, f"also calls {_names(left)}"
    return True, f"calls {_names(calls)}"


def _calls(raw: Sequence[Mapping[str, Any]]) -> tuple[list[tuple[str, dict[str, Any]]], str | None]:
    calls = []
    for call in raw:
        function = call.get("function")
        function = function if isinstance(function, Mapping) else call
        name, arguments = str(function.get("name") or ""), function.get("arguments")
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments) if arguments.strip() else {}
            except (ValueError, RecursionError):
                return [], f"the arguments of {name} are no JSON: {_shown(arguments)}"
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, dict):
            return [], f"the arguments of {name} are no object: {_shown(arguments)}"
        calls.append((name, arguments))
    return calls, None


def _call_problem(want: Mapping[str, Any], call: tuple[str, dict[str, Any]]) -> str | None:
    name, arguments = call
    if name != want["name"]:
        return f"calls {name}; expected {want['name']}"
    if "schema" in want and (wrong := schema_problem(want["schema"], arguments)) is not None:
        return f"{name}, {wrong}"
    for key, value in want.get("arguments", {}).items():
        if key not in arguments:
            return f"{name} lacks the argument {key}"
        if not _same(arguments[key], value):
            return f"{name}: {key} is {_shown(arguments[key])}; expected {_shown(value)}"
    if "arguments" in want and "schema" not in want:
        others = [k for k, v in arguments.items() if k not in want["arguments"] and v is not None]
        if others and not want.get("others", False):
            return f"{name} has the argument {others[0]}, which was not asked for"
    return None


def _same(found: Any, wanted: Any) -> bool:
    """Equal; texts without case and spaces around, a number also when it is written as text."""
    if isinstance(wanted, dict):
        return (
            isinstance(found, dict)
            and found.keys() == wanted.keys()
            and all(_same(found[k], wanted[k]) for k in wanted)
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(_same, found, wanted))
    if isinstance(wanted, bool) or isinstance(found, bool) or wanted is None:
        return found is wanted
    if isinstance(wanted, int | float):
        try:
            return isinstance(found, int | float | str) and math.isclose(float(found), wanted, rel_tol=1e-9)
        except (ValueError, OverflowError):
            return False
    return isinstance(found, str) and reading.normal(found) == reading.normal(wanted)


# -- what a check may be ---------------------------------------------------------------------------------------------


def _is_bool(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def _is_amount(value: Any) -> str | None:
    fits = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    return None if fits else "a number from 0"


def _is_seconds(value: Any) -> str | None:
    return None if _is_amount(value) is None and 0 < value <= 120 else "seconds, above 0 and up to 120"


def _is_memory(value: Any) -> str | None:
    return None if isinstance(value, int) and 64 <= value <= 8192 else "a whole number of MiB from 64 to 8192"


def _is_text(value: Any) -> str | None:
    return None if isinstance(value, str) and value else "text"


def _is_decimal(value: Any) -> str | None:
    return None if value in (".", ",") else "'.' or ','"


def _are_choices(value: Any) -> str | None:
    keys = list(value) if isinstance(value, str | list | dict) else []
    fits = len(keys) >= 2 and all(isinstance(k, str) and len(k) == 1 and k.isalnum() for k in keys)
    return None if fits and len({k.upper() for k in keys}) == len(keys) else "two or more letters, such as ABCD"


_OPTIONS: Final[dict[str, Callable[[Any], str | None]]] = {
    "case": _is_bool,
    "strict": _is_bool,
    "any": _is_bool,
    "not": _is_bool,
    "word": _is_bool,
    "full": _is_bool,
    "dotall": _is_bool,
    "more": _is_bool,
    "tolerance": _is_amount,
    "relative": _is_amount,
    "decimal": _is_decimal,
    "choices": _are_choices,
    "prefix": _is_text,
    "entry_point": lambda v: None if isinstance(v, str) and v.isidentifier() else "a name of Python",
    "timeout_s": _is_seconds,
    "memory_mb": _is_memory,
}


def _texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _texts_problem(check: Check) -> str | None:
    values = [check.value] if isinstance(check.value, str) else check.value
    fits = isinstance(values, list) and values and all(isinstance(v, str) and v.strip() for v in values)
    return None if fits else f"value is {_shown(check.value)}; allowed: text, or a list of texts"


def _regex_problem(check: Check) -> str | None:
    if not isinstance(check.value, str) or not check.value:
        return f"value is {_shown(check.value)}; allowed: a regular expression"
    try:
        _compiled(check)
    except regex.error as error:
        return f"value {_shown(check.value)} is no regular expression: {error}"
    return None


def _number(value: Any) -> Number:
    return reading.numbers(str(value))[0]


def _numeric_problem(check: Check) -> str | None:
    is_number = isinstance(check.value, int | float) and not isinstance(check.value, bool)
    if is_number or (isinstance(check.value, str) and len(reading.numbers(check.value)) == 1):
        return None
    return f"value is {_shown(check.value)}; allowed: a number, also as text such as '3/4' or '45%'"


def _choice_problem(check: Check) -> str | None:
    choices = _choices(check)
    fits = isinstance(check.value, str | int) and str(check.value).upper() in choices
    return None if fits else f"value is {_shown(check.value)}; allowed: {', '.join(choices)}"


def _schema_problem(schema: Any) -> str | None:
    if not isinstance(schema, dict):
        return f"is {_shown(schema)}; allowed: a JSON Schema, as an object"
    try:
        jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator).check_schema(schema)
    except jsonschema.exceptions.SchemaError as error:
        return f"is no JSON Schema: at {error.json_path}: {_cut(error.message)}"
    return None


def _json_schema_problem(check: Check) -> str | None:
    found = _schema_problem(check.value)
    return None if found is None else f"value {found}"


def _python_problem(check: Check) -> str | None:
    if not isinstance(check.value, str) or not check.value.strip():
        return f"value is {_shown(check.value)}; allowed: tests in Python, which raise when the answer is wrong"
    try:
        compile(check.value, "<tests>", "exec")
    except (SyntaxError, ValueError) as error:
        return f"value is no Python: {error}"
    return None


def _tool_call_problem(check: Check) -> str | None:
    allowed = "{name, arguments, schema, others}, or a list of such; an empty list: no call"
    wanted = [check.value] if isinstance(check.value, dict) else check.value
    if not isinstance(wanted, list):
        return f"value is {_shown(check.value)}; allowed: {allowed}"
    for want in wanted:
        keys = set(want) if isinstance(want, dict) else set()
        fits = keys and keys <= {"name", "arguments", "schema", "others"} and _is_text(want.get("name")) is None
        if (
            not fits
            or not isinstance(want.get("arguments", {}), dict)
            or not isinstance(want.get("others", False), bool)
        ):
            return f"value has {_shown(want)}; allowed: {allowed}"
        if "schema" in want and (found := _schema_problem(want["schema"])) is not None:
            return f"schema of {want['name']} {found}"
    return None


def _length_problem(check: Check) -> str | None:
    allowed = f"{{unit: {' or '.join(UNITS)}, min, max}}, whole numbers from 0, min up to max"
    value = check.value
    if not isinstance(value, dict) or not value.keys() <= {"unit", "min", "max"} or value.get("unit") not in UNITS:
        return f"value is {_shown(value)}; allowed: {allowed}"
    low, high = value.get("min", 1), value.get("max", math.inf)
    fits = all(isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in (low, high) if v is not math.inf)
    return None if fits and low <= high and len(value) > 1 else f"value is {_shown(value)}; allowed: {allowed}"


@dataclass(frozen=True, slots=True)
class _Kind:
    run: Callable[[Check, Answer], tuple[bool, str]]
    problem: Callable[[Check], str | None]
    options: tuple[str, ...] = ()


_KINDS: Final[dict[str, _Kind]] = {
    "exact": _Kind(_exact, _texts_problem, ("case", "strict")),
    "contains": _Kind(_contains, _texts_problem, ("any", "not", "case", "word")),
    "regex": _Kind(_regex, _regex_problem, ("not", "case", "full", "dotall")),
    "numeric": _Kind(_numeric, _numeric_problem, ("tolerance", "relative", "any", "decimal")),
    "choice": _Kind(_choice, _choice_problem, ("choices",)),
    "json_schema": _Kind(_json_schema, _json_schema_problem, ("strict",)),
    "python": _Kind(_python, _python_problem, ("prefix", "entry_point", "timeout_s", "memory_mb")),
    "tool_call": _Kind(_tool_call, _tool_call_problem, ("more",)),
    "length": _Kind(_length, _length_problem),
}


def _names(calls: Sequence[tuple[str, Any]]) -> str:
    return ", ".join(name for name, _ in calls) or "nothing"


def _all(values: Sequence[str]) -> str:
    return ", ".join(_shown(v) for v in values[:5]) + (" …" if len(values) > 5 else "")


def _either(values: Sequence[str]) -> str:
    return " or ".join(_shown(v) for v in values[:5]) + (" …" if len(values) > 5 else "")


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return f'"{_cut(value)}"'
    return _cut(json.dumps(value, ensure_ascii=False, default=str))


def _cut(text: str, most: int = _SHOWN_CHARS) -> str:
    return textwrap.shorten(text, most, placeholder=" …") if len(text) > most and " " in text[:most] else text[:most]
