"""The sandbox: generated code and its tests in a process that can do little else.

Belongs here: starting it, limits on time and output, how strong it is on this machine. Does not belong here: what the
process does to itself (``sandbox_child``), finding the code in an answer (``checks``).

How strong it is depends on the kernel and is found out by trying, strongest first:

- ``namespaces``: a root of its own with Python's library, read-only, and a scratch folder in memory; no network, no
  other processes. Needs user namespaces, which some distributions and most containers refuse.
- ``landlock``: the kernel refuses every file but Python's library and a scratch folder (Linux 5.13 and newer).
- ``limits``: limits on time, memory and sizes, and no environment. Files of the user can be read and written.

On Linux, on x86-64 and aarch64, all three also have a seccomp filter: no sockets, no further processes, no signals to
others. :attr:`Level.lacks` says in words what is not held back.

What passes has shown a random token that the process gets only after the tests ran. Code that is written against this
very harness could still get at it: code and tests share an interpreter. It shows no such thing by accident.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from model_foundry.errors import FoundryError

CHILD = Path(__file__).with_name("sandbox_child.py")
LevelName = Literal["namespaces", "landlock", "limits"]
LEVELS: tuple[LevelName, ...] = ("namespaces", "landlock", "limits")
_MAX_REPORT_BYTES = 64 * 1024


class SandboxError(FoundryError):
    """The sandbox itself could not run; nothing is said about the code."""


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What a program may use.

    Attributes:
        wall_s: seconds by the clock; also of processor time, rounded up.
        memory_bytes: of address space (RLIMIT_AS); the interpreter itself takes about 20 MB.
        output_bytes: written to the standard output and error together; one that writes more is stopped.
        file_bytes: of one file; of all of them together with the level ``namespaces``.
    """

    wall_s: float = 10.0
    memory_bytes: int = 512 * 2**20
    output_bytes: int = 2**20
    file_bytes: int = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Level:
    """How strong the sandbox is here.

    Attributes:
        name: of the level.
        lacks: what it does not hold back, in words; empty when nothing is known.
        refused: why the stronger levels can't be had, by name.
    """

    name: LevelName
    lacks: tuple[str, ...] = ()
    refused: tuple[tuple[LevelName, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a program.

    Attributes:
        passed: whether the tests ran to their end without an error.
        why: ``passed``; ``answer`` (no such code, or it failed before the tests), ``tests`` (they failed), ``time``,
            ``output``, ``ended`` (the process ended before the tests did: by itself, or killed for its memory).
        detail: in words, for people.
        took_s: seconds by the clock, starting the process included.
    """

    passed: bool
    why: Literal["passed", "answer", "tests", "time", "output", "ended"]
    detail: str
    took_s: float


def run_python(
    programs: Sequence[str],
    tests: str,
    *,
    entry_point: str | None = None,
    limits: SandboxLimits | None = None,
    level_name: LevelName | None = None,
) -> Outcome:
    """Runs a program and then its tests, in one process that is thrown away.

    Args:
        programs: readings of the answer, best first; the first that is Python and defines ``entry_point`` is run.
        tests: Python that raises when the program is wrong; the program's names are there.
        entry_point: what the program must define.
        limits: what it may use.
        level_name: how strong; the strongest that works here when left out.

    Raises:
        SandboxError: when the sandbox could not be set up.
    """
    name = level_name or level().name
    return _run(programs, tests, entry_point, limits or SandboxLimits(), name)[0]


@functools.cache
def level() -> Level:
    """The strongest level that works on this machine; tried once a process, which takes about a tenth of a second.

    Raises:
        SandboxError: when not even the weakest one works.
    """
    refused: list[tuple[LevelName, str]] = []
    for name in LEVELS:
        try:
            outcome, reached = _run(["x = 1"], "import random, math\nassert x == 1", None, SandboxLimits(), name)
        except SandboxError as error:
            refused.append((name, str(error)))
            continue
        if not outcome.passed:
            refused.append((name, outcome.detail))
            continue
        return Level(name, tuple(_lacks(name, reached)), tuple(refused))
    raise SandboxError(
        "generated code can't be run here: " + "; ".join(f"{name}: {why}" for name, why in refused),
        hint="Checks of the kind python are reported as not run. Everything else works.",
    )


def _lacks(name: LevelName, reached: dict[str, Any]) -> list[str]:
    lacks = []
    if name == "limits":
        lacks.append("files that this user can read can be read")
        as_nobody = reached["nobody"] and os.geteuid() == 0
        lacks.append(
            "files that everybody can write can be written" if as_nobody else "the user's files can be written"
        )
    if name != "namespaces":
        lacks.append("many small files can fill the disk until the program's time is over")
    if not reached["seccomp"]:
        if name == "limits" or (name == "landlock" and reached["landlock"] < 4):
            lacks.append("the network can be reached")
        elif name == "landlock":
            lacks.append("the network can be reached, except by TCP")
        if name == "limits" or (name == "landlock" and reached["landlock"] < 6):
            lacks.append("other processes of this user can be stopped")
    return lacks


def _run(
    programs: Sequence[str], tests: str, entry_point: str | None, limits: SandboxLimits, name: LevelName
) -> tuple[Outcome, dict[str, Any]]:
    token = secrets.token_hex(16)
    work = tempfile.mkdtemp(prefix="foundry-sandbox-")
    report_r, report_w = os.pipe()
    token_r, token_w = os.pipe()
    spec = {
        "programs": list(programs),
        "tests": tests,
        "entry_point": entry_point,
        "level": name,
        "work": work,
        "scratch_bytes": limits.file_bytes,
        "report_fd": report_w,
        "token_fd": token_r,
        "limits": {
            "RLIMIT_AS": limits.memory_bytes,
            "RLIMIT_CPU": int(-(-limits.wall_s // 1)) + 1,
            "RLIMIT_FSIZE": limits.file_bytes,
            "RLIMIT_NOFILE": 64,
            "RLIMIT_CORE": 0,
            "RLIMIT_STACK": 8 * 2**20,
        },
    }
    started = time.monotonic()
    process = None
    try:
        os.write(token_w, token.encode())
        os.close(token_w)
        token_w = -1
        with tempfile.TemporaryFile() as source:
            source.write(json.dumps(spec).encode("utf-8", "surrogatepass"))
            source.seek(0)
            process = _start(source, work, (report_w, token_r))
        os.close(report_w)
        report_w = -1
        reports, output, stopped = _watch(process, report_r, limits, started)
    except OSError as error:
        raise SandboxError(f"the sandbox could not be started: {error}") from None
    finally:
        for fd in (report_r, report_w, token_r, token_w):
            if fd >= 0:
                os.close(fd)
        if process is not None:
            _end(process)
        shutil.rmtree(work, ignore_errors=True)
    took_s = time.monotonic() - started
    ready = next((r["ready"] for r in reports if "ready" in r), None)
    if ready is None:
        said = _tail(output).splitlines()
        raise SandboxError(f"the sandbox ({name}) could not be set up: {said[-1] if said else stopped or 'no reason'}")
    return _outcome(reports, token, stopped, process.returncode, output, limits, took_s), ready


def _start(source: IO[bytes], work: str, fds: tuple[int, int]) -> subprocess.Popen[bytes]:
    environment = {"PATH": "", "HOME": "/tmp", "TMPDIR": "/tmp", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}  # noqa: S108
    if "LD_LIBRARY_PATH" in os.environ:  # some builds of Python need it to start
        environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-B", "-X", "utf8", str(CHILD)],
        stdin=source,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        cwd=work,
        pass_fds=fds,
        start_new_session=True,
    )


def _watch(
    process: subprocess.Popen[bytes], report_r: int, limits: SandboxLimits, started: float
) -> tuple[list[dict[str, Any]], bytes, str | None]:
    """Reads what comes until the process ends or has to be ended; its reports, its output, why it was ended."""
    assert process.stdout is not None  # noqa: S101 (a pipe was asked for)
    output, report, written = bytearray(), bytearray(), 0
    deadline = started + limits.wall_s
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, "output")
        selector.register(report_r, selectors.EVENT_READ, "report")
        stopped = None
        while selector.get_map() and stopped is None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                stopped = "time"
                break
            for key, _ in selector.select(left_s):
                data = os.read(key.fd, 65536)
                if not data:
                    selector.unregister(key.fileobj)
                elif key.data == "report":
                    report += data[: _MAX_REPORT_BYTES - len(report)]
                else:
                    written += len(data)
                    output = (output + data)[-8192:]
                    stopped = "output" if written > limits.output_bytes else stopped
    if stopped is None:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            stopped = "time"
    return _reports(bytes(report)), bytes(output), stopped


def _reports(data: bytes) -> list[dict[str, Any]]:
    """What was reported, line by line. The program may have written to the pipe too: what is no report is left out."""
    found = []
    for line in data.split(b"\n"):
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(line)
            if isinstance(value, dict):
                found.append(value)
    return found


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills what is left, the first process of the namespace with all of its own included."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _outcome(
    reports: list[dict[str, Any]],
    token: str,
    stopped: str | None,
    returncode: int,
    output: bytes,
    limits: SandboxLimits,
    took_s: float,
) -> Outcome:
    if any(r.get("passed") == token for r in reports):
        return Outcome(True, "passed", "the tests ran to their end", took_s)
    if stopped == "time":
        return Outcome(False, "time", f"not done after {limits.wall_s:g} s", took_s)
    if stopped == "output":
        return Outcome(False, "output", f"more than {limits.output_bytes} bytes of output", took_s)
    for report in reports:
        if report.get("failed") in ("answer", "tests"):
            return Outcome(False, report["failed"], str(report.get("detail"))[:2000], took_s)
    code = f"signal {-returncode}" if returncode < 0 else f"exit code {returncode}"
    said = _tail(output)
    return Outcome(False, "ended", f"it ended before its tests did ({code})" + (f": {said}" if said else ""), took_s)


def _tail(output: bytes) -> str:
    return output.decode("utf-8", "replace").strip()[-500:]
