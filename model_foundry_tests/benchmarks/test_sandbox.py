from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from model_foundry.benchmarks import sandbox
from model_foundry.benchmarks.sandbox import LEVELS, LevelName, Outcome, SandboxError, SandboxLimits, run_python
from model_foundry.benchmarks.sandbox_child import choose

SHORT = SandboxLimits(wall_s=3.0)


def works(name: LevelName) -> bool:
    try:
        return run_python(["x = 1"], "assert x", level_name=name).passed
    except SandboxError:
        return False


HERE = [name for name in LEVELS if works(name)]
STRONG = [name for name in HERE if name != "limits"]


@pytest.fixture(params=HERE)
def level(request: pytest.FixtureRequest) -> LevelName:
    name: LevelName = request.param
    return name


@pytest.fixture(params=STRONG)
def strong(request: pytest.FixtureRequest) -> LevelName:
    name: LevelName = request.param
    return name


def attack(code: str, level: LevelName, tests: str = "assert f() == 'held'", limits: SandboxLimits = SHORT) -> Outcome:
    """Runs a function ``f``, written as its body, that says 'held' when it could not do what it tried."""
    body = "def f():\n" + "".join(f"    {line}\n" for line in dedent(code).strip().splitlines())
    return run_python([body], tests, entry_point="f", limits=limits, level_name=level)


def test_the_weakest_level_works_everywhere_and_the_strongest_that_works_is_taken() -> None:
    assert "limits" in HERE
    assert sandbox.level().name == HERE[0]
    assert {name for name, _ in sandbox.level().refused} == set(LEVELS[: LEVELS.index(HERE[0])])


def test_where_namespaces_are_refused_the_next_level_is_taken_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    run = sandbox._run

    def refusing(*arguments: Any) -> Any:
        if arguments[-1] == "namespaces":
            raise SandboxError("unshare: Operation not permitted")
        return run(*arguments)

    monkeypatch.setattr(sandbox, "_run", refusing)
    sandbox.level.cache_clear()
    try:
        found = sandbox.level()
        assert found.name != "namespaces"
        assert found.lacks
        assert found.refused[0] == ("namespaces", "unshare: Operation not permitted")
        monkeypatch.setattr(sandbox, "LEVELS", ("namespaces",))
        sandbox.level.cache_clear()
        with pytest.raises(SandboxError, match="can't be run here: namespaces: unshare"):
            sandbox.level()
    finally:
        sandbox.level.cache_clear()


def test_weaker_levels_say_what_they_lack() -> None:
    _, reached = sandbox._run(["x = 1"], "", None, SHORT, "limits")
    lacks = " ".join(sandbox._lacks("limits", reached))
    assert "can be read" in lacks
    assert "can be written" in lacks
    blind = " ".join(sandbox._lacks("landlock", {"landlock": 1, "seccomp": False, "nobody": False}))
    assert "network" in blind
    assert "stopped" in blind


def test_right_code_passes_and_wrong_code_fails_with_the_line(level: LevelName) -> None:
    good = run_python(
        ["def add(a, b):\n    return a + b"], "assert add(1, 2) == 3", entry_point="add", level_name=level
    )
    assert good.passed
    bad = run_python(["def add(a, b):\n    return a - b"], "assert add(1, 2) == 3", entry_point="add", level_name=level)
    assert (bad.passed, bad.why) == (False, "tests")
    assert "assert add(1, 2) == 3" in bad.detail


def test_the_standard_library_is_there_and_threads_dataclasses_and_an_event_loop_work(level: LevelName) -> None:
    program = """
    from __future__ import annotations
    import asyncio, collections, dataclasses, datetime, decimal, functools, hashlib, heapq, itertools, json, math, re
    import random, sqlite3, statistics, string, tempfile, typing, unicodedata, zoneinfo
    from concurrent.futures import ThreadPoolExecutor

    @dataclasses.dataclass
    class Point:
        x: int
        y: typing.ClassVar[int] = 2

    async def answer():
        await asyncio.sleep(0)
        return Point(1)

    def f():
        with tempfile.NamedTemporaryFile("w+") as file:
            file.write("text")
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(abs, [-1, 2])) == [1, 2]
        assert sqlite3.connect(":memory:").execute("select 1").fetchone() == (1,)
        return asyncio.run(answer())
    """
    outcome = run_python([dedent(program)], "assert f() == Point(1)", entry_point="f", level_name=level)
    assert outcome.passed, outcome.detail


def test_ending_before_the_tests_is_no_pass(level: LevelName) -> None:
    for ending in ("os._exit(0)", "sys.exit(0)", "raise SystemExit", "raise KeyboardInterrupt", "os.abort()"):
        at_once = run_python([f"import os, sys\n{ending}"], "assert False", level_name=level)
        in_tests = attack(f"import os, sys\n{ending}", level)
        assert not at_once.passed, ending
        assert not in_tests.passed, ending
    assert "before its tests did" in run_python(["import os; os._exit(0)"], "assert False", level_name=level).detail


