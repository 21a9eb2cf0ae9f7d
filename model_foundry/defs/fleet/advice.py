"""``placement_advice``: what was measured against the budgets, and which lines of the configuration it speaks for.

Belongs here: showing it. Does not belong here: the evidence and what follows from it (``fleet.advice``). The asset
proposes; nothing is changed.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
from pydantic import Field

from model_foundry.defs.recency import AS_OF
from model_foundry.defs.resources import FoundryResource, LakeResource
from model_foundry.defs.streams import OWNERS
from model_foundry.defs.tables import records_table
from model_foundry.fleet.advice import Advice, Row, Verdict, advise, cells_from_rows

MAX_ROWS = 100


class AdviceConfig(dg.Config):
    """How many days of measurements count, up to now."""

    days: int = Field(7, ge=1)


def placement_advice_asset() -> dg.AssetsDefinition:
    """The asset; needs the resources ``foundry`` and ``lake``."""

    @dg.asset(
        name="placement_advice",
        deps=[dg.AssetKey("completions")],
        group_name="fleet",
        kinds={"duckdb", "sql"},
        owners=OWNERS,
        description=(
            "Which model is on a worker that is too slow for it, and where is it better off? What was measured in the "
            "last days (`days` in the launchpad, 7 by default) against `fleet.budgets`, and the lines to paste into "
            "the configuration. A budget is exceeded when more than 5% of the answers are over it: exact tests, "
            "corrected for the number of rows. Proposals only; nothing is changed.\n\n"
            "Measured by `sql/show/placement.sql`. The same in a terminal: `foundry advice`."
        ),
    )
    def placement_advice(config: AdviceConfig, foundry: FoundryResource, lake: LakeResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
        now = datetime.now(UTC)
        since = now - timedelta(days=config.days)
        measured = cells_from_rows(lake.warehouse.show("placement", {"since": since}))
        advice = advise(foundry.parts.config, measured)
        return dg.MaterializeResult(
            metadata={
                "status": advice.status,
                "window": f"since {since:%Y-%m-%d %H:%M} UTC",
                AS_OF: dg.MetadataValue.timestamp(now),
                "dagster/row_count": len(advice.rows),
                **show_advice(advice),
            }
        )

    return placement_advice


def show_advice(advice: Advice) -> dict[str, Any]:
    """Rows and proposals as tables, the lines to paste as a block."""
    if advice.hint is not None:
        return {"hint": advice.hint}
    counts = {str(verdict).replace(" ", "_"): advice.count(verdict) for verdict in Verdict}
    shown: dict[str, Any] = {**counts, "rows": records_table([_shown(row) for row in advice.rows[:MAX_ROWS]])}
    if advice.proposals:
        shown["proposals"] = records_table(
            [{"kind": p.kind, "change": p.subject, "why": p.why, "config": p.config} for p in advice.proposals]
        )
        shown["config"] = dg.MetadataValue.md(f"```yaml\n{advice.config}```")
    return shown


def _shown(row: Row) -> dict[str, Any]:
    """A row as people read it: shares in percent, and the reason where a p95 is missing."""
    return {
        "domain": row.domain,
        "model": row.model,
        "worker": row.worker,
        "verdict": str(row.verdict),
        "budget_s": row.budget_s,
        "n": row.n,
        "over": row.over,
        "over_percent": 100 * row.share,
        "from_percent": 100 * row.share_low,
        "to_percent": 100 * row.share_high,
        "p_over": f"{row.p_over:.2g}",
        "p50_s": row.p50_s,
        "p50_from_s": row.p50_low_s,
        "p50_to_s": row.p50_high_s,
        "p95_s": row.p95_note or f"{row.p95_s:.3f}",
        "advice": row.advice,
    }
