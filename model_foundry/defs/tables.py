"""Tables and pictures for metadata. Belongs here: their form. Does not belong here: what is in them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from typing import Any

import dagster as dg
import pandas as pd


def records_table(frame: pd.DataFrame) -> dg.TableMetadataValue:
    """A frame as Dagster's own table; floats get three significant decimals, unknown ones stay empty."""
    records = [
        dg.TableRecord({str(column): _cell(value) for column, value in row.items()})
        for row in frame.to_dict(orient="records")
    ]
    columns = [dg.TableColumn(str(c), "float" if frame[c].dtype.kind == "f" else "string") for c in frame.columns]
    return dg.MetadataValue.table(records, schema=dg.TableSchema(columns=columns))


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table in Markdown, for cells that hold links."""
    lines = [" | ".join(columns), " | ".join("---" for _ in columns)]
    lines += [" | ".join("" if cell is None else str(cell) for cell in row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def chart(spec: dict[str, Any], *, alt: str) -> dg.MarkdownMetadataValue:
    """A Vega-Lite chart as a picture inside Markdown, which is how Dagster shows pictures."""
    import vl_convert  # here, not above: it starts a JavaScript engine, and most runs need none

    png = vl_convert.vegalite_to_png(json.dumps(spec), scale=1.5)
    return dg.MetadataValue.md(f"![{alt}](data:image/png;base64,{base64.b64encode(png).decode()})")


def _cell(value: Any) -> str | float | int | bool | None:
    if value is None or (isinstance(value, float) and value != value) or value is pd.NaT or value is pd.NA:
        return None
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return round(value, 3)
    return value if isinstance(value, str | int | bool) else str(value)
