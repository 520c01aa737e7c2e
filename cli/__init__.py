"""The rumor command."""

__all__ = ["main"]


def main() -> None:
    """Run the command that ``sys.argv`` names, and exit with its status.

    0: it worked; 1: it ran and failed; 2: the arguments are wrong, and nothing was written.
    """
    # Here, so that whoever imports the package pays for no terminal library.
    from .app import run

    run()
