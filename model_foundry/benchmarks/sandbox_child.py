"""The other side of ``sandbox``: a script that shuts itself in and then runs a program and its tests.

Belongs here: everything that happens after the process started. Does not belong here: starting it, limits on time and
output, what the outcome means (``sandbox``). It runs as ``python -I -S``, so it imports the standard library only.

In order: limits (setrlimit); with ``namespaces`` a root of its own, on a tmpfs, with nothing but Python's library,
read-only, and a scratch folder, and a process tree, network and IPC of its own; no capabilities; Landlock; seccomp.
Then the program runs, and its tests. Numbers and structures are those of the kernel's headers (``linux/landlock.h``,
``linux/seccomp.h``, ``linux/filter.h``, ``asm/unistd_64.h``, ``asm-generic/unistd.h``).

That the tests ran to their end is proven by a token: it lies in a pipe until then, so that it is in no variable that
the program could read, and is sent back through another pipe.
"""

from __future__ import annotations

import ast
import builtins
import ctypes
import json
import linecache
import os
import platform
import resource
import struct
import sys
import types
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

SCRATCH = "/tmp"  # noqa: S108 (inside a root of its own)
_libc = ctypes.CDLL(None, use_errno=True)

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
_CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
_CLONE_THREAD = 0x00010000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT = 1, 2, 4, 32
_MS_BIND, _MS_REC, _MS_PRIVATE, _MS_RELATIME = 4096, 16384, 1 << 18, 1 << 21
_ST_RELATIME, _KEPT_FLAGS = 4096, 2 | 4 | 8 | 1024 | 2048
"""What a mount inherited is locked in a user namespace: nosuid, nodev, noexec, noatime, nodiratime."""
_MNT_DETACH = 2
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 22, 24, 38
_SIGKILL, _EPERM, _EAGAIN, _EACCES, _ENOSYS = 9, 1, 11, 13, 38
_NOBODY = 65534


class _Sys:
    """A system call's number by machine: x86-64 and, as on aarch64, the generic table."""

    machine = platform.machine()
    column = {"x86_64": 0, "aarch64": 1}.get(machine)
    audit_arch = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}.get(machine)
    pivot_root = (155, 41)
    landlock = (444, 445, 446)  # the same on every machine
    refused: ClassVar[dict[int, tuple[tuple[int, int | None], ...]]] = {
        # the network, and names of other sockets; a pair of sockets for oneself is all right
        _EACCES: ((41, 198), (42, 203), (49, 200), (50, 201), (46, 211), (307, 269)),
        # new programs and processes (execve, execveat, fork, vfork), others' memory, handles of processes
        _EAGAIN: ((57, None), (58, None)),
        _EPERM: (
            (59, 221), (322, 281), (101, 117), (310, 270), (311, 271), (312, 272), (434, 434), (438, 438), (424, 424),
            (200, 130),
            # mounts, namespaces, modules, keys, bpf, perf, userfaultfd, io_uring, files by handle
            (165, 40), (166, 39), (155, 41), (161, 51), (272, 97), (308, 268), (428, 428), (429, 429), (430, 430),
            (432, 432), (433, 433), (442, 442), (175, 105), (313, 273), (176, 106), (250, 219), (248, 217), (249, 218),
            (321, 280), (298, 241), (323, 282), (425, 425), (304, 265), (303, 264),
            # memory that RLIMIT_AS does not count: memfd_create, memfd_secret, System V and POSIX queues, segments
            (319, 279), (447, 447), (29, 194), (68, 186), (64, 190), (240, 180),
        ),
        _ENOSYS: ((435, 435),),  # clone3: its flags are in memory, where a filter can't look; glibc then uses clone
    }  # fmt: skip
    changing_metadata = (
        (90, None), (91, 52), (268, 53), (452, 452), (92, None), (94, None), (93, 55), (260, 54), (132, None),
        (235, None), (280, 88), (261, None), (188, 5), (189, 6), (190, 7), (197, 14), (198, 15), (199, 16), (463, 463),
    )  # fmt: skip
    """chmod, chown, utime, setxattr and their kin: Landlock does not hold them back."""
    clone = (56, 220)
    sendto = (44, 206)
    to_a_process = ((62, 129), (234, 131), (129, 138), (297, 240))
    """kill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo: the process is the first argument."""
    prlimit64 = (302, 261)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    texts = [None if t is None else os.fsencode(t) for t in (source, target, kind, data)]
    _checked(_libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]), f"mount {target}")


