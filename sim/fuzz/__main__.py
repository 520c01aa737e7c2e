"""``python -m rumor.sim.fuzz``: campaigns of random faults against the protocol."""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from typing import Any

from ...gossip.errors import ConfigError, RumorError
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

__all__ = ["as_json", "command_of", "main"]

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
_TABLE_SEEDS_MIN = 10
"""Number of seeds below which percentages of them mean nothing."""
_TRACE_LINES, _LINE_CHARACTERS = 12, 160


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
        help="stop after so many seeds that fail; default: %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--processes", type=int, metavar="N", default=usable_cores(),
        help="seeds tried side by side, with the same result; default: one per core",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object in place of it")
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
    except RumorError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    told = as_json(campaign, config)
    print(json.dumps(told) if given.json else "\n".join(_lines(told)))
    return int(bool(told["violations"] or told["never"]))


def command_of(broken: FailedSeed) -> str:
    """Return the command that repeats a failure."""
    spec = broken.spec
    words = ["python", "-m", "rumor.sim.fuzz", "--seeds", str(spec.seed)]
    words += ["--workers", str(spec.workers)]
    if spec.without:
        words += ["--without", ",".join(spec.without)]
    words += ["--faults", json.dumps(faults_as_json(spec.faults)), "--no-shrink"]
    return shlex.join(words)


def as_json(campaign: Campaign, config: CampaignConfig) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    return {
        "seeds": campaign.seeds,
        "violations": [_violation(broken) for broken in campaign.failed],
        "events": campaign.events,
        "never": list(campaign.never),
        "coverage": {what: round(share, 5) for what, share in campaign.coverage.items()},
        "workers": config.workers,
    }


def _violation(broken: FailedSeed) -> dict[str, Any]:
    failure, spec = broken.failure, broken.spec
    return {
        "seed": broken.seed,
        "invariant": failure.invariant,
        "what": failure.what,
        "at_s": failure.at_s,
        "shrunk": broken.shrunk,
        "workers": spec.workers,
        "without": list(spec.without),
        "faults": faults_as_json(spec.faults),
        "command": command_of(broken),
        "trace": list(failure.trace),
    }


def _progress(seeds: int) -> Progress:
    """Report progress on stderr now and then, and each failing seed as soon as it fails."""
    began_s, next_s, told = time.monotonic(), _LINE_EVERY_S, 0

    def show(done: int, failed: Sequence[Trial]) -> None:
        nonlocal next_s, told
        for trial in failed[told:]:
            failure = trial.failure
            assert failure is not None
            where = f"{failure.invariant} at {failure.at_s:.3f} s"
            print(f"seed {trial.seed} broke {where}: {failure.what}", file=sys.stderr, flush=True)
        told, wall_s = len(failed), time.monotonic() - began_s
        if wall_s >= next_s:
            next_s = wall_s + _LINE_EVERY_S
            line = f"{wall_s:.0f} s: {done:,} of {seeds:,} seeds, {told} failed"
            print(line, file=sys.stderr, flush=True)

    return show


def _lines(told: dict[str, Any]) -> list[str]:
    """Format coverage and failures of what ``--json`` prints as lines of text."""
    coverage, lines = told["coverage"], list[str]()
    if told["seeds"] >= _TABLE_SEEDS_MIN:
        width = max(map(len, EVENT_COVERAGE))
        for name, what in EVENT_COVERAGE.items():
            lines.append(f"{name:{width}}  {_share(coverage.get(name, 0.0)):>6}  {what}")
        kinds = [name for name in coverage if name.startswith("fault: ")]
        shares = (f"{each.removeprefix('fault: ')} {_share(coverage[each])}" for each in kinds)
        lines += ["", f"Faults, by share of seeds: {', '.join(shares) or 'none'}", ""]
    lines.append(f"Seeds: {told['seeds']:,}, events: {told['events']:,}.")
    for violation in told["violations"]:
        lines += _violation_lines(violation)
    if not told["violations"]:
        lines.append("Nothing broke.")
    if told["never"]:
        lines.append(f"Never met, so not tested: {', '.join(told['never'])}")
    return lines


def _share(part: float) -> str:
    """Format a share of seeds; a share above 0 never reads as nothing.

    >>> _share(0.5), _share(0.0004), _share(0.0), _share(1.0)
    ('50 %', '0.04 %', 'never', '100 %')
    """
    if part == 0:
        return "never"
    percent = 100 * part
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"


def _violation_lines(violation: dict[str, Any]) -> list[str]:
    where = f"{violation['invariant']} at {violation['at_s']:.3f} s"
    lines = ["", f"Seed {violation['seed']} broke {where}:", violation["what"]]
    if violation["trace"]:
        lines.append("The last events there:")
        for line in violation["trace"][-_TRACE_LINES:]:
            is_long = len(line) > _LINE_CHARACTERS
            lines.append(f"{line[:_LINE_CHARACTERS]}..." if is_long else line)
    left = "What is left of it" if violation["shrunk"] else "Not made smaller"
    count = len(violation["faults"])
    faults = f"{count} fault{'s' * (count != 1)}"
    lines.append(f"{left}: {faults}, {violation['workers']} workers. Once more:")
    return [*lines, violation["command"]]


if __name__ == "__main__":
    sys.exit(main())
