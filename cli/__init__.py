"""The rumor command."""

import sys

__all__ = ["main"]

_STOPPED = 130


def main() -> None:
    """Run the command that ``sys.argv`` names, and exit with its status.

    0: it worked; 1: it ran and failed; 2: the arguments are wrong, and nothing was written.
    """
    try:
        # Here, so that whoever imports the package pays for no terminal library.
        from .app import run

        run()
    except KeyboardInterrupt:
        # While modules were loaded, which takes seconds: later each command has its own answer.
        print("stopped", file=sys.stderr)
        sys.exit(_STOPPED)
