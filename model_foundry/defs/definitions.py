"""The code location: ``dagster … -m model_foundry.defs.definitions``.

Belongs here: putting the folders together, once. Does not belong here: any asset, sensor or check.
"""

from __future__ import annotations

from typing import Any

import dagster as dg

from model_foundry.defs.analytics.assets import analytics_assets
from model_foundry.defs.analytics.schedules import figures_job, figures_schedule
from model_foundry.defs.benchmarks.assets import benchmark_assets
from model_foundry.defs.benchmarks.schedules import benchmark_job, benchmark_schedules
from model_foundry.defs.embeddings.assets import embeddings_asset
from model_foundry.defs.embeddings.schedules import embeddings_job, embeddings_schedule
from model_foundry.defs.events.assets import RECORD_IO, event_assets
from model_foundry.defs.events.checks import event_checks
from model_foundry.defs.events.record_io import InboxRecordIOManager
from model_foundry.defs.events.schedules import sessions_job, sessions_schedule, watch_job, watch_schedule
from model_foundry.defs.events.sensors import event_reconciliation_for, event_sensor_for, record_events_job
from model_foundry.defs.externals import external_assets
from model_foundry.defs.fleet.advice import placement_advice_asset
from model_foundry.defs.fleet.assets import fleet_checks, worker_fleet_asset
from model_foundry.defs.fleet.sensors import fleet_sensor_for, placement_job, placement_schedule, record_fleet_job
from model_foundry.defs.lake.assets import lake_assets, upkeep_job, upkeep_schedule
from model_foundry.defs.lake.checks import lake_checks
from model_foundry.defs.prompts.assets import prompt_assets
from model_foundry.defs.prompts.schedules import reconciliation_for
from model_foundry.defs.prompts.sensors import answer_prompts_job, prompt_sensor_for
from model_foundry.defs.resources import FoundryResource, LakeResource
from model_foundry.defs.sources.assets import source_assets
from model_foundry.defs.translations.assets import translations_asset
from model_foundry.runtime import Foundry


def build_definitions(foundry: Foundry, *, resource_overrides: dict[str, Any] | None = None) -> dg.Definitions:
    """Everything Dagster shows, for one configuration.

    Args:
        foundry: the configuration; lanes and workers become partitions and external assets.
        resource_overrides: resources by key, put in place of the real ones; the seam for tests.
    """
    prompts, events, sessions, watch = answer_prompts_job(), record_events_job(), sessions_job(), watch_job()
    figures, upkeep, fleet, placement = figures_job(), upkeep_job(), record_fleet_job(), placement_job()
    embedding, benchmark = embeddings_job(), benchmark_job()
    lake = LakeResource(config_file=str(foundry.config_file), database=foundry.warehouse.catalog.label)
    return dg.Definitions(
        assets=[
            *external_assets(foundry.config),
            *prompt_assets(foundry.config),
            *source_assets(foundry.config),
            translations_asset(foundry.config),
            *event_assets(foundry.config),
            *analytics_assets(),
            *lake_assets(),
            worker_fleet_asset(list(foundry.config.workers)),
            placement_advice_asset(),
            embeddings_asset(foundry.config),
            *benchmark_assets(foundry.config),
        ],
        asset_checks=[
            *lake_checks(foundry.config),
            *event_checks(),
            *fleet_checks(foundry.config.fleet.vram_warn_ratio),
        ],
        jobs=[prompts, events, sessions, watch, figures, fleet, placement, upkeep, embedding, benchmark],
        sensors=[prompt_sensor_for(prompts), event_sensor_for(events), fleet_sensor_for(fleet, prompts)],
        schedules=[
            reconciliation_for(prompts),
            event_reconciliation_for(events),
            sessions_schedule(sessions),
            watch_schedule(watch),
            figures_schedule(figures),
            upkeep_schedule(upkeep),
            placement_schedule(placement),
            embeddings_schedule(embedding, foundry.config),
            *benchmark_schedules(benchmark, foundry.config),
        ],
        resources={
            "foundry": FoundryResource(config_file=str(foundry.config_file)),
            "lake": lake,
            RECORD_IO: InboxRecordIOManager(lake=lake),
            **(resource_overrides or {}),
        },
        # steps share the run's process: a step of its own would pay the whole import again
        executor=dg.in_process_executor,
    )


@dg.definitions
def defs() -> dg.Definitions:
    """The definitions for the configuration that ``FOUNDRY_CONFIG`` or the working folder names."""
    return build_definitions(Foundry.load())
