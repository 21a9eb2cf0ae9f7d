"""``foundry cancel``: a job that is not wanted any more."""

from __future__ import annotations

from typing import Annotated

import typer

from model_foundry.cli.output import ConfigOption, console
from model_foundry.fleet.board import cancel_job
from model_foundry.jetstream.client import JetStream, with_jetstream
from model_foundry.runtime import Foundry


def cancel(
    job_ids: Annotated[list[str], typer.Argument(help="Ids of the jobs.")],
    config: ConfigOption = None,
) -> None:
    """Cancel jobs: what is in flight is stopped at its server, what waits is never sent; what has ended stays."""
    foundry = Foundry.load(config)

    async def ask(js: JetStream) -> None:
        for job_id in job_ids:
            await cancel_job(js, foundry.config.fleet, job_id)

    with_jetstream(foundry.nats, ask)
    for job_id in job_ids:
        console.print(f"{job_id}: asked to be cancelled; its result says 'cancelled'", markup=False)
