"""When the sessions are told again, and when the coming of events is looked at. Belongs here: that."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from model_foundry.defs.events.assets import INBOX
from model_foundry.defs.events.checks import FRESHNESS_CHECKS
from model_foundry.defs.lake.checks import checks_of
from model_foundry.defs.recency import newest, seen_until
from model_foundry.defs.resources import LakeResource

LANDING_TAKES = timedelta(minutes=2)
"""A landing may be committed so much later than the time in its ledger row."""


def sessions_job() -> UnresolvedAssetJobDefinition:
    """The job that tells a day's sessions again."""
    return dg.define_asset_job(
        "refresh_sessions",
        selection=dg.AssetSelection.assets("event_flow", "session_timeline", "event_volume"),
        description="Bring the flow, the sessions and the traffic of a day up to date.",
    )


def sessions_schedule(job: UnresolvedAssetJobDefinition) -> dg.ScheduleDefinition:
    """Every minute in which something came in, for the days that it is of."""

    @dg.schedule(
        job=job,
        name="sessions",
        cron_schedule="* * * * *",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Tells the sessions of a day again once a minute, when something of that day came in since.",
    )
    def sessions(context: dg.ScheduleEvaluationContext, lake: LakeResource) -> Iterator[dg.RunRequest | dg.SkipReason]:
        since = seen_until(context.instance, "session_timeline")
        if newest(context.instance, INBOX, "prompt_inbox", "completions") <= since:
            yield dg.SkipReason("Nothing came in since.")
            return
        landed_since = datetime.fromtimestamp(since, UTC) - LANDING_TAKES
        for row in lake.warehouse.show("days_with_news", {"since": landed_since}):
            day = row["partition_date"].isoformat()
            run_key = f"{day} {context.scheduled_execution_time:%Y-%m-%dT%H:%M}"
            yield dg.RunRequest(run_key=run_key, partition_key=day)

    return sessions


def watch_job() -> UnresolvedAssetJobDefinition:
    """The job that looks whether events come, land and can be read."""
    names = [dg.AssetCheckKey(dg.AssetKey(INBOX), name) for name in FRESHNESS_CHECKS]
    return dg.define_asset_job(
        "watch_events",
        selection=dg.AssetSelection.checks(*checks_of(INBOX), *names),
        description="Look whether events come in, land in time and can be read.",
    )


def watch_schedule(job: UnresolvedAssetJobDefinition) -> dg.ScheduleDefinition:
    """Every five minutes, whether anything came or not: that is the question."""
    return dg.ScheduleDefinition(
        name="event_watch",
        job=job,
        cron_schedule="*/5 * * * *",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Looks every five minutes whether events come in, land in time and can be read.",
    )
