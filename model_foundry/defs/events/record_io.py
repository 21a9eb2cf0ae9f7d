"""How a downstream asset gets an inbox record: from the lake, where it is. Nothing is stored beside it.

A run's output is what that run took; what is loaded for a partition is all that its day holds, because many runs make
up one day.
"""

from datetime import date

import dagster as dg

from model_foundry.defs.resources import LakeResource
from model_foundry.event_inbox import InboxRecord, record_of_day


class InboxRecordIOManager(dg.ConfigurableIOManager):
    """Loads the record of a day."""

    lake: dg.ResourceDependency[LakeResource]

    def handle_output(self, context: dg.OutputContext, obj: InboxRecord) -> None:
        """Does nothing: the events are in the lake already, with the ledger row of their range."""

    def load_input(self, context: dg.InputContext) -> InboxRecord:
        """The record of the partition's day."""
        return record_of_day(self.lake.warehouse, date.fromisoformat(context.asset_partition_key))
