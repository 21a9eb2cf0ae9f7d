"""The figures as assets: each one is a view of the lake, shown as a table and, where it helps, a chart.

The views are always current for whoever queries them, and over all time; materializing keeps a picture of the last
days in Dagster's history, at a cost that does not grow with what lies before.
"""

from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from typing import Any

import dagster as dg
from pydantic import Field

from model_foundry.defs.recency import AS_OF
from model_foundry.defs.resources import LakeResource
from model_foundry.defs.streams import OWNERS
from model_foundry.defs.tables import chart, number, records_table
from model_foundry.warehouse.engine import Rows

MAX_ROWS = 100
MIN_N_P95 = 59
"""The least n for which a distribution-free 95% upper bound of the p95 exists: 1 - 0.95**59 > 0.95."""


LATENCY_COLUMNS = ["jobs", "n", "p50_e2e_s", "p95", "error_rate", "avg_e2e_s", "max_e2e_s", "p50_ttft_s", "p50_queue_s"]
LATENCY_COLUMNS += ["answered", "failed", "pending", "cold"]
MAX_BARS = 8


class FiguresConfig(dg.Config):
    """How many days the picture is of, today included."""

    days: int = Field(7, ge=1)


def analytics_assets() -> list[dg.AssetsDefinition]:
    """Every view that is an asset."""
    return [
        _view_asset(
            "domain_latency",
            "How fast is each domain answered, and how often not at all? Jobs, error rate, average, p50 and p95 of "
            "warm answers by domain, by domain × model, and by domain × model × worker. A p95 needs 59 answers; "
            "below that the table says so.",
            show_domain_latency,
        ),
        _view_asset(
            "worker_mix",
            "Which worker makes the slowest 5%? A model that is fast on a GPU and slow on a CPU has one p95 that fits "
            "neither; this table takes it apart.",
            show_all,
        ),
        _view_asset(
            "model_usage",
            "Which model answers best, and where? How often, how fast, how many tokens a second, by model and by "
            "model × worker.",
            show_all,
        ),
        _view_asset(
            "model_throughput",
            "How many tokens a second does each worker read (PP) and write (TG), by model? "
            "From the server's own counts.",
            show_all,
        ),
    ]


def _view_asset(name: str, description: str, show: Callable[[Rows], dict[str, Any]]) -> dg.AssetsDefinition:
    @dg.asset(
        name=name,
        deps=[dg.AssetKey("completions")],
        group_name="analytics",
        kinds={"duckdb", "sql"},
        owners=OWNERS,
        description=(
            f"{description}\n\nShown here: the last days (`days` in the launchpad, 7 by default). Of all time: "
            f"`from {name}`; over any window: `from {name}_between(from, to)`, whose text is "
            f"`sql/macros/{name}_between.sql`."
        ),
    )
    def view(config: FiguresConfig, lake: LakeResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
        now = datetime.now(UTC)
        since = datetime.combine(now.date() - timedelta(days=config.days - 1), time(), UTC)
        rows = lake.warehouse.rows(f"from {name}_between($since, 'infinity') order by all", {"since": since})
        status = "done" if rows else "empty"
        shown = show(rows) if rows else {}
        window = f"since {since:%Y-%m-%d %H:%M} UTC"
        return dg.MaterializeResult(
            metadata={
                "status": status,
                "window": window,
                AS_OF: dg.MetadataValue.timestamp(now),
                "dagster/row_count": len(rows),
                **shown,
            }
        )

    return view


def show_all(rows: Rows) -> dict[str, Any]:
    """The view as one table."""
    return {"rows": records_table(rows[:MAX_ROWS])}


def show_domain_latency(rows: Rows) -> dict[str, Any]:
    """A chart, and a table a level; where a p95 would rest on too few answers it says so in its place."""
    rows = [{**row, "p95": f"n<{MIN_N_P95}" if row["p95_note"] else number(row["p95_e2e_s"])} for row in rows]
    keys = {"domain": ["domain"], "domain_model": ["domain", "model"]}
    keys["domain_model_worker"] = ["domain", "model", "worker"]
    tables = {}
    for level, columns in keys.items():
        chosen = [row for row in rows if row["level"] == level][:MAX_ROWS]
        tables[f"by_{level}"] = records_table(
            [{name: row[name] for name in columns + LATENCY_COLUMNS} for row in chosen]
        )
    return {"p50_by_domain": bars(rows), **tables, "chart": chart(domain_latency_chart(rows), alt="domain_latency")}


def bars(rows: Rows) -> dg.MarkdownMetadataValue:
    """The slowest domains' medians as bars of text: Dagster shows short Markdown in place, pictures behind a click."""
    found = [r for r in rows if r["level"] == "domain" and r["p50_e2e_s"] is not None]
    found = sorted(found, key=lambda r: -r["p50_e2e_s"])[:MAX_BARS]
    longest = max((r["p50_e2e_s"] for r in found), default=1.0)
    lines = [
        f"{r['domain'][:14]:<14} {'█' * max(1, round(24 * r['p50_e2e_s'] / longest)):<24} {r['p50_e2e_s']:.2f} s"
        for r in found
    ]
    return dg.MetadataValue.md("```\n" + "\n".join(lines) + "\n```")


def domain_latency_chart(rows: Rows) -> dict[str, Any]:
    """Median and slowest answer by domain and worker, as a Vega-Lite specification. Pure."""
    values = [
        {"domain": r["domain"], "worker": r["worker"], "p50": r["p50_e2e_s"], "slowest": r["max_e2e_s"]}
        for r in rows
        if r["level"] == "domain_model_worker" and r["p50_e2e_s"] is not None
    ]
    y = {"field": "worker", "type": "nominal", "title": None}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "data": {"values": values},
        "facet": {
            "row": {
                "field": "domain",
                "type": "nominal",
                "title": None,
                "header": {"labelAngle": 0, "labelAlign": "left"},
            }
        },
        "spec": {
            "width": 420,
            "layer": [
                {
                    "mark": {"type": "rule", "strokeWidth": 2, "color": "#9aa5b1"},
                    "encoding": {
                        "y": y,
                        "x": {
                            "field": "p50",
                            "type": "quantitative",
                            "title": "seconds: dot = p50, line to the slowest",
                        },
                        "x2": {"field": "slowest"},
                    },
                },
                {
                    "mark": {"type": "point", "filled": True, "size": 90},
                    "encoding": {"y": y, "x": {"field": "p50", "type": "quantitative"}, "color": {**y, "legend": None}},
                },
            ],
        },
    }
