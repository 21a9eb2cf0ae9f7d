"""``prompt_sensor``: asks for runs when the stream has new prompts."""

from collections.abc import Collection

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from model_foundry.defs.prompts.partitions import partition_key
from model_foundry.defs.streams import stream_sensor
from model_foundry.prompt_intake import PromptIntake
from model_foundry.records import GROUNDS, Task

PROMPT_ASSETS = ("prompt_inbox", "web_results", "job_sources", "completions", "article_translations")


def assets_for(wants: Collection[str]) -> list[dg.AssetKey]:
    """The assets that a run needs whose jobs want this much: every step costs time, and most prompts need two.

    Args:
        wants: as of ``PromptIntake.wants``.
    """
    names = ["prompt_inbox"]
    if "web" in wants or Task.SEARCH in wants:
        names.append("web_results")
    if not set(GROUNDS).isdisjoint(wants):
        names.append("job_sources")
    if Task.TRANSLATE in wants:
        names.append("article_translations")
    if Task.ANSWER in wants or len(names) == 1:  # it publishes what was rejected, too
        names.append("completions")
    return [dg.AssetKey(name) for name in names]


def answer_prompts_job() -> UnresolvedAssetJobDefinition:
    """The job of one prompt run: land and answer."""
    return dg.define_asset_job(
        "answer_prompts",
        # the inbox's checks are of all lanes: with runs of several lanes at once, none would be shown as the latest
        selection=dg.AssetSelection.assets(*PROMPT_ASSETS).without_checks(),
        description="Land a range of prompts, find sources for those that want some, answer or translate, publish.",
    )


def prompt_sensor_for(job: UnresolvedAssetJobDefinition) -> dg.SensorDefinition:
    """The sensor over a job."""
    return stream_sensor(
        "prompt_sensor",
        job,
        PromptIntake,
        inbox="prompt_inbox",
        key_of=lambda ask: partition_key(ask.partition_date, ask.lane),
        selection_of=lambda ask: assets_for(ask.wants),
        description=(
            "Watches the stream of prompts, waiting up to a few seconds for new ones. Each tick that finds some asks "
            "for one run a lane, with the range of sequences to land. The cursor is the stream's creation and the "
            "last sequence asked for."
        ),
    )
