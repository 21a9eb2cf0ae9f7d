"""The SQL files: where they are, and their text. Belongs here: nothing else."""

from __future__ import annotations

from pathlib import Path


def sql_folder() -> Path:
    """The folder ``sql``: inside an installed package, beside the package in a checkout."""
    package = Path(__file__).parent.parent
    return package / "sql" if (package / "sql").is_dir() else package.parent / "sql"


def sql_text(kind: str, name: str) -> str:
    """The text of ``sql/<kind>/<name>.sql``."""
    return (sql_folder() / kind / f"{name}.sql").read_text(encoding="utf-8")


def sql_files(kind: str) -> list[Path]:
    """The files of ``sql/<kind>``, by name."""
    return sorted((sql_folder() / kind).glob("*.sql"))