def test_an_exit_in_a_thread_or_at_the_end_is_no_pass(level: LevelName) -> None:
    code = """
    import atexit, os, threading
    atexit.register(os._exit, 0)
    threading.Thread(target=lambda: os._exit(0)).start()
    while True:
        pass
    """
    assert not attack(code, level).passed


def test_patching_what_tests_are_made_of_does_not_help(level: LevelName) -> None:
    program = """
    import builtins, json, os, sys
    builtins.AssertionError = type("Quiet", (BaseException,), {"__new__": lambda *a: None})
    builtins.all = builtins.any = builtins.isinstance = lambda *a: True
    builtins.compile = lambda *a, **k: (lambda: None).__code__
    builtins.exec = lambda *a, **k: None
    sys.exit = os.abort = lambda *a: None
    json.dumps = lambda *a, **k: '{"passed": "yes"}'
    sys.excepthook = lambda *a: None
    all = len = sorted = lambda *a, **k: True
    def f():
        return 1
    """
    outcome = run_python([dedent(program)], "assert all([f() == 2])", entry_point="f", level_name=level)
    assert not outcome.passed


def test_claiming_to_have_passed_on_every_pipe_is_no_pass(level: LevelName) -> None:
    program = """
    import os
    for fd in range(1, 64):
        for claim in (b'{"passed": true}\\n', b'{"passed": ""}\\n', b'passed\\n', b'{"ready": {}}\\n', b'\\xff{[' * 99):
            try:
                os.write(fd, claim)
            except OSError:
                pass
    os._exit(0)
    """
    assert not run_python([dedent(program)], "assert False", level_name=level).passed


def test_the_token_is_in_no_variable_no_file_and_not_in_the_source_of_the_harness(level: LevelName) -> None:
    code = """
    import gc, re, sys
    found, frame = set(), sys._getframe()
    texts = []
    while frame:
        texts += [repr(v) for v in list(frame.f_locals.values()) + list(frame.f_globals.values())]
        frame = frame.f_back
    texts += [repr(o)[:10000] for o in gc.get_objects() if isinstance(o, (str, dict, list, tuple, bytes))]
    for name in ("/proc/self/environ", "/proc/self/cmdline", "/proc/self/mem", sys.modules["__main__"].__file__):
        try:
            texts.append(open(name, errors="replace").read(100000))
        except (OSError, ValueError):
            pass
    found = {t for text in texts for t in re.findall(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])", text)}
    assert not found, found
    return "held"
    """
    outcome = attack(code, level)
    assert outcome.passed, outcome.detail


def test_an_endless_loop_and_a_long_sleep_end_at_the_limit(level: LevelName) -> None:
    for code in ("while True:\n    pass", "import time\ntime.sleep(60)"):
        assert attack(code, level, limits=SandboxLimits(wall_s=0.5)).why == "time"
    assert "EOFError" in attack("input()", level).detail


def test_swallowed_signals_don_t_make_it_longer(level: LevelName) -> None:
    code = """
    import signal
    for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
    """
    assert attack(code, level, limits=SandboxLimits(wall_s=0.5)).why == "time"


def test_memory_is_bounded(level: LevelName) -> None:
    code = """
    try:
        hog = bytearray(2 * 2**30)
    except MemoryError:
        pass
    hogs = []
    while True:
        hogs.append("x" * 10_000_000)
    """
    outcome = attack(code, level)
    assert not outcome.passed
    assert outcome.why in ("tests", "ended")
    assert "MemoryError" in outcome.detail or "ended" in outcome.detail


@pytest.mark.parametrize(
    "code",
    [
        "import os\nfd = os.memfd_create('x')\nfor _ in range(4000): os.write(fd, b'x' * 2**18)",
        "import ctypes\nassert ctypes.CDLL(None).shmget(0, 2**32, 0o1600) < 0\nraise OSError",
    ],
)
def test_memory_that_the_limit_does_not_count_is_refused(level: LevelName, code: str) -> None:
    indented = "\n".join("    " + line for line in code.splitlines())
    outcome = attack(f"try:\n{indented}\nexcept (OSError, AttributeError):\n    return 'held'", level)
    assert outcome.passed, outcome.detail


def test_a_gigabyte_of_output_is_stopped_early(level: LevelName) -> None:
    outcome = attack("import sys\nfor _ in range(1024):\n    sys.stdout.write('x' * 2**20)", level)
    assert outcome.why == "output"


