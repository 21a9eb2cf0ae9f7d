"""``ForkRunLauncher``: Dagster's run launcher over the run host.

Chosen in ``dagster.yaml``. It asks the host for a fork; where no host runs (``dagster dev`` by hand, or the host is
down for a moment) the run is launched the stock way, so no run is ever lost to it.

Belongs here: what Dagster calls. Does not belong here: forking (``run_host``). With ``defs/`` and the run host this is
the only module that imports dagster.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from dagster._core.errors import DagsterLaunchFailedError
from dagster._core.launcher.base import CheckRunHealthResult, LaunchRunContext, WorkerStatus
from dagster._core.launcher.default_run_launcher import DefaultRunLauncher
from dagster._core.storage.dagster_run import DagsterRun
from dagster._grpc.types import ExecuteRunArgs
from dagster._serdes import ConfigurableClassData, serialize_value

from model_foundry import run_host

HOST_TAG = "foundry/run_host"
"""Run tag with the process id of the child; a run without it was launched the stock way."""


class ForkRunLauncher(DefaultRunLauncher):
    """Launches runs as forks of a preloaded process.

    Args:
        inst_data: Dagster's own record of where the launcher is configured.
    """

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData, config_value: Mapping[str, Any]) -> ForkRunLauncher:
        """As Dagster builds it from ``dagster.yaml``; there is nothing to configure."""
        return cls(inst_data=inst_data)

    def launch_run(self, context: LaunchRunContext) -> None:
        """Starts the run in a fork, or the stock way when no host answers."""
        run = context.dagster_run
        path = os.environ.get(run_host.SOCKET_ENV)
        if path and run.job_code_origin:
            args = ExecuteRunArgs(
                job_origin=run.job_code_origin,
                run_id=run.run_id,
                instance_ref=self._instance.get_ref(),
                set_exit_code_on_failure=True,
            )
            try:
                answer = run_host.ask(path, {"op": "run", "run_id": run.run_id, "args": serialize_value(args)})
            except (FileNotFoundError, ConnectionRefusedError) as error:
                # only when nobody can have taken it: after any other failure the run may be under way already
                self._instance.report_engine_event(f"No run host ({error}); launching the run the stock way.", run)
            else:
                if "pid" not in answer:
                    raise DagsterLaunchFailedError(  # type: ignore[no-untyped-call]
                        f"the run host did not take the run: {answer.get('error')}"
                    )
                self._instance.add_run_tags(run.run_id, {HOST_TAG: str(answer["pid"])})
                return
        super().launch_run(context)

    def terminate(self, run_id: str) -> bool:
        """Interrupts the run; it ends as canceled."""
        run = self._instance.get_run_by_id(run_id)
        if run is None or run.is_finished:
            return False
        if HOST_TAG not in run.tags:
            return bool(super().terminate(run_id))  # type: ignore[no-untyped-call]
        self._instance.report_run_canceling(run)
        try:
            return bool(self._ask_host({"op": "terminate", "run_id": run_id}).get("terminated"))
        except (OSError, ValueError) as error:
            self._instance.report_engine_event(f"The run host could not be asked to stop the run: {error}", run)
            return False

    @property
    def supports_check_run_worker_health(self) -> bool:
        """So that a run whose process was killed is found and marked as failed by Dagster's run monitoring."""
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Whether the run's process lives."""
        if HOST_TAG not in run.tags:
            # the stock launcher has no health check; any other word would make Dagster fail the run
            return CheckRunHealthResult(WorkerStatus.RUNNING, "launched the stock way")
        try:
            answer = self._ask_host({"op": "status", "run_id": run.run_id})
        except (OSError, ValueError) as error:
            # the host is gone, and with it its children
            return CheckRunHealthResult(WorkerStatus.NOT_FOUND, f"the run host does not answer: {error}")
        match answer.get("status"):
            case "running":
                return CheckRunHealthResult(WorkerStatus.RUNNING)
            case "ended":
                return CheckRunHealthResult(WorkerStatus.FAILED, f"the run's process ended with {answer.get('exit')}")
            case _:
                return CheckRunHealthResult(WorkerStatus.NOT_FOUND, "the run host does not know the run")

    def _ask_host(self, request: dict[str, Any]) -> dict[str, Any]:
        path = os.environ.get(run_host.SOCKET_ENV)
        if not path:
            raise OSError(f"{run_host.SOCKET_ENV} is not set in this process")
        return run_host.ask(path, request)
