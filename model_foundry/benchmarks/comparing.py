"""Comparing what was measured: from results in the lake to comparisons in it, and against a named baseline.

Belongs here: which results are compared, recording, baselines. Does not belong here: the statistics (``comparison``),
showing (``defs``, ``cli``).

A baseline is a name for sweeps that are done, with the lake's snapshot of that moment. The rows of a sweep that is done
never change and are never let go of, so what is compared with a baseline gives the same numbers at any later time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import pyarrow as pa

from model_foundry.benchmarks.comparison import (
    ALPHA,
    BOOTSTRAPS,
    EXACT_UP_TO,
    FIGURES,
    FLIPS,
    Comparison,
    against,
    compare,
)
from model_foundry.errors import ConfigError
from model_foundry.runtime import Foundry
from model_foundry.warehouse.engine import Rows, run_script
from model_foundry.warehouse.sql_files import sql_text

METHOD = {
    "interval": "95%; studentized bootstrap by prompt and Student's t, the wider; shares: Agresti and Min",
    "test": f"sign flips by prompt, exact up to {EXACT_UP_TO}, else {FLIPS}; Hoeffding's bound for smaller p",
    "bootstraps": BOOTSTRAPS,
    "level": ALPHA,
    "correction": "Holm, over the pairs of a suite, domain, figure and level",
    "effect_size": "matched-pairs rank-biserial",
}


@dataclass(frozen=True, slots=True)
class Compared:
    """What a suite's comparison gave. ``sweeps``: whose results; ``rows``: how many."""

    suite: str
    comparisons: tuple[Comparison, ...]
    sweeps: tuple[str, ...]
    rows: int


def compare_suite(foundry: Foundry, suite: str, *, run_id: str, seed: int = 0) -> Compared:
    """Compares what was measured of a suite last, and records it.

    Args:
        foundry: the parts.
        suite: its name.
        run_id: who compares.
        seed: of the bootstrap and the random flips; recorded.

    Raises:
        LakeError: when the lake can't be used.
    """
    foundry.warehouse.migrate()
    rows = results_of(foundry, suite)
    sweeps = tuple(sorted({row["sweep_id"] for row in rows}))
    found = tuple(compare(rows, objective=foundry.config.benchmarks.objective, seed=seed))
    _record(foundry, found, sweeps, run_id, seed)
    return Compared(suite, found, sweeps, len(rows))


def results_of(foundry: Foundry, suite: str, sweep_ids: Sequence[str] = ()) -> Rows:
    """The measured results of a suite: those of sweeps, or of the newest ones."""
    return foundry.warehouse.show("comparable_results", {"suite": suite, "sweep_ids": list(sweep_ids)})


def set_baseline(foundry: Foundry, name: str, sweep_ids: Sequence[str], note: str | None = None) -> None:
    """Names sweeps as a baseline.

    Raises:
        ConfigError: when there are none, or one is unknown or not done.
    """
    foundry.warehouse.migrate()
    if not name.strip() or not sweep_ids:
        raise ConfigError("a baseline needs a name and at least one sweep", hint="foundry bench show lists them.")
    for sweep_id in sweep_ids:
        found = foundry.warehouse.show("sweep", {"sweep_id": sweep_id})
        if not found:
            raise ConfigError(f"there is no sweep {sweep_id!r}", hint="foundry bench show lists the last ones.")
        if found[0]["status"] != "done":
            raise ConfigError(
                f"sweep {sweep_id} is {found[0]['status']} and may still change; a baseline is of sweeps that are done",
                hint=f"foundry bench run {found[0]['suite']} goes on with it.",
            )
    params = {
        "name": name,
        "sweep_ids": json.dumps(list(sweep_ids)),
        "snapshot_id": _snapshot(foundry),
        "note": note,
        "now": datetime.now(UTC),
    }
    with foundry.warehouse.writer(f"set baseline {name}") as connection:
        run_script(connection, sql_text("landing", "set_baseline"), params)


def baselines(foundry: Foundry) -> Rows:
    """The baselines, the newest first; ``sweep_ids`` as a list."""
    foundry.warehouse.migrate()
    return [row | {"sweep_ids": json.loads(row["sweep_ids"])} for row in foundry.warehouse.show("benchmark_baselines")]


