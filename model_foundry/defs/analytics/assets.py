"""The figures as assets: each one is a view of the lake, shown as a table and, where it helps, a chart.

The views are always current for whoever queries them; materializing keeps a picture of them in Dagster's history.
"""

from typing import Any

import dagster as dg
import pandas as pd

from model_foundry.defs.prompts.externals import OWNERS
from model_foundry.defs.resources import LakeResource
from model_foundry.defs.tables import chart, records_table

MAX_ROWS = 100


def analytics_assets() -> list[dg.AssetsDefinition]:
    """Every view that is an asset."""
    return [
        _view_asset(
            "domain_latency",
            "How fast is each domain answered, and how often not at all? Jobs, error rate, average, p50 and p95 of "
            "warm answers by domain, by domain × model, and by domain × model × worker. A p95 needs 59 answers; "
            "below that the table says so.",
            domain_latency_chart,
        ),
        _view_asset(
            "worker_mix",
            "Which worker makes the slowest 5%? A model that is fast on a GPU and slow on a CPU has one p95 that fits "
            "neither; this table takes it apart.",
        ),
        _view_asset(
            "model_throughput",
            "How many tokens a second does each worker read (PP) and write (TG), by model, from the server's own counts?",
        ),
    ]


def _view_asset(name: str, description: str, picture: Any = None) -> dg.AssetsDefinition:
    @dg.asset(
        name=name,
        deps=[dg.AssetKey("completions")],
        group_name="analytics",
        kinds={"duckdb", "sql"},
        owners=OWNERS,
        description=f"{description}\n\nSQL: `from {name}`; its text is `sql/views/{name}.sql`.",
    )
    def view(lake: LakeResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
        frame = lake.warehouse.frame(f"from {name}")
        metadata: dict[str, Any] = {
            "status": "empty" if frame.empty else "done",
            "dagster/row_count": len(frame),
            name: records_table(frame.head(MAX_ROWS)),
        }
        if picture is not None and not frame.empty:
            metadata["chart"] = chart(picture(frame), alt=name)
        return dg.MaterializeResult(metadata=metadata)

    return view


def domain_latency_chart(frame: pd.DataFrame) -> dict[str, Any]:
    """Median and slowest answer by domain and worker, as a Vega-Lite specification. Pure."""
    rows = frame[(frame["level"] == "domain_model_worker") & frame["p50_e2e_s"].notna()]
    values = [
        {"domain": r["domain"], "worker": r["worker"], "p50": r["p50_e2e_s"], "slowest": r["max_e2e_s"]}
        for r in rows.to_dict(orient="records")
    ]
    y = {"field": "worker", "type": "nominal", "title": None}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "data": {"values": values},
        "facet": {"row": {"field": "domain", "type": "nominal", "title": None, "header": {"labelAngle": 0, "labelAlign": "left"}}},
        "spec": {
            "width": 420,
            "layer": [
                {
                    "mark": {"type": "rule", "strokeWidth": 2, "color": "#9aa5b1"},
                    "encoding": {
                        "y": y,
                        "x": {"field": "p50", "type": "quantitative", "title": "seconds: dot = p50, line to the slowest"},
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
