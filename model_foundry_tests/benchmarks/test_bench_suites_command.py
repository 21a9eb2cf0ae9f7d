from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from model_foundry.benchmarks.library import read_suite
from model_foundry.cli.main import app
from model_foundry.errors import ConfigError
from model_foundry_tests.builders import raw_config

GSM = b'{"question": "1 + 1?", "answer": "#### 2"}\n{"question": "2 + 2?", "answer": "#### 4"}\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine").mkdir()
    text = yaml.safe_dump(raw_config(benchmarks={"suites": "mine"}))
    (tmp_path / "foundry.yaml").write_text(text, encoding="utf-8")
    return tmp_path


def bench(folder: Path, *arguments: str) -> Result:
    result = CliRunner().invoke(app, ["bench", *arguments, "--config", str(folder / "foundry.yaml")])
    if isinstance(result.exception, ConfigError):
        raise result.exception
    return result


def listed(folder: Path) -> dict[str, Any]:
    return {row["name"]: row for row in json.loads(bench(folder, "suites", "--json").stdout)}


def test_suites_are_listed_with_prompts_by_domain_and_digest(folder: Path) -> None:
    rows = listed(folder)
    assert rows["code"]["domains"] == {"code": rows["code"]["prompts"]}
    assert len(rows["code"]["digest"]) == 12
    assert rows["code"]["file"] is None
    assert "reasoning" in bench(folder, "suites").stdout


def test_an_imported_set_is_a_suite_in_the_configured_folder(folder: Path) -> None:
    (folder / "GSM 8K.test.jsonl").write_bytes(GSM)
    done = bench(folder, "import", str(folder / "GSM 8K.test.jsonl"))
    assert done.exit_code == 0
    assert "suite gsm-8k, 2 prompts (reasoning 2), read as gsm8k, 0 not taken" in done.stdout
    assert listed(folder)["gsm-8k"]["file"] == str(folder / "mine" / "gsm-8k.yaml")


def test_lines_that_are_not_taken_are_named_and_the_exit_code_says_so(folder: Path) -> None:
    (folder / "set.jsonl").write_bytes(GSM + b"broken\n")
    out = folder / "own.yaml"
    done = bench(folder, "import", str(folder / "set.jsonl"), "--out", str(out), "--domain", "math", "--json")
    assert done.exit_code == 1
    shown = json.loads(done.stdout)
    assert [p["line"] for p in shown["problems"]] == [3]
    assert (shown["prompts"], shown["domains"], shown["digest"]) == (2, {"math": 2}, read_suite(out).digest)
    plain = bench(folder, "import", str(folder / "set.jsonl"), "--out", str(out), "--force")
    assert "not taken: line 3: is not JSON" in plain.output


def test_nothing_is_written_over_and_no_shipped_name_is_taken(folder: Path) -> None:
    (folder / "set.jsonl").write_bytes(GSM)
    assert bench(folder, "import", str(folder / "set.jsonl"), "--name", "own").exit_code == 0
    with pytest.raises(ConfigError, match="is there already"):
        bench(folder, "import", str(folder / "set.jsonl"), "--name", "own")
    assert bench(folder, "import", str(folder / "set.jsonl"), "--name", "own", "--limit", "1", "--force").exit_code == 0
    assert listed(folder)["own"]["prompts"] == 1
    with pytest.raises(ConfigError, match="a shipped suite is named 'code'"):
        bench(folder, "import", str(folder / "set.jsonl"), "--name", "code")


def test_a_table_s_columns_and_a_form_can_be_named(folder: Path) -> None:
    (folder / "table.csv").write_text("Frage;Lösung\nWie viel ist 1 + 1?;2\n", encoding="utf-8")
    file = str(folder / "table.csv")
    done = bench(folder, "import", file, "--column", "prompt=Frage", "--column", "reference=Lösung", "--language", "de")
    assert done.exit_code == 0
    prompt = read_suite(folder / "mine" / "table.yaml").prompts[0]
    assert (prompt.turns, prompt.reference, prompt.language) == (["Wie viel ist 1 + 1?"], ["2"], "de")
    for wrong, words in (
        (["--column", "prompt"], "OURS=THEIRS"),
        (["--column", "prompt=None"], "no column for prompt=None"),
        (["--form", "excel"], "allowed: mt-bench"),
        (["--out", str(folder / "other.txt")], "allowed: a file named other.yaml"),
    ):
        with pytest.raises(ConfigError, match=words):
            bench(folder, "import", file, "--name", "x" if "--out" not in wrong else "other", *wrong)


def test_without_a_folder_of_one_s_own_a_file_must_be_named(folder: Path) -> None:
    (folder / "foundry.yaml").write_text(yaml.safe_dump(raw_config()), encoding="utf-8")
    (folder / "set.jsonl").write_bytes(GSM)
    with pytest.raises(ConfigError, match="names no folder"):
        bench(folder, "import", str(folder / "set.jsonl"))
