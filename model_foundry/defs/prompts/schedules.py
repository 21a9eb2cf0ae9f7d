"""When prompts are asked for again. Belongs here: that. Does not belong here: what is overdue (``reconciling``)."""

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from model_foundry.defs.prompts.partitions import partition_key
from model_foundry.defs.streams import reconciliation_schedule
from model_foundry.prompt_intake import PromptIntake


def reconciliation_for(job: UnresolvedAssetJobDefinition) -> dg.ScheduleDefinition:
    """The schedule over the job of prompt runs."""
    return reconciliation_schedule(
        "reconciliation",
        job,
        PromptIntake,
        key_of=lambda found: partition_key(found.partition_date, found.lane),
        description=(
            "Compares the stream of prompts with what has landed, and jobs with their outcomes. What is overdue, "
            "because a run failed or something was down, is asked for again. What the stream has dropped meanwhile "
            "becomes a row in `lost_messages`, and the check `no_message_was_lost` fails."
        ),
    )
