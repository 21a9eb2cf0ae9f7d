from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from model_foundry.benchmarks import checks
from model_foundry.benchmarks.entries import json_entries, table_rows
from model_foundry.benchmarks.importers import Form, Imported, detect, import_suite, read_trace, suite_yaml
from model_foundry.benchmarks.library import parse_suite
from model_foundry.benchmarks.traces import arrivals
from model_foundry.errors import ConfigError

MT = [
    {"question_id": 81, "category": "writing", "turns": ["Write a poem.", "Now shorter."]},
    {"question_id": 111, "category": "math", "turns": ["1 + 1?", "And twice that?"], "reference": ["2", "4"]},
    {"question_id": 121, "category": "coding", "turns": ["Sort a list.", "Faster."], "reference": ["sorted(x)", ""]},
]
HUMANEVAL = {
    "task_id": "Own/0",
    "prompt": 'def double(x: int) -> int:\n    """Twice x.\n    >>> double(2)\n    4\n    """\n',
    "canonical_solution": "    return 2 * x\n",
    "test": "\n\ndef check(candidate):\n    assert candidate(2) == 4\n    assert candidate(-3) == -6\n",
    "entry_point": "double",
}
GSM = {"question": "Ann has 3 apples and buys 4. How many?", "answer": "3 + 4 = <<3+4=7>>7 apples.\n#### 7"}
SHARE = {
    "id": "abc_0",
    "conversations": [
        {"from": "human", "value": "Hello"},
        {"from": "gpt", "value": "Hi!"},
        {"from": "human", "value": "Bye"},
        {"from": "gpt", "value": "See you."},
    ],
}


def jsonl(*entries: Any) -> bytes:
    return b"".join(json.dumps(e, ensure_ascii=False).encode() + b"\n" for e in entries)


def read(folder: Path, data: bytes, *, ending: str = "jsonl", **options: Any) -> Imported:
    file = folder / f"set.{ending}"
    file.write_bytes(data)
    return import_suite(file, "own", **options)


def good_answer(imported: Imported, n: int = 0) -> bool | None:
    prompt = imported.suite.prompts[n]
    return checks.passed(checks.run_checks(prompt, len(prompt.turns) - 1, prompt.reference[-1] or ""))


def test_mt_bench_s_two_turns_references_and_categories_are_kept(tmp_path: Path) -> None:
    imported = read(tmp_path, jsonl(*MT))
    assert imported.form == "mt-bench"
    assert [p.id for p in imported.suite.prompts] == ["81", "111", "121"]
    assert [p.domain for p in imported.suite.prompts] == ["general", "reasoning", "code"]
    assert imported.suite.prompts[1].turns == ["1 + 1?", "And twice that?"]
    assert imported.suite.prompts[1].reference == ["2", "4"]
    assert imported.suite.prompts[2].reference == ["sorted(x)", None]
    assert imported.suite.prompts[0].metadata == {"category": "writing"}
    assert imported.problems == []


def test_japanese_is_told_and_a_domain_can_be_given_to_all(tmp_path: Path) -> None:
    entry = {"question_id": 1, "category": "writing", "turns": ["俳句を一つ書いてください。", "短くしてください。"]}
    assert read(tmp_path, jsonl(entry)).suite.prompts[0].language == "ja"
    given = read(tmp_path, jsonl(entry), domain="japanese", language="en").suite.prompts[0]
    assert (given.domain, given.language) == ("japanese", "en")


def test_a_function_to_complete_comes_with_its_tests_and_its_solution_passes(tmp_path: Path) -> None:
    imported = read(tmp_path, gzip.compress(jsonl(HUMANEVAL)), ending="jsonl.gz")
    prompt = imported.suite.prompts[0]
    assert imported.form == "humaneval"
    assert HUMANEVAL["prompt"] in prompt.turns[0]
    assert good_answer(imported) is True
    for answer in ("    return 2 * x", "```python\ndef double(x):\n    return x + x\n```"):
        assert checks.passed(checks.run_checks(prompt, 0, answer)) is True
    for answer in ("    return x", "    import sys\n    sys.exit(0)", ""):
        assert checks.passed(checks.run_checks(prompt, 0, answer)) is False


