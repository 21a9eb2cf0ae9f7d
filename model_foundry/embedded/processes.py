"""Child processes of ``foundry up``, held so that none outlives it.

Belongs here: starting, waiting, stopping, looking at one process. Does not belong here: which ones there are and when
one is started again (``supervisor``).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from model_foundry.errors import EmbeddedPartError

LOG_TAIL_LINES = 15


class ManagedProcess:
    """One child in a process group of its own; what it prints goes to its log file.

    It is started through ``model_foundry.embedded.child``, which asks Linux to stop it when we die, whatever ends us.

    Args:
        name: how people call it.
        argv: program and arguments.
        env: its whole environment.
        log_file: appended to.
    """

    def __init__(self, name: str, argv: Sequence[str], *, env: Mapping[str, str], log_file: Path) -> None:
        self.name = name
        self.argv = list(argv)
        self.env = dict(env)
        self.log_file = log_file
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its process id, once started."""
        return self._process.pid if self._process else None

    @property
    def alive(self) -> bool:
        """Whether it runs now."""
        return self._process is not None and self._process.poll() is None

    @property
    def rss_bytes(self) -> int:
        """Resident memory of it and its children; 0 when it does not run."""
        total = 0
        with contextlib.suppress(psutil.Error):
            parent = psutil.Process(self.pid)
            for process in (parent, *parent.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    total += process.memory_info().rss
        return total

    def start(self) -> None:
        """Starts it; returns at once."""
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        shim = [sys.executable, "-S", "-E", str(Path(__file__).with_name("child.py")), str(os.getpid())]
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [*shim, *self.argv],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_ready(self, is_ready: Callable[[], bool], timeout_s: float) -> None:
        """Waits until the probe says yes.

        Raises:
            EmbeddedPartError: when it ends before that, or the time is up; with the end of its log.
        """
        deadline_s = time.monotonic() + timeout_s
        while not is_ready():
            if not self.alive:
                code = self._process.returncode if self._process else None
                raise EmbeddedPartError(
                    f"{self.name} ended with {code} while starting:\n{self.log_tail()}", hint=self._see()
                )
            if time.monotonic() > deadline_s:
                raise EmbeddedPartError(
                    f"{self.name} was not ready after {timeout_s:g} s:\n{self.log_tail()}", hint=self._see()
                )
            time.sleep(0.05)

    def stop(self, grace_s: float = 10.0) -> None:
        """Asks its group to end, waits, then makes it end. Stopping what does not run is no error."""
        if self._process is None:
            return
        for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 5.0)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(wait_s)
                break
        # the leader is gone; whoever is left of its group had its time
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def log_tail(self) -> str:
        """The end of its log."""
        try:
            lines = self.log_file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return "(no log)"
        return "\n".join(f"  {line}" for line in lines[-LOG_TAIL_LINES:]) or "  (empty log)"

    def _see(self) -> str:
        return f"The whole log is {self.log_file}."


def free_port() -> int:
    """A TCP port on loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
