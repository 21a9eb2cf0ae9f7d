"""The shipped suites: every good answer passes, garbage fails, and what was computed is computed again."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from datetime import date, timedelta
from fractions import Fraction
from hashlib import sha256
from typing import Any

import pytest

from model_foundry.benchmarks import checks
from model_foundry.benchmarks.library import SHIPPED, read_suite
from model_foundry.benchmarks.suite import Suite, SuitePrompt
from model_foundry.benchmarks.texts import filler, ledger, ledger_rows, nisshi, report

DOMAINS = {"code", "japanese", "general", "reasoning", "translation", "summarizing", "tools", "long_context"}
SUITES = {file.stem: read_suite(file) for file in sorted(SHIPPED.glob("*.yaml"))}
GARBAGE = ("", "\n", "asdf qwer zxcv", "…", "I'm sorry, but I can't help with that.", "私にはわかりません")
A_REFUSAL_IS_RIGHT = {"not-known"}


def prompts() -> Iterator[Any]:
    for suite in SUITES.values():
        for prompt in suite.prompts:
            yield pytest.param(suite, prompt, id=f"{suite.name}-{prompt.id}")


def good_calls(prompt: SuitePrompt) -> list[dict[str, Any]]:
    return [
        {"function": {"name": call["name"], "arguments": json.dumps(call["arguments"])}}
        for call in prompt.metadata.get("good_calls", [])
    ]


def prompt_of(name: str, identity: str) -> SuitePrompt:
    return next(p for p in SUITES[name].prompts if p.id == identity)


def expected(name: str, identity: str, n: int = 0) -> Any:
    return prompt_of(name, identity).checks[n].value


def test_there_is_a_suite_of_about_fifteen_prompts_for_each_domain() -> None:
    assert set(SUITES) == DOMAINS
    for name, suite in SUITES.items():
        assert 15 <= len(suite.prompts) <= 18
        assert {p.domain for p in suite.prompts} == {name}
        assert suite.title
        assert suite.description
        assert suite.license == "Apache-2.0"
        assert suite.params["max_tokens"]


@pytest.mark.parametrize(("suite", "prompt"), prompts())
def test_a_good_answer_passes_and_garbage_fails(suite: Suite, prompt: SuitePrompt) -> None:
    assert prompt.checks or any(prompt.reference)
    last = len(prompt.turns) - 1
    for turn in range(len(prompt.turns)):
        if not prompt.checks_of(turn):
            assert prompt.reference_of(turn)
            continue
        calls = good_calls(prompt) if turn == last else []
        good = checks.run_checks(prompt, turn, prompt.reference_of(turn) or "", calls)
        assert checks.passed(good) is True, [r for r in good if not r.passed]
        if any(check.kind == "python" for check in prompt.checks_of(turn)):
            wrong = GARBAGE[:1]  # each takes a process
        else:
            wrong = GARBAGE[:4] if prompt.id in A_REFUSAL_IS_RIGHT else GARBAGE
        for text in wrong:
            assert checks.passed(checks.run_checks(prompt, turn, text)) is False, text


@pytest.mark.parametrize("n", range(5))
def test_code_that_does_nothing_or_leaves_early_fails_every_test_of_the_code_suite(n: int) -> None:
    for prompt in SUITES["code"].prompts[n::5]:
        [check] = [c for c in prompt.checks if c.kind == "python"]
        name = check.options["entry_point"]
        answer = f"```python\nimport os\ndef {name}(*args):\n    os._exit(0)\n```"
        assert checks.run_check(check, checks.Answer(answer)).passed is False, prompt.id


def test_the_shipped_files_are_small_and_end_in_yaml() -> None:
    assert all(file.suffix == ".yaml" for file in SHIPPED.iterdir())
    assert sum(file.stat().st_size for file in SHIPPED.iterdir()) < 150_000


# -- computed again --------------------------------------------------------------------------------------------------


def test_the_answers_of_the_reasoning_suite_are_right() -> None:
    van_at = lambda minutes: 80 * minutes / 60  # noqa: E731
    catching = next(m for m in range(30, 600) if 100 * (m - 30) / 60 >= van_at(m))
    assert expected("reasoning", "catching-up") == catching
    assert Fraction(str(expected("reasoning", "discount-and-tax"))) == Fraction(240) * Fraction(85, 100) * Fraction(
        11, 10
    )
    assert expected("reasoning", "fewer-workers") == 6 * 8 / 4
    eights = sum(a + b == 8 for a, b in itertools.product(range(1, 7), repeat=2))
    assert Fraction(expected("reasoning", "two-dice")) == Fraction(eights, 36)
    a_wednesday = date(2026, 12, 2)
    assert expected("reasoning", "weekday") == f"{a_wednesday + timedelta(days=100):%A}"
    assert [expected("reasoning", "ages")] == [3 * s for s in range(1, 100) if 3 * s + 12 == 2 * (s + 12)]
    assert expected("reasoning", "sequence") == [n * (n + 1) for n in range(1, 7)][-1]
    assert expected("reasoning", "clock") == abs((3 * 30 + 40 * 0.5) - 40 * 6)
    pairs = [(a, b) for a, b in itertools.combinations(range(12), 2) if a // 2 != b // 2]
    assert expected("reasoning", "handshakes") == len(pairs)
    assert expected("reasoning", "path") == (18 + 3) * (12 + 3) - 18 * 12
    assert expected("reasoning", "tank") == 1 / (Fraction(1, 4) + Fraction(1, 6) - Fraction(1, 12))
    assert expected("reasoning", "divisible") == sum((n % 3 == 0) != (n % 5 == 0) for n in range(1, 501))
    worlds = [(a, b) for a, b in itertools.product([True, False], repeat=2) if a == (not a and not b)]  # True: a knight
    assert worlds == [(False, True)]
    assert expected("reasoning", "knights") == "D"


def test_the_answers_about_the_ledgers_are_right() -> None:
    short, long = ledger_rows(130, 11), ledger_rows(260, 12)
    assert expected("long_context", "ledger-lookup") == short[86]["crates"]
    assert expected("long_context", "ledger-count") == sum(r["ship"] == "Bittern" for r in short)
    assert expected("long_context", "ledger-largest") == {"const": [r["number"] for r in short if r["crates"] == 96]}
    assert [expected("long_context", "ledger-day")] == [r["goods"] for r in short if r["day"] == 45]
    tea = sum(r["crates"] for r in short if r["goods"] == "tea" and r["quay"] == "north")
    assert expected("long_context", "ledger-sum") == tea
    assert not [r for r in short if r["ship"] == "Kestrel"]
    assert expected("long_context", "ledger-last") == [r for r in long if r["ship"] == "Ibis"][-1]["goods"]
    wanted = {"ship": "Bittern", "crates": 76, "goods": "roof tiles", "firm": "Dubois Frères"}
    assert [expected("long_context", "ledger-reverse")] == [r["number"] for r in long if wanted.items() <= r.items()]


def test_the_answers_about_the_other_long_texts_are_right() -> None:
    def text(identity: str) -> str:
        return prompt_of("long_context", identity).turns[0].rpartition("\n\n")[0]

    assert text("nisshi-kaisuu").count("佐藤さん") == expected("long_context", "nisshi-kaisuu")
    assert "佐藤" not in nisshi(500, 1)
    order = [text("order").index(part) for part in ("lamp in the north", "well was found", "bell cracked")]
    assert order == sorted(order)
    report = text("changed-fact")
    assert report.index("Tuesday") < report.index("Friday")
    assert report.count("4719") == 1
    assert "18,400" in text("roof-then-quarter")
    assert expected("long_context", "roof-then-quarter", 1) == 18400 / 4
    for identity in ("three-guests", "order"):
        for needle in ("Amira", "Bengt", "Chiara"):
            assert text(identity).count(needle) == 1


def test_long_texts_are_several_thousand_tokens_long() -> None:
    for prompt in SUITES["long_context"].prompts:
        words = len(re.findall(r"\w+", prompt.turns[0]))
        assert words > 2000 or len(prompt.turns[0]) > 2500  # Japanese: about two tokens a character here
    assert len({p.turns[0] for p in SUITES["long_context"].prompts}) == len(SUITES["long_context"].prompts)


def test_generated_texts_never_change() -> None:
    """Answers were computed for such texts, and results of other days compared by them."""
    texts = "\n".join((ledger(50, 1), report(50, 2), nisshi(50, 3), filler(50, 4)))
    assert sha256(texts.encode()).hexdigest()[:16] == "c62f35184e5f2ff9"
