"""The conformance kit on a real llama.cpp server, a played Ollama and a liar; every exchange played to the client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from model_foundry.config import LimitsConfig, WorkerConfig
from model_foundry.errors import ConfigError
from model_foundry.inference.client import ask, new_client
from model_foundry.inference.conformance import examine as conformance
from model_foundry.inference.conformance import exchange as exchanges
from model_foundry.inference.conformance.examine import Examined, ServerUnreachableError
from model_foundry.inference.conformance.exchange import Exchange, ExchangeError
from model_foundry.inference.conformance.outcome import Verdict
from model_foundry.inference.conformance.player import Player
from model_foundry.inference.conformance.statements import STATEMENTS
from model_foundry.inference.conformance.subject import MAX_TOKENS, Subject
from model_foundry.inference.target import InferenceRequest, WorkerTarget
from model_foundry.records import Completion, JobStatus
from model_foundry_tests.builders import raw_config
from model_foundry_tests.inference.conftest import LLAMA_MODEL

HOLDS, FAILS, NOT_APPLICABLE, UNKNOWN = Verdict.HOLDS, Verdict.FAILS, Verdict.NOT_APPLICABLE, Verdict.UNKNOWN
EXCHANGES = exchanges.shipped()


def doctor(
    *arguments: str, cwd: Path | None = None, **environment: str
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    argv = [sys.executable, "-m", "model_foundry.cli.main", "doctor", *arguments]
    env = os.environ | {"COLUMNS": "80"} | environment
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=170, env=env, cwd=cwd)
    return done, done.stdout.splitlines()


async def examined(url: str, *, api: Any = None, model: str | None = None) -> tuple[Subject, dict[str, Examined]]:
    async with new_client() as client:
        target = WorkerTarget("", url, api or await conformance.find_api(client, url, {}))
        subject = await conformance.meet(client, target, model)
        return subject, {e.statement.id: e async for e in conformance.examine(subject)}


def played(exchange: Exchange, **how: Any) -> tuple[Subject, dict[str, Examined], Player]:
    async def run() -> tuple[Subject, dict[str, Examined], Player]:
        async with Player(exchange, **how) as player:
            return *(await examined(player.url)), player

    return asyncio.run(run())


def verdicts(found: dict[str, Examined]) -> dict[str, Verdict]:
    return {id_: e.outcome.verdict for id_, e in found.items()}


# -- the statements ----------------------------------------------------------------------------------------------------


def test_every_statement_has_its_own_id_and_says_what_it_means_when_it_does_not_hold() -> None:
    assert len({s.id for s in STATEMENTS}) == len(STATEMENTS) >= 40
    for statement in STATEMENTS:
        assert statement.title.endswith("."), statement.id
        assert statement.consequence.endswith((".", "?")), statement.id
        assert statement.apis, statement.id
    assert {s.id for s in STATEMENTS if s.required} == {"lists-models", "model-listed", "answers", "end-mark", "utf8"}


def test_every_statement_is_explained_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "conformance.md").read_text(encoding="utf-8")
    assert [s.id for s in STATEMENTS if f"`{s.id}`" not in page] == []


# -- a real server -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def llama_report(llama_url: str) -> dict[str, Any]:
    """What ``foundry doctor --worker URL --json`` says of a real llama.cpp server."""
    done, _ = doctor("--worker", f"{llama_url}/v1/", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_llama_cpp_is_what_this_project_needs(llama_report: dict[str, Any]) -> None:
    found = {s["id"]: s for s in llama_report["statements"]}
    assert llama_report["good"] is True
    assert (llama_report["kind"], llama_report["api"], llama_report["model"]) == ("llama.cpp", "openai", LLAMA_MODEL)
    for id_ in (
        *("lists-models", "model-listed", "health", "metrics", "props", "slots", "head", "answers"),
        *("content-type", "streams", "first-chunk", "end-mark", "finish-reason", "whole", "usage-asked", "usage-whole"),
        *(
            "usage-agrees",
            "timings",
            "cut-at-max-tokens",
            "repeats",
            "stop",
            "utf8",
            "parts",
            "json-schema",
            "logprobs",
        ),
        *("unknown-fields", "bad-types", "error-says-why", "says-context", "too-long", "parallel"),
    ):
        assert found[id_]["verdict"] == "holds", found[id_]
    assert found["cancel"]["verdict"] in ("holds", "could not be told"), found["cancel"]


def test_what_does_not_hold_for_llama_cpp_comes_with_its_consequence(llama_report: dict[str, Any]) -> None:
    found = {s["id"]: s for s in llama_report["statements"]}
    assert found["unknown-model"]["verdict"] == "does not hold"
    assert "goes unnoticed" in found["unknown-model"]["consequence"]
    assert found["asks-for-key"]["verdict"] == found["reasoning-field"]["verdict"] == "not applicable"
    assert all((s["consequence"] is not None) == (s["verdict"] == "does not hold") for s in found.values())


def test_the_entry_that_it_gives_can_be_pasted_into_the_configuration(
    llama_report: dict[str, Any], llama_url: str
) -> None:
    [(_, entry)] = llama_report["workers"].items()
    assert entry == {"url": llama_url, "api": "openai", "slots": 2, "models": [LLAMA_MODEL]}
    WorkerConfig.model_validate(entry)


# -- a played Ollama ---------------------------------------------------------------------------------------------------


def test_a_played_ollama_is_known_by_its_version_and_does_what_was_recorded() -> None:
    subject, found, player = played(exchanges.load("ollama"), delay_s=0.005)
    assert (subject.api, subject.model, subject.state.version) == ("ollama", "llama3.2:3b", "0.13.5")
    seen = verdicts(found)
    for id_ in (
        *("lists-models", "model-listed", "says-version", "says-context", "answers", "content-type", "streams"),
        *("first-chunk", "end-mark", "finish-reason", "whole", "counts", "usage-agrees", "timings", "repeats", "utf8"),
        *("unknown-model", "bad-types", "error-says-why", "truncate-false", "prompt-eval-count", "load"),
        *("nanoseconds", "loaded-listed", "keep-alive"),
    ):
        assert seen[id_] is HOLDS, found[id_]
    # the recording has one answer to every question
    assert {seen[id_] for id_ in ("cut-at-max-tokens", "stop", "json-schema", "logprobs")} == {FAILS}
    assert seen["asks-for-key"] is NOT_APPLICABLE
    assert not any(e.bad for e in found.values())
    entry = conformance.worker_entry(subject, list(found.values()))
    assert entry["127.0.0.1"]["supports"] == ["gpu_inference"]
    for _, path, body in player.asked:
        if path == "/api/chat" and isinstance(body["options"], dict):
            assert body["options"]["temperature"] == 0
            assert body["options"]["num_predict"] <= MAX_TOKENS or body["messages"][0]["content"].endswith("1000.")


def test_the_table_fits_80_columns_and_exit_0_when_all_that_is_required_holds() -> None:
    with a_player("ollama") as url:
        done, lines = doctor("--worker", url)
    assert done.returncode == 0, done.stderr
    assert max(map(len, lines)) <= 80
    page = " ".join(done.stdout.split())
    assert "✓ A stream ends with its end mark." in page
    assert "✗ stop ends an answer and is left out." in page
    assert "→ Prompts that use" in page
    assert "– Without its key it refuses." in page
    entry = yaml.safe_load(done.stdout.partition("For the configuration:")[2])["workers"]["127.0.0.1"]
    assert (entry["api"], entry["models"]) == ("ollama", ["llama3.2:3b"])


def test_a_worker_of_the_configuration_is_examined_by_its_name(tmp_path: Path) -> None:
    with a_player("ollama") as url:
        raw = raw_config()
        raw["workers"]["moon"] |= {"url": url, "api": "ollama", "models": {"small": "llama3.2:3b"}}
        (tmp_path / "foundry.yaml").write_text(yaml.safe_dump(raw), encoding="utf-8")
        done, _ = doctor("--worker", "moon", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert (report["model"], list(report["workers"])) == ("llama3.2:3b", ["moon"])
        nobody, _ = doctor("--worker", "sun", cwd=tmp_path)
    assert nobody.returncode == 2
    assert "no worker 'sun'" in nobody.stderr


# -- a liar, and servers that are not there ----------------------------------------------------------------------------

LIAR = """
>>> GET /v1/models
<<<
HTTP/1.1 200 OK
Content-Type: application/json
Content-Length: auto

