"""``foundry worker``: the agent that runs beside a model server and sends its heartbeats.

Belongs here: its options, put together from the command line, the environment and the configuration file; signals.
Does not belong here: what the agent does (``fleet.agent``).
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

import typer
from pydantic import BaseModel, ValidationError

from model_foundry import config as configuration
from model_foundry.cli.output import ConfigOption, JsonOption, console, print_json, print_table
from model_foundry.config import EMBEDDED, FleetConfig, NatsConfig, WorkerConfig
from model_foundry.embedded import endpoints
from model_foundry.errors import ConfigError
from model_foundry.fleet.agent import Agent, AgentOptions
from model_foundry.fleet.heartbeat import Heartbeat, name_problem, url_problem, workers_bucket
from model_foundry.inference.client import utc_now
from model_foundry.inference.target import WorkerTarget, bearer
from model_foundry.jetstream.client import NatsSettings
from model_foundry.runtime import Foundry

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Given:
    """The options as given; None or empty where they are not."""

    name: str
    url: str | None = None
    probe_url: str | None = None
    api: str | None = None
    supports: Sequence[str] = ()
    slots: int | None = None
    models: Sequence[str] = ()
    gpu_index: int | None = None
    api_key_env: str | None = None
    api_key_file: Path | None = None
    interval_s: float | None = None
    bucket: str | None = None
    nats: Mapping[str, Any] = field(default_factory=dict)


def worker(
    name: Annotated[str, typer.Option("--name", "-n", help="The worker's name; the key of its heartbeats.")],
    url: Annotated[str | None, typer.Option("--url", help="Where others reach its server.")] = None,
    probe_url: Annotated[
        str | None, typer.Option("--probe-url", help="Where this agent reaches it, when that is elsewhere.")
    ] = None,
    api: Annotated[str | None, typer.Option("--api", help="The server's dialect: ollama or openai.")] = None,
    supports: Annotated[
        list[str] | None,
        typer.Option("--supports", help="Capabilities, preferred first; repeat it, or separate by comma."),
    ] = None,
    slots: Annotated[
        int | None, typer.Option("--slots", min=1, max=1024, help="Requests at once (default: as the server tells).")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option("--model", "-m", help="A model, for a server that does not list them; repeat.")
    ] = None,
    gpu_index: Annotated[
        int | None, typer.Option("--gpu-index", min=0, help="The GPU it runs on (default: the only one).")
    ] = None,
    interval_s: Annotated[
        float | None,
        typer.Option(
            "--interval-s", min=0.05, max=600, help="Seconds between heartbeats (default: fleet.heartbeat_s)."
        ),
    ] = None,
    nats: Annotated[
        str | None, typer.Option("--nats", help="URL of NATS (default: $FOUNDRY_NATS__URL, else the configuration's).")
    ] = None,
    nats_user_env: Annotated[str | None, typer.Option(help="Environment variable with NATS's user.")] = None,
    nats_password_env: Annotated[str | None, typer.Option(help="Environment variable with the password.")] = None,
    nats_token_env: Annotated[str | None, typer.Option(help="Environment variable with a token.")] = None,
    nats_creds_file: Annotated[Path | None, typer.Option(help="NATS credentials file.")] = None,
    nats_nkey_seed_file: Annotated[Path | None, typer.Option(help="File with an NKey seed.")] = None,
    nats_tls_ca_file: Annotated[Path | None, typer.Option(help="Certificates that NATS's is checked with.")] = None,
    nats_tls_cert_file: Annotated[Path | None, typer.Option(help="Our certificate for NATS.")] = None,
    nats_tls_key_file: Annotated[Path | None, typer.Option(help="Its key.")] = None,
    bucket: Annotated[str | None, typer.Option("--bucket", help="As fleet.bucket (default: foundry).")] = None,
    api_key_env: Annotated[str | None, typer.Option(help="Environment variable with the server's key.")] = None,
    api_key_file: Annotated[Path | None, typer.Option(help="File with the server's key.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Send one heartbeat, print it, exit; 1 if not ready.")] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Run beside a model server: send its heartbeats until Ctrl-C or SIGTERM.

    With a configuration file that knows the worker, --name is enough; options win over the file. Without one, give
    --name, --url, --api and --nats.
    """
    given = Given(
        name=name,
        url=url,
        probe_url=probe_url,
        api=api,
        supports=[part.strip() for entry in supports or () for part in entry.split(",") if part.strip()],
        slots=slots,
        models=model or (),
        gpu_index=gpu_index,
        api_key_env=api_key_env,
        api_key_file=api_key_file,
        interval_s=interval_s,
        bucket=bucket,
        nats={
            "url": nats,
            "user_env": nats_user_env,
            "password_env": nats_password_env,
            "token_env": nats_token_env,
            "creds_file": nats_creds_file and nats_creds_file.absolute(),
            "nkey_seed_file": nats_nkey_seed_file and nats_nkey_seed_file.absolute(),
            "tls": _tls(nats_tls_ca_file, nats_tls_cert_file, nats_tls_key_file),
        },
    )
    settings, target, options = resolve(given, _foundry(config))
    if once:
        _once(Agent(settings, target, options), as_json)
        return
    say = _json_sayer(name) if as_json else _sayer(name)
    asyncio.run(_run(Agent(settings, target, options, say=say), say, _first_lines(settings, options)))


