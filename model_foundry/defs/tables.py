"""Tables and pictures for metadata. Belongs here: their form. Does not belong here: what is in them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg


def records_table(rows: Sequence[Mapping[str, Any]]) -> dg.TableMetadataValue:
    """Rows as Dagster's own table; floats get three decimals, unknown figures stay empty."""
    records = [dg.TableRecord({column: _cell(value) for column, value in row.items()}) for row in rows]
    columns = [
        dg.TableColumn(name, "float" if any(isinstance(row[name], float) for row in rows) else "string")
        for name in (rows[0] if rows else {})
    ]
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


def number(value: Any) -> Any:
    """A figure with three decimals, which is what people read."""
    return round(value, 3) if isinstance(value, float) else value


def _cell(value: Any) -> str | float | int | bool | None:
    return number(value) if value is None or isinstance(value, str | int | float | bool) else str(value)