def test_a_fork_bomb_goes_off_nowhere(level: LevelName) -> None:
    code = """
    import os, subprocess, sys, multiprocessing
    tries = [os.fork, lambda: subprocess.run([sys.executable, "-c", "0"]), lambda: subprocess.run(["/bin/true"]),
             lambda: os.posix_spawn("/bin/true", ["true"], {}), lambda: os.execv("/bin/true", ["true"]),
             lambda: os.system("exit 0") == 0 or 1 / 0, lambda: multiprocessing.Process(target=print).start()]
    for attempt in tries:
        try:
            attempt()
        except (OSError, ZeroDivisionError):
            continue
        raise AssertionError(attempt)
    return "held"
    """
    outcome = attack(code, level)
    assert outcome.passed, outcome.detail


def test_nothing_is_left_running(level: LevelName) -> None:
    mark = f"mark-{secrets.token_hex(8)}"
    attack(f"import os\nmark = '{mark}'\nos.setsid()\nwhile True:\n    pass", level, limits=SandboxLimits(wall_s=0.7))
    sandboxes = [p for p in Path("/proc").glob("[0-9]*/cmdline") if b"sandbox_child" in read_quietly(p)]
    children = [p for p in sandboxes if f"PPid:\t{os.getpid()}\n" in read_quietly(p.parent / "status").decode()]
    assert not children
    assert not list(Path(os.environ.get("TMPDIR", "/tmp")).glob(f"*{mark}*"))