def resolve(
    given: Given, foundry: Foundry | None, *, environ: Mapping[str, str] = os.environ
) -> tuple[NatsSettings, WorkerTarget, AgentOptions]:
    """Puts together what the agent needs: options first, then the environment, then the configuration file.

    Args:
        given: the options.
        foundry: the configuration; None when there is no file.
        environ: for ``FOUNDRY_NATS__URL`` and its like when there is no file, and for secrets by reference.

    Raises:
        ConfigError: when something is missing or can't be used; it says which option to give.
    """
    if problem := name_problem(given.name):
        raise ConfigError(f"--name: {problem}")
    overrides = configuration.apply_overrides({}, environ) if foundry is None else {}
    fleet = _section(FleetConfig, overrides.get("fleet", {}), "fleet") if foundry is None else foundry.config.fleet
    known = foundry.config.workers.get(given.name) if foundry is not None else None
    section = _worker_section(given, foundry, known)
    probe_url = given.probe_url or section.url
    for option, url in (("--url", section.url), ("--probe-url", probe_url)):
        if problem := url_problem(url):
            raise ConfigError(f"{option}: {problem}")
    key_file = section.api_key_file
    if key_file is not None and given.api_key_file is None and foundry is not None:
        key_file = foundry.config_file.parent / key_file
    key = configuration.secret(section.api_key_env, key_file, key="api_key", environ=environ)
    target = WorkerTarget(
        name=given.name,
        url=probe_url,
        api=section.api,
        slots=section.slots,
        headers=bearer(key),
    )
    options = AgentOptions(
        name=given.name,
        url=section.url,
        api=section.api,
        supports=tuple(dict.fromkeys(section.supports)),
        slots=section.slots if "slots" in section.model_fields_set else None,
        models=tuple(given.models or _models(foundry, given.name, known)),
        gpu_index=section.gpu_index,
        heartbeat_s=given.interval_s or fleet.heartbeat_s,
        bucket=given.bucket or fleet.bucket,
        replicas=fleet.replicas,
    )
    return _nats(given, foundry, overrides.get("nats", {})), target, options


def _worker_section(given: Given, foundry: Foundry | None, known: WorkerConfig | None) -> WorkerConfig:
    """The worker as the configuration writes one, with the options over it."""
    section = known.model_dump(exclude_unset=True) if known is not None else {}
    if known is not None and known.url == EMBEDDED and foundry is not None and given.url is None:
        section["url"] = endpoints.worker_url(foundry.config, given.name)
        if section["url"] is None:
            raise ConfigError(
                f"worker {given.name!r} is embedded, and no 'foundry up' is running over {foundry.config.data_dir}",
                hint="Start it with 'foundry up', or give your own server's --url.",
            )
    options = {
        "url": given.url,
        "api": given.api,
        "supports": list(given.supports) or None,
        "slots": given.slots,
        "gpu_index": given.gpu_index,
        "api_key_env": given.api_key_env,
        "api_key_file": given.api_key_file,
    }
    section |= {k: v for k, v in options.items() if v is not None}
    if missing := [f"--{key}" for key in ("url", "api") if key not in section]:
        where = (
            "there is no configuration file"
            if foundry is None
            else f"{foundry.config_file} has no worker {given.name!r}; it has {', '.join(foundry.config.workers)}"
        )
        raise ConfigError(
            f"{' and '.join(missing)} not given, and {where}",
            hint="Give --url http://host:port and --api ollama or openai, or a file that has the worker with --config.",
        )
    return _section(WorkerConfig, section, f"workers.{given.name}")


