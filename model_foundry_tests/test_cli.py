"""The command line where nothing runs: messages, hints and exit codes that scripts can use."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from model_foundry.cli.commands.demo import prepare, unexpected
from model_foundry.config import load
from model_foundry.demo.message import DemoMessage
from model_foundry_tests.builders import raw_config


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a configuration and nothing running."""
    (tmp_path / "foundry.yaml").write_text(yaml.safe_dump(raw_config(), sort_keys=False), encoding="utf-8")
    return tmp_path


def foundry(folder: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "model_foundry.cli.main", *arguments]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False, input=stdin, timeout=60)


def test_without_a_configuration_it_says_what_to_do_and_exits_2(tmp_path: Path) -> None:
    done = foundry(tmp_path, "route", "hello")
    assert done.returncode == 2
    assert "no foundry.yaml" in done.stderr
    assert "foundry demo" in done.stderr


def test_a_faulty_configuration_exits_2_and_names_every_fault(folder: Path) -> None:
    raw = raw_config(profile="tiny") | {"wrkers": {}}
    (folder / "foundry.yaml").write_text(yaml.safe_dump(raw), encoding="utf-8")
    done = foundry(folder, "route", "hello")
    assert done.returncode == 2
    assert "wrkers: no such key" in done.stderr


def test_route_needs_nothing_running_and_says_why(folder: Path) -> None:
    done = foundry(folder, "route", "Pythonで素数を列挙する関数を書いて", "--json")
    assert done.returncode == 0, done.stderr
    route = json.loads(done.stdout)
    assert (route["domain"], route["language"], route["model"], route["lane"]) == ("code", "ja", "big", "gpu_inference")
    assert [(c["model"], c["workers"], c["expected_p50_s"]) for c in route["candidates"]] == [
        ("big", ["card"], None),
        ("small", ["moon", "card"], None),
    ]


def test_route_of_what_can_not_be_used_exits_1(folder: Path) -> None:
    done = foundry(folder, "route", "hello", "--model", "nope")
    assert done.returncode == 1
    assert "allowed: small, big" in " ".join(done.stdout.split())


def test_sql_without_a_lake_exits_3_and_says_what_makes_one(folder: Path) -> None:
    done = foundry(folder, "sql", "from jobs")
    assert done.returncode == 3
    assert "'foundry up' makes it" in done.stderr


def test_sql_lists_the_questions_that_views_and_examples_answer(folder: Path) -> None:
    listed = {row["name"]: row["question"] for row in json.loads(foundry(folder, "sql", "--examples", "--json").stdout)}
    assert "?" in listed["domain_latency"]
    assert "slowest_jobs" in listed


def test_an_unknown_example_names_those_there_are(folder: Path) -> None:
    done = foundry(folder, "sql", "--example", "nope")
    assert done.returncode == 2
    assert "slowest_jobs" in done.stderr


def test_submit_without_a_server_exits_with_what_to_do(folder: Path) -> None:
    done = foundry(folder, "submit", "hello")
    assert done.returncode == 2
    assert "foundry up" in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [('{"prompt": "a"}\nnot json\n', "line 2 is not JSON"), ("[1]\n", "line 1 holds no object"), ("\n", "no message")],
)
def test_a_file_of_prompts_is_checked_before_anything_is_sent(folder: Path, text: str, words: str) -> None:
    (folder / "prompts.jsonl").write_text(text, encoding="utf-8")
    done = foundry(folder, "submit", "--file", "prompts.jsonl")
    assert done.returncode == 2
    assert words in " ".join(done.stderr.replace("│", " ").split())


def test_doctor_goes_on_after_a_fault_and_says_what_to_do_about_each(folder: Path) -> None:
    done = foundry(folder, "doctor", "--json")
    findings = {f["part"]: f for f in json.loads(done.stdout)}
    assert done.returncode == 1
    assert findings["config"]["state"] == "ok"
    assert findings["nats"]["state"] == findings["lake"]["state"] == findings["worker moon"]["state"] == "fault"
    assert all(f["todo"] for f in findings.values() if f["state"] != "ok")


def test_the_demo_brings_its_configuration_and_keeps_one_that_is_there(tmp_path: Path) -> None:
    file = prepare(tmp_path / "demo")
    assert load(file, environ={}).data_dir == tmp_path / "demo" / "data"
    file.write_text("name: mine\n", encoding="utf-8")
    assert prepare(tmp_path / "demo").read_text() == "name: mine\n"


def test_the_demo_is_good_only_if_every_message_came_to_what_it_should() -> None:
    messages = [DemoMessage("s", b"", "1"), DemoMessage("s", b"", "2", "reject")]
    good = [{"seq": 5, "status": "answered"}, {"seq": 6, "status": "reject"}]
    assert unexpected(messages, [5, 6], good) == []
    assert unexpected(messages, [5, 6], good[:1]) == ["message 6: expected reject, found missing"]
    pending = [{"seq": 5, "status": "pending"}, good[1]]
    assert unexpected(messages, [5, 6], pending) == ["message 5: expected answered, found pending"]
