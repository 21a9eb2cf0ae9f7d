"""The reconciliation schedule: what a failed run or an outage left behind is asked for again.

Belongs here: the schedule. Does not belong here: what is overdue (``reconciling``).
"""

from collections.abc import Iterator
from datetime import UTC, datetime

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from model_foundry.defs.prompts.partitions import partition_key
from model_foundry.defs.resources import FoundryResource
from model_foundry.reconciling import overdue

UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def reconciliation_for(job: UnresolvedAssetJobDefinition) -> dg.ScheduleDefinition:
    """The schedule over the job of prompt runs."""

    @dg.schedule(
        job=job,
        name="reconciliation",
        cron_schedule="*/5 * * * *",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=(
            "Compares the stream of prompts with what has landed, and jobs with their outcomes. What is overdue, "
            "because a run failed or something was down, is asked for again. What the stream has dropped meanwhile "
            "becomes a row in `lost_messages`, and the check `no_message_was_lost` fails."
        ),
    )
    def reconciliation(
        context: dg.ScheduleEvaluationContext, foundry: FoundryResource
    ) -> Iterator[dg.RunRequest | dg.SkipReason]:
        busy = set()
        for run in context.instance.get_runs(dg.RunsFilter(statuses=UNFINISHED)):
            busy.add(run.tags.get("dagster/partition"))
        asked = False
        for found in overdue(foundry.parts, datetime.now(UTC)):
            key = partition_key(found.partition_date, found.lane)
            if str(key) not in busy:
                asked = True
                context.log.info(f"{key}: {found.reason}")
                yield dg.RunRequest(
                    run_key=f"{key} {context.scheduled_execution_time:%Y-%m-%dT%H:%M}",
                    partition_key=key,
                    tags={"foundry/reconciliation": found.reason},
                )
        if not asked:
            yield dg.SkipReason("Nothing is overdue, or runs are under way for it.")

    return reconciliation
