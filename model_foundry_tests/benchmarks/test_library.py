from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from model_foundry import config as configuration
from model_foundry.benchmarks.library import load_suite, parse_suite, read_suite, suite_files, suite_names
from model_foundry.benchmarks.texts import filler, ledger, report
from model_foundry.config import FoundryConfig
from model_foundry.errors import ConfigError
from model_foundry_tests.builders import a_config, raw_config

SHIPPED_NAMES = [
    "code", "general", "japanese", "long_context", "reasoning", "summarizing", "tools", "translation",
]  # fmt: skip


def with_folders(*folders: Path) -> FoundryConfig:
    return a_config(benchmarks={"suites": [str(f) for f in folders]})


def write(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.yaml"
    file.write_text(dedent(text), encoding="utf-8")
    return file


OWN = """
    name: own
    prompts:
      - id: sum
        domain: reasoning
        turns: ["1 + 1?"]
        checks: [{kind: numeric, value: 2}]
"""


def parsed(**changes: Any) -> Any:
    prompt = {"id": "a", "domain": "general", "turns": ["Hello"], **changes}
    return parse_suite({"name": "own", "prompts": [prompt]}, source="own.yaml").prompts[0]


def problems(raw: dict[str, Any], folder: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_suite(raw, source="own.yaml", folder=folder)
    return str(caught.value)


def test_shipped_suites_are_there_without_any_configuration() -> None:
    assert suite_names(a_config()) == SHIPPED_NAMES
    assert load_suite(a_config(), "code").name == "code"


def test_suites_of_one_s_own_folders_come_after_the_shipped_ones(tmp_path: Path) -> None:
    write(tmp_path / "a", "own", OWN)
    write(tmp_path / "b", "other", OWN.replace("own", "other"))
    (tmp_path / "a" / "notes.txt").write_text("no suite", encoding="utf-8")
    (tmp_path / "a" / ".hidden.yaml").write_text("no suite", encoding="utf-8")
    config = with_folders(tmp_path / "a", tmp_path / "b")
    assert suite_names(config) == [*SHIPPED_NAMES, "own", "other"]
    assert load_suite(config, "own").prompts[0].id == "sum"


def test_folders_start_at_the_configuration_file_and_one_needs_no_list(tmp_path: Path) -> None:
    write(tmp_path / "mine", "own", OWN)
    file = tmp_path / "foundry.yaml"
    file.write_text(yaml.safe_dump(raw_config(benchmarks={"suites": "mine"})), encoding="utf-8")
    config = configuration.load(file, environ={})
    assert config.benchmarks.suites == [tmp_path / "mine"]
    assert "own" in suite_names(config)


def test_names_are_listed_without_reading_a_file(tmp_path: Path) -> None:
    write(tmp_path / "a", "broken", "{")
    assert "broken" in suite_names(with_folders(tmp_path / "a"))


def test_two_suites_of_one_name_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a", "code", OWN)
    with pytest.raises(ConfigError, match=r"two suites are named 'code': .*code.yaml and .*code.yaml"):
        suite_files(with_folders(tmp_path / "a"))


def test_a_folder_that_is_not_there_and_a_name_that_is_none_say_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="which is no folder here"):
        suite_names(with_folders(tmp_path / "none"))
    with pytest.raises(ConfigError, match="no suite 'coed'; allowed: code, general"):
        load_suite(a_config(), "coed")


def test_a_suite_is_named_like_its_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name is 'own'; allowed: 'other', as the file is named"):
        read_suite(write(tmp_path, "other", OWN))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not readable as YAML"),
        ("", "holds NoneType; allowed: a mapping with the keys name"),
        ("[1]", "holds list"),
        ("name: own\nname: own\n", "key 'name' stands twice"),
        ("name: own\nprompts: []", "prompts: is list"),
        ("name: own", "prompts: missing"),
        (
            "name: Own Suite\nprompts: [{id: a, domain: x, turns: [b]}]",
            'name: is "Own Suite"; allowed: text that matches',
        ),
        (
            "name: own\ntitel: x\nprompts: [{id: a, domain: x, turns: [b]}]",
            "titel: no such key; allowed here: name, title",
        ),
        (
            "name: own\nprompts: [{id: 2026-01-02, domain: x, turns: [b]}]",
            "id: is 2026-01-02 \\(date\\); allowed: text in quotes",
        ),
        ("name: own\nparams: {temperature: .nan}\nprompts: [{id: a, domain: x, turns: [b]}]", "finite number"),
    ],
)
def test_a_file_that_can_t_be_used_says_where_and_what_is_allowed(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        read_suite(write(tmp_path, "own", text))
    assert "own.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"turns": []}, "prompt 'a': turns: is list"),
        ({"turns": ["  "]}, "prompt 'a': turns: turn 0 is blank"),
        ({"turn": "x"}, "prompt 'a': turn: no such key; allowed here: id, domain, turns"),
        ({"domain": "two words"}, "prompt 'a': domain: is 'two words'; allowed: letters"),
        ({"checks": [{"kind": "exakt"}]}, "prompt 'a': checks[0].kind: is \"exakt\"; allowed: 'exact'"),
        (
            {"checks": [{"kind": "numeric", "value": "x"}]},
            "prompt 'a': checks[0]: numeric: value is \"x\"; allowed: a number",
        ),
        ({"checks": [{"kind": "exact", "value": "x", "turn": 1}]}, "checks[0].turn is 1; allowed: 0 to 0"),
        ({"checks": [{"kind": "exact", "values": "x"}]}, "checks[0].values: no such key; allowed here: kind, value"),
        ({"reference": ["a", "b"]}, "reference has 2 entries for 1 turns"),
        ({"params": {"model": "x"}}, "params: holds model, which the sweep sets"),
    ],
)
def test_every_problem_names_the_prompt_the_key_and_what_is_allowed(change: dict[str, Any], words: str) -> None:
    prompt = {"id": "a", "domain": "general", "turns": ["Hello"], **change}
    assert words in problems({"name": "own", "prompts": [prompt]})


