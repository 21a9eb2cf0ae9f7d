"""Where the embedded parts listen: a small file that ``foundry up`` writes and every other process reads.

Belongs here: that file, and turning ``embedded`` in the configuration into a URL. Does not belong here: starting the
parts (``embedded.supervisor``) or talking to them.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from model_foundry.config import EMBEDDED, FoundryConfig
from model_foundry.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Endpoints:
    """What one running ``foundry up`` offers. ``workers`` holds the embedded ones only."""

    pid: int
    started_at: str
    nats_url: str | None = None
    workers: dict[str, str] = field(default_factory=dict)
    web_url: str | None = None


def endpoints_file(data_dir: Path) -> Path:
    """The file's place."""
    return data_dir / "run" / "endpoints.json"


def write(data_dir: Path, endpoints: Endpoints) -> None:
    """Replaces the file in one step, so that no reader sees half of it."""
    file = endpoints_file(data_dir)
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(asdict(endpoints), indent=1), encoding="utf-8")
    part.replace(file)


def remove(data_dir: Path) -> None:
    """Takes the file away at a clean stop."""
    endpoints_file(data_dir).unlink(missing_ok=True)


def read(data_dir: Path) -> Endpoints | None:
    """The endpoints of the running stack; None when nothing runs here (a file left by a dead one counts as none)."""
    try:
        raw = json.loads(endpoints_file(data_dir).read_text(encoding="utf-8"))
        found = Endpoints(**raw)
        os.kill(found.pid, 0)
    except PermissionError:
        return found
    except (OSError, ValueError, TypeError):
        return None
    return found


def nats_url(config: FoundryConfig) -> str:
    """URL of NATS.

    Raises:
        ConfigError: when it is the embedded one and nothing runs here.
    """
    if config.nats.url != EMBEDDED:
        return config.nats.url
    found = read(config.data_dir)
    if found is None or found.nats_url is None:
        raise ConfigError(
            f"nats.url is 'embedded', and no 'foundry up' is running over {config.data_dir}",
            hint="Start it with 'foundry up', or set nats.url to your own server.",
        )
    return found.nats_url


def worker_url(config: FoundryConfig, worker: str) -> str | None:
    """Base URL of a worker; None for an embedded one that does not run now."""
    url = config.workers[worker].url
    if url != EMBEDDED:
        return url
    found = read(config.data_dir)
    return found.workers.get(worker) if found else None