def _library_folders() -> list[str]:
    """What Python and the C libraries of its modules need."""
    standard = os.path.dirname(os.__file__)
    wanted = [
        standard, os.path.join(standard, "lib-dynload"), os.path.join(sys.base_prefix, "lib"),
        os.path.join(sys.base_exec_prefix, "lib"), "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo",
    ]  # fmt: skip
    return [p for n, p in enumerate(wanted) if os.path.isdir(p) and p not in wanted[:n]]


def _set_limits(limits: dict[str, int]) -> None:
    for name, value in limits.items():
        which = getattr(resource, name, None)
        if which is None:
            continue
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        try:
            resource.setrlimit(which, (value, value))
        except (OSError, ValueError):
            if name != "RLIMIT_AS":  # macOS can't
                raise


def _enter_namespaces(root: str, scratch_bytes: int) -> None:
    """A user, mount, process, network, IPC and host namespace, with a root on ``root``."""
    uid, gid = os.getuid(), os.getgid()
    flags = _CLONE_NEWUSER | _CLONE_NEWNS | _CLONE_NEWPID | _CLONE_NEWNET | _CLONE_NEWIPC | _CLONE_NEWUTS
    _checked(_libc.unshare(flags), "unshare")
    for file, text in (("setgroups", "deny"), ("uid_map", f"1000 {uid} 1"), ("gid_map", f"1000 {gid} 1")):
        with open(f"/proc/self/{file}", "w") as target:
            target.write(text)
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    _mount("tmpfs", root, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=1m,mode=755")
    for folder in _library_folders():
        inside = root + folder
        if os.path.islink(folder):
            os.makedirs(os.path.dirname(inside), exist_ok=True)
            if not os.path.lexists(inside):
                os.symlink(os.readlink(folder), inside)
            continue
        if os.path.exists(inside):  # within one that is there already
            continue
        os.makedirs(inside)
        _mount(folder, inside, None, _MS_BIND | _MS_REC)
        had = os.statvfs(folder).f_flag
        kept = (had & _KEPT_FLAGS) | (_MS_RELATIME if had & _ST_RELATIME else 0)
        _mount("none", inside, None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV | kept)
    os.makedirs(root + "/dev")
    for device in ("/dev/null", "/dev/urandom"):
        with open(root + device, "w"):
            pass
        _mount(device, root + device, None, _MS_BIND)
    os.makedirs(root + SCRATCH)
    _mount("tmpfs", root + SCRATCH, "tmpfs", _MS_NOSUID | _MS_NODEV, f"size={scratch_bytes},nr_inodes=4096,mode=700")
    _mount("none", root, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
    os.chdir(root)
    assert _Sys.column is not None  # noqa: S101 (the caller looked)
    _checked(_libc.syscall(_Sys.pivot_root[_Sys.column], b".", b"."), "pivot_root")
    _checked(_libc.umount2(b".", _MNT_DETACH), "umount2")
    os.chdir(SCRATCH)


def _become_nobody(work: str) -> bool:
    """Gives up root, where Python's library can be read by others. True when there was no root to give up, too."""
    if os.geteuid() != 0:
        return True
    for folder in _library_folders()[:2]:
        path = os.path.realpath(folder)
        while path != "/":
            if not os.stat(path).st_mode & 0o001:
                return False
            path = os.path.dirname(path)
    os.chown(work, _NOBODY, _NOBODY)
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    return True


def _drop_capabilities() -> None:
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break
    header, data = struct.pack("=Ii", 0x20080522, 0), bytes(24)
    _checked(_libc.capset(header, data), "capset")


def _landlock(abi: int, folders: list[str], work: str) -> None:
    """Files: reading in ``folders``, everything in ``work``, /dev/null and /dev/urandom. TCP and signals to outside:
    none, where the kernel's version of Landlock knows them (4, 6).
    """
    bits = 13 + (abi >= 2) + (abi >= 3) + (abi >= 5)
    everything = (1 << bits) - 1
    attribute = struct.pack("=Q", everything)
    if abi >= 4:
        attribute += struct.pack("=Q", 0b11)
    if abi >= 6:
        attribute += struct.pack("=Q", 0b11)
    create, add, restrict = _Sys.landlock
    ruleset = _checked(_libc.syscall(create, attribute, ctypes.c_size_t(len(attribute)), 0), "landlock_create_ruleset")
    read = (1 << 2) | (1 << 3)
    devices = [(d, (1 << 1) | (1 << 2)) for d in ("/dev/null", "/dev/urandom")]
    for path, access in [*((f, read) for f in folders), *devices, (work, everything)]:
        handle = os.open(path, getattr(os, "O_PATH", 0) | os.O_CLOEXEC)
        _checked(_libc.syscall(add, ruleset, 1, struct.pack("=Qi", access, handle), 0), "landlock_add_rule")
        os.close(handle)
    _checked(_libc.syscall(restrict, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)


def _seccomp(*, metadata: bool) -> None:
    """Refuses the system calls of ``_Sys``; a new thread is allowed, a new process is not.

    Args:
        metadata: whether those that change a file's metadata are allowed.
    """
    column, pid = _Sys.column, os.getpid()
    assert column is not None  # noqa: S101 (the caller looked)
    load, equal, at_least, any_bit, give = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, kill, refuse = 0x7FFF0000, 0x80000000, 0x00050000
    program: list[tuple[int, int, int, int]] = []

    def add(code: int, value: int, if_true: int = 0, if_false: int = 0) -> None:
        program.append((code, if_true, if_false, value))

    def argument(number: int, high: bool = False) -> int:
        return 16 + 8 * number + (4 if high else 0)  # both machines are little-endian

    add(load, 4)
    add(equal, int(_Sys.audit_arch or 0), 1, 0)
    add(give, kill)
    add(load, 0)
    if _Sys.machine == "x86_64":  # the x32 numbers
        add(at_least, 0x40000000, 0, 1)
        add(give, refuse | _EPERM)
    kept = () if metadata else _Sys.changing_metadata
    for error, calls in [*_Sys.refused.items(), (_EPERM, kept)]:
        for call in calls:
            if (number := call[column]) is not None:
                add(equal, number, 0, 1)
                add(give, refuse | error)
    add(equal, _Sys.clone[column], 0, 4)
    add(load, argument(0))
    add(any_bit, _CLONE_THREAD, 1, 0)
    add(give, refuse | _EAGAIN)
    add(give, allow)
    add(equal, _Sys.sendto[column], 0, 6)  # allowed without an address
    add(load, argument(4))
    add(equal, 0, 0, 2)
    add(load, argument(4, high=True))
    add(equal, 0, 1, 0)
    add(give, refuse | _EACCES)
    add(give, allow)
    for call in _Sys.to_a_process:
        add(equal, call[column], 0, 4)
        add(load, argument(0))
        add(equal, pid, 1, 0)
        add(give, refuse | _EPERM)
        add(give, allow)
    add(equal, _Sys.prlimit64[column], 0, 5)
    add(load, argument(0))
    add(equal, 0, 2, 0)
    add(equal, pid, 1, 0)
    add(give, refuse | _EPERM)
    add(give, allow)
    add(give, allow)
    filters = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(filters, len(filters))
    head = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    _checked(_libc.prctl(_PR_SET_SECCOMP, 2, head, 0, 0), "seccomp")


def shut_in(spec: dict[str, Any]) -> dict[str, Any]:
    """Takes everything away that the program needn't have. Comes back in the process that runs the program.

    Returns:
        What was reached: ``landlock`` (its version, 0 for none), ``seccomp``, ``nobody``.
    """
    wanted, work = spec["level"], spec["work"]
    linux = sys.platform == "linux"
    if linux:
        _libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    os.chdir(work)
    nobody = False
    if wanted == "namespaces":
        if not linux or _Sys.column is None:
            raise OSError(_ENOSYS, f"no namespaces on {sys.platform} {_Sys.machine}")
        _enter_namespaces(work, spec["scratch_bytes"])
        work = SCRATCH
        _be_the_child()  # the first process of the namespace, which only waits
        _be_the_child()
    else:
        nobody = _become_nobody(work)
    if linux:
        _libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)  # a new process and a new user have none
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) if linux else 0, "no_new_privs")
    if linux:
        _drop_capabilities()
    abi = 0
    if linux and wanted in ("namespaces", "landlock"):
        abi = max(0, _libc.syscall(_Sys.landlock[0], None, ctypes.c_size_t(0), 1))
        if abi:
            _landlock(abi, _library_folders(), work)
        elif wanted == "landlock":
            raise OSError(_ENOSYS, "this kernel has no Landlock")
    has_seccomp = linux and _Sys.column is not None
    limits = dict(spec["limits"])
    if not has_seccomp:
        limits["RLIMIT_NPROC"] = 0  # no further process, and no thread
    _set_limits(limits)
    if has_seccomp:
        try:
            _seccomp(metadata=wanted == "namespaces")
        except OSError:
            has_seccomp = False
            _set_limits({"RLIMIT_NPROC": 0})
    return {"landlock": abi, "seccomp": has_seccomp, "nobody": nobody}


