from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_foundry.benchmarks import checks, sandbox
from model_foundry.benchmarks.checks import Answer, CheckResult, run_check, run_checks
from model_foundry.benchmarks.sandbox import SandboxError
from model_foundry.benchmarks.suite import Check, SuitePrompt


def a_check(kind: str, value: Any = None, **options: Any) -> Check:
    check = Check.model_validate({"kind": kind, "value": value, "options": options})
    assert checks.problem(check) is None
    return check


def passes(kind: str, value: Any, text: str, **options: Any) -> bool | None:
    return run_check(a_check(kind, value, **options), Answer(text)).passed


def calls(*pairs: tuple[str, Any]) -> list[dict[str, Any]]:
    return [{"id": "c", "type": "function", "function": {"name": n, "arguments": a}} for n, a in pairs]


def test_exact_ignores_case_emphasis_quotes_and_the_full_stop_unless_it_is_strict() -> None:
    assert passes("exact", "Canberra", " **canberra**.\n")
    assert passes("exact", ["yes", "はい"], "「はい」。")
    assert not passes("exact", "Canberra", "It is Canberra")
    assert not passes("exact", "Canberra", "Canberra.", strict=True)
    assert not passes("exact", "Canberra", "canberra", case=True)


def test_contains_wants_all_or_any_or_none() -> None:
    assert passes("contains", ["red", "Blue"], "blue and RED")
    assert not passes("contains", ["red", "blue"], "only red")
    assert passes("contains", ["red", "blue"], "only red", any=True)
    assert not passes("contains", "cat", "concatenate", word=True)
    assert passes("contains", "cat", "the cat.", word=True)
    assert passes("contains", "don't", "I don’t know")
    assert passes("contains", "ABC", "ＡＢＣ", case=True)
    assert passes("contains", "sorry", "here you are", **{"not": True})
    assert not passes("contains", "sorry", "I'm sorry", **{"not": True})


def test_avoiding_words_by_saying_nothing_is_no_pass() -> None:
    assert not passes("contains", "sorry", "", **{"not": True})
    assert not passes("regex", "sorry", " \n", **{"not": True})


def test_regex_is_searched_for_or_matched_whole() -> None:
    assert passes("regex", r"\d{4}-\d\d-\d\d", "on 2026-12-03.")
    assert not passes("regex", r"\d{4}-\d\d-\d\d", "on 2026-12-03.", full=True)
    assert passes("regex", "^b", "a\nB")
    assert not passes("regex", "^b", "a\nB", case=True)
    assert passes("regex", "a.b", "a\nb", dotall=True)
    assert not passes("regex", "a", "abc", **{"not": True})


def test_a_pattern_that_takes_too_long_is_no_failed_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "REGEX_TIMEOUT_S", 0.05)
    result = run_check(a_check("regex", r"^(?:(?:a|aa)+)+$"), Answer("a" * 5000 + "b"))
    assert result.passed is None
    assert "could not be run" in result.detail


def test_numbers_are_compared_within_a_tolerance() -> None:
    assert passes("numeric", 42, "The answer is 42.")
    assert not passes("numeric", 42, "The answer is 41.")
    assert passes("numeric", 3.14, "about 3.1", tolerance=0.05)
    assert not passes("numeric", 3.14, "about 3.1")
    assert passes("numeric", 1000, "1,010", relative=0.01)
    assert not passes("numeric", 1000, "1,011", relative=0.01)
    assert passes("numeric", 1234.5, "1.234,5 Euro", decimal=",")
    assert passes("numeric", 7, "first 7, then 8", any=True)
    assert not passes("numeric", 7, "no idea")


@pytest.mark.parametrize(
    ("value", "text", "good"),
    [
        ("45%", "45%", True),
        ("45%", "45", True),
        ("45%", "0.45", True),
        ("45%", "0.45%", False),
        (0.45, "45%", True),
        (0.45, "0.45", True),
        (0.45, "0.45%", False),
        (45, "45 %", True),
        (45, "0.45", False),
        ("3/4", "0.75", True),
        ("1/3", "\\frac{1}{3}", True),
        ("1/3", "0.33", False),
        (12000, "1万2千円", True),
    ],
)
def test_percents_and_fractions_mean_what_people_mean(value: Any, text: str, good: bool) -> None:
    assert passes("numeric", value, text) is good