def read_quietly(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def test_the_parent_and_other_processes_can_t_be_stopped_traced_or_limited(level: LevelName) -> None:
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        code = f"""
        import ctypes, os, resource, signal
        libc = ctypes.CDLL(None)
        for pid in (os.getppid(), {os.getpid()}, {bystander.pid}, 1, -1, 0):
            for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
                try:
                    os.kill(pid, number)
                except (OSError, OverflowError):
                    continue
                raise AssertionError((pid, number))
        for pid in (os.getppid(), {bystander.pid}):
            assert libc.ptrace(16, pid, 0, 0) < 0
            try:
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, 0))
            except OSError:
                continue
            raise AssertionError(pid)
        return "held"
        """
        outcome = attack(code, level)
        assert outcome.passed, outcome.detail
        assert bystander.poll() is None
    finally:
        bystander.send_signal(signal.SIGKILL)
        bystander.wait()


def test_the_network_can_t_be_reached(level: LevelName, nats_url: str) -> None:
    port = int(nats_url.rpartition(":")[2])
    code = f"""
    import socket, urllib.request
    def pair():
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        a.connect("\\0anything")
    for attempt in (
        lambda: socket.create_connection(("127.0.0.1", {port}), 1),
        lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", {port})),
        lambda: socket.socket(socket.AF_UNIX).connect("\\0anything"),
        lambda: socket.getaddrinfo("example.org", 80),
        lambda: urllib.request.urlopen("http://127.0.0.1:{port}", timeout=1),
        pair,
    ):
        try:
            attempt()
        except (OSError, PermissionError):
            continue
        raise AssertionError(attempt)
    return "held"
    """
    outcome = attack(code, level)
    assert outcome.passed, outcome.detail


def test_files_of_the_machine_can_t_be_read(strong: LevelName, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret", encoding="utf-8")
    tmp_path.chmod(0o755)
    home = Path.home()
    code = f"""
    import os
    for name in ("/etc/shadow", "/etc/passwd", "/proc/1/environ", "/proc/self/environ", {str(secret)!r},
                 {str(Path(__file__))!r}, {str(home)!r} + "/.bashrc", {str(home)!r}, "/home", "/root", "/var/log"):
        try:
            os.listdir(name) if os.path.isdir(name) else open(name).read()
        except (OSError, FileNotFoundError):
            continue
        raise AssertionError(name)
    return "held"
    """
    outcome = attack(code, strong)
    assert outcome.passed, outcome.detail


def test_files_can_be_written_in_the_scratch_folder_only(strong: LevelName, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    inside, victim = tmp_path / "new.txt", tmp_path / "old.txt"
    victim.write_text("old", encoding="utf-8")
    victim.chmod(0o666)
    code = f"""
    import os
    open("here.txt", "w").write("all right")
    standard = os.path.dirname(os.__file__)
    for name in ({str(inside)!r}, {str(Path.home())!r} + "/new.txt", "/new.txt", "/usr/lib/new.txt", "/dev/shm/new.txt",
                 standard + "/new.txt", "/lib/new.txt", "/var/tmp/new.txt"):
        try:
            open(name, "w").write("x")
        except OSError:
            continue
        raise AssertionError(name)
    victim = {str(victim)!r}
    for attempt in (lambda: os.remove(victim), lambda: os.rename(victim, victim + "x"), lambda: os.truncate(victim, 0),
                    lambda: os.chmod(victim, 0o777), lambda: os.utime(victim, (1, 1)), lambda: os.link(victim, "mine"),
                    lambda: os.setxattr(victim, "user.mine", b"1"), lambda: os.chown(victim, os.getuid(), os.getgid())):
        try:
            attempt()
        except OSError:
            continue
        raise AssertionError(attempt)
    return "held"
    """
    before = victim.stat()
    outcome = attack(code, strong)
    assert outcome.passed, outcome.detail
    assert not inside.exists()
    assert victim.read_text(encoding="utf-8") == "old"
    assert (victim.stat().st_mode, victim.stat().st_mtime) == (before.st_mode, before.st_mtime)


def test_a_file_can_t_grow_beyond_the_limit(level: LevelName) -> None:
    code = """
    import signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with open("big", "wb") as file:
            for _ in range(64):
                file.write(b"x" * 2**20)
    except OSError:
        return "held"
    """
    outcome = attack(code, level)
    assert outcome.passed, outcome.detail


@pytest.mark.skipif("namespaces" not in HERE, reason="no user namespaces here")
def test_all_files_together_can_t_grow_beyond_the_limit() -> None:
    code = """
    try:
        for n in range(64):
            with open(f"big{n}", "wb") as file:
                file.write(b"x" * 2**20)
    except OSError:
        return "held"
    """
    outcome = attack(code, "namespaces")
    assert outcome.passed, outcome.detail


@pytest.mark.skipif("namespaces" not in HERE, reason="no user namespaces here")
def test_the_root_holds_nothing_but_python_s_library() -> None:
    code = """
    import os
    found = {os.path.join(root, name) for root, _, names in os.walk("/") for name in names}
    allowed = ("/usr/lib", "/lib", "/lib64", "/usr/share/zoneinfo", "/tmp", "/dev/null", "/dev/urandom",
               os.path.dirname(os.__file__), os.path.realpath("/lib64"), __import__("sys").base_prefix + "/lib")
    stray = [f for f in found if not f.startswith(allowed)]
    assert not stray, stray[:5]
    assert os.getuid() == 1000
    return "held"
    """
    outcome = attack(code, "namespaces", limits=SandboxLimits(wall_s=20))
    assert outcome.passed, outcome.detail


def test_the_environment_has_no_secrets(level: LevelName, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARD_KEY", "the secret")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    code = """
    import os, sys
    assert "secret" not in repr(dict(os.environ))
    assert "/elsewhere" not in sys.path
    return "held"
    """
    outcome = attack(code, level)
    assert outcome.passed, outcome.detail


def test_privileges_can_t_be_had_again(level: LevelName) -> None:
    code = """
    import ctypes, os
    libc = ctypes.CDLL(None)
    assert libc.unshare(0x10000000) < 0
    assert libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) < 0
    assert libc.mount(b"none", b"/usr/lib", None, 4096 | 32, None) < 0
    assert libc.chroot(b"/") < 0
    capabilities = [0xFFFFFFFF] * 6
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    assert libc.capset(header, (ctypes.c_uint32 * 6)(*capabilities)) < 0
    for attempt in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.mknod("device", 0o60600, os.makedev(8, 0))):
        try:
            attempt()
        except OSError:
            continue
        if os.getuid() == 0 and attempt.__code__.co_names[:2] != ("os", "mknod"):
            continue  # it was that already
        raise AssertionError(attempt)
    return "held"
    """
    outcome = attack(code, level)
    assert outcome.passed, outcome.detail


def test_a_sandbox_that_can_t_be_set_up_is_an_error_and_no_failed_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sandbox, "CHILD", tmp_path / "not_there.py")
    with pytest.raises(SandboxError, match="could not be set up"):
        run_python(["x = 1"], "", level_name="limits")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    with pytest.raises(SandboxError, match="could not be started"):
        run_python(["x = 1"], "", level_name="limits")


def test_the_first_reading_that_is_python_and_defines_what_is_asked_for_is_taken() -> None:
    assert choose(["not python at all", "def g(): 1", "def f(): 2", "def f(): 3"], "f") == ("def f(): 2", "")
    assert choose(["x ="], None)[0] is None
    assert "SyntaxError" in choose(["x ="], None)[1]
    assert choose(["def g(): 1"], "f") == (None, "f is not defined")
    assert choose([], "f") == (None, "the answer holds no code")


def test_code_that_breaks_the_parser_or_the_stack_is_a_failed_answer(level: LevelName) -> None:
    for program in ("(" * 100_000, "-" * 200_000 + "1", "def f():\n    return f()\nf()", "x = \x00", "\ud800"):
        outcome = run_python([program], "assert True", limits=SHORT, level_name=level)
        assert not outcome.passed, program[:20]