{"data": [{"id": "honest-7b"}]}
>>> POST /v1/chat/completions
<<<
HTTP/1.1 200 OK
Content-Type: text/plain

{"choices": [{"message": {"content": "<think>As you wish.</think> Certainly! ???"}, "finish_reason": "stop"}],
 "usage": {"prompt_tokens": 3, "completion_tokens": 4000}}
"""


def test_a_liar_is_found_out() -> None:
    _, found, _ = played(exchanges.parse("liar", LIAR.encode()))
    seen = verdicts(found)
    for id_ in (
        *("end-mark", "streams", "content-type", "cut-at-max-tokens", "stop", "unknown-model", "empty-messages"),
        *("bad-types", "two-choices", "logprobs", "json-schema", "timings", "reasoning-field", "health", "metrics"),
    ):
        assert seen[id_] is FAILS, found[id_]
    assert seen["error-says-why"] is seen["too-long"] is UNKNOWN
    assert [id_ for id_, e in found.items() if e.bad] == ["end-mark"]


def test_a_liar_makes_exit_1_and_what_is_required_is_named(tmp_path: Path) -> None:
    file = tmp_path / "liar.txt"
    file.write_text(LIAR, encoding="utf-8")
    with a_player(str(file)) as url:
        done, lines = doctor("--worker", url, "--api", "openai")
        key, _ = doctor("--worker", url, "--api-key-env", "NO_SUCH_KEY")
    assert done.returncode == 1
    assert max(map(len, lines)) <= 80
    assert "Required, and does not hold: end-mark." in done.stdout
    assert key.returncode == 2
    assert "NO_SUCH_KEY, which is not set" in key.stderr


def test_where_nothing_listens_is_said_with_what_to_do() -> None:
    done, _ = doctor("--worker", "http://127.0.0.1:9")
    assert done.returncode == 3
    assert "can't be reached" in done.stderr
    assert "Start the server" in done.stderr
    with pytest.raises(ServerUnreachableError):
        asyncio.run(examined("http://127.0.0.1:9"))


def test_a_server_without_models_needs_one_named() -> None:
    empty = exchanges.parse("empty", LIAR.replace('{"id": "honest-7b"}', "").encode())

    async def run() -> tuple[Subject, dict[str, Examined]]:
        async with Player(empty) as player:
            with pytest.raises(ConfigError, match="lists no models"):
                await examined(player.url)
            return await examined(player.url, model="m")

    _, found = asyncio.run(run())
    assert found["lists-models"].bad
    assert found["model-listed"].bad


def test_a_server_that_answers_no_chat_is_not_asked_everything_else() -> None:
    mute = LIAR.replace("POST /v1/chat", "POST /elsewhere")
    _, found, player = played(exchanges.parse("mute", mute.encode()))
    assert found["answers"].bad
    assert "HTTP 404" in found["answers"].outcome.evidence
    assert found["cancel"].outcome.verdict is UNKNOWN
    assert len([1 for method, *_ in player.asked if method == "POST"]) == 1


def test_a_connection_that_is_reset_is_an_outcome() -> None:
    _, found, _ = played(exchanges.load("vllm"), cut_after=40, reset=True)
    assert found["answers"].bad
    assert "connection failed" in found["answers"].outcome.evidence


# -- exchanges through the client --------------------------------------------------------------------------------------


async def read(exchange: Exchange, **how: Any) -> Completion:
    """What the client makes of an exchange's main answer."""
    main, facts = exchange.main, exchange.facts
    request = InferenceRequest(main.asked["model"], main.asked["messages"])
    limits = LimitsConfig(request_connect_timeout_s=5)
    async with Player(exchange, **how) as player, new_client() as client:
        target = WorkerTarget("it", player.url, facts["api"])
        found = await asyncio.wait_for(ask(client, target, request, limits), 30)
        assert player.asked[-1][:2] == (main.method, main.path)
        return found


