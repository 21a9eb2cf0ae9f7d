"""``pipeline_event_inbox_record`` and what is told from it, partitioned by day.

Belongs here: reading the partition and the range, calling one domain function, showing the outcome. Payload texts are
never put into metadata: Dagster's event log keeps what it is given for ever.
"""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import dagster as dg

from model_foundry.config import FoundryConfig
from model_foundry.defs.events import show
from model_foundry.defs.externals import stream_key
from model_foundry.defs.resources import FoundryResource, LakeResource
from model_foundry.defs.streams import OWNERS, RETRY, RangeConfig
from model_foundry.event_inbox import InboxRecord, record_of_day, take_events
from model_foundry.sessions import flow_of, flows_of_day, sessions_of_day, timeline_of

GROUP = "events"
INBOX = "pipeline_event_inbox_record"
RECORD_IO = "inbox_record_io"


class SessionConfig(dg.Config):
    """Which session to show from the beginning to the end; left empty: the day's busiest."""

    correlation_id: str = ""


def event_partitions(config: FoundryConfig) -> dg.DailyPartitionsDefinition:
    """One partition a UTC day; today's is there from midnight on (``end_offset``)."""
    return dg.DailyPartitionsDefinition(start_date=config.lake.first_date.isoformat(), end_offset=1)


def event_assets(config: FoundryConfig) -> list[dg.AssetsDefinition]:
    """The inbox, and what is told from it."""
    partitions = event_partitions(config)

    @dg.asset(
        name=INBOX,
        partitions_def=partitions,
        deps=[stream_key("events")],
        io_manager_key=RECORD_IO,
        group_name=GROUP,
        retry_policy=RETRY,
        kinds={"nats", "duckdb"},
        owners=OWNERS,
        description=(
            "The events of one day, read from JetStream by sequence and landed in the lake: each message is one "
            "event, a duplicate of one, or a reject.\n\n"
            "Materialize a partition by hand to take what is pending. An empty queue is a normal outcome: the same "
            "record with no events and `status: empty`.\n\n"
            "Tables: `events`, `rejects`; typed: `chat_turns`, `tool_calls`, `searches`, `flow_nodes`, `flow_edges`; "
            "the rest with its reason: `untyped_events`."
        ),
    )
    def pipeline_event_inbox_record(
        context: dg.AssetExecutionContext, config: RangeConfig, foundry: FoundryResource, lake: LakeResource
    ) -> dg.MaterializeResult[InboxRecord]:
        day = date.fromisoformat(context.partition_key)
        record = take_events(foundry.parts, day, run_id=context.run_id, **config.arguments())
        with lake.warehouse.snapshot() as now:
            metadata = show.inbox_metadata(now, record, record_of_day(lake.warehouse, day), context.run_id)
        return dg.MaterializeResult(value=record, metadata=metadata)

    def told(description: str) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
        """An asset that is told from the record of its day."""
        decorator: Callable[[Callable[..., Any]], dg.AssetsDefinition] = dg.asset(
            partitions_def=partitions,
            ins={"record": dg.AssetIn(INBOX)},
            group_name=GROUP,
            kinds={"duckdb", "sql"},
            owners=OWNERS,
            description=description,
        )
        return decorator

    @told(
        "How did an orchestrator and its workers work together? Each session of the day with a flow: nodes, edges, "
        "depth, fan-out, how much ran in parallel, which role got nothing, how far workers with the same plan "
        "diverged; and a picture of the one with the most of it, or of `correlation_id`.\n\n"
        "Views: `event_flow`, `flow_agents`, `flow_divergence`, `flow_nodes`, `flow_edges`."
    )
    def event_flow(
        context: dg.AssetExecutionContext, config: SessionConfig, record: InboxRecord, lake: LakeResource
    ) -> dg.MaterializeResult:  # type: ignore[type-arg]
        at, day = datetime.now(UTC), record.partition_date
        with lake.warehouse.snapshot() as now:
            flows = flows_of_day(now, day)
            chosen = config.correlation_id or (flows[0]["correlation_id"] if flows else "")
            flow = flow_of(now, chosen) if chosen else None
        return dg.MaterializeResult(metadata=show.flow_metadata(at, flows, flow))

    @told(
        "What happened in each session of the day, across prompts, answers and events, in order, with the gaps? "
        "The sessions, and the whole of the busiest, or of `correlation_id`. In the terminal: `foundry session "
        "ID`.\n\nViews: `session_timeline`, `sessions`."
    )
    def session_timeline(
        context: dg.AssetExecutionContext, config: SessionConfig, record: InboxRecord, lake: LakeResource
    ) -> dg.MaterializeResult:  # type: ignore[type-arg]
        at, day = datetime.now(UTC), record.partition_date
        with lake.warehouse.snapshot() as now:
            sessions = sessions_of_day(now, day)
            busiest = max(sessions, key=lambda row: row["moments"], default=None)
            chosen = config.correlation_id or (busiest["correlation_id"] if busiest else "")
            timeline = timeline_of(now, chosen, show.MAX_MOMENTS) if chosen else []
        return dg.MaterializeResult(metadata=show.timeline_metadata(at, sessions, chosen, timeline))

    @told(
        "How many events came in each minute of the day, by subject, and how long until they were in the lake?\n\n"
        "View: `event_volume`; over any window: `event_volume_between(from, to)`."
    )
    def event_volume(
        context: dg.AssetExecutionContext, record: InboxRecord, lake: LakeResource
    ) -> dg.MaterializeResult:  # type: ignore[type-arg]
        at = datetime.now(UTC)
        start = datetime.combine(record.partition_date, datetime.min.time(), UTC)
        window = {"start": start, "end": start + timedelta(days=1)}
        rows = lake.warehouse.rows("from event_volume_between($start, $end) order by minute, subject", window)
        return dg.MaterializeResult(metadata=show.volume_metadata(at, record, rows))

    return [pipeline_event_inbox_record, event_flow, session_timeline, event_volume]
