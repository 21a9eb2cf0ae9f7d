"""``foundry worker``: its options, its messages, its signals, and the service that runs it."""

from __future__ import annotations

import configparser
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from model_foundry.cli.commands.worker import Given, resolve
from model_foundry.cli.main import app
from model_foundry.embedded.processes import free_port
from model_foundry.errors import ConfigError
from model_foundry.fleet.agent import AgentOptions
from model_foundry.inference.target import WorkerTarget
from model_foundry.jetstream.client import NatsSettings
from model_foundry.runtime import Foundry
from model_foundry_tests.builders import a_config, raw_config
from model_foundry_tests.fleet.test_agent import read_bucket
from model_foundry_tests.parts import wait_for

UNIT = Path(__file__).parent.parent.parent / "deploy" / "foundry-worker.service"
NATS = {"url": "nats://nats:4222"}


def resolved(
    given: Given, foundry: Foundry | None = None, **environ: str
) -> tuple[NatsSettings, WorkerTarget, AgentOptions]:
    return resolve(given, foundry, environ=environ)


def a_foundry(**changes: Any) -> Foundry:
    return Foundry(a_config(**{"nats": NATS, **changes}), Path("/etc/foundry.yaml"))


def command(folder: Path, *arguments: str, **environ: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "model_foundry.cli.main", "worker", *arguments]
    env = {k: v for k, v in os.environ.items() if not k.startswith("FOUNDRY_")} | environ
    return subprocess.Popen(argv, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ran(folder: Path, *arguments: str, **environ: str) -> tuple[int, str, str]:
    with command(folder, *arguments, **environ) as process:
        out, err = process.communicate(timeout=60)
    return process.returncode, out, " ".join(err.split())


# -- where values come from -----------------------------------------------------------------------------------------


def test_without_a_file_all_comes_from_options_and_the_environment() -> None:
    given = Given("moon", url="http://moon:1", api="ollama", supports=["gpu_inference", "embedding", "gpu_inference"])
    settings, target, options = resolved(given, FOUNDRY_NATS__URL="nats://n:4222", FOUNDRY_FLEET__HEARTBEAT_S="5")
    assert settings.url == "nats://n:4222"
    assert (target.url, target.api, dict(target.headers)) == ("http://moon:1", "ollama", {})
    assert options == AgentOptions("moon", "http://moon:1", "ollama", ("gpu_inference", "embedding"), heartbeat_s=5)


def test_with_a_file_the_name_is_enough() -> None:
    foundry = a_foundry(fleet={"heartbeat_s": 7, "bucket": "lab", "replicas": 3})
    settings, target, options = resolved(Given("card"), foundry)
    assert settings.url == "nats://nats:4222"
    assert target.url == "http://127.0.0.1:8000"
    assert options == AgentOptions(
        "card",
        "http://127.0.0.1:8000",
        "openai",
        supports=("gpu_inference", "cpu_inference"),
        slots=3,
        models=("small", "big"),
        heartbeat_s=7,
        bucket="lab",
        replicas=3,
    )


def test_slots_that_the_file_does_not_give_are_left_to_the_server() -> None:
    assert resolved(Given("moon"), a_foundry())[2].slots is None


def test_models_are_said_by_the_servers_names() -> None:
    workers = {**raw_config()["workers"], "card": {"url": "http://c", "api": "openai", "models": {"big": "org/big"}}}
    assert resolved(Given("card"), a_foundry(workers=workers))[2].models == ("org/big",)


def test_options_win_over_the_file() -> None:
    given = Given(
        "card",
        url="http://other:1",
        probe_url="http://127.0.0.1:1",
        api="ollama",
        supports=["embedding"],
        slots=9,
        models=["x"],
        gpu_index=1,
        interval_s=2,
        bucket="b",
        nats={"url": "nats://mine:1", "token_env": None},
    )
    settings, target, options = resolved(given, a_foundry())
    assert (settings.url, target.url, target.api) == ("nats://mine:1", "http://127.0.0.1:1", "ollama")
    assert options == AgentOptions("card", "http://other:1", "ollama", ("embedding",), 9, ("x",), 1, 2, "b")


def test_a_worker_that_the_file_lacks_can_be_given_by_options() -> None:
    assert resolved(Given("new", url="http://n:1", api="openai"), a_foundry())[2].supports == ("cpu_inference",)


def test_the_servers_key_is_sent_and_not_shown() -> None:
    given = Given("moon", url="http://m:1", api="openai", api_key_env="CARD_KEY", nats=NATS)
    _, target, options = resolved(given, CARD_KEY="s3cret")
    assert dict(target.headers) == {"Authorization": "Bearer s3cret"}
    assert "s3cret" not in repr((target, options))


def test_a_key_file_is_relative_to_where_it_was_named(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("s3cret\n")
    workers = {**raw_config()["workers"], "card": {"url": "http://c", "api": "openai", "api_key_file": "key"}}
    foundry = Foundry(a_config(workers=workers, nats=NATS), tmp_path / "foundry.yaml")
    assert dict(resolved(Given("card"), foundry)[1].headers) == {"Authorization": "Bearer s3cret"}


# -- what is wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "foundry", "said"),
    [
        (Given("moon"), None, "--url and --api not given, and there is no configuration file"),
        (Given("sun"), a_foundry(), "has no worker 'sun'; it has moon, card"),
        (Given("my moon", url="http://m", api="openai"), None, "--name: name is 'my moon'"),
        (Given("moon", url="moon:1", api="openai"), None, "workers.moon: url is 'moon:1'; allowed:"),
        (Given("moon", url="http://u:p@m", api="openai"), None, "--url: url holds credentials"),
        (Given("moon", url="http://m", probe_url="m", api="openai"), None, "--probe-url: url is 'm'"),
        (Given("moon", url="http://m", api="grpc"), None, "workers.moon.api is 'grpc'"),
        (Given("moon", url="http://m", api="openai", supports=["a b"]), None, "workers.moon.supports.0 is 'a b'"),
        (Given("moon", url="http://m", api="openai"), None, "where NATS is is not given"),
        (Given("moon", url="http://m", api="openai", nats={"url": "n:1"}), None, "nats: url is 'n:1'; allowed:"),
        (Given("moon", url="http://m", api="openai", nats={**NATS, "token_env": "T"}), None, "token_env names T"),
        (Given("moon", url="http://m", api="openai", api_key_env="K", nats=NATS), None, "api_key_env names K"),
        (
            Given("moon", url="http://m", api="openai", nats={**NATS, "tls": {"ca_file": Path("/none")}}),
            None,
            "the TLS files for NATS can't be used",
        ),
    ],
)
def test_what_is_missing_or_wrong_is_named(given: Given, foundry: Foundry | None, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        resolved(given, foundry)
    assert said in str(error.value)


def test_an_embedded_worker_that_does_not_run_says_how_to_start_it(tmp_path: Path) -> None:
    workers = {**raw_config()["workers"], "moon": {"url": "embedded", "api": "openai"}}
    with pytest.raises(ConfigError, match="no 'foundry up' is running"):
        resolved(Given("moon"), a_foundry(workers=workers, data_dir=tmp_path))


def test_wrong_use_exits_2_and_says_what_to_do(tmp_path: Path) -> None:
    code, _, said = ran(tmp_path, "--name", "moon")
    assert code == 2
    assert "do: Give --url http://host:port and --api ollama or openai" in said


# -- a real one -----------------------------------------------------------------------------------------------------


def test_once_prints_and_sends_one_heartbeat_and_exits_1_when_the_server_is_not_ready(
    tmp_path: Path, nats_url: str
) -> None:
    bucket = f"once{free_port()}"
    arguments = ("--name", "moon", "--url", "http://127.0.0.1:1", "--api", "openai", "--bucket", bucket, "--once")
    code, out, err = ran(tmp_path, *arguments, "--json", FOUNDRY_NATS__URL=nats_url)
    assert (code, err) == (1, "")
    printed = json.loads(out)
    assert (printed["name"], printed["state_hint"], printed["supports"]) == ("moon", "down", ["cpu_inference"])
    assert json.loads(read_bucket(NatsSettings(nats_url), bucket)["moon"].to_bytes()) == printed


def test_once_without_nats_prints_and_exits_3(tmp_path: Path) -> None:
    arguments = ("--name", "moon", "--url", "http://127.0.0.1:1", "--api", "openai", "--nats", "nats://127.0.0.1:1")
    code, out, err = ran(tmp_path, *arguments, "--once")
    assert code == 3
    assert "can't be reached" in " ".join(out.split())
    assert "NATS at nats://127.0.0.1:1 can't be used" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_leaves_cleanly_when_told_to(tmp_path: Path, nats_url: str, number: signal.Signals) -> None:
    bucket, settings = f"signal{free_port()}", NatsSettings(nats_url)
    config = raw_config(nats={"url": nats_url}, fleet={"bucket": bucket, "heartbeat_s": 0.2})
    config["workers"]["moon"]["url"] = "http://127.0.0.1:1"
    (tmp_path / "foundry.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    with command(tmp_path, "--name", "moon") as process:
        wait_for("three heartbeats", lambda: (read_bucket(settings, bucket)["moon"].sequence or 0) >= 2)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert read_bucket(settings, bucket) == {}
    start, down, left = out.splitlines()
    assert start == (
        f"moon: http://127.0.0.1:1 (ollama), a heartbeat every 0.2 s to {nats_url}, bucket {bucket}_workers"
    )
    assert down.startswith("moon: server down: ")
    assert "http://127.0.0.1:1" in down
    assert left == "moon: left"


def test_a_loopback_url_is_warned_of_when_nats_is_elsewhere(tmp_path: Path) -> None:
    arguments = ("--name", "moon", "--url", "http://localhost:1", "--api", "openai", "--nats", "nats://nats.invalid:1")
    with command(tmp_path, *arguments, "--json") as process:
        assert process.stdout is not None
        lines = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.terminate()
        process.communicate(timeout=60)
    assert "http://localhost:1 means this host to whoever reads it; give --url" in lines[1]["said"]
    assert (lines[1]["worker"], process.returncode) == ("moon", 0)


# -- the service ----------------------------------------------------------------------------------------------------


@pytest.fixture
def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#", ";"))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(UNIT, encoding="utf-8")
    return parser


def test_the_service_can_be_read_and_starts_again_for_ever(unit: configparser.ConfigParser) -> None:
    assert unit.sections() == ["Unit", "Service", "Install"]
    assert unit["Service"]["Restart"] == "always"
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    assert unit["Service"]["Environment"].endswith(":/usr/lib/wsl/lib")
    assert unit["Service"]["EnvironmentFile"]


def test_the_service_gives_the_command_options_that_it_has(unit: configparser.ConfigParser) -> None:
    program, subcommand, *arguments = shlex.split(unit["Service"]["ExecStart"])
    assert (Path(program).name, subcommand) == ("foundry", "worker")
    documented = [line for line in UNIT.read_text(encoding="utf-8").splitlines() if line.startswith("#     WORKER_OPT")]
    given = [a for a in [*arguments, *shlex.split(documented[0].partition("=")[2])] if a.startswith("--")]
    command = typer.main.get_command(app).commands["worker"]  # type: ignore[attr-defined]
    known = {option for parameter in command.params for option in parameter.opts}
    assert given
    assert set(given) <= known
    assert {a for a in arguments if a.startswith("$")} - {"$WORKER_OPTIONS"} <= {
        f"${{{line.split('=')[0].strip('# ')}}}"
        for line in UNIT.read_text(encoding="utf-8").splitlines()
        if "=" in line
    }
