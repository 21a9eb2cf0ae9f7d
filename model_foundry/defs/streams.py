"""What every stream's way through Dagster has in common: a run's range, the sensor that asks for runs, asking again.

Belongs here: Dagster's forms of ``intake``. Does not belong here: any one stream's assets.

A sensor never acknowledges anything: Dagster stores cursor and run requests together only after the function has
returned, so whatever was acknowledged inside could be lost. The cursor is the authority; ``run_key`` is a belt, because
Dagster deduplicates by it for ever.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from model_foundry.defs.resources import FoundryResource
from model_foundry.intake import Intake, RunAsk, plan_tick
from model_foundry.reconciling import Overdue, overdue

OWNERS = ["team:model-foundry"]

RETRY = dg.RetryPolicy(max_retries=3, delay=3, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)
"""For outages of NATS and waits for the lake. Each step finds what it did before, so that trying again adds nothing."""


class RangeConfig(dg.Config):
    """The range of stream sequences a run is about. Left empty: whatever is pending for the partition."""

    stream_created: int | None = None
    from_seq: int | None = None
    to_seq: int | None = None
    config_digest: str | None = None

    @property
    def span(self) -> tuple[int, int] | None:
        """First and last sequence, or None."""
        return None if self.from_seq is None or self.to_seq is None else (self.from_seq, self.to_seq)

    def arguments(self) -> dict[str, Any]:
        """What ``intake.land_partition`` is told of it."""
        return {"span": self.span, "stream_created": self.stream_created, "config_digest": self.config_digest}


def run_request(
    ask: RunAsk, inbox: str, partition_key: str, selection: Sequence[dg.AssetKey] | None = None
) -> dg.RunRequest:
    """Dagster's form of what a tick asks for, to be landed by an asset.

    Args:
        ask: the range.
        inbox: the asset that lands it.
        partition_key: of it.
        selection: which assets of the job; all of them when left out.
    """
    span: dict[str, Any] = {
        "stream_created": ask.stream_created,
        "from_seq": ask.from_seq,
        "to_seq": ask.to_seq,
        "config_digest": ask.config_digest,
    }
    return dg.RunRequest(
        run_key=ask.run_key,
        partition_key=partition_key,
        run_config={"ops": {inbox: {"config": span}}},
        asset_selection=selection,
        # none of its checks: with a selection Dagster adds all of the assets', whatever the job says
        asset_check_keys=None if selection is None else [],
        tags={"foundry/stream": ask.stream, "foundry/range": f"{ask.from_seq}-{ask.to_seq}"},
    )


def stream_sensor(
    name: str,
    job: UnresolvedAssetJobDefinition,
    kind: type[Intake[Any]],
    *,
    inbox: str,
    key_of: Callable[[RunAsk], str],
    description: str,
    selection_of: Callable[[RunAsk], Sequence[dg.AssetKey] | None] = lambda ask: None,
) -> dg.SensorDefinition:
    """A sensor that watches one stream.

    Args:
        name: the sensor's name.
        job: the job it asks runs of.
        kind: the stream.
        inbox: the asset that lands it.
        key_of: the partition key of what a tick asks for.
        description: for people.
        selection_of: which assets of the job a run needs; None means all of them.
    """

    @dg.sensor(
        name=name,
        job=job,
        minimum_interval_seconds=1,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=description,
    )
    def sensor(context: dg.SensorEvaluationContext, foundry: FoundryResource) -> dg.SensorResult | dg.SkipReason:
        tick = plan_tick(foundry.parts, kind, context.cursor)
        if tick is None:
            return dg.SkipReason("Nothing new.")
        for note in tick.notes:
            context.log.warning(note)
        requests = [run_request(ask, inbox, key_of(ask), selection_of(ask)) for ask in tick.asks]
        return dg.SensorResult(run_requests=requests, cursor=tick.cursor.to_text())

    return sensor


UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def reconciliation_schedule(
    name: str,
    job: UnresolvedAssetJobDefinition,
    kind: type[Intake[Any]],
    *,
    key_of: Callable[[Overdue], str],
    description: str,
) -> dg.ScheduleDefinition:
    """A schedule that asks again, every five minutes, for what a failed run or an outage left behind in one stream.

    Args:
        name: the schedule's name.
        job: the job it asks runs of.
        kind: the stream.
        key_of: the partition key of what is overdue.
        description: for people.
    """

    @dg.schedule(
        job=job,
        name=name,
        cron_schedule="*/5 * * * *",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=description,
    )
    def schedule(
        context: dg.ScheduleEvaluationContext, foundry: FoundryResource
    ) -> Iterator[dg.RunRequest | dg.SkipReason]:
        mine = dg.RunsFilter(job_name=job.name, statuses=UNFINISHED)
        busy = {run.tags.get("dagster/partition") for run in context.instance.get_runs(mine)}
        asked = False
        for found in overdue(foundry.parts, kind, datetime.now(UTC)):
            key = key_of(found)
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

    return schedule