def _be_the_child() -> None:
    """Forks; the parent waits for the child and ends as it did."""
    child = os.fork()
    if child == 0:
        if sys.platform == "linux":
            _libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
        return
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


# -- the program and its tests --------------------------------------------------------------------------------------


def _defines(tree: ast.Module, name: str) -> bool:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name:
            return True
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            return True
    return False


def choose(programs: list[str], entry_point: str | None) -> tuple[str | None, str]:
    """The first program that is Python and defines what is asked for; else why the first one is not."""
    problem = "the answer holds no code"
    for n, program in enumerate(programs):
        try:
            tree = ast.parse(program)
            compile(tree, "<answer>", "exec")  # a return outside a function parses
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            problem = f"no Python: {type(error).__name__}: {error}" if n == 0 else problem
            continue
        if entry_point is None or _defines(tree, entry_point):
            return program, ""
        problem = f"{entry_point} is not defined" if n == 0 else problem
    return None, problem


def run(spec: dict[str, Any], report: Callable[[dict[str, Any]], None], token_fd: int) -> NoReturn:
    """Runs the first fit program and the tests, reports, and ends the process."""
    take, leave, read_error = os.read, os._exit, _described
    own_builtins = dict(vars(builtins))
    program, problem = choose(spec["programs"], spec["entry_point"])
    if program is None:
        report({"failed": "answer", "detail": problem})
        leave(0)
    module = types.ModuleType("answer")
    sys.modules["answer"] = module
    sys.argv = ["answer"]
    stage = "answer"
    try:
        for name, text in (("<answer>", program), ("<tests>", spec["tests"])):
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(program, "<answer>", "exec"), vars(module))  # noqa: S102 (what this script is for)
        stage = "tests"
        theirs = {k: v for k, v in vars(module).items() if k not in own_builtins or k == spec["entry_point"]}
        names = {**theirs, "__name__": "tests", "__builtins__": own_builtins}  # `all` is what it was
        exec(compile(spec["tests"], "<tests>", "exec"), names)  # noqa: S102
    except BaseException as error:
        report({"failed": stage, "detail": read_error(error)})
        leave(0)
    report({"passed": take(token_fd, 64).decode()})
    leave(0)


def _described(error: BaseException) -> str:
    """An error in one line, with the line of the tests or the answer where it came up."""
    try:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        place, trace = "", error.__traceback__
        while trace is not None:
            file = trace.tb_frame.f_code.co_filename
            if file in ("<tests>", "<answer>"):
                line = linecache.getline(file, trace.tb_lineno).strip()
                place = f" at {file} line {trace.tb_lineno}: {line}"
            trace = trace.tb_next
        return (text + place)[:2000]
    except BaseException:
        return "an error that can't be described"


def main() -> None:
    """Reads what to do from the standard input."""
    with open(0, "rb", closefd=False) as source:
        spec = json.loads(source.read())
    silence = os.open(os.devnull, os.O_RDONLY)
    os.dup2(silence, 0)
    os.close(silence)
    write, dumps, fd = os.write, json.dumps, int(spec["report_fd"])

    def report(what: dict[str, Any]) -> None:
        data = dumps(what).encode() + b"\n"
        while data:
            data = data[write(fd, data) :]

    sys.setrecursionlimit(min(sys.getrecursionlimit(), 1000))
    reached = shut_in(spec)
    report({"ready": reached})
    run(spec, report, int(spec["token_fd"]))


if __name__ == "__main__":
    main()
