"""``python -m rumor.sim.fuzz``: campaigns of random faults against the protocol."""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Iterator, Sequence

from ...gossip.errors import ConfigError
from ...train.faults.schedule import faults_as_json, read_faults
from ..batched.cores import usable_cores
from .campaign import (
    EVENT_COVERAGE,
    Campaign,
    CampaignConfig,
    FailedSeed,
    Progress,
    parse_seeds,
    run_campaign,
)
from .scenario import OPTIONS
from .trial import Trial

__all__ = ["command_of", "main"]

_DESCRIPTION = """\
Each seed stands for a small swarm and a list of faults: loss, duplicates, partitions, pauses,
crashes in the middle of anything, restarts, newcomers. Peers run the code of live ones under
virtual time. After every event no weight may be lost or created, no share decided twice, no model
outside the hull of those before it; then the faults stop, and all peers must agree and finish.
A failure is printed with its last events and a command that repeats it: docs/how-to/fuzz.md."""

_EPILOG = """\
Exit status: 0 if nothing broke; 1 if something did, or if 200 seeds and more, of swarms with
everything, never met an event of the table; 2 for wrong arguments; 130 if it was stopped."""

_LINE_EVERY_S = 5.0
_LINE_CHARACTERS = 160


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign, print its coverage and its failures, and return the exit status."""
    usual = CampaignConfig()
    parser = argparse.ArgumentParser(
        prog="python -m rumor.sim.fuzz", description=_DESCRIPTION, epilog=_EPILOG
    )
    parser.add_argument(
        "--seeds", metavar="RANGE", default="0-99",
        help="17, 0-999, or several of both with commas between; default: 0-99",
    )  # fmt: skip
    parser.add_argument(
        "--workers", type=int, metavar="N", default=usual.workers,
        help="peers that a swarm begins with: for each seed, a random number from 2 to this, or "
        "with --faults exactly this many; default: %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--without", metavar="NAME,...", default="",
        help="options of a swarm, or of what is drawn of faults, that are left as they are in a "
        f"plain one: {', '.join(OPTIONS)}",
    )  # fmt: skip
    parser.add_argument(
        "--faults", metavar="FILE|JSON",
        help="what goes wrong with each swarm, a file or the list itself, where peers are p0, p1 "
        "and so on; default: drawn for each seed",
    )  # fmt: skip
    parser.add_argument(
        "--shrink", action=argparse.BooleanOptionalAction, default=usual.shrink,
        help="make failures small: the fewest faults, peers and options that still fail",
    )  # fmt: skip
    parser.add_argument(
        "--failures-max", type=int, metavar="N", default=usual.failures_max,
        help="stop after this number of failing seeds; default: %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--processes", type=int, metavar="N", default=usable_cores(),
        help="seeds tried side by side, with the same result; default: one per core",
    )  # fmt: skip
    given = parser.parse_args(arguments)
    try:
        config = CampaignConfig(
            seeds=parse_seeds(given.seeds),
            workers=given.workers,
            without=tuple(filter(None, map(str.strip, given.without.split(",")))),
            faults=None if given.faults is None else read_faults(given.faults),
            shrink=given.shrink,
            failures_max=given.failures_max,
            processes=given.processes,
        )
    except ConfigError as error:
        parser.error(str(error))
    try:
        campaign = run_campaign(config, _progress(len(config.seeds)))
    except KeyboardInterrupt:
        return 130
    for line in _lines(campaign):
        print(line)
    return int(bool(campaign.failed or campaign.never))


def command_of(broken: FailedSeed) -> str:
    """Return the command that repeats a failure."""
    spec = broken.spec
    words = ["python", "-m", "rumor.sim.fuzz", "--seeds", str(spec.seed)]
    words += ["--workers", str(spec.workers)]
    if spec.without:
        words += ["--without", ",".join(spec.without)]
    words += ["--faults", json.dumps(faults_as_json(spec.faults)), "--no-shrink"]
    return shlex.join(words)


def _progress(seeds: int) -> Progress:
    """Report progress on stderr now and then, and each failing seed as soon as it fails."""
    began_s, next_s, told = time.monotonic(), _LINE_EVERY_S, 0

    def show(done: int, failed: Sequence[Trial]) -> None:
        nonlocal next_s, told
        for trial in failed[told:]:
            assert trial.failure is not None
            print(f"seed {trial.seed} broke {trial.failure}", file=sys.stderr, flush=True)
        told, wall_s = len(failed), time.monotonic() - began_s
        if wall_s >= next_s:
            next_s = wall_s + _LINE_EVERY_S
            line = f"{wall_s:.0f} s: {done:,} of {seeds:,} seeds, {told} failed"
            print(line, file=sys.stderr, flush=True)

    return show


def _lines(campaign: Campaign) -> Iterator[str]:
    """Format the coverage and the failures of a campaign."""
    coverage = {
        what: f"{100 * seeds / campaign.seeds:.3g} %" for what, seeds in campaign.seen.items()
    }
    width = max(map(len, EVENT_COVERAGE))
    for name, what in EVENT_COVERAGE.items():
        yield f"{name:{width}}  {coverage.get(name, 'never'):>6}  {what}"
    kinds = sorted(name for name in coverage if name.startswith("fault: "))
    shares = (f"{name.removeprefix('fault: ')} {coverage[name]}" for name in kinds)
    yield f"\nFaults, by share of seeds: {', '.join(shares) or 'none'}\n"
    yield f"Seeds: {campaign.seeds:,}, events: {campaign.events:,}."
    for broken in campaign.failed:
        yield f"\nSeed {broken.seed} broke {broken.failure}"
        yield "The last events there:"
        for line in broken.failure.trace[-12:]:
            yield f"{line[:_LINE_CHARACTERS]}{'...' * (len(line) > _LINE_CHARACTERS)}"
        left = "What is left of it" if broken.shrunk else "Not made smaller"
        faults, workers = len(broken.spec.faults), broken.spec.workers
        yield f"{left}: {faults} fault{'s' * (faults != 1)}, {workers} workers. Once more:"
        yield command_of(broken)
    if not campaign.failed:
        yield "Nothing broke."
    if campaign.never:
        yield f"Never met, so not tested: {', '.join(campaign.never)}"


if __name__ == "__main__":
    sys.exit(main())
