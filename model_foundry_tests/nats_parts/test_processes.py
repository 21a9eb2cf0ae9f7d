from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from model_foundry.embedded import nats
from model_foundry.embedded.processes import ManagedProcess
from model_foundry.errors import EmbeddedPartError


def a_process(folder: Path, code: str) -> ManagedProcess:
    return ManagedProcess("part", [sys.executable, "-c", code], env=dict(os.environ), log_file=folder / "part.log")


def wait_until_gone(pid: int) -> None:
    deadline_s = time.monotonic() + 15
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline_s, f"process {pid} lives on"
        time.sleep(0.05)


def test_a_part_that_ends_while_starting_shows_the_end_of_its_log(tmp_path: Path) -> None:
    part = a_process(tmp_path, "print('why it failed'); raise SystemExit(7)")
    part.start()
    with pytest.raises(EmbeddedPartError, match=r"(?s)part ended with 7.*why it failed") as caught:
        part.wait_ready(lambda: False, 20)
    assert "part.log" in (caught.value.hint or "")


def test_a_part_that_is_never_ready_is_given_up(tmp_path: Path) -> None:
    part = a_process(tmp_path, "import time; time.sleep(60)")
    part.start()
    with pytest.raises(EmbeddedPartError, match="not ready after"):
        part.wait_ready(lambda: False, 0.3)
    part.stop()
    assert not part.alive


def test_stopping_ends_the_whole_group_even_what_ignores_sigterm(tmp_path: Path) -> None:
    child = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    code = (
        f"import subprocess,sys; p=subprocess.Popen([sys.executable,'-c',{child!r}]); print(p.pid,flush=True); p.wait()"
    )
    part = a_process(tmp_path, code)
    part.start()
    part.wait_ready(lambda: "up" in part.log_tail(), 20)
    grandchild = int(part.log_file.read_text().split()[0])
    assert part.rss_bytes > 0
    part.stop(0.5)
    assert not part.alive
    wait_until_gone(grandchild)


def test_a_part_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    code = f"""
import os, sys, time
from pathlib import Path
from model_foundry.embedded.processes import ManagedProcess
argv = [sys.executable, "-c", "import time; time.sleep(60)"]
part = ManagedProcess("part", argv, env=dict(os.environ), log_file=Path({str(tmp_path)!r}) / "log")
part.start()
print(part.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert psutil.pid_exists(pid)
        # its signal is asked for once the program itself runs
        deadline_s = time.monotonic() + 10
        while "time.sleep" not in " ".join(psutil.Process(pid).cmdline()[:3]):
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        parent.kill()
    wait_until_gone(pid)


def test_a_missing_nats_server_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EmbeddedPartError) as caught:
        nats.nats_server_binary()
    assert "embedded" in (caught.value.hint or "")
