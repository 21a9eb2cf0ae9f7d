"""``foundry up``: starts every part, keeps it running, stops it cleanly.

    lock ── nats-server ── streams ── lake ── llama.cpp servers ── code server ── run host ── daemon, webserver

Belongs here: the order of starting and stopping, restarts, the readiness of each part. Does not belong here: how one
process is held (``processes``), how the parts are configured (``nats``, ``llama``), what they do.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import yaml
from filelock import FileLock, Timeout

from model_foundry.config import CONFIG_ENV, EMBEDDED
from model_foundry.embedded import endpoints, nats
from model_foundry.embedded.endpoints import Endpoints
from model_foundry.embedded.llama import weights_path
from model_foundry.embedded.processes import ManagedProcess, free_port
from model_foundry.errors import EmbeddedPartError
from model_foundry.jetstream.client import JetStream, with_jetstream
from model_foundry.run_host import SOCKET_ENV, ask
from model_foundry.runtime import Foundry

MODULE = "model_foundry.defs.definitions"
LOCATION = "model_foundry"
RUN_GRACE_S = 25.0
"""Longer than the run host gives its runs to end."""

RESTART_DELAYS_S = (0.5, 2.0, 5.0, 15.0, 30.0)


@dataclass
class Part:
    """One supervised process and what is needed to start it again."""

    process: ManagedProcess
    is_ready: Callable[[], bool]
    ready_timeout_s: float
    restarts: int = 0
    started_at_s: float = field(default_factory=time.monotonic)
    restart_at_s: float | None = None


class Supervisor:
    """Holds the parts of one stack.

    Args:
        foundry: the configuration.
        say: called with each line a person should see while parts start, stop or fall over.
    """

    def __init__(self, foundry: Foundry, say: Callable[[str], None]) -> None:
        self.foundry = foundry
        self.say = say
        self.parts: list[Part] = []
        self.web_url = ""
        self._run_dir = foundry.config.data_dir / "run"
        self._log_dir = foundry.config.data_dir / "logs"

    @property
    def log_dir(self) -> Path:
        """Where each part's log is."""
        return self._log_dir

    @contextmanager
    def running(self) -> Iterator[Supervisor]:
        """The whole stack, started; stopped in reverse order at the end, whatever ended it.

        Raises:
            EmbeddedPartError: when a stack already runs over this data folder, or a part does not come up.
        """
        self._run_dir.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            stack.enter_context(self._only_one())
            stack.callback(self._stop)
            self._start()
            yield self

    def watch(self, once: bool = False) -> None:
        """Restarts parts that ended, with growing delays; returns when asked to look only once."""
        while True:
            now = time.monotonic()
            for part in self.parts:
                if part.process.alive:
                    if now - part.started_at_s > RESTART_DELAYS_S[-1] * 2:
                        part.restarts = 0
                    continue
                if part.restart_at_s is None:
                    delay_s = RESTART_DELAYS_S[min(part.restarts, len(RESTART_DELAYS_S) - 1)]
                    part.restart_at_s = now + delay_s
                    self.say(f"{part.process.name} ended; starting it again in {delay_s:g} s ({part.process.log_file})")
                elif now >= part.restart_at_s:
                    part.restart_at_s = None
                    part.restarts += 1
                    part.started_at_s = now
                    part.process.start()
            if once:
                return
            time.sleep(0.5)

    def rss_bytes(self) -> dict[str, int]:
        """Resident memory of each part, children included."""
        return {part.process.name: part.process.rss_bytes for part in self.parts}

    # -- starting -------------------------------------------------------------------------------------------------

    @contextmanager
    def _only_one(self) -> Iterator[None]:
        lock = FileLock(self._run_dir / "up.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            found = endpoints.read(self.foundry.config.data_dir)
            where = f" (process {found.pid}, {found.web_url or 'still starting'})" if found else ""
            raise EmbeddedPartError(
                f"'foundry up' already runs over {self.foundry.config.data_dir}{where}",
                hint="Use that one, stop it with Ctrl-C, or give this one another data_dir.",
            ) from None
        try:
            yield
        finally:
            lock.release()

    def _start(self) -> None:
        config = self.foundry.config
        started_at = datetime.now(UTC).isoformat(timespec="seconds")
        nats_url = self._start_nats() if config.nats.url == EMBEDDED else None
        endpoints.write(config.data_dir, Endpoints(os.getpid(), started_at, nats_url))
        with_jetstream(self.foundry.nats, self._ensure_streams)
        self.foundry.warehouse.migrate()
        self.foundry.remember_routing()
        workers = {name: self._start_llama(name) for name, w in config.workers.items() if w.url == EMBEDDED}
        endpoints.write(config.data_dir, Endpoints(os.getpid(), started_at, nats_url, workers))
        self._start_dagster()
        if config.notes is not None:
            self._start_search()
        self._wait_for_all()
        endpoints.write(config.data_dir, Endpoints(os.getpid(), started_at, nats_url, workers, self.web_url))

    def _wait_for_all(self) -> None:
        for part in self.parts:
            part.process.wait_ready(part.is_ready, part.ready_timeout_s)

    async def _ensure_streams(self, js: JetStream) -> None:
        streams = self.foundry.config.streams
        for stream in (streams.prompts, streams.events, streams.results):
            await js.ensure_stream(stream)

    def _add(
        self,
        name: str,
        argv: list[str],
        is_ready: Callable[[], bool],
        *,
        env: dict[str, str] | None = None,
        ready_timeout_s: float = 60.0,
    ) -> Part:
        process = ManagedProcess(name, argv, env={**os.environ, **(env or {})}, log_file=self._log_dir / f"{name}.log")
        part = Part(process, is_ready, ready_timeout_s)
        self.parts.append(part)
        process.start()
        return part

    def _start_nats(self) -> str:
        config = self.foundry.config
        port = config.nats.port or free_port()
        store = config.data_dir / "nats"
        file = nats.write_config(self._run_dir, port, store)
        self.say(f"starting nats-server on 127.0.0.1:{port}")
        part = self._add("nats-server", nats.argv(file), lambda: nats.is_ready(port), ready_timeout_s=30)
        part.process.wait_ready(part.is_ready, part.ready_timeout_s)
        return f"nats://127.0.0.1:{port}"

    def _start_llama(self, name: str) -> str:
        worker = self.foundry.config.workers[name]
        weights_path()  # fails early, with what to install
        port = free_port()
        alias = next(iter((worker.models or {}).values()), "smollm2")
        embedded = sum(w.url == EMBEDDED for w in self.foundry.config.workers.values())
        threads = max(1, (os.cpu_count() or 1) // embedded)
        self.say(
            f"starting llama.cpp for worker {name} on 127.0.0.1:{port}"
            + (f": {worker.stand_in}" if worker.stand_in else "")
        )
        argv = [sys.executable, "-m", "model_foundry.embedded.llama", "--port", str(port), "--slots", str(worker.slots)]
        argv += ["--alias", alias, "--threads", str(threads)]
        argv += ["--embedding"] if self.foundry.config.notes_lane in worker.supports else []
        self._add(f"llama-{name}", argv, lambda: _http_ok(f"http://127.0.0.1:{port}/health"))
        return f"http://127.0.0.1:{port}"

    def _start_dagster(self) -> None:
        config, code_port = self.foundry.config, free_port()
        home = config.data_dir / "dagster"
        home.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(instance_settings(self.foundry), home / "dagster.yaml")
        workspace = self._run_dir / "workspace.yaml"
        server = {"host": "127.0.0.1", "port": code_port, "location_name": LOCATION}
        workspace.write_text(yaml.safe_dump({"load_from": [{"grpc_server": server}]}), encoding="utf-8")
        run_host = run_host_socket(config.data_dir)
        port = config.dagster.port or (3000 if _is_free(config.dagster.host, 3000) else free_port())
        self.web_url = f"http://{config.dagster.host}:{port}"
        env = {
            "DAGSTER_HOME": str(home),
            CONFIG_ENV: str(self.foundry.config_file),
            "FOUNDRY_DATA_DIR": str(config.data_dir),
            SOCKET_ENV: str(run_host),
            "DAGSTER_DISABLE_TELEMETRY": "yes",
            "PYTHONUNBUFFERED": "1",
        }
        python, quiet = [sys.executable, "-m"], ["--log-level", "warning"]
        location = ["--location-name", LOCATION, *quiet]
        self.say("starting Dagster: run host, code server")
        # the run host goes alone: opening a new instance makes its tables, and two processes at once collide over that
        argv = [*python, "model_foundry.run_host", str(run_host)]
        self._add("dagster-run-host", argv, lambda: _pong(run_host), env=env)
        self._wait_for_all()
        self._add(
            "dagster-code-server",
            [*python, "dagster", "api", "grpc", "-h", "127.0.0.1", "-p", str(code_port), "-m", MODULE, *location],
            lambda: not _is_free("127.0.0.1", code_port),
            env=env,
        )
        self._wait_for_all()
        self.say("starting Dagster: daemon, web UI")
        self._add(
            "dagster-daemon",
            [*python, "dagster._daemon", "run", "-w", str(workspace)],
            lambda: True,
            env=env,
        )
        self._add(
            "dagster-webserver",
            [*python, "dagster_webserver", "-h", config.dagster.host, "-p", str(port), "-w", str(workspace), *quiet],
            lambda: _http_ok(f"{self.web_url}/server_info"),
            env=env,
            ready_timeout_s=120,
        )

    def _start_search(self) -> None:
        """Answers searches of the notes over NATS."""
        argv = [sys.executable, "-m", "model_foundry.cli.main", "search", "--listen"]
        argv += ["--config", str(self.foundry.config_file)]
        self._add("notes-search", argv, lambda: True)

    # -- stopping -------------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        endpoints.remove(self.foundry.config.data_dir)
        # the daemon first, so that nothing new starts; nats-server last, so that running work can still publish
        first = ["dagster-daemon", "dagster-webserver", "dagster-run-host", "dagster-code-server"]
        by_name = {part.process.name: part for part in self.parts}
        rest = [name for name in reversed(by_name) if name not in first]
        for name in [*(name for name in first if name in by_name), *rest]:
            by_name[name].process.stop(RUN_GRACE_S if name == "dagster-run-host" else 10.0)


def instance_settings(foundry: Foundry) -> Path:
    """The ``dagster.yaml`` to use: the one beside ``foundry.yaml``, else the one that comes with the package."""
    package = Path(__file__).parent.parent
    for file in (
        foundry.config_file.parent / "dagster.yaml",
        package / "dagster.yaml",
        package.parent / "dagster.yaml",
    ):
        if file.is_file():
            return file
    raise EmbeddedPartError("dagster.yaml is missing from the installation", hint="Install model-foundry again.")


def run_host_socket(data_dir: Path) -> Path:
    """Path of the run host's socket: short, since a Unix socket's path may have about 100 bytes, and only ours."""
    folder = Path(tempfile.gettempdir()) / f"foundry-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise EmbeddedPartError(f"{folder} belongs to somebody else", hint="Set TMPDIR to a folder of your own.")
    return folder / f"{sha256(str(data_dir).encode()).hexdigest()[:16]}.sock"


def _http_ok(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310 (loopback, http only)
            return bool(response.status == 200)
    except OSError:
        return False


def _pong(path: Path) -> bool:
    try:
        return "pid" in ask(str(path), {"op": "ping"}, timeout_s=2)
    except (OSError, ValueError):
        return False


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((host, port)) != 0
