"""One message of the demo: what is sent, and what should become of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DemoMessage:
    """One message to publish.

    Attributes:
        subject: where to.
        data: the body.
        msg_id: for the ``Nats-Msg-Id`` header; a prompt's is its job id.
        expected: what should become of it: ``answered``, ``rejected`` (a job that can't be used), ``event``,
            ``duplicate``, or ``reject`` (a message that can't be read).
        headers: others.
    """

    subject: str
    data: bytes
    msg_id: str | None
    expected: str = "answered"
    headers: Mapping[str, str] = field(default_factory=dict)
