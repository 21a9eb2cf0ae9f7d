"""``event_sensor``: asks for a run when the stream has new events."""

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from model_foundry.defs.events.assets import INBOX
from model_foundry.defs.streams import reconciliation_schedule, stream_sensor
from model_foundry.event_intake import EventIntake


def record_events_job() -> UnresolvedAssetJobDefinition:
    """The job of one run of events: land them."""
    return dg.define_asset_job(
        "record_events",
        selection=dg.AssetSelection.assets(INBOX).without_checks(),
        description="Land a range of events.",
    )


def event_sensor_for(job: UnresolvedAssetJobDefinition) -> dg.SensorDefinition:
    """The sensor over the job."""
    return stream_sensor(
        "event_sensor",
        job,
        EventIntake,
        inbox=INBOX,
        key_of=lambda ask: ask.partition_date.isoformat(),
        description=(
            "Watches the stream of events, waiting up to a few seconds for new ones. Each tick that finds some asks "
            "for one run a day, with the range of sequences to land. The cursor is the stream's creation and the last "
            "sequence asked for."
        ),
    )


def event_reconciliation_for(job: UnresolvedAssetJobDefinition) -> dg.ScheduleDefinition:
    """The schedule that asks again for what did not land."""
    return reconciliation_schedule(
        "event_reconciliation",
        job,
        EventIntake,
        key_of=lambda found: found.partition_date.isoformat(),
        description=(
            "Compares the stream of events with what has landed, and asks again for what is overdue. What the stream "
            "has dropped meanwhile becomes a row in `lost_messages`, and the check `no_message_was_lost` fails."
        ),
    )
