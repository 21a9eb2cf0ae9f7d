"""``prompt_sensor``: asks for runs when the stream has new prompts.

It never acknowledges anything: Dagster stores cursor and run requests together only after the function has returned,
so whatever was acknowledged inside could be lost. The cursor is the authority; ``run_key`` is a belt, because Dagster
deduplicates by it for ever.
"""

from typing import Any

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from model_foundry.defs.prompts.partitions import partition_key
from model_foundry.defs.resources import FoundryResource
from model_foundry.intake import RunAsk, plan_tick


def answer_prompts_job() -> UnresolvedAssetJobDefinition:
    """The job of one prompt run: land and answer."""
    return dg.define_asset_job(
        "answer_prompts",
        # the inbox's checks are of all lanes: with runs of several lanes at once, none would be shown as the latest
        selection=dg.AssetSelection.assets("prompt_inbox", "completions").without_checks(),
        description="Land a range of prompts, answer them, publish the results.",
    )


def run_request(ask: RunAsk) -> dg.RunRequest:
    """Dagster's form of what a tick asks for."""
    span: dict[str, Any] = {
        "stream_created": ask.stream_created,
        "from_seq": ask.from_seq,
        "to_seq": ask.to_seq,
        "config_digest": ask.config_digest,
    }
    return dg.RunRequest(
        run_key=ask.run_key,
        partition_key=partition_key(ask.partition_date, ask.lane),
        run_config={"ops": {"prompt_inbox": {"config": span}}},
        tags={"foundry/stream": ask.stream, "foundry/range": f"{ask.from_seq}-{ask.to_seq}"},
    )


def prompt_sensor_for(job: UnresolvedAssetJobDefinition) -> dg.SensorDefinition:
    """The sensor over a job."""

    @dg.sensor(
        name="prompt_sensor",
        job=job,
        minimum_interval_seconds=1,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Watches the stream of prompts, waiting up to a few seconds for new ones. Each tick that finds some asks "
            "for one run a lane, with the range of sequences to land. The cursor is the stream's creation and the "
            "last sequence asked for."
        ),
    )
    def prompt_sensor(context: dg.SensorEvaluationContext, foundry: FoundryResource) -> dg.SensorResult | dg.SkipReason:
        tick = plan_tick(foundry.parts, context.cursor)
        if tick is None:
            return dg.SkipReason("No new prompts.")
        for note in tick.notes:
            context.log.warning(note)
        return dg.SensorResult(run_requests=[run_request(ask) for ask in tick.asks], cursor=tick.cursor.to_text())

    return prompt_sensor
