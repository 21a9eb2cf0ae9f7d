"""``prompt_sensor``: asks for runs when the stream has new prompts."""

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from model_foundry.defs.prompts.partitions import partition_key
from model_foundry.defs.streams import stream_sensor
from model_foundry.prompt_intake import PromptIntake


def answer_prompts_job() -> UnresolvedAssetJobDefinition:
    """The job of one prompt run: land and answer."""
    return dg.define_asset_job(
        "answer_prompts",
        # the inbox's checks are of all lanes: with runs of several lanes at once, none would be shown as the latest
        selection=dg.AssetSelection.assets("prompt_inbox", "completions").without_checks(),
        description="Land a range of prompts, answer them, publish the results.",
    )


def prompt_sensor_for(job: UnresolvedAssetJobDefinition) -> dg.SensorDefinition:
    """The sensor over a job."""
    return stream_sensor(
        "prompt_sensor",
        job,
        PromptIntake,
        inbox="prompt_inbox",
        key_of=lambda ask: partition_key(ask.partition_date, ask.lane),
        description=(
            "Watches the stream of prompts, waiting up to a few seconds for new ones. Each tick that finds some asks "
            "for one run a lane, with the range of sequences to land. The cursor is the stream's creation and the "
            "last sequence asked for."
        ),
    )