def _models(foundry: Foundry | None, name: str, known: WorkerConfig | None) -> list[str]:
    """The server's names of the models that the file gives it."""
    if foundry is None or known is None:
        return []
    if known.models is not None:
        return list(known.models.values())
    return [m for m in foundry.config.models if foundry.config.serves(name, m)]


def _nats(given: Given, foundry: Foundry | None, overrides: Mapping[str, Any]) -> NatsSettings:
    options = {k: v for k, v in given.nats.items() if v is not None}
    if foundry is None:
        config = _section(NatsConfig, {**overrides, **options}, "nats")
        if config.url == EMBEDDED:
            raise ConfigError(
                "where NATS is is not given, and there is no configuration file",
                hint="Give --nats nats://host:4222, or set FOUNDRY_NATS__URL.",
            )
        base_dir: Path | None = None
    else:
        base_dir = foundry.config_file.parent
        config = _section(NatsConfig, {**foundry.config.nats.model_dump(exclude_unset=True), **options}, "nats")
        if config.url == EMBEDDED:
            config = config.model_copy(update={"url": endpoints.nats_url(foundry.config)})
    settings = NatsSettings.from_config(config, config.url, base_dir)
    try:
        settings.connect_options()
    except OSError as error:
        raise ConfigError(f"the TLS files for NATS can't be used: {error}", hint="Check nats.tls.*_file.") from None
    return settings


def _section(model: type[M], values: Mapping[str, Any], where: str) -> M:
    """A section of the configuration from parts of several sources.

    Raises:
        ConfigError: with each key, what was found and what is allowed.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        lines = []
        for problem in error.errors(include_url=False):
            key = ".".join(str(step) for step in (where, *problem["loc"]))
            said = problem["msg"].removeprefix("Value error, ")
            lines.append(f"{key} is {problem['input']!r}: {said}" if problem["loc"] else f"{key}: {said}")
        raise ConfigError("\n".join(lines)) from None


def _tls(ca: Path | None, cert: Path | None, key: Path | None) -> dict[str, Path] | None:
    files = {"ca_file": ca, "cert_file": cert, "key_file": key}
    return {k: v.absolute() for k, v in files.items() if v is not None} or None


def _foundry(config: Path | None) -> Foundry | None:
    """The configuration; None when none was named and there is none."""
    if config is None and not os.environ.get(configuration.CONFIG_ENV):
        try:
            configuration.find_config_file()
        except ConfigError:
            return None
    return Foundry.load(config)


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# -- running --------------------------------------------------------------------------------------------------------


async def _run(agent: Agent, say: Callable[[str], None], first_lines: Sequence[str]) -> None:
    """Runs it between its first lines and its last; from the first on, a signal is a clean stop."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    for line in first_lines:
        say(line)
    await agent.run(stop)
    say("left")


def _first_lines(settings: NatsSettings, options: AgentOptions) -> list[str]:
    bucket = workers_bucket(options.bucket).name
    beats = f"a heartbeat every {options.heartbeat_s:g} s to {settings.url}, bucket {bucket}"
    lines = [f"{options.url} ({options.api}), {beats}"]
    if _is_loopback(options.url) and not _is_loopback(settings.url.split(",")[0]):
        lines.append(
            f"{options.url} means this host to whoever reads it; give --url as others reach it, and this as --probe-url"
        )
    return lines


def _once(agent: Agent, as_json: bool) -> None:
    async def look_and_send() -> Heartbeat:
        heartbeat = await agent.once()
        if as_json:
            print_json(json.loads(heartbeat.to_bytes()))
        else:
            _print(heartbeat)
        await agent.send(heartbeat)
        return heartbeat

    heartbeat = asyncio.run(look_and_send())
    raise typer.Exit(0 if heartbeat.state_hint == "ready" else 1)


def _print(heartbeat: Heartbeat) -> None:
    rows = [(key, value) for key, value in json.loads(heartbeat.to_bytes()).items() if value not in ([], {})]
    print_table("", ["field", "value"], [(key, _readable(value)) for key, value in rows])


def _readable(value: Any) -> Any:
    if isinstance(value, dict):
        return ", ".join(f"{k} {v}" for k, v in value.items())
    if isinstance(value, list):
        return "\n".join(str(_readable(v)) for v in value)
    return str(value)


def _sayer(name: str) -> Callable[[str], None]:
    return lambda line: console.print(f"{name}: {line}", markup=False, soft_wrap=True)


def _json_sayer(name: str) -> Callable[[str], None]:
    return lambda line: print(
        json.dumps({"at": utc_now().isoformat(), "worker": name, "said": line}, ensure_ascii=False), flush=True
    )