def test_a_word_problem_s_number_is_checked_and_its_calculator_notes_are_left_out(tmp_path: Path) -> None:
    imported = read(tmp_path, jsonl(GSM, {"question": "q", "answer": "so it is\n#### -1,234.5"}))
    assert imported.form == "gsm8k"
    assert [c.value for p in imported.suite.prompts for c in p.checks] == ["7", "-1234.5"]
    assert imported.suite.prompts[0].reference == ["3 + 4 = 7 apples.\n#### 7"]
    assert good_answer(imported) is True
    assert checks.passed(checks.run_checks(imported.suite.prompts[0], 0, "It is 8")) is False


def test_a_conversation_s_questions_are_turns_and_its_answers_references(tmp_path: Path) -> None:
    other = {"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]}
    imported = read(tmp_path, json.dumps([SHARE, other]).encode(), ending="json")
    assert imported.form == "sharegpt"
    first, second = imported.suite.prompts
    assert (first.id, first.turns, first.reference) == ("abc_0", ["Hello", "Bye"], ["Hi!", "See you."])
    assert (second.system, second.turns) == ("Be kind.", ["Hello"])
    assert read(tmp_path, jsonl(SHARE), max_turns=1).suite.prompts[0].turns == ["Hello"]


def test_a_table_s_columns_are_read_by_their_names(tmp_path: Path) -> None:
    table = (
        "id;category;question;answer;check;value;level\n"
        'a;math;"What is 6 × 7?\nSay a number.";42;numeric;42;easy\n'
        "b;poetry;Write a haiku.;;;;\n"
    )
    imported = read(tmp_path, table.encode(), ending="csv")
    first, second = imported.suite.prompts
    assert (first.id, first.domain, first.turns) == ("a", "reasoning", ["What is 6 × 7?\nSay a number."])
    assert first.metadata == {"level": "easy"}
    assert good_answer(imported) is True
    assert (second.domain, second.checks, second.reference) == ("poetry", [], [])
    named = read(tmp_path, b"Frage\tTyp\nWie geht es?\tx\n", ending="tsv", form="csv", columns={"prompt": "Frage"})
    assert named.suite.prompts[0].turns == ["Wie geht es?"]
    assert named.suite.prompts[0].metadata == {"Typ": "x"}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (b"prompt,prompt\na,b\n", "twice"),
        (b"text,label\na,b\n", "allowed: mt-bench"),
        (b"prompt,x\n", "is empty"),
        (b"prompt,x\n,1\n,2\n", "prompt is blank"),
    ],
)
def test_a_table_that_can_t_be_used_says_why(tmp_path: Path, table: bytes, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read(tmp_path, table, ending="csv")


def test_every_row_that_is_not_taken_is_named_by_its_line(tmp_path: Path) -> None:
    table = b'prompt,check,value\nfirst,,\n"two\nlines",numeric,many\nx,numeric\nfine,exact,yes\n'
    table += b'\xff\xfe,,\nnul\0,,\n,,\n"open,,\n'
    imported = read(tmp_path, table, ending="csv")
    assert [p.turns[0] for p in imported.suite.prompts] == ["first", "fine"]
    assert [(p.line, p.reason.split(":")[0][:24]) for p in imported.problems] == [
        (3, "prompt 'line-3'"),
        (5, "has 2 fields; the header"),
        (7, "holds half of a characte"),
        (8, "holds a NUL character"),
        (9, "prompt is blank"),
        (10, "is no row"),
    ]


def test_every_line_that_is_not_taken_is_named_and_the_others_are_taken(tmp_path: Path) -> None:
    bad: list[bytes] = [
        b"{not json}",
        b"[1, 2]x",
        b'"text"',
        b"\0\0\0\0",
        b'{"question_id": 2, "turns": ["\xff"]}',
        b'{"question_id": 3, "turns": []}',
        b'{"question_id": 4, "turns": ["a", 5]}',
        b'{"question_id": 5, "turns": ["nul \\u0000 here"]}',
        b'{"question_id": 6, "turns": ["half \\ud800"]}',
        b'{"question_id": 7, "turns": ["a"], "reference": [{"no": "text"}]}',
        b'{"question_id": 8, "turns": ["a"], "reference": ["one", "too many"]}',
        b'{"question_id": 9, "turns": ["a"], "score": NaN}',
        b'{"question_id": 1, "turns": ["the same id"]}',
        b'{"question_id": true, "turns": ["a"]}',
        b"[" * 100_000,
        b'{"question_id": 10, "turns": [" "]}',
    ]
    imported = read(tmp_path, jsonl({"question_id": 1, "turns": ["fine"]}) + b"\n".join(bad) + b"\n\n")
    assert [p.id for p in imported.suite.prompts] == ["1"]
    assert [p.line for p in imported.problems] == list(range(2, 2 + len(bad)))
    assert all(p.reason for p in imported.problems)
    assert "that of line 1" in imported.problems[12].reason


def test_when_no_line_can_be_used_that_is_an_error_that_names_the_first_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no line can be used as gsm8k:\n  - line 1: answer ends in .*\n.*line 2"):
        read(tmp_path, jsonl({"question": "q", "answer": "no mark"}, {"question": "q", "answer": "####"}))


@pytest.mark.parametrize(
    "changed",
    [
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: data.replace(b"\n", b"\r"),
        lambda data: data.rstrip(b"\n"),
        lambda data: b"\n\n" + data + b"\n\n",
        lambda data: data.decode().encode("utf-16"),
        lambda data: gzip.compress(data[:50]) + gzip.compress(data[50:]),
        lambda data: b"[" + b",".join(data.split(b"\n")[:-1]) + b"]",
    ],
    ids=["bom", "crlf", "cr", "no-last-newline", "blank-lines", "utf-16", "gzip-members", "array"],
)
def test_marks_line_ends_and_compression_make_no_difference(tmp_path: Path, changed: Any) -> None:
    plain = read(tmp_path, jsonl(*MT))
    other = read(tmp_path, changed(jsonl(*MT)))
    assert other.suite == plain.suite
    assert other.problems == []


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"\0\0", "is empty"),
        (b"\x28\xb5\x2f\xfd rest", "zstd"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS"),
        (gzip.compress(b"x" * 10_000)[:-12], "cut off"),
        (b"\x1f\x8b broken", "breaks"),
        (b'{"text": "x"}\n', "keys text"),
        (b"[1, 2]", "no JSON object"),
    ],
)
def test_a_file_that_is_none_of_the_forms_says_what_was_found(tmp_path: Path, data: bytes, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read(tmp_path, data)


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read"):
        import_suite(tmp_path / "none.jsonl", "own")


def test_a_form_can_be_named_instead_of_told(tmp_path: Path) -> None:
    entry = {**GSM, "turns": ["as MT-bench"]}
    assert read(tmp_path, jsonl(entry)).form == "mt-bench"
    assert read(tmp_path, jsonl(entry), form="gsm8k").form == "gsm8k"


def test_an_array_that_breaks_is_used_as_far_as_it_goes(tmp_path: Path) -> None:
    imported = read(tmp_path, b'[\n{"turns": ["one"]},\n{"turns": ["two"]},\n{"turns": ', ending="json")
    assert [p.turns[0] for p in imported.suite.prompts] == ["one", "two"]
    assert [p.line for p in imported.problems] == [4]
    assert "the rest" in imported.problems[0].reason


TRACES: dict[Form, bytes] = {
    "azure-trace": b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n"
    b"2023-11-16 18:17:04.0319600,3180,8\n2024-05-10 00:00:00.009930+00:00,x,1\n",
    "burstgpt-trace": b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    b"5,ChatGPT,4808,10,4818,Conversation log\n5.052,GPT-4,3180,8,3188,API log\n6,ChatGPT,100,0,100,API log\n",
    "mooncake-trace": b'{"timestamp": 1000, "input_length": 4808, "output_length": 10, "hash_ids": [0]}\n'
    b'{"timestamp": 1052, "input_length": 3180, "output_length": 8, "hash_ids": [0]}\n{"timestamp": 1}\n',
}


@pytest.mark.parametrize("form", TRACES)
def test_a_trace_s_arrivals_begin_at_zero_and_its_bad_lines_are_named(tmp_path: Path, form: Form) -> None:
    file = tmp_path / "trace"
    file.write_bytes(TRACES[form])
    trace = read_trace(file)
    assert trace.form == form
    assert [(a.at_s, a.prompt_tokens, a.completion_tokens) for a in trace.arrivals] == [(0, 4808, 10), (0.052, 3180, 8)]
    assert len(trace.problems) == 1
    assert trace.problems[0].line == (3 if form == "mooncake-trace" else 4)


@pytest.mark.parametrize("form", TRACES)
def test_a_trace_becomes_prompts_of_such_lengths_that_know_when_they_came(tmp_path: Path, form: Form) -> None:
    imported = read(tmp_path, TRACES[form], seed=3)
    first, second = imported.suite.prompts
    assert len(imported.yaml()) < 2000
    assert abs(len(first.turns[0].split()) - 4808) < 4808 * 0.15  # a token is a word or a full stop
    assert first.params == {"max_tokens": 10}
    assert first.turns[0][:30] != second.turns[0][:30]
    assert [(a.at_s, a.prompt_tokens) for a in arrivals(imported.suite)] == [(0.0, 4808), (0.052, 3180)]
    again = read(tmp_path, TRACES[form], seed=3)
    assert again.suite.digest == imported.suite.digest
    assert read(tmp_path, TRACES[form], seed=4).suite.digest != imported.suite.digest


def test_a_suite_that_is_no_trace_has_no_arrivals_and_no_trace_is_read_from_it(tmp_path: Path) -> None:
    assert arrivals(read(tmp_path, jsonl(*MT)).suite) == []
    with pytest.raises(ConfigError, match="allowed: azure-trace"):
        read_trace(tmp_path / "set.jsonl")


# -- properties -----------------------------------------------------------------------------------------------------


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(str.strip)


@settings(deadline=None)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=5))
def test_any_texts_come_through_a_suite_s_file_unchanged(pairs: list[tuple[str, str]]) -> None:
    prompts = [
        {"id": f"p{n}", "domain": "general", "turns": [a, b], "reference": [b, None], "metadata": {"k": a}}
        for n, (a, b) in enumerate(pairs)
    ]
    raw = {"name": "own", "prompts": prompts}
    assert parse_suite(yaml.safe_load(suite_yaml(raw)), source="s") == parse_suite(raw, source="s")


