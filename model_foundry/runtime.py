"""One place that turns a configuration into the parts the flows use: NATS settings, the lake, worker targets.

Belongs here: construction only, the snapshots of the routing configuration, and the profile that was switched to. Does
not belong here: any decision (``routing``), any flow (``intake``, ``answering``). Nothing is connected before its use.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from model_foundry import config as configuration
from model_foundry.config import EMBEDDED, FoundryConfig, WorkerConfig
from model_foundry.embedded import endpoints
from model_foundry.errors import ConfigError
from model_foundry.inference.dispatch import WorkerTarget
from model_foundry.inference.target import bearer
from model_foundry.jetstream.client import NatsSettings
from model_foundry.warehouse.lake import Warehouse


def profile_file(config: FoundryConfig) -> Path:
    """Where the profile is kept that was switched to; what it names goes before the configuration file's."""
    return config.data_dir / "profile"


def switched_profile(config: FoundryConfig) -> str | None:
    """The profile that was switched to; None when it is the configuration file's."""
    try:
        return profile_file(config).read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def switch_profile(config: FoundryConfig, profile: str | None) -> None:
    """Switches the profile for everything that runs over this data folder, from its next prompt on; None goes back to
    the configuration file's.

    Raises:
        ConfigError: when there is no such profile.
    """
    if profile is None:
        profile_file(config).unlink(missing_ok=True)
        return
    if profile not in config.profiles:
        raise ConfigError(f"profile is {profile!r}; allowed: {', '.join(config.profiles) or '(none defined)'}")
    config.data_dir.mkdir(parents=True, exist_ok=True)
    part = profile_file(config).with_suffix(f".{os.getpid()}.part")
    part.write_text(profile + "\n", encoding="utf-8")
    part.replace(profile_file(config))


@dataclass(frozen=True)
class Foundry:
    """A configuration with the means to act on it.

    Attributes:
        config: the checked configuration.
        config_file: where it was read from; relative paths in it start there.
    """

    config: FoundryConfig
    config_file: Path

    @classmethod
    def load(cls, path: Path | str | None = None) -> Foundry:
        """Reads the configuration (see ``config.find_config_file`` for where), and which profile was switched to.

        Raises:
            ConfigError: when it can't be used.
        """
        file = configuration.find_config_file(path)
        config = configuration.load(file)
        switched = switched_profile(config)
        if switched is None:
            return cls(config, file)
        if switched not in config.profiles:
            raise ConfigError(
                f"{profile_file(config)} names profile {switched!r}; allowed: {', '.join(config.profiles) or '(none)'}",
                hint="Switch to another, or back to the file's: foundry profile --reset",
            )
        return cls(config.model_copy(update={"profile": switched}), file)

    @property
    def nats(self) -> NatsSettings:
        """How to reach NATS now.

        Raises:
            ConfigError: when NATS is embedded and not running, or a named secret is not there.
        """
        url = endpoints.nats_url(self.config)
        return NatsSettings.from_config(self.config.nats, url, self.config_file.parent)

    @cached_property
    def warehouse(self) -> Warehouse:
        """The lake; opened by its own ``reader()`` and ``writer()`` only."""
        return Warehouse(self.config.data_dir, self.config.lake)

    def worker_target(self, name: str, worker: WorkerConfig | None = None) -> WorkerTarget:
        """Where and how to ask one worker.

        Args:
            name: the worker's.
            worker: what it is; the configuration's entry when left out. One that joined by heartbeat has none there.

        Raises:
            ConfigError: when it is embedded and not running, or its key is not there.
        """
        worker = worker or self.config.workers[name]
        url = endpoints.worker_url(self.config, name) if worker.url == EMBEDDED else worker.url
        if url is None:
            raise ConfigError(
                f"worker {name!r} is embedded, and no 'foundry up' is running over {self.config.data_dir}",
                hint="Start it with 'foundry up', or give the worker your own server's url.",
            )
        key_file = worker.api_key_file and self.config_file.parent / worker.api_key_file
        key = configuration.secret(worker.api_key_env, key_file, key=f"workers.{name}.api_key")
        return WorkerTarget(name=name, url=url, api=worker.api, slots=worker.slots, headers=bearer(key))

    # -- routing snapshots: a run routes by the configuration its sensor tick used, whatever the file says since ------

    def remember_routing(self) -> str:
        """Keeps the routing part of the configuration under its digest and returns the digest."""
        digest = self.config.routing_digest()
        file = self._routing_file(digest)
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            part = file.with_suffix(f".{os.getpid()}.part")
            part.write_text(json.dumps(self.config.routing_part(), indent=1), encoding="utf-8")
            part.replace(file)
        return digest

    def routing_config(self, digest: str | None) -> FoundryConfig:
        """The configuration to route by: today's, or the remembered one of the digest.

        Raises:
            ConfigError: when the digest is not today's and was never remembered here.
        """
        if digest in (None, self.config.routing_digest()):
            return self.config
        file = self._routing_file(str(digest))
        try:
            return configuration.parse(json.loads(file.read_text(encoding="utf-8")), source=str(file))
        except OSError:
            raise ConfigError(
                f"the routing configuration {digest} is not remembered in {file.parent}",
                hint="Materialize the partition with no range: it then routes by today's configuration.",
            ) from None

    def _routing_file(self, digest: str) -> Path:
        return self.config.data_dir / "routing" / f"{digest}.json"
