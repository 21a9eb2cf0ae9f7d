"""Rules of the project that a reader relies on, held by a machine."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "model_foundry"
MAY_IMPORT_DAGSTER = {"launcher.py", "run_host.py"}


def modules() -> list[Path]:
    return sorted(p for p in PACKAGE.rglob("*.py"))


def module_name(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("file", modules(), ids=module_name)
def test_nothing_outside_defs_and_the_launcher_imports_dagster(file: Path) -> None:
    if "defs" in file.relative_to(PACKAGE).parts or file.name in MAY_IMPORT_DAGSTER:
        return
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not [n for n in names if n.split(".")[0].startswith("dagster") or n.startswith("model_foundry.defs")]


@pytest.mark.parametrize("file", modules(), ids=module_name)
def test_every_module_says_what_it_is_for(file: Path) -> None:
    assert ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))


def test_the_command_line_does_not_pay_for_importing_dagster() -> None:
    code = "import sys, model_foundry.cli.main; sys.exit('dagster' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_importing_any_module_opens_no_file_socket_or_process(tmp_path: Path) -> None:
    """Python's audit events tell: nothing is opened for writing, no socket is made, no process is started."""
    names = [module_name(f) for f in modules() if not f.name.startswith("__main__")]
    code = f"""
import sys, importlib
import dagster, dagster_duckdb, duckdb, httpx, nats, pandas, pyarrow, typer, rich, rich.progress
found = []
def watch(event, args):
    if event in ("socket.connect", "socket.bind", "subprocess.Popen", "os.posix_spawn", "os.fork", "sqlite3.connect"):
        found.append((event, str(args)[:200]))
    writes = event == "open" and isinstance(args[1], str) and any(c in args[1] for c in "wax+")
    if writes and "__pycache__" not in str(args[0]):
        found.append((event, str(args)[:200]))
sys.addaudithook(watch)
for name in {names!r}:
    importlib.import_module(name)
sys.exit("\\n".join(map(str, found)) if found else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
