"""Events on their way in: a message becomes a record of the inbox. The way itself is in ``intake``."""

from __future__ import annotations

from model_foundry.config import FoundryConfig, StreamConfig
from model_foundry.envelopes.events import EventReading, read_event
from model_foundry.intake import Batch, Intake, Partition
from model_foundry.records import EVENTS_LANE, Event, Reject, StreamMessage
from model_foundry.routing import partition_date
from model_foundry.warehouse.landing import Incoming, IngestRange, incoming_events


class EventIntake(Intake[Event]):
    """The stream of events."""

    reject_lane = EVENTS_LANE

    def __init__(self, config: FoundryConfig) -> None:
        super().__init__(config)
        self._reading = EventReading(
            max_message_bytes=config.limits.max_message_bytes,
            former_subjects=config.events.former_subjects,
            redact=frozenset(config.events.redact),
            role_kinds={name: role.kind for name, role in config.roles.items()},
        )

    @property
    def stream(self) -> StreamConfig:
        """As configured."""
        return self.config.streams.events

    @property
    def batch_messages(self) -> int:
        """As configured."""
        return self.config.limits.sensor_batch_events

    def read(self, message: StreamMessage) -> Event | Reject:
        """The event that a message holds."""
        return read_event(message, self._reading)

    def partition_of(self, record: Event) -> Partition:
        """The day on which the stream took it."""
        return partition_date(record.message.published_at, self.config.lake.first_date), EVENTS_LANE

    def incoming(self, batch: Batch[Event], range_: IngestRange, run_id: str) -> Incoming:
        """The events and rejects."""
        digest = self.config.routing_digest()
        return incoming_events(batch.records, batch.rejects, range_=range_, run_id=run_id, config_digest=digest)
