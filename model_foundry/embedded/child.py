"""Becomes another program that is stopped when its parent dies: ``python child.py PARENT_PID PROGRAM [ARG …]``.

Linux sends the signal (``prctl(PR_SET_PDEATHSIG)``, kept across exec); elsewhere the program is started as it is.
Only the standard library, and nothing of this package: it runs before everything else, with ``-S -E``. A grandchild
is not covered by the signal; each of our parts ends its own children, and does so on SIGTERM.
"""

import os
import signal
import sys


def main() -> None:
    """Asks for the signal, makes sure that the parent has not died before, and becomes the program."""
    parent, argv = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
        if os.getppid() != parent:
            raise SystemExit("the parent ended before its child started")
    os.execvp(argv[0], argv)  # noqa: S606


if __name__ == "__main__":
    main()
