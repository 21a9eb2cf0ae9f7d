from __future__ import annotations

import contextlib
import json
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from model_foundry.benchmarks import reading
from model_foundry.benchmarks.sandbox_child import choose

LETTERS: dict[str, str | None] = dict.fromkeys("ABCD")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("The answer is 42.", 42),
        ("So 3 + 4 = 7.\n#### 1,234", 1234),
        ("#### 18\n\nI hope this helps with question 3.", 18),
        (r"Thus \boxed{\frac{3}{4}} of 8", Fraction(3, 4)),
        (r"\(\boxed{x = 72}\)", 72),
        (r"\boxed{\text{about } 1{,}250}", 1250),
        ("答えは１２個です。全部で３種類あります。", 12),
        ("約3万5千円", 35000),
        ("1億2000万人", 120_000_000),
        ("12.5万", 125_000),
        ("step 3. The answer is **$1,250.50** since there are 5", Fraction("1250.5")),
        ("Answer: 3 apples + 4 apples = 7 apples", 7),
        ("x = −12", -12),
        ("between 3-5", 5),
        ("½ cup", Fraction(1, 2)),
        ("1 3/4 cups", Fraction(7, 4)),
        ("1.5e3", 1500),
        ("2 × 10^6", 2_000_000),
        (r"3 \times 10^{8} m/s", 300_000_000),
        ("10^6", 1_000_000),
        ("45 %", 45),
        ("Swiss: 1'234'567", 1_234_567),
        ("Die Antwort lautet 17", 17),
        ("Final answer: 5 days (not 7)", 5),
        ("The answer is 7 (since 3 + 4 = 7)", 7),
        (".5", Fraction(1, 2)),
    ],
)
def test_the_number_that_an_answer_ends_on_is_found(text: str, value: int | Fraction) -> None:
    found = reading.final_number(text)
    assert found is not None
    assert found.value == value


@pytest.mark.parametrize("text", ["", "three", "1e999999999", "0/0", "a1b2c", "9" * 5000])
def test_what_is_no_number_is_none(text: str) -> None:
    found = reading.final_number(text)
    assert found is None or text == "a1b2c"


def test_a_comma_can_be_the_decimal_mark() -> None:
    assert [n.value for n in reading.numbers("1.234,5 und 3,14", decimal=",")] == [Fraction("1234.5"), Fraction("3.14")]


@settings(deadline=None)
@given(
    st.integers(-(10**12), 10**12), st.sampled_from(["{}", "{:,}", "It is {:,}.", "**{}**", "$x = {}$", "#### {:,}"])
)
def test_every_integer_is_read_as_it_is_written(value: int, form: str) -> None:
    found = reading.final_number(form.format(value))
    assert found is not None
    assert found.value == value


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_every_fraction_is_read_as_it_is_written(over: int, under: int) -> None:
    for form in (f"{over}/{under}", f"\\frac{{{over}}}{{{under}}}", f"\\boxed{{{over}/{under}}}"):
        found = reading.final_number(form)
        assert found is not None
        assert found.value == Fraction(over, under)


@settings(deadline=None)
@given(st.decimals(0, 10**9, places=3))
def test_full_width_digits_are_digits(value: object) -> None:
    text = str(value)
    wide = text.translate({ord(c): ord(c) + 0xFEE0 for c in "0123456789."})
    assert [n.value for n in reading.numbers(wide)] == [Fraction(text)]


@settings(deadline=None)
@given(st.text())
@example("\\boxed{" * 50)
@example("(" * 500 + "a")
@example("1 " * 500)
@example("answer is " * 200)
@example("```" * 100)
@example("<think>" * 100)
@example("{[" * 300)
def test_no_text_breaks_the_reading(text: str) -> None:
    reading.final_number(text)
    reading.numbers(text, decimal=",")
    reading.choice(text, LETTERS)
    reading.without_reasoning(text)
    reading.fenced(text)
    reading.programs(text, prefix="def f():\n", entry_point="f")
    for unit in ("words", "characters", "sentences", "lines", "paragraphs"):
        assert reading.count(text, unit) >= 0
    with contextlib.suppress(ValueError):
        reading.json_value(text)


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B", "B"),
        ("b", "B"),
        ("(B)", "B"),
        ("B) Paris", "B"),
        ("B. Paris", "B"),
        ("The answer is B.", "B"),
        ("**Answer: C**", "C"),
        ("Answer: (d)", "D"),
        ("A good question, I think. The answer is D", "D"),
        ("I think C is correct", "C"),
        (r"\boxed{A}", "A"),
        (r"$\boxed{\text{B}}$", "B"),
        ("答えはCです", "C"),
        ("正解：Ｂ", "B"),
        ("選択肢Dが正しいです", "D"),
        ("Let me think.\n\nB", "B"),
        ("Option B is right, not A", "B"),
        ("A. Paris\nB. Rome\n\nAnswer: B", "B"),
        ("A dog is not a cat", None),
        ("Neither B nor C", None),
        ("none of them", None),
        ("A) Paris\nB) Rome\nC) Oslo\nD) Bern", None),
        ("A) Paris\nB) Rome\n\nB", "B"),
        ("c) it is Oslo, since\nParis is not", "C"),
        ("", None),
    ],
)
def test_the_letter_that_an_answer_chooses_is_found(text: str, letter: str | None) -> None:
    assert reading.choice(text, LETTERS) == letter


