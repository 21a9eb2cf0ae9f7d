"""How a sweep is measured: repeats, loads, what is sent along.

Belongs here: the settings and what they allow. Does not belong here: what is asked in which order (``plan``), when
requests of an open loop are due (``arrivals``), the configuration's defaults (``config.BenchmarksConfig``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from model_foundry.envelopes.prompts import RESERVED_PARAMS
from model_foundry.errors import ConfigError

MIN_REPEATS = 3
"""Fewer show nothing of how much a figure varies by itself."""

Arrival = Literal["poisson", "constant", "trace"]
Parallel = Literal["hardware", "workers"]


@dataclass(frozen=True, slots=True)
class Load:
    """How requests come. ``closed``: so many clients, each with its next request after its last answer. ``open``:
    requests at moments of their own, whether or not those before are answered.
    """

    loop: Literal["closed", "open"]
    concurrency: int | None = None
    rate_rps: float | None = None
    arrival: Arrival | None = None

    @property
    def name(self) -> str:
        """As request ids and tables have it: ``c4``, ``poisson-2``, ``trace``."""
        if self.loop == "closed":
            return f"c{self.concurrency}"
        return "trace" if self.arrival == "trace" else f"{self.arrival}-{self.rate_rps:g}"


ONE = Load("closed", concurrency=1)
"""One request at a time."""


class SweepSettings(BaseModel):
    """What a sweep's plan is made of, beside suite, models, workers and seed.

    Attributes:
        repeats: how often every prompt is asked, at least three times.
        warmups: requests for each client before a block is measured.
        cold: one cold start a block, where the server can unload a model.
        concurrency: clients of each closed loop; empty: none.
        rate_rps: conversations a second of an open loop; of the trace's own pace when ``arrival`` is ``trace``.
        arrival: of the open loop.
        duration_s: of one repeat of the open loop; left out: until every prompt has come once, or the trace ends.
        trace_s: moments of a recorded trace, ascending, in seconds. Left out with ``arrival: trace``: those of the
            suite, which was then made from a trace.
        limit: so many prompts, spread over the suite.
        params: sent with every prompt, over its own.
        fresh: a conversation may not be answered from a server's cache of former prompts, where the server can be told.
        parallel: what is measured at the same time: workers on different hardware, or all workers.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    repeats: int = Field(MIN_REPEATS, ge=MIN_REPEATS, le=1000)
    warmups: int = Field(1, ge=0, le=100)
    cold: bool = True
    concurrency: tuple[Annotated[int, Field(ge=1, le=1024)], ...] = (1,)
    rate_rps: float | None = Field(None, gt=0, le=10_000, allow_inf_nan=False)
    arrival: Arrival = "poisson"
    duration_s: float | None = Field(None, gt=0, le=86_400, allow_inf_nan=False)
    trace_s: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...] = ()
    limit: int | None = Field(None, ge=1)
    params: dict[str, Any] = Field(default_factory=dict)
    fresh: bool = True
    parallel: Parallel = "hardware"

    @field_validator("params")
    @classmethod
    def _params_are_allowed(cls, value: dict[str, Any]) -> dict[str, Any]:
        if reserved := [key for key in RESERVED_PARAMS if key in value]:
            raise ValueError(f"holds {', '.join(reserved)}, which the sweep sets; allowed: any other key")
        return value

    @model_validator(mode="after")
    def _loads_fit_together(self) -> Self:
        if len(set(self.concurrency)) < len(self.concurrency):
            raise ValueError(f"concurrency is {list(self.concurrency)}; allowed: each number once")
        if list(self.trace_s) != sorted(self.trace_s):
            raise ValueError("trace_s is not ascending; allowed: moments in their order")
        if self.trace_s and self.arrival != "trace":
            raise ValueError(f"arrival is {self.arrival!r} with trace_s; allowed: 'trace'")
        if self.arrival == "trace" and self.rate_rps is not None:
            raise ValueError("rate_rps is given with a trace, which has its own pace; leave it out")
        if self.duration_s is not None and not self.is_open:
            raise ValueError("duration_s is given without rate_rps or a trace; it is an open loop's")
        if not self.loads:
            raise ValueError("concurrency is empty, and neither rate_rps nor a trace is given; allowed: at least one")
        return self

    @property
    def is_open(self) -> bool:
        """Whether there is an open loop."""
        return self.rate_rps is not None or self.arrival == "trace"

    @property
    def loads(self) -> tuple[Load, ...]:
        """Every load, in the order given."""
        closed = [Load("closed", concurrency=n) for n in self.concurrency]
        return (*closed, *([Load("open", rate_rps=self.rate_rps, arrival=self.arrival)] if self.is_open else []))

    def canonical(self) -> str:
        """As JSON text that is the same for the same settings."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True)


def sweep_settings(given: Mapping[str, Any], *, source: str = "settings") -> SweepSettings:
    """The settings of a mapping.

    Raises:
        ConfigError: with every problem found, each naming key, value and what is allowed.
    """
    try:
        return SweepSettings.model_validate(dict(given))
    except ValidationError as error:
        lines = []
        for problem in error.errors():
            key = ".".join(map(str, problem["loc"]))
            if problem["type"] == "value_error":
                said = str(problem["ctx"]["error"])
                lines.append(f"{key}: {said}" if key else said)
            elif problem["type"] == "extra_forbidden":
                lines.append(f"{key}: no such key; allowed: {', '.join(SweepSettings.model_fields)}")
            else:
                lines.append(f"{key}: is {problem['input']!r}; {problem['msg'][0].lower()}{problem['msg'][1:]}")
        raise ConfigError(f"{source} can't be used:\n" + "\n".join(f"  - {line}" for line in lines)) from None
