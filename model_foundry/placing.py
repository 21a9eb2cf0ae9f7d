"""Placing: from a claimed job and the fleet as it is now to what the dispatcher needs to know of both.

Belongs here: which workers a job may go to, in which order, how long each would take, how each is reached. Does not
belong here: which of them gets it (``inference.schedule``), reading the fleet (``fleet.board``), the flow
(``answering``). Nothing here waits for anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from model_foundry.errors import ConfigError
from model_foundry.fleet.estimates import Rates, estimated_tokens, expected_service_s
from model_foundry.fleet.roster import Roster, load_times
from model_foundry.inference.dispatch import WorkerTarget, WorkItem
from model_foundry.records import Job, Task
from model_foundry.routing import searchers_for, worker_ranks, workers_for
from model_foundry.runtime import Foundry


@dataclass(frozen=True)
class Placement:
    """The fleet at one moment, as jobs see it.

    Attributes:
        foundry: the parts; keys and URLs of embedded workers come from there.
        roster: who is in the fleet.
        rates: what each worker has shown with each model.
    """

    foundry: Foundry
    roster: Roster
    rates: Mapping[tuple[str, str], Rates] = field(default_factory=dict)

    @cached_property
    def targets(self) -> dict[str, WorkerTarget]:
        """Every worker of the fleet; one that can't be used now says why."""
        return {name: self._target(name) for name in self.roster.members}

    def _target(self, name: str) -> WorkerTarget:
        member = self.roster.members[name]
        try:
            target = self.foundry.worker_target(name, member.config)
        except ConfigError as error:
            return WorkerTarget(name=name, url="", api=member.config.api, slots=1, unusable=str(error))
        return replace(
            target, slots=member.config.slots, unusable=member.unusable(), load_s=load_times(member, self.rates)
        )

    def item(self, job: Job, attempts_before: int = 0, spent_before: int = 0) -> WorkItem:
        """A job with the workers that may answer it, by the fleet of this moment."""
        if job.task is Task.SEARCH:
            return self._search_item(job, attempts_before, spent_before)
        config = self.roster.config
        known = job.model in config.models
        workers = workers_for(config, job.model or "", job.lane, job.role) if known else ()
        params = {**config.models[job.model or ""].params, **job.params} if known else job.params
        role = config.roles.get(job.role or "")
        return WorkItem(
            job=job,
            workers=workers,
            ranks=worker_ranks(config, workers, job.lane, job.role),
            served_names={w: (config.workers[w].models or {}).get(job.model or "", job.model or "") for w in workers},
            attempts_before=attempts_before,
            params=params,
            places=tuple(config.workers[w].supports.index(job.lane) for w in workers),
            service_s=self._service_s(job, workers, params),
            first=role.worker if role else None,
            spent_before=spent_before,
        )

    def _search_item(self, job: Job, attempts_before: int, spent_before: int) -> WorkItem:
        """A search with the servers that may be asked. It has no model, and no rate is known of it."""
        workers = searchers_for(self.roster.config, job.lane)
        places = tuple(self.roster.config.workers[w].supports.index(job.lane) for w in workers)
        return WorkItem(
            job=job,
            workers=workers,
            ranks=places,
            attempts_before=attempts_before,
            params=job.params,
            places=places,
            spent_before=spent_before,
        )

    def again(self, item: WorkItem) -> WorkItem:
        """The same item by the fleet of this moment."""
        return self.item(item.job, item.attempts_before, item.spent_before)

    def _service_s(self, job: Job, workers: tuple[str, ...], params: Mapping[str, Any]) -> tuple[float | None, ...]:
        """The expected seconds at each worker; nothing when none of them was ever measured with the model."""
        known = [self.rates.get((worker, job.model or "")) for worker in workers]
        if not any(known):
            return ()
        tokens = sum(estimated_tokens(text) for message in job.messages for text in _texts(message.get("content")))
        asked = params.get("max_tokens")
        limit = asked if isinstance(asked, int) and asked > 0 else self.roster.config.limits.default_max_tokens
        return tuple(expected_service_s(rates, tokens, limit) for rates in known)


def _texts(content: Any) -> list[str]:
    """The texts of a message's content: itself, or those of its parts."""
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    return [p["text"] for p in parts if isinstance(p, dict) and isinstance(p.get("text"), str)]