def test_the_same_id_twice_is_refused_and_all_problems_are_said_at_once() -> None:
    prompt = {"id": "a", "domain": "general", "turns": ["Hello"]}
    assert "more than one has the id 'a'" in problems({"name": "own", "prompts": [prompt, prompt]})
    two = problems({"name": "own", "prompts": [{"domain": "x", "turns": ["b"]}, {"id": "b", "turns": ["b"]}]})
    assert "prompts[0].id" in two or "prompts[0]: id: missing" in two
    assert "prompt 'b': domain: missing" in two


def test_the_digest_changes_with_what_is_asked_or_checked_and_with_nothing_else() -> None:
    base = {"name": "own", "prompts": [{"id": "a", "domain": "general", "turns": ["Hello"]}]}
    digest = parse_suite(base, source="x").digest
    assert parse_suite({**base, "title": "Other", "license": "MIT"}, source="x").digest == digest
    changed = {**base, "prompts": [{**base["prompts"][0], "checks": [{"kind": "exact", "value": "x"}]}]}  # type: ignore[dict-item]
    assert parse_suite(changed, source="x").digest != digest
    assert parse_suite({**base, "params": {"seed": 1}}, source="x").digest != digest


def test_checks_and_references_belong_to_turns() -> None:
    prompt = parsed(
        turns=["a", "b"],
        reference=[None, "B"],
        checks=[{"kind": "exact", "value": "x", "turn": 0}, {"kind": "exact", "value": "y"}],
    )
    assert [c.value for c in prompt.checks_of(0)] == ["x"]
    assert [c.value for c in prompt.checks_of(1)] == ["y"]
    assert (prompt.reference_of(0), prompt.reference_of(1), prompt.reference_of(2)) == (None, "B", None)


# -- texts -----------------------------------------------------------------------------------------------------------


def with_texts(texts: Any, turn: str = "{{long}}") -> dict[str, Any]:
    return {"name": "own", "texts": texts, "prompts": [{"id": "a", "domain": "general", "turns": [turn]}]}


def test_texts_are_put_into_turns_and_braces_elsewhere_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("from a file", encoding="utf-8")
    texts = {"long": {"file": "long.txt"}, "book": {"generator": "ledger", "entries": 3, "seed": 1}}
    suite = parse_suite(
        with_texts(texts, "{{long}} {{book}} {{filler tokens=5 seed=2}} {x}"), source="s", folder=tmp_path
    )
    assert suite.prompts[0].turns == [f"from a file {ledger(3, 1)} {filler(5, 2)} {{x}}"]
    assert parsed(turns=["{{ anything }}"]).turns == ["{{ anything }}"]


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"long": {"generator": "poem"}}, "texts.long: generator is 'poem'; allowed: filler, ledger"),
        ({"long": {"generator": "ledger", "entries": 0, "seed": 1}}, "entries is 0; allowed: 1 to"),
        ({"long": {"generator": "ledger", "entries": 5}}, "seed is None"),
        ({"long": {"generator": "ledger", "entries": 5, "seed": 1, "needles": []}}, "needles: no such key"),
        (
            {"long": {"generator": "report", "sentences": 5, "seed": 1, "needles": [{"at": 2, "text": "x"}]}},
            "at: 0 to 1",
        ),
        ({"long": {"generator": "report", "sentences": 5, "seed": 1, "needles": "x"}}, "needles has"),
        ({"long": {"file": "../secret.txt"}}, "in the suite's folder or below it"),
        ({"long": {"file": "none.txt"}}, "can't be read"),
        ({"long": "text"}, "is str"),
        ({"other": {"generator": "ledger", "entries": 5, "seed": 1}}, "{{long}} is no text; allowed: filler tokens=N"),
        (["x"], "texts: is list"),
    ],
)
def test_a_text_that_can_t_be_made_says_why(tmp_path: Path, texts: Any, words: str) -> None:
    assert words in problems(with_texts(texts), folder=tmp_path)


@settings(deadline=None)
@given(st.integers(1, 3000), st.integers(0, 10**6))
def test_a_filler_has_as_many_tokens_as_asked_for_by_words_and_full_stops(tokens: int, seed: int) -> None:
    text = filler(tokens, seed)
    assert len(text.split()) + text.count(".") == tokens
    assert filler(tokens, seed) == text


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), max_size=5), st.integers(1, 60))
def test_every_needle_is_in_the_text_and_in_order(places: list[float], sentences: int) -> None:
    needles = [{"at": at, "text": f"Needle {n}."} for n, at in enumerate(places)]
    text = report(sentences, 1, needles)
    found = [text.index(n["text"]) for n in sorted(needles, key=lambda n: int(n["at"] * sentences))]  # type: ignore[operator, call-overload]
    assert found == sorted(found)
