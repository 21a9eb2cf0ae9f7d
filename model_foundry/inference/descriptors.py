"""Open files for many connections. Belongs here: raising the process's soft limit when it is too low."""

from __future__ import annotations

import sys

SPARE = 256
"""For everything but model servers: the lake, NATS, logs, the interpreter's own."""


class TooFewDescriptors(RuntimeError):  # noqa: N818 (says what is the matter)
    """The system does not let this process open as many connections as it needs."""


def make_room(connections: int) -> int | None:
    """Sees that so many connections can be open at once, by raising the soft RLIMIT_NOFILE where it is lower.

    Returns:
        The soft limit now; None where the system has no such limit.

    Raises:
        TooFewDescriptors: when the hard limit is lower. Connections would then fail one by one, as if for the fault of
            the servers.
    """
    if sys.platform == "win32":
        return None
    import resource  # there is none on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed, unlimited = connections + SPARE, resource.RLIM_INFINITY
    if soft == unlimited or soft >= needed:
        return None if soft == unlimited else soft
    try:
        if hard != unlimited and hard < needed:
            raise ValueError
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    except (ValueError, OSError):
        raise TooFewDescriptors(
            f"{connections} requests at once need {needed} open files, and this process may have {soft} (hard limit "
            f"{hard}); raise it (ulimit -Hn, LimitNOFILE= of a systemd unit, --ulimit nofile= of a container) or lower "
            "the workers' slots"
        ) from None
    return needed
