"""Prompts on their way in: a message becomes a routed job. The way itself is in ``intake``."""

from __future__ import annotations

from model_foundry.config import StreamConfig
from model_foundry.envelopes.prompts import read_prompt
from model_foundry.intake import Batch, Intake, Partition
from model_foundry.records import UNROUTABLE_LANE, Job, Reject, StreamMessage
from model_foundry.routing import route
from model_foundry.warehouse.landing import Incoming, IngestRange, incoming_jobs


class PromptIntake(Intake[Job]):
    """The stream of prompts."""

    reject_lane = UNROUTABLE_LANE

    @property
    def stream(self) -> StreamConfig:
        """As configured."""
        return self.config.streams.prompts

    @property
    def batch_messages(self) -> int:
        """As configured."""
        return self.config.limits.sensor_batch_messages

    def read(self, message: StreamMessage) -> Job | Reject:
        """The job that a prompt becomes."""
        read = read_prompt(message, max_message_bytes=self.config.limits.max_message_bytes)
        return read if isinstance(read, Reject) else route(self.config, read)

    def partition_of(self, record: Job) -> Partition:
        """The job's day and lane."""
        return record.partition_date, record.lane

    def wants(self, batch: Batch[Job]) -> tuple[str, ...]:
        """The tasks of the jobs, and where they want sources from."""
        pending = [job for job in batch.records if job.error_kind is None]
        return tuple(sorted({str(job.task) for job in pending} | {ground for job in pending for ground in job.ground}))

    def incoming(self, batch: Batch[Job], range_: IngestRange, run_id: str) -> Incoming:
        """The jobs and rejects."""
        digest = self.config.routing_digest()
        return incoming_jobs(batch.records, batch.rejects, range_=range_, run_id=run_id, config_digest=digest)
