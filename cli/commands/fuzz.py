"""``rumor fuzz``: campaigns of random faults against the protocol, under virtual time."""

import json
import os
import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...gossip.errors import ConfigError
from ...gossip.specs.parameter import setting
from ..errors import FAILED, STOPPED, fail, not_written
from ..reports.console import counted, plain_table, print_json, progress_on, time_left
from ..settings.options import Json, Source, options_of

if TYPE_CHECKING:
    from ...sim.fuzz import Campaign, CampaignConfig, FailedSeed, Trial

__all__ = ["FuzzConfig", "as_json", "command_of", "fuzz", "parse_seeds", "words"]

SEEDS_MAX = 10_000_000

RESULT = "campaign.json"
"""The file of a campaign's folder that has all that ``--json`` prints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzConfig:
    """A campaign as it is asked for."""

    seeds: str = setting(
        "0-99", "Which seeds: 17, 0-999, or several of both with commas between.", metavar="RANGE"
    )

    workers: int = setting(
        6,
        "Peers that a swarm begins with: for each seed, a random number from 2 to this. With "
        "``faults``, exactly this many.",
        low=1,
        flags=("--workers", "-n"),
    )

    faults: str | None = setting(
        None,
        "What goes wrong, in place of what each seed draws: a file, or the list itself. Peers are "
        "called p0, p1 and so on.",
        otherwise="drawn",
        metavar="FILE|JSON",
    )

    without: str | None = setting(
        None,
        "Leave these options of the swarms, or of what is drawn of faults, at their plain values: "
        "founders, rules, ring, wide, frames, shards, exact, bandwidth, memory, dial-out, clocks, "
        "tells, orderly, far-clocks, more-rules, several-registers, formats, damage, two-swarms, "
        "tombstones, outer-rules, cutting-rules, kept-shares, segments, machines, reading, "
        "clipped, progress, pieces, newcomers, leavers, splits.",
        otherwise="none",
        metavar="NAME,...",
    )

    liars: float = setting(
        0.0,
        "Let up to this share of the peers lie, 0.3 at most: within the grammar of messages, in "
        "their own names and made-up ones, for as long as it lasts. Then nobody else may halt or "
        "crash by what they say, all weight of the others must add up with what passed between "
        "them and liars, and the others must come to an end. Swarms of fewer than four have none.",
    )

    processes: int | None = setting(
        None, "Seeds tried side by side, with the same result.", otherwise="one per core"
    )

    shrink: bool = setting(
        True, "Make failures small: the fewest faults, peers and options that still fail."
    )

    failures_max: int = setting(10, "Stop after so many seeds that fail.")

    out: Path | None = setting(
        None,
        "Keep the result, and faults and last events of every failure, in this folder.",
        otherwise="nothing is kept",
        metavar="DIR",
    )

    def campaign(self) -> "CampaignConfig":
        """What a campaign is to do.

        Raises:
            ConfigError: A field is out of range, or names nothing.
        """
        from ...sim.fuzz import CampaignConfig
        from ...train.faults.schedule import read_faults

        return CampaignConfig(
            seeds=parse_seeds(self.seeds),
            workers=self.workers,
            without=tuple(filter(None, map(str.strip, (self.without or "").split(",")))),
            faults=None if self.faults is None else read_faults(self.faults),
            liars=self.liars,
            shrinks=self.shrink,
            failures_max=self.failures_max,
            processes=_cores() if self.processes is None else self.processes,
        )


def _cores() -> int:
    has_affinity = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


@options_of(Source(FuzzConfig, "What is tried"))
def fuzz(*, as_json_line: Json = False, **settings: Any) -> None:
    """Fuzz the protocol: inject random faults until an invariant breaks or none does.

    Each seed stands for a small swarm and a list of faults: loss, duplicates, old messages, cuts,
    partitions, pauses, crashes in the middle of anything, restarts with and without saved state,
    newcomers by the dozen. Its peers run the code of live ones, under virtual time and on a
    network no kinder than a real one. After every event no weight may be lost or created,
    no share decided twice, no model outside the hull of those before it. Then the faults stop, and
    all peers must agree and finish.

    A thousand seeds take minutes:

    `rumor fuzz --seeds 0-999`

    The same seed always gives the same result. A failure is shown with its last events and with a
    command that repeats it. How to read it, and what faults there are: docs/how-to/fuzz.md.

    Exit status: 0 if nothing broke; 1 if something did, or if 200 seeds and more, of swarms with
    everything, never met an event of the table; 2 for wrong arguments; 130 if it was
    stopped.
    """
    config = FuzzConfig(**settings)
    campaign = config.campaign()
    if config.out is not None:
        from ...train.storage.files import check_folder

        check_folder(config.out, [RESULT], "campaign")
    told = as_json(_run(campaign), campaign)
    _print_campaign(told, Console(stderr=as_json_line))
    if as_json_line:
        print_json(told)
    if config.out is not None:
        _keep(told, config.out)
    if told["violations"] or told["never"]:
        raise typer.Exit(FAILED)


def parse_seeds(text: str) -> tuple[int, ...]:
    """Read a range of seeds.

    Raises:
        ConfigError: It is not of that form, runs backwards, or has too many.

    >>> parse_seeds("3,10-12")
    (3, 10, 11, 12)
    """
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,18})(?:\s*-\s*(\d{1,18}))?\s*", part)
        if match is None:
            raise ConfigError(
                f"seeds is {text!r}: {part.strip()!r} is neither a number nor FIRST-LAST; it must "
                "be such as 17, 0-999 or 3,10-20"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ConfigError(f"seeds is {text!r}: {part.strip()!r} runs backwards")
        if len(found) + last - first >= SEEDS_MAX:
            raise ConfigError(f"seeds is {text!r}: these are more than {SEEDS_MAX:,}")
        found += range(first, last + 1)
    return tuple(dict.fromkeys(found))


def command_of(broken: "FailedSeed") -> str:
    """The command that repeats a failure."""
    from ...train.faults.schedule import faults_as_json

    spec = broken.spec
    words = ["rumor", "fuzz", "--seeds", str(spec.seed), "--workers", str(spec.workers)]
    if spec.without:
        words += ["--without", ",".join(spec.without)]
    if spec.liars:
        words += ["--liars", f"{spec.liars:g}"]
    words += ["--faults", json.dumps(faults_as_json(spec.faults)), "--no-shrink"]
    return shlex.join(words)


def as_json(campaign: "Campaign", config: "CampaignConfig") -> dict[str, Any]:
    """What ``--json`` prints."""
    return {
        "seeds": campaign.seeds,
        "violations": [_told(broken) for broken in campaign.failed],
        "events": campaign.events,
        "never": list(campaign.never),
        "coverage": {what: round(share, 5) for what, share in campaign.coverage.items()},
        "workers": config.workers,
    }


def _told(broken: "FailedSeed") -> dict[str, Any]:
    from ...train.faults.schedule import faults_as_json

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


def _run(config: "CampaignConfig") -> "Campaign":
    """Run it, and tell stderr how it goes; of a seed that fails, as soon as it does."""
    from ...sim.fuzz import run_campaign

    began_s, seeds = time.monotonic(), len(config.seeds)
    done, broken = 0, list[int]()
    try:
        with progress_on(sys.stderr, total=seeds, unit="seeds") as display:

            def show(tried: int, failed: Sequence["Trial"]) -> None:
                nonlocal done
                done = tried
                for trial in failed[len(broken) :]:
                    failure = trial.failure
                    assert failure is not None
                    broken.append(trial.seed)
                    where = f"{failure.invariant} at {failure.at_s:.3f} s"
                    display.tell(f"seed {trial.seed} broke {where}: {failure.what}")
                wall_s = time.monotonic() - began_s
                known = words(done, seeds, len(broken), wall_s)
                display.show(wall_s, done, known, f"{done:,} of {seeds:,} seeds, {known}")

            return run_campaign(config, show)
    except KeyboardInterrupt:
        failed = f", of which {', '.join(map(str, broken))} failed" if broken else ""
        fail(f"stopped after {done} seeds{failed}; nothing was kept", STOPPED)


def words(done: int, seeds: int, failed: int, wall_s: float) -> str:
    """What is known of how it goes and when it ends, beside the number of seeds.

    >>> words(100, 400, 0, 10.0)
    'none failed, about 30 s left'
    """
    left = time_left(done / seeds, wall_s)
    return ", ".join([f"{failed} failed" if failed else "none failed", *left])


def _keep(told: dict[str, Any], out: Path) -> None:
    """Write what came of it; its figures were shown before."""
    from ...sim.results.files import staged

    try:
        with staged(out, last=RESULT) as draft:
            _write(draft / RESULT, told)
            for violation in told["violations"]:
                _write(draft / f"seed-{violation['seed']}.json", violation["faults"])
    except OSError as error:
        fail(f"{not_written(out, error)}; no file was kept", FAILED)


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


TABLE_SEEDS_MIN = 10
"""Seeds below which shares of them say nothing."""

TRACE_LINES = 12
LINE_CHARACTERS = 160


def _print_campaign(told: dict[str, Any], console: Console) -> None:
    """Print what was met, and what broke, of what ``--json`` prints."""
    if told["seeds"] >= TABLE_SEEDS_MIN:
        console.print(_coverage(told["coverage"]))
        console.print()
        console.print(Text(f"Faults, by share of seeds: {_faults(told['coverage'])}", style="dim"))
        console.print()
    console.print(Text(f"Seeds: {told['seeds']:,}, events: {told['events']:,}."))
    for violation in told["violations"]:
        _print_violation(violation, console)
    if not told["violations"]:
        console.print(Text("Nothing broke.", style="green"))
    if told["never"]:
        console.print(Text(f"Never met, so not tested: {', '.join(told['never'])}", style="red"))


def _share(part: float) -> str:
    """A share of seeds; what is there never reads as nothing.

    >>> _share(0.5), _share(0.0004), _share(0.0), _share(1.0)
    ('50 %', '0.04 %', 'never', '100 %')
    """
    if part == 0:
        return "never"
    percent = 100 * part
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"


def _coverage(coverage: Mapping[str, float]) -> Table:
    from ...sim.fuzz.campaign import EVENT_COVERAGE

    table = plain_table("event", ">seeds", "what happened")
    for name, words in EVENT_COVERAGE.items():
        part = coverage.get(name, 0.0)
        table.add_row(name, Text(_share(part), style="" if part else "yellow"), words)
    return table


def _faults(coverage: Mapping[str, float]) -> str:
    kinds = {k.removeprefix("fault: "): v for k, v in coverage.items() if k.startswith("fault: ")}
    return ", ".join(f"{kind} {_share(part)}" for kind, part in kinds.items()) or "none"


def _print_violation(violation: dict[str, Any], console: Console) -> None:
    where = f"{violation['invariant']} at {violation['at_s']:.3f} s"
    console.print()
    console.print(Text(f"Seed {violation['seed']} broke {where}:", style="bold red"))
    console.print(Text(violation["what"]), soft_wrap=True)
    if violation["trace"]:
        console.print(Text("The last events there:", style="dim"))
        for line in violation["trace"][-TRACE_LINES:]:
            short = line if len(line) <= LINE_CHARACTERS else f"{line[:LINE_CHARACTERS]}..."
            console.print(Text(short, style="dim"), soft_wrap=True)
    left = "What is left of it" if violation["shrunk"] else "Not made smaller"
    faults = counted(len(violation["faults"]), "fault")
    console.print(Text(f"{left}: {faults}, {violation['workers']} workers. Once more:"))
    # A command that is folded cannot be copied.
    console.print(Text(violation["command"], style="cyan"), soft_wrap=True)
