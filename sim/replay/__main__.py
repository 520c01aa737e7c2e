"""``python -m rumor.sim.replay``: live runs repeated from their journals, compared bit for bit."""

import argparse
import sys

from ...gossip.errors import RumorError
from .replay import replay

__all__ = ["main"]

_DESCRIPTION = """\
Every peer is trained again, decides again and mixes again what it received; the journals have no
values in them. The first thing that differs is named. Tasks, rules and partitions MODULE:NAME are
imported, and must be found from here as they were then: replay what you trust."""

_EPILOG = """\
Exit status: 0 if nothing differs; 1 if something does; 2 if there is no journal, or one cannot be
read or lacks another that it depends on."""


def main() -> int:
    """Replay the folders in the arguments, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m rumor.sim.replay", description=_DESCRIPTION, epilog=_EPILOG
    )
    parser.add_argument("folder", nargs="+", help="of a run with --set journal, or of its peers")
    arguments = parser.parse_args()
    try:
        found = replay(*arguments.folder)
    except (RumorError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for warning in found.warnings:
        print(f"warning: bits may differ: {warning}", file=sys.stderr)
    for peer in found.peers:
        print(
            f"{peer.id}: {peer.records:,} records, {peer.steps:,} steps, {peer.mixed:,} shares "
            f"mixed: {peer.verdict}"
        )
    if found.identical:
        print("The replay is the live run, bit for bit.")
    if found.difference is not None:
        print(f"error: the replay differs from the live run: {found.difference}", file=sys.stderr)
        return 1
    stopped = [peer for peer in found.peers if peer.why]
    for peer in stopped:
        print(f"error: {peer.id} cannot be replayed to its end: {peer.why}", file=sys.stderr)
    return 2 if stopped else 0


if __name__ == "__main__":
    sys.exit(main())