def what(found: Completion) -> dict[str, Any]:
    """All of a completion that must not depend on how its bytes were cut."""
    return {
        "status": found.status,
        "text": found.text,
        "reasoning": found.reasoning,
        "finish_reason": found.finish_reason,
        "prompt_tokens": found.prompt_tokens,
        "completion_tokens": found.completion_tokens,
        "cached_tokens": found.cached_tokens,
        "chunks": found.chunks,
        "error_kind": found.error_kind,
        "error_message": found.error_message,
        "server_stats": found.server_stats,
        # this one compares with the clock, so with how fast the bytes came
        "notes": [n for n in found.notes if not n.startswith("server_times_doubtful")],
    }


@pytest.mark.parametrize("name", EXCHANGES)
def test_an_exchange_is_read_as_its_file_says(name: str) -> None:
    exchange = exchanges.load(name)
    found = what(asyncio.run(read(exchange)))
    told = {k: v for k, v in exchange.facts.items() if k in found}
    assert {k: found[k] for k in told} == told
    assert {"status", "text"} <= told.keys()


@pytest.mark.parametrize("name", EXCHANGES)
def test_however_its_bytes_are_cut_into_writes_an_exchange_is_read_the_same(name: str) -> None:
    exchange = exchanges.load(name)

    async def run() -> None:
        expected = what(await read(exchange))
        for size in (1, 2, 3, 7, 64, 1000, 10**6):
            assert what(await read(exchange, bytes_per_write=size)) == expected, size
        assert what(await read(exchange, delay_s=0.01)) == expected

    asyncio.run(run())


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("name", EXCHANGES)
def test_an_answer_that_is_cut_is_never_taken_for_a_whole_one(name: str, reset: bool) -> None:
    exchange = exchanges.load(name)
    raw, facts = exchange.main.raw, exchange.facts
    marks = (b'"finish_reason":"stop"', b'"finish_reason": "stop"', b'"done":true')
    ended = min(
        (raw.find(m) for m in marks if m in raw), default=len(raw)
    )  # by then no answer can be known to be whole

    async def run() -> None:
        for cut in sorted({*range(0, len(raw), max(1, len(raw) // 23)), ended, len(raw) - 1}):
            found = await read(exchange, cut_after=cut, reset=reset)
            if found.status is JobStatus.ANSWERED:
                assert cut > ended
                assert (found.text, found.reasoning) == (facts["text"], facts["reasoning"]), cut
                for count in ("prompt_tokens", "completion_tokens"):
                    assert getattr(found, count) in (None, facts[count]), cut
            else:
                assert found.status in (JobStatus.INCOMPLETE, JobStatus.FAILED), cut
                assert found.error_message, cut
                assert str(facts["text"]).startswith(found.text), (cut, found.text)

    asyncio.run(run())


# -- files, and the player ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def a_player(name_or_file: str, *options: str) -> Iterator[str]:
    """The player as people run it; its address."""
    argv = [sys.executable, "-m", "model_foundry.inference.conformance.player", name_or_file, "--port", "0", *options]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert " at http://127.0.0.1:" in line, line
            yield line.split(" at ")[1].split(",")[0]
        finally:
            process.terminate()


def test_the_player_cuts_slows_and_says_where_it_plays() -> None:
    exchange = exchanges.load("vllm")
    with a_player("vllm", "--bytes-per-write", "1", "--delay-s", "0.0001", "--cut-after", "700") as url:

        async def run() -> Completion:
            request = InferenceRequest("qwen3-8b", [{"role": "user", "content": "hello"}])
            async with new_client() as client:
                return await ask(client, WorkerTarget("it", url, "openai"), request, LimitsConfig())

        found = asyncio.run(run())
    assert found.status is JobStatus.INCOMPLETE
    assert found.reasoning
    assert str(exchange.facts["reasoning"]).startswith(found.reasoning)


def test_the_player_names_the_exchanges_there_are() -> None:
    argv = [sys.executable, "-m", "model_foundry.inference.conformance.player", "nothing-like-it"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "vllm" in done.stderr


def test_the_exchanges_cover_every_server_that_is_named_in_the_docs() -> None:
    servers = {exchanges.load(name).facts["server"] for name in EXCHANGES}
    assert servers == {"vLLM", "llama.cpp", "ik_llama.cpp", "Ollama", "Ollama /v1", "LM Studio", "a stranger"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("server: x\n", "no line '>>> METHOD /path'"),
        ("- a\n>>> POST /\n<<<\nHTTP/1.1 200 OK\n\n", "no YAML mapping"),
        ("a: [\n>>> POST /\n<<<\nHTTP/1.1 200 OK\n\n", "not YAML"),
        (">>> POST /\n{}\n", "line 1: no line '<<<'"),
        (">>> POST /\n{nope\n<<<\nHTTP/1.1 200 OK\n\n", "line 2: the request is not JSON"),
        (">>> POST /\n<<<\nHTTP/2 200\n\n", "line 3: expected 'HTTP/1.1"),
        (">>> GET /\n<<<\nHTTP/1.1 200 OK\n\n", "no POST in it"),
    ],
)
def test_a_file_that_is_no_exchange_is_refused_with_the_line(text: str, message: str) -> None:
    with pytest.raises(ExchangeError, match=message.replace("[", r"\[")):
        exchanges.parse("x", text.encode())


def test_of_several_pairs_the_one_most_like_the_request_answers() -> None:
    ollama = exchanges.load("ollama")
    load = ollama.answer_to("POST", "/api/chat", {"model": "llama3.2:3b", "messages": [], "stream": False})
    assert load is not None
    assert b'"done_reason":"load"' in load.body
    assert ollama.answer_to("POST", "/api/nothing", {}) is None
    head = ollama.answer_to("HEAD", "/api/tags?x=1", None)
    assert head is not None
    assert head.path == "/api/tags"
