"""The run host: a preloaded, single-threaded process that forks one child a Dagster run.

    daemon ── ForkRunLauncher ──(unix socket, a JSON line each way)──> run host ── fork ──> child: one run, then exit

A stock run is a new interpreter that imports everything again: about 4.5 CPU-seconds before its first step. Here the
imports are paid once, before the first fork. That is safe only while the host has one thread and no open gRPC channel,
event loop or database handle: the host checks its thread count before it serves, and refuses otherwise.

Belongs here: the host process and its little protocol. Does not belong here: the launcher that Dagster configures
(``launcher``), what a run does.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

SOCKET_ENV = "FOUNDRY_RUN_HOST"
"""Environment variable with the path of the host's socket; ``foundry up`` sets it for webserver and daemon."""

ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""Set before the imports: math libraries start a thread a core, Arrow's allocator one for its own cleaning."""

MAX_REQUEST_BYTES = 4 * 2**20
STOP_GRACE_S = 20.0


def ask(socket_path: str, request: dict[str, Any], timeout_s: float = 15.0) -> dict[str, Any]:
    """Sends one request to a host and returns its answer.

    Raises:
        OSError: when nobody listens, or the answer does not come in time.
        ValueError: when the answer is not JSON.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(timeout_s)
        client.connect(socket_path)
        client.sendall(json.dumps(request).encode() + b"\n")
        answer: dict[str, Any] = json.loads(_read_line(client))
    return answer


def _read_line(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        chunk = connection.recv(65536)
        if not chunk:
            break
        data += chunk
        if len(data) > MAX_REQUEST_BYTES:
            raise ValueError(f"request larger than {MAX_REQUEST_BYTES} bytes")
    return data


class RunHost:
    """Owns the socket and the children; one loop, no threads."""

    def __init__(self, socket_path: Path) -> None:
        self.socket_path = socket_path
        self._children: dict[str, int] = {}
        self._ended: dict[str, int] = {}
        self._stopping = False

    def serve(self) -> None:
        """Answers requests until SIGTERM or SIGINT, then ends the children and itself."""
        wake_read, wake_write = os.pipe()
        for end in (wake_read, wake_write):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        with contextlib.suppress(FileNotFoundError):
            self.socket_path.unlink()
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.bind(str(self.socket_path))
        self.socket_path.chmod(0o600)
        server.listen(64)
        self._open = (server, wake_read, wake_write)
        print(f"run host ready on {self.socket_path}", flush=True)
        while not self._stopping:
            ready, _, _ = select.select([server.fileno(), wake_read], [], [])
            if wake_read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, 4096)
                self._reap()
            if server.fileno() in ready:
                self._accept(server)
        server.close()
        self.socket_path.unlink(missing_ok=True)
        self._end_children()

    def _stop(self, *_: Any) -> None:
        self._stopping = True

    def _accept(self, server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.settimeout(5)
            try:
                answer = self._handle(json.loads(_read_line(connection)), connection)
            except (OSError, ValueError, KeyError) as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            with contextlib.suppress(OSError):
                connection.sendall(json.dumps(answer).encode() + b"\n")

    def _handle(self, request: dict[str, Any], connection: socket.socket) -> dict[str, Any]:
        run_id = request.get("run_id", "")
        match request["op"]:
            case "run":
                return {"pid": self._fork(run_id, request["args"], connection)}
            case "terminate":
                pid = self._children.get(run_id)
                if pid is not None:
                    os.kill(pid, signal.SIGINT)
                return {"terminated": pid is not None}
            case "status":
                self._reap()
                if run_id in self._children:
                    return {"status": "running", "pid": self._children[run_id]}
                return {"status": "ended" if run_id in self._ended else "unknown", "exit": self._ended.get(run_id)}
            case "ping":
                return {"pid": os.getpid(), "runs": len(self._children)}
            case other:
                raise ValueError(f"op is {other!r}; allowed: run, terminate, status, ping")

    def _fork(self, run_id: str, serialized_args: str, connection: socket.socket) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            self._children[run_id] = pid
            return pid
        code = 1
        try:
            server, wake_read, wake_write = self._open
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            die_with_parent(signal.SIGINT)
            connection.close()
            server.close()
            os.close(wake_read)
            os.close(wake_write)
            code = execute_run(serialized_args)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)  # not sys.exit: the child must not run the host's own clean-up

    def _reap(self) -> None:
        for run_id, pid in list(self._children.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del self._children[run_id]
                self._ended[run_id] = os.waitstatus_to_exitcode(status)
        while len(self._ended) > 10_000:
            self._ended.pop(next(iter(self._ended)))

    def _end_children(self) -> None:
        for number, grace_s in ((signal.SIGINT, STOP_GRACE_S), (signal.SIGKILL, 5.0)):
            for pid in self._children.values():
                os.kill(pid, number)
            for _ in range(int(grace_s * 20)):
                self._reap()
                if not self._children:
                    return
                select.select([], [], [], 0.05)


def execute_run(serialized_args: str) -> int:
    """Executes one Dagster run in this process, as ``dagster api execute_run`` does; returns the exit code."""
    from dagster._cli.api import _execute_run_command_body
    from dagster._cli.utils import get_instance_for_cli
    from dagster._grpc.types import ExecuteRunArgs
    from dagster._serdes import deserialize_value
    from dagster._utils.error import serializable_error_info_from_exc_info
    from dagster._utils.interrupts import capture_interrupts

    args = deserialize_value(serialized_args, ExecuteRunArgs)
    with capture_interrupts(), get_instance_for_cli(instance_ref=args.instance_ref) as instance:
        try:
            return _execute_run_command_body(args.run_id, instance, lambda _: None, set_exit_code_on_failure=True)
        except Exception:
            run = instance.get_run_by_id(args.run_id)
            if run and not run.is_finished:
                error = serializable_error_info_from_exc_info(sys.exc_info())
                instance.report_run_failed(run, f"The run could not be loaded or started: {error.to_string()}")
            raise


def preload() -> None:
    """Pays for the imports: the definitions, the instance once, and one run in memory for what is imported lazily."""
    import dagster as dg
    import duckdb
    from dagster._core.instance import DagsterInstance

    import model_foundry.defs.definitions

    model_foundry.defs.definitions.defs()
    with DagsterInstance.get() as instance:
        instance.get_runs(limit=1)

    @dg.asset(partitions_def=dg.StaticPartitionsDefinition(["a"]))
    def warm_up():  # type: ignore[no-untyped-def]  # dagster would resolve an annotation, and `dg` is local here
        return dg.MaterializeResult(metadata={"rows": 0})

    with DagsterInstance.ephemeral() as instance:
        quiet = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}
        dg.materialize([warm_up], partition_key="a", instance=instance, run_config=quiet)
    duckdb.execute("set threads = 1")  # importing duckdb opens a database of its own, with a thread a core


def die_with_parent(number: int) -> None:
    """Asks Linux to send this process a signal when its parent dies; elsewhere nothing."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, number)


def main() -> None:
    """``python -m model_foundry.run_host SOCKET``: preloads, checks that forking is safe, serves."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m model_foundry.run_host SOCKET")
    os.environ.update(ONE_THREAD)
    preload()
    tasks = Path("/proc/self/task")
    threads = len(list(tasks.iterdir())) if tasks.is_dir() else threading.active_count()
    if threads != 1:
        names = [t.name for t in threading.enumerate()]
        raise SystemExit(f"run host: {threads} threads after preloading ({names}); forking would not be safe")
    RunHost(Path(sys.argv[1])).serve()


if __name__ == "__main__":
    main()
