"""The rumor command."""

import sys

__all__ = ["main"]

_STOPPED = 130


def main() -> None:
    """Run the command that ``sys.argv`` names, and exit with its status.

    0: success; 1: it ran and failed; 2: the arguments are wrong, and nothing was written.
    """
    try:
        # Imported here, so that importing the package does not load a terminal library.
        from .app import run

        run()
    except KeyboardInterrupt:
        # Ctrl-C while modules load, which takes seconds: after that each command handles it.
        print("stopped", file=sys.stderr)
        sys.exit(_STOPPED)
