"""The error tree: what a caller can catch, and what a person is told to do next.

Belongs here: exceptions that cross a module border. Does not belong here: failures of a single prompt or message;
those are rows (``jobs.error_kind``, ``rejects.reason``), never exceptions that stop a batch.
"""

from __future__ import annotations


class FoundryError(Exception):
    """Base of every error this project raises on purpose.

    Args:
        message: what is wrong, where, and what is allowed.
        hint: what to do next, as one sentence; shown beneath the message by the command line.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class ConfigError(FoundryError):
    """``foundry.yaml`` or an override can't be used. The message names key, value and what is allowed."""


class NatsUnavailableError(FoundryError):
    """NATS could not be reached, or refused us, within the bounded time."""


class StreamError(FoundryError):
    """A JetStream stream is missing, or lacks what reading by sequence needs."""


class LakeError(FoundryError):
    """The lake could not be opened, migrated, locked or written."""


class EmbeddedPartError(FoundryError):
    """An embedded part (nats-server, llama.cpp, a Dagster process) did not start or did not stay up."""