@settings(deadline=None)
@given(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9))
def test_a_number_passes_just_when_it_is_the_expected_one(wanted: int, found: int) -> None:
    assert passes("numeric", wanted, f"The answer is {found:,}.", relative=0) is (wanted == found)


def test_a_choice_is_a_letter_or_what_it_stands_for() -> None:
    assert passes("choice", "B", "The answer is (B).")
    assert not passes("choice", "B", "The answer is (C).")
    assert passes("choice", "E", "E", choices="ABCDE") is not None
    assert passes("choice", "A", "Paris", choices={"A": "Paris", "B": "Rome"})


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def test_json_fits_a_schema_and_a_misfit_is_named() -> None:
    assert passes("json_schema", SCHEMA, '```json\n{"name": "Ada", "age": 36}\n```')
    assert not passes("json_schema", SCHEMA, 'Here: {"name": "Ada", "age": 36}', strict=True)
    wrong = run_check(a_check("json_schema", SCHEMA), Answer('{"name": "Ada", "age": -1}'))
    assert not wrong.passed
    assert "$.age" in wrong.detail
    assert "no JSON" in run_check(a_check("json_schema", SCHEMA), Answer("Ada is 36")).detail


def test_a_schema_is_never_fetched_from_elsewhere() -> None:
    result = run_check(a_check("json_schema", {"$ref": "https://example.org/schema.json"}), Answer("{}"))
    assert result.passed is None
    assert "not in it" in result.detail


def test_generated_code_is_run_with_its_tests() -> None:
    tests = "assert add(2, 2) == 4\nassert add(-1, 1) == 0"
    good = "```python\ndef add(a, b):\n    return a + b\n```"
    assert passes("python", tests, good, entry_point="add")
    assert passes("python", tests, "    return a + b", entry_point="add", prefix="def add(a, b):\n")
    bad = run_check(a_check("python", tests, entry_point="add"), Answer(good.replace("+", "*")))
    assert not bad.passed
    assert "assert add(-1, 1) == 0" in bad.detail
    assert not passes("python", tests, "I can't.", entry_point="add")
    assert "no code" in run_check(a_check("python", tests), Answer("")).detail


def test_an_answer_of_unit_tests_that_pass_by_themselves_is_no_pass() -> None:
    answer = "```python\ndef add(a, b):\n    import os\n    os._exit(0)\n```"
    assert passes("python", "assert add(2, 2) == 4", answer, entry_point="add") is False


def test_a_broken_sandbox_is_no_failed_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise SandboxError("no way to run it")

    monkeypatch.setattr(sandbox, "run_python", broken)
    result = run_check(a_check("python", "assert True"), Answer("```python\nx = 1\n```"))
    assert result == CheckResult("python", None, "could not be run: no way to run it")
    assert checks.passed([result]) is None
    assert checks.score([result, CheckResult("exact", True, "")]) is None


WEATHER = {"name": "get_weather", "arguments": {"city": "Osaka", "days": 3}}


@pytest.mark.parametrize(
    ("arguments", "good"),
    [
        ('{"city": "Osaka", "days": 3}', True),
        ('{"days": 3.0, "city": " osaka "}', True),
        ({"city": "Osaka", "days": "3"}, True),
        ('{"city": "Osaka"}', False),
        ('{"city": "Tokyo", "days": 3}', False),
        ('{"city": "Osaka", "days": 3, "units": "K"}', False),
        ('{"city": "Osaka", "days": 3, "units": null}', True),
        ('{"city": ', False),
        ("[1]", False),
        ("", False),
        (None, False),
    ],
)
def test_a_tool_is_called_with_these_arguments(arguments: Any, good: bool) -> None:
    answer = Answer("", calls(("get_weather", arguments)))
    assert run_check(a_check("tool_call", WEATHER), answer).passed is good


def test_calls_come_in_any_order_and_no_further_one_unless_it_may() -> None:
    two = a_check("tool_call", [WEATHER, {"name": "get_time"}])
    both = calls(("get_time", "{}"), ("get_weather", '{"city": "Osaka", "days": 3}'))
    assert run_check(two, Answer("", both)).passed
    assert not run_check(two, Answer("", both[:1])).passed
    assert not run_check(a_check("tool_call", WEATHER), Answer("", both)).passed
    assert run_check(a_check("tool_call", WEATHER, more=True), Answer("", both)).passed
    none = a_check("tool_call", [])
    assert run_check(none, Answer("I know that", [])).passed
    assert not run_check(none, Answer("", both)).passed


