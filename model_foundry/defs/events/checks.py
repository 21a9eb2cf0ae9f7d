"""Checks on the coming of events: are they in the lake in time, and has any subject gone quiet?"""

from datetime import UTC, datetime

import dagster as dg

from model_foundry.defs.events.assets import INBOX
from model_foundry.defs.resources import FoundryResource
from model_foundry.defs.tables import number, records_table
from model_foundry.event_inbox import lag
from model_foundry.sessions import gone_quiet

FRESHNESS_CHECKS = ("events_land_in_time", "no_subject_is_quiet")


def event_checks() -> list[dg.AssetChecksDefinition]:
    """The checks on freshness; those over the lake's rows are in ``defs.lake.checks``."""

    @dg.asset_check(
        asset=INBOX,
        name="events_land_in_time",
        description="No event waits in the stream for longer than `events.max_lag_s`.",
    )
    def events_land_in_time(foundry: FoundryResource) -> dg.AssetCheckResult:
        found, allowed_s = lag(foundry.parts, datetime.now(UTC)), foundry.parts.config.events.max_lag_s
        return dg.AssetCheckResult(
            passed=found.oldest_s <= allowed_s,
            severity=dg.AssetCheckSeverity.WARN,
            metadata={"pending": found.pending, "oldest_s": number(found.oldest_s), "allowed_s": allowed_s},
        )

    @dg.asset_check(
        asset=INBOX,
        name="no_subject_is_quiet",
        description=(
            "No subject is silent for longer than `events.quiet_after_s` says; one that it does not name, for longer "
            "than an hour and three times its longest pause of the week."
        ),
    )
    def no_subject_is_quiet(foundry: FoundryResource) -> dg.AssetCheckResult:
        now = datetime.now(UTC)
        pace = foundry.parts.warehouse.show("event_pace", {"day": now.date(), "now": now})
        quiet = gone_quiet(pace, foundry.parts.config.events.quiet_after_s)
        return dg.AssetCheckResult(
            passed=not quiet,
            severity=dg.AssetCheckSeverity.WARN,
            metadata={"subjects": len(pace), "quiet": records_table(quiet)},
        )

    return [events_land_in_time, no_subject_is_quiet]
