"""Partitions of prompts: day × lane. Never one a prompt or a batch: each partition costs events for ever."""

from __future__ import annotations

from datetime import date

import dagster as dg

from model_foundry.config import FoundryConfig


def prompt_partitions(config: FoundryConfig) -> dg.MultiPartitionsDefinition:
    """One partition a UTC day and lane; today's is there from midnight on (``end_offset``)."""
    return dg.MultiPartitionsDefinition(
        {
            "date": dg.DailyPartitionsDefinition(start_date=config.lake.first_date.isoformat(), end_offset=1),
            "lane": dg.StaticPartitionsDefinition(config.lanes),
        }
    )


def partition_key(day: date, lane: str) -> dg.MultiPartitionKey:
    """The key of a day and lane."""
    return dg.MultiPartitionKey({"date": day.isoformat(), "lane": lane})


def day_and_lane(context: dg.AssetExecutionContext) -> tuple[date, str]:
    """The day and lane that a run works on."""
    keys = dg.MultiPartitionKey.keys_by_dimension.fget(context.partition_key)  # type: ignore[attr-defined]
    return date.fromisoformat(keys["date"]), keys["lane"]
