from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from model_foundry import config as configuration
from model_foundry.config import apply_overrides, load, parse, secret
from model_foundry.errors import ConfigError
from model_foundry.runtime import Foundry
from model_foundry_tests.builders import a_config, raw_config


def write(folder: Path, text: str) -> Path:
    file = folder / "foundry.yaml"
    file.write_text(dedent(text), encoding="utf-8")
    return file


MINIMAL = """
    capabilities: [cpu_inference]
    models: {small: cpu_inference}
    workers: {moon: {url: "http://127.0.0.1:11434", api: ollama}}
    domains: {general: {candidates: [small]}}
"""


def test_a_minimal_file_loads_and_its_data_lie_beside_it(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, MINIMAL), environ={})
    assert loaded.data_dir == tmp_path / "data"
    assert loaded.lanes == ["cpu_inference", "unroutable"]


def test_a_folder_of_data_files_starts_at_the_file(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    loaded = load(write(tmp_path / "etc", MINIMAL + "    lake: {data_path: ../parquet}\n"), environ={})
    assert loaded.lake.data_path == str(tmp_path / "parquet")


def test_a_worker_without_supports_does_cpu_inference_and_one_name_is_read_as_a_list() -> None:
    workers = {
        "old": {"url": "http://127.0.0.1:1", "api": "ollama"},
        "one": {"url": "http://127.0.0.1:2", "api": "ollama", "supports": "gpu_inference"},
    }
    loaded = a_config(workers=workers, roles={}, profiles={})
    assert loaded.workers["old"].supports == ["cpu_inference"]
    assert loaded.workers["one"].supports == ["gpu_inference"]


def test_a_new_gpu_only_model_is_one_line() -> None:
    models = {**raw_config()["models"], "huge": "gpu_inference"}
    assert a_config(models=models).models["huge"].capability == "gpu_inference"


def test_a_worker_without_models_serves_every_model_of_its_lanes_and_a_list_serves_just_those() -> None:
    loaded = a_config()
    assert loaded.serves("moon", "small")
    assert not loaded.serves("moon", "big")
    workers = raw_config()["workers"]
    workers["card"]["models"] = ["small"]
    assert not a_config(workers=workers).serves("card", "big")


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"models": {"small": "cpu"}}, ["models.small.capability", "'cpu'", "cpu_inference, gpu_inference"]),
        ({"profile": "tiny"}, ["profile", "'tiny'", "full, minimal"]),
        ({"default_domain": "poetry"}, ["default_domain", "'poetry'", "general, code, japanese"]),
        ({"domains": {"general": {"candidates": ["nope"]}}}, ["domains.general.candidates", "'nope'", "small, big"]),
        ({"profiles": {"full": ["nobody"]}}, ["profiles.full", "'nobody'", "coder, helper"]),
        ({"capabilities": ["unroutable", "cpu_inference", "gpu_inference"]}, ["capabilities", "'unroutable'"]),
        ({"limits": {"max_attempts": 0}}, ["limits.max_attempts", "0", "greater than or equal to 1"]),
        ({"limits": {"max_attemps": 3}}, ["limits.max_attemps", "no such key", "max_attempts"]),
        ({"nats": {"url": "localhost:4222"}}, ["nats", "'localhost:4222'", "nats://host:port"]),
        ({"wrkers": {}}, ["wrkers", "no such key", "workers"]),
        ({"lake": {"catalog": "oracle"}}, ["lake", "'oracle'", "'sqlite'"]),
        (
            {"events": {"redact": ["content", "node_id", "from"]}},
            ["events.redact: 'node_id', 'from'", "any name but call_id"],
        ),
        (
            {"streams": {"results": {"name": "R", "subjects": ["out.>"]}}},
            ["streams.results.subjects", "out.>", "one that takes results.a"],
        ),
    ],
)
def test_an_error_names_the_key_the_value_and_what_is_allowed(change: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(raw_config(**change))
    for part in parts:
        assert part in str(caught.value)


def test_an_error_inside_a_worker_names_the_worker_and_what_is_allowed() -> None:
    workers = raw_config()["workers"]
    workers["moon"] |= {"api": "grpc", "slotz": 2}
    with pytest.raises(ConfigError) as caught:
        parse(raw_config(workers=workers))
    assert "workers.moon.api: is 'grpc'; allowed: 'openai', 'ollama' or 'searxng'" in str(caught.value)
    assert "workers.moon.slotz: no such key; allowed here: url, api, supports" in str(caught.value)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(raw_config(profile="tiny", default_domain="poetry"))
    assert "'tiny'" in str(caught.value)
    assert "'poetry'" in str(caught.value)


def test_a_key_that_stands_twice_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'models' stands twice"):
        load(write(tmp_path, MINIMAL + "    models: {other: cpu_inference}\n"), environ={})


def test_a_file_that_is_no_yaml_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "models: [unclosed")
    with pytest.raises(ConfigError, match=str(file)):
        load(file, environ={})