def drop_baseline(foundry: Foundry, name: str) -> None:
    """Forgets a baseline; its sweeps stay.

    Raises:
        ConfigError: when there is none of that name.
    """
    _baseline(foundry, name)
    with foundry.warehouse.writer(f"drop baseline {name}") as connection:
        connection.execute("delete from benchmark_baselines where name = $name", {"name": name})


def compare_with_baseline(
    foundry: Foundry, name: str, suite: str, *, sweep_ids: Sequence[str] = (), seed: int = 0
) -> list[Comparison]:
    """Each model at each worker now, against the same in a baseline: ``a`` is then, ``b`` is now.

    Args:
        foundry: the parts.
        name: the baseline's.
        suite: of which.
        sweep_ids: what is now; the newest when left out.
        seed: of the bootstrap and the random flips.

    Raises:
        ConfigError: when there is no such baseline.
    """
    then = results_of(foundry, suite, _baseline(foundry, name)["sweep_ids"])
    return against(then, results_of(foundry, suite, sweep_ids), seed=seed)


def newest_baseline(foundry: Foundry, suite: str) -> str | None:
    """The name of a suite's newest baseline."""
    return next((row["name"] for row in baselines(foundry) if suite in row["suites"]), None)


def regressions(found: Sequence[Comparison], worse_by: float) -> list[Comparison]:
    """What is shown to be worse than it was, by more than so much. Pure.

    Args:
        found: as of ``compare_with_baseline``.
        worse_by: a ratio for times and rates; for shares, its excess over 1 is a difference: 1.1 is ten points.
    """

    def by(c: Comparison) -> float:
        estimate = c.estimate or 0.0
        if FIGURES[c.figure].kind == "share":
            return 1 + abs(estimate)
        return max(estimate, 1 / estimate) if estimate else 1.0

    return [c for c in found if c.verdict in ("slower", "worse") and by(c) > worse_by]


def _baseline(foundry: Foundry, name: str) -> dict[str, Any]:
    there = {row["name"]: row for row in baselines(foundry)}
    if name not in there:
        raise ConfigError(
            f"there is no baseline {name!r}; there are: {', '.join(there) or '(none)'}",
            hint="foundry bench baseline set NAME SWEEP",
        )
    return there[name]


def _snapshot(foundry: Foundry) -> int:
    """The lake's snapshot of this moment."""
    [row] = foundry.warehouse.rows("select id from current_snapshot()")
    return int(row["id"])


def _record(foundry: Foundry, found: Sequence[Comparison], sweeps: Sequence[str], run_id: str, seed: int) -> None:
    if not found:
        return
    now, snapshot = datetime.now(UTC), _snapshot(foundry)
    shared = {
        "method": json.dumps(METHOD),
        "seed": seed,
        "sweeps": json.dumps(list(sweeps)),
        "snapshot_id": snapshot,
        "compared_at": now,
        "run_id": run_id,
    }
    rows = []
    for c in found:
        key = "\0".join((c.suite, c.domain, c.level, c.a, c.b, c.figure, *sweeps, str(seed)))
        rows.append(
            {name: getattr(c, name) for name in COMPARED.names if hasattr(c, name)}
            | shared
            | {"comparison_id": sha256(key.encode()).hexdigest()[:32]}
        )
    with foundry.warehouse.writer(f"record {len(rows)} comparisons") as connection:
        connection.register("compared", pa.Table.from_pylist(rows, schema=COMPARED))
        run_script(connection, sql_text("landing", "record_comparisons"))


COMPARED = pa.schema(
    [
        *((n, pa.string()) for n in ("comparison_id", "suite", "domain", "level", "a", "b", "figure")),
        ("n_prompts", pa.int32()),
        *((n, pa.float64()) for n in ("estimate", "low", "high", "p", "p_holm", "effect_size")),
        *((n, pa.string()) for n in ("verdict", "words", "method")),
        ("seed", pa.int64()),
        ("sweeps", pa.string()),
        ("snapshot_id", pa.int64()),
        ("compared_at", pa.timestamp("us", tz="UTC")),
        ("run_id", pa.string()),
    ]
)
"""A comparison on its way in."""
