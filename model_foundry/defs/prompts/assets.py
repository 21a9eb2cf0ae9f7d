"""``prompt_inbox`` and ``completions``, partitioned by day and lane.

Belongs here: reading the partition and the range, calling one domain function, showing the outcome. Prompt and answer
texts are never put into metadata or logs: Dagster's event log keeps what it is given for ever.
"""

import dagster as dg

from model_foundry.answering import answer_partition
from model_foundry.config import FoundryConfig
from model_foundry.defs.externals import stream_key, worker_key
from model_foundry.defs.prompts.partitions import day_and_lane, prompt_partitions
from model_foundry.defs.prompts.runs import partition_run
from model_foundry.defs.prompts.show import completions_metadata, correlation_tags, inbox_metadata
from model_foundry.defs.resources import FoundryResource, LakeResource
from model_foundry.defs.streams import OWNERS, RETRY, RangeConfig
from model_foundry.intake import land_partition
from model_foundry.prompt_intake import PromptIntake


class AnswerConfig(dg.Config):
    """Whether jobs that failed before are asked again."""

    retry_failed: bool = False


def prompt_assets(config: FoundryConfig) -> list[dg.AssetsDefinition]:
    """The two assets a prompt passes through."""
    partitions = prompt_partitions(config)

    @dg.asset(
        partitions_def=partitions,
        deps=[stream_key("prompts")],
        group_name="prompts",
        retry_policy=RETRY,
        kinds={"nats", "duckdb"},
        owners=OWNERS,
        description=(
            "The prompts of one day and lane, read from JetStream by sequence, routed by capability, and landed in "
            "the lake: each message is one job, a duplicate of one, or a reject.\n\n"
            "Materialize a partition by hand to land what is still missing; nothing missing is a normal outcome. "
            "The lane `unroutable` holds what could not be used, and the rejects.\n\n"
            "Tables: `jobs`, `rejects`, `stream_messages`, `ingest_ledger`."
        ),
    )
    def prompt_inbox(
        context: dg.AssetExecutionContext, config: RangeConfig, foundry: FoundryResource, lake: LakeResource
    ) -> dg.MaterializeResult:  # type: ignore[type-arg]
        day, lane = day_and_lane(context)
        report = land_partition(foundry.parts, PromptIntake, (day, lane), run_id=context.run_id, **config.arguments())
        with lake.warehouse.snapshot() as now:
            return dg.MaterializeResult(metadata=inbox_metadata(now, report, config.span, context.run_id))

    @dg.asset(
        partitions_def=partitions,
        deps=[
            prompt_inbox,
            "job_sources",
            *map(worker_key, config.model_servers),
        ],
        group_name="prompts",
        retry_policy=RETRY,
        kinds={"http", "duckdb"},
        owners=OWNERS,
        description=(
            "The answers of one day and lane. Each pending job goes to a worker that declares the lane and serves "
            "the model, never more at once than the worker has slots; a failing worker's jobs go on elsewhere. Every "
            "attempt is a row with its timings, every finished job a message on `results.<job_id>`. A job that asks "
            "for sources is answered once it was given them.\n\n"
            "Materialize by hand to answer what is pending; set `retry_failed` to ask again for what failed.\n\n"
            "Tables: `completions`, `jobs`; open `job_overview` first."
        ),
    )
    def completions(
        context: dg.AssetExecutionContext, config: AnswerConfig, foundry: FoundryResource, lake: LakeResource
    ) -> dg.MaterializeResult:  # type: ignore[type-arg]
        run = partition_run(context, foundry, retry_failed=config.retry_failed)
        report = answer_partition(run)
        with lake.warehouse.snapshot() as now:
            context.instance.add_run_tags(context.run_id, correlation_tags(now, report.job_ids))
            return dg.MaterializeResult(metadata=completions_metadata(now, report, run.day, run.lane, run.run_id))

    return [prompt_inbox, completions]