@settings(deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=5), st.sampled_from(",;\t"))
def test_any_texts_come_through_a_table(texts: list[str], delimiter: str) -> None:
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter, quoting=csv.QUOTE_ALL)
    writer.writerow(["prompt", "other"])
    writer.writerows([t, "x"] for t in texts)
    rows = [row for _, row in table_rows(out.getvalue().encode(), "table")]
    assert rows == [{"prompt": t, "other": "x"} for t in texts]


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_break_the_reading_and_nothing_is_lost_without_a_word(data: bytes) -> None:
    lines = [line for line in data.split(b"\n") if line.strip(b" \t\r")]
    entries = list(json_entries(data))
    if not data.lstrip(b" \t\r\n").startswith(b"["):
        assert len(entries) == len(lines)
    try:
        detect(data, source="bytes")
    except ConfigError as error:
        assert str(error)  # noqa: PT017


@settings(deadline=None)
@given(
    st.lists(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda c: st.lists(c, max_size=3) | st.dictionaries(st.sampled_from(["turns", "question_id", "x"]), c),
            max_leaves=8,
        ),
        max_size=8,
    )
)
def test_of_any_entries_each_is_a_prompt_or_a_named_line(
    tmp_path_factory: pytest.TempPathFactory, entries: Any
) -> None:
    folder = tmp_path_factory.mktemp("any")
    data = jsonl({"question_id": "first", "turns": ["fine"]}, *entries)
    imported = read(folder, data, form="mt-bench")
    assert len(imported.suite.prompts) + len(imported.problems) == 1 + len(entries)