def test_an_environment_variable_overrides_a_key_even_where_names_hold_dots_and_colons() -> None:
    raw = {"nats": {"url": "embedded"}, "workers": {"mini-pc.1": {"slots": 1}}}
    environ = {"FOUNDRY_NATS__URL": "nats://127.0.0.1:4222", "FOUNDRY_WORKERS__MINI_PC_1__SLOTS": "4"}
    assert apply_overrides(raw, environ) == {
        "nats": {"url": "nats://127.0.0.1:4222"},
        "workers": {"mini-pc.1": {"slots": 4}},
    }


def test_an_override_is_checked_like_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"limits\.max_attempts"):
        load(write(tmp_path, MINIMAL), environ={"FOUNDRY_LIMITS__MAX_ATTEMPTS": "many"})


def test_top_level_values_can_be_overridden_and_other_foundry_variables_are_left_alone(tmp_path: Path) -> None:
    environ = {"FOUNDRY_DATA_DIR": str(tmp_path / "elsewhere"), "FOUNDRY_RUN_HOST": "/some/socket"}
    assert load(write(tmp_path, MINIMAL), environ=environ).data_dir == tmp_path / "elsewhere"


def test_a_secret_comes_from_the_environment_or_a_file_and_is_in_no_message(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("s3cret\n")
    assert secret("KEY", None, key="x", environ={"KEY": "abc"}).get_secret_value() == "abc"  # type: ignore[union-attr]
    assert secret(None, file, key="x").get_secret_value() == "s3cret"  # type: ignore[union-attr]
    assert "s3cret" not in repr(secret(None, file, key="x"))
    with pytest.raises(ConfigError, match="x_env names KEY, which is not set"):
        secret("KEY", None, key="x", environ={})


def test_the_routing_digest_changes_with_routing_and_not_with_a_url() -> None:
    workers = raw_config()["workers"]
    workers["moon"]["url"] = "http://127.0.0.1:9"
    assert a_config(workers=workers).routing_digest() == a_config().routing_digest()
    assert a_config(profile="minimal").routing_digest() != a_config().routing_digest()


def test_order_decides_and_is_part_of_the_digest_and_of_the_snapshot(tmp_path: Path) -> None:
    one = a_config()
    other = a_config(domains=dict(reversed(raw_config()["domains"].items())))
    assert one.routing_digest() != other.routing_digest()
    foundry = Foundry(other.model_copy(update={"data_dir": tmp_path}), tmp_path / "foundry.yaml")
    digest = foundry.remember_routing()
    changed = Foundry(one.model_copy(update={"data_dir": tmp_path}), tmp_path / "foundry.yaml")
    assert list(changed.routing_config(digest).domains) == list(other.domains)


@pytest.mark.parametrize(
    ("lake", "words"),
    [
        ({"catalog": "mysql://db/lake"}, "allowed: 'sqlite', or postgresql://"),
        ({"catalog": "postgresql://db"}, "allowed: 'sqlite', or postgresql://"),
        ({"catalog": "postgresql://ada:s3cret@db/lake"}, "lake.password_env"),
    ],
)
def test_a_catalog_is_sqlite_or_postgresql_and_its_password_is_elsewhere(lake: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        a_config(lake=lake)
    assert words in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_credentials_in_the_url_of_nats_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"nats\.user_env") as caught:
        a_config(nats={"url": "nats://ada:s3cret@host:4222"})
    assert "s3cret" not in str(caught.value)


def test_the_routing_part_is_a_configuration_of_its_own_with_the_same_digest() -> None:
    whole = a_config(profile="full")
    assert parse(whole.routing_part()).routing_digest() == whole.routing_digest()


def test_no_configuration_anywhere_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        configuration.find_config_file(environ={})
    assert "foundry demo" in (caught.value.hint or "")


def test_the_configuration_is_found_above_and_the_demos_is_the_last_resort(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "foundry-demo").mkdir()
    demo = write(tmp_path / "foundry-demo", MINIMAL)
    monkeypatch.chdir(tmp_path)
    assert configuration.find_config_file(environ={}) == demo
    own = write(tmp_path, MINIMAL)
    monkeypatch.chdir(tmp_path / "foundry-demo")
    assert configuration.find_config_file(environ={}) == demo
    monkeypatch.chdir(tmp_path)
    assert configuration.find_config_file(environ={}) == own
