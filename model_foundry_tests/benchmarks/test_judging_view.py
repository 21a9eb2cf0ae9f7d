"""The view of judged pairs shows wins of a trusted judge only."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from model_foundry.benchmarks import judging
from model_foundry.warehouse.judgement_rows import record_judgements
from model_foundry_tests.benchmarks.conftest import Scene


@pytest.mark.parametrize(("wrong", "wins"), [(0, 1), (2, 1), (6, None)])
def test_wins_are_shown_as_the_gate_says(scene: Scene, wrong: int, wins: int | None) -> None:
    foundry = scene.foundry
    foundry.warehouse.migrate()
    rows = [p.row for p in judging.planted_pairs("small")]
    for n, row in enumerate(rows):
        judging._decide(row, "tie" if n < wrong else row["planted"], "judge", "")
    one = judging._row("small", "s", "d", "p", 0, "general", "x", "y", "1", "2")
    judging._decide(one, "a", "judge", "")
    done = [{**r, "outcome": r["verdict_ab"], "judged_at": datetime.now(UTC), "run_id": "r"} for r in [*rows, one]]
    record_judgements(foundry.warehouse, done)
    found = foundry.warehouse.rows("select wins_a, note from judged_pairs")[0]
    assert found["wins_a"] == wins
    assert judging.gate_of(foundry, "small").passed == (wins is not None)
    assert found["note"] == (None if wins else "judge not trusted")