def test_arguments_can_be_described_by_a_schema() -> None:
    schema = {"type": "object", "properties": {"city": {"enum": ["Osaka", "大阪"]}}, "required": ["city"]}
    check = a_check("tool_call", {"name": "get_weather", "schema": schema})
    assert run_check(check, Answer("", calls(("get_weather", '{"city": "大阪"}')))).passed
    assert not run_check(check, Answer("", calls(("get_weather", '{"city": "Kyoto"}')))).passed


def test_a_length_is_within_its_bounds() -> None:
    assert passes("length", {"unit": "sentences", "min": 2, "max": 2}, "One. Two.")
    assert not passes("length", {"unit": "words", "max": 3}, "one two three four")
    assert not passes("length", {"unit": "words", "max": 3}, "")
    assert passes("length", {"unit": "characters", "min": 5, "max": 8}, "今日は雨です。")


def test_checks_belong_to_turns_and_reasoning_does_not_count() -> None:
    prompt = SuitePrompt.model_validate(
        {
            "id": "two",
            "domain": "general",
            "turns": ["first", "second"],
            "checks": [
                {"kind": "contains", "value": "one", "turn": 0},
                {"kind": "contains", "value": "two"},
                {"kind": "contains", "value": "three"},
            ],
        }
    )
    assert [r.passed for r in run_checks(prompt, 0, "one")] == [True]
    results = run_checks(prompt, 1, "<think>two</think>three")
    assert [(r.check, r.passed) for r in results] == [("contains", False), ("contains 2", True)]
    assert checks.passed(results) is False
    assert checks.score(results) == 0.5
    assert checks.passed([]) is None
    assert checks.score([]) is None
    assert checks.passed(results[1:]) is True


@pytest.mark.parametrize(
    ("check", "words"),
    [
        ({"kind": "exact"}, "allowed: text"),
        ({"kind": "contains", "value": []}, "list of texts"),
        ({"kind": "contains", "value": "x", "options": {"cases": True}}, "allowed: any, not, case, word"),
        ({"kind": "contains", "value": "x", "options": {"case": "no"}}, "true or false"),
        ({"kind": "regex", "value": "("}, "no regular expression"),
        ({"kind": "numeric", "value": "many"}, "a number"),
        ({"kind": "numeric", "value": True}, "a number"),
        ({"kind": "numeric", "value": 1, "options": {"tolerance": -1}}, "from 0"),
        ({"kind": "choice", "value": "E"}, "A, B, C, D"),
        ({"kind": "choice", "value": "A", "options": {"choices": "A"}}, "two or more"),
        ({"kind": "json_schema", "value": {"type": "strin"}}, "no JSON Schema"),
        ({"kind": "json_schema", "value": "x"}, "as an object"),
        ({"kind": "python", "value": "assert ("}, "no Python"),
        ({"kind": "python", "value": "x", "options": {"timeout_s": 1000}}, "up to 120"),
        ({"kind": "python", "value": "x", "options": {"entry_point": "a b"}}, "a name of Python"),
        ({"kind": "tool_call", "value": {"nam": "x"}}, "{name, arguments"),
        ({"kind": "tool_call", "value": "x"}, "{name, arguments"),
        ({"kind": "length", "value": {"unit": "pages", "max": 3}}, "words or characters"),
        ({"kind": "length", "value": {"unit": "words"}}, "min, max"),
        ({"kind": "length", "value": {"unit": "words", "min": 5, "max": 3}}, "min up to max"),
    ],
)
def test_a_check_that_makes_no_sense_says_what_is_allowed(check: dict[str, Any], words: str) -> None:
    found = checks.problem(Check.model_validate(check))
    assert found is not None
    assert words in found


@settings(deadline=None)
@given(
    st.text(),
    st.sampled_from(
        [
            ("exact", "x"),
            ("contains", "x"),
            ("regex", "x+"),
            ("numeric", 1),
            ("choice", "A"),
            ("json_schema", SCHEMA),
            ("length", {"unit": "words", "max": 5}),
            ("tool_call", WEATHER),
        ]
    ),
)
def test_no_answer_breaks_a_check_and_every_result_can_be_stored(text: str, kind: tuple[str, Any]) -> None:
    result = run_check(a_check(*kind), Answer(text, calls(("get_weather", text))))
    assert result.passed in (True, False)
    assert json.loads(json.dumps(result.as_json()))["check"] == kind[0]
