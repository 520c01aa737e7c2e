"""``python -m rumor.sim.storm``: a storm, drawn as files for ``--faults`` and ``--network``."""

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

from ...gossip.errors import ConfigError
from ...train.faults.schedule import faults_as_json
from ...train.storage.files import write_json
from .storms import list_storms, read_storm

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """List all storms, or draw one, say what goes wrong in it, and write it down."""
    parser = argparse.ArgumentParser(
        prog="python -m rumor.sim.storm",
        description="Draw a storm, what goes wrong with real fleets, as a fault schedule: "
        "DIR/faults.json for --faults of rumor launch, run and simulate, and DIR/network.json for "
        "rumor simulate --network where the storm has a network. Without a name, all are listed.",
    )
    parser.add_argument("storm", nargs="?", help="a name, or a .toml file of your own")
    parser.add_argument(
        "-n", "--peers", type=int, help="peers at the start; default: as many as it is meant for"
    )
    parser.add_argument(
        "--time-s", type=float, default=3600.0, help="how long the run lasts; default: 3600"
    )
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help="how many times as fast it goes: with 60, an hour of it strikes within a minute",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="the same seed gives the same faults; default: 0"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: nothing is written")
    args = parser.parse_args(arguments)
    if args.storm is None:
        print(list_storms())
        return
    try:
        storm = read_storm(args.storm)
        peers = storm.peers if args.peers is None else args.peers
        drawn = storm.draw(peers, args.time_s, args.seed, scale=args.scale)
    except ConfigError as error:
        parser.error(str(error))
    print(fill(storm.what, 80), fill(storm.source, 80), sep="\n")
    kinds = Counter(fault.kind for fault in drawn.faults).most_common()
    found = ", ".join(f"{count} {kind}" for kind, count in kinds) or "nothing"
    print(f"\n{peers} peer{'s' * (peers != 1)} in {args.time_s:g} s: {found}")
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        files = {"faults": faults_as_json(drawn.faults), "network": drawn.network}
        for name, content in files.items():
            if content is not None:
                path = args.out / f"{name}.json"
                write_json(path, content)
                print(f"{name.capitalize()}: {path}")


if __name__ == "__main__":
    main()