def test_a_choice_can_be_given_by_what_it_stands_for() -> None:
    choices: dict[str, str | None] = {"A": "Paris", "B": "Rome"}
    assert reading.choice("It is Paris, of course", choices) == "A"
    assert reading.choice("Paris or Rome", choices) is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>two\nlines</think>\n42", "\n42"),
        ("of course</think>42", "42"),
        ("<think>never done", ""),
        ("a <thinking>b</thinking> c", "a  c"),
        ("<think>a</think>x\n<think>cut", "x"),
        ("the `<think>` tag", "the `<think>` tag"),
        ("plain", "plain"),
    ],
)
def test_reasoning_is_left_out(text: str, answer: str) -> None:
    assert reading.without_reasoning(text) == answer


@settings(deadline=None)
@given(st.text(alphabet="ab <>/\n"), st.text(alphabet="ab \n"))
def test_what_stands_after_the_reasoning_stays(thought: str, answer: str) -> None:
    assert reading.without_reasoning(f"<think>{thought}</think>{answer}") == answer


@pytest.mark.parametrize(
    ("text", "unit", "n"),
    [
        ("One two  three.", "words", 3),
        ("- one\n- two", "words", 2),
        ("One. Two! Three?", "sentences", 3),
        ("Dr. Smith paid 3.50 dollars, e.g. in cash. Then he left.", "sentences", 2),
        ("今日は雨です。明日は晴れるでしょう。", "sentences", 2),
        ("今日は 雨です。", "characters", 7),
        ("ab  cd", "characters", 5),
        ("a\n\nb\nc", "lines", 3),
        ("a\nb\n\nc", "paragraphs", 2),
        ("", "sentences", 0),
        ("no stop at the end", "sentences", 1),
    ],
)
def test_lengths_are_counted_as_people_do(text: str, unit: str, n: int) -> None:
    assert reading.count(text, unit) == n


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}',
        'Here it is:\n```json\n{"a": 1}\n```\nAnything else?',
        '```\n{"a": 1}\n```',
        'Sure! {"a": 1} is what you want.',
        '```json\n{"a": 1}',
    ],
)
def test_json_is_found_in_an_answer(text: str) -> None:
    assert reading.json_value(text) == {"a": 1}


def test_strict_json_stands_alone_and_nan_is_none() -> None:
    with pytest.raises(ValueError, match="Expecting value"):
        reading.json_value('Sure! {"a": 1}', strict=True)
    with pytest.raises(ValueError, match="NaN"):
        reading.json_value("NaN")


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda c: st.lists(c) | st.dictionaries(st.text(), c),
        max_leaves=20,
    ).filter(lambda v: isinstance(v, dict | list))
)
def test_any_json_in_a_fence_is_read_whole(value: object) -> None:
    text = json.dumps(value, indent=1)
    assert reading.json_value(f"Here:\n```json\n{text}\n```\n") == value


PREFIX = 'import math\n\n\ndef helper(x):\n    return x\n\n\ndef twice(x: int) -> int:\n    """Twice x."""\n'


@pytest.mark.parametrize(
    "answer",
    [
        "    return 2 * helper(x)\n",
        "    return 2 * helper(x)\n\n\ndef other():\n    return",
        "    y = helper(x)\n    return 2 * y\n\nprint(twice(",
        "return 2 * helper(x)",
        "y = helper(x)\nreturn 2 * y",
        "y = helper(x)\n    return 2 * y",
        "```python\n    return 2 * helper(x)\n```",
        "```python\ndef twice(x: int):\n    return 2 * helper(x)\n```\nUse it:\n```python\nprint(twice(input()))\n```",
        "Here is the code:\n\n```py\ndef twice(x):\n    return 2 * x",
        "def twice(x):\n    return 2 * x\n\nThis function doubles its argument.",
        "Sure!\n\ndef twice(x):\n    return 2 * x\n\nThis doubles x.\nIt is simple.",
        "```python\ndef twice(x):\n    return x\n```\nNo, better:\n```python\ndef twice(x):\n    return x + x\n```",
        "```python\r\ndef twice(x):\r\n    return 2 * x\r\n```",
        "~~~\ndef twice(x):\n    return 2 * x\n~~~",
        "twice = lambda x: 2 * x",
    ],
)
def test_code_is_found_in_an_answer(answer: str) -> None:
    program, problem = choose(reading.programs(answer, prefix=PREFIX, entry_point="twice"), "twice")
    assert program is not None, problem
    names: dict[str, object] = {}
    exec(program, names)
    assert names["twice"](3) == 6  # type: ignore[operator]


def test_blocks_belong_together_when_nothing_is_asked_for_by_name() -> None:
    programs = reading.programs("```python\nimport math\n```\nand\n```python\nx = math.pi\n```")
    assert programs[0] == "import math\n\n\nx = math.pi\n"


def test_prose_is_no_program() -> None:
    assert choose(reading.programs("I would rather not write code.", entry_point="f"), "f")[0] is None
