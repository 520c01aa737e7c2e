"""``rumor fuzz``: campaigns of random faults against the protocol, under virtual time."""

import json
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...gossip.errors import ConfigError
from ..console import plain_table, progress_on, time_left
from ..errors import FAILED, STOPPED, edge, fail
from ..options import OUTPUT, Debug, Json
from ..run_folder import check_free

if TYPE_CHECKING:
    from ...sim.fuzz import Broken, Campaign, Order, Progress, Trial

__all__ = [
    "as_json",
    "command_of",
    "display_on",
    "fuzz",
    "parse_seeds",
    "print_campaign",
    "share",
    "words",
]

SEEDS_MAX = 10_000_000

RESULT = "campaign.json"
"""The file of a campaign's folder that has all that ``--json`` prints."""

WORTH_ESTIMATING_S = 2.0
"""Time on the wall before which the estimate of the rest would be a guess."""

WHAT = "What is tried"
HOW = "How it is tried"


def fuzz(
    seeds: Annotated[
        str,
        typer.Option(
            metavar="RANGE",
            help="Which seeds: 17, 0-999, or several of both with commas between.",
            rich_help_panel=WHAT,
        ),
    ] = "0-99",
    workers: Annotated[
        int,
        typer.Option(
            "--workers",
            "-n",
            help="How many peers a swarm begins with: drawn for each seed, 2 to so many. With "
            "--faults exactly so many.",
            rich_help_panel=WHAT,
        ),
    ] = 6,
    faults: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|JSON",
            help="What goes wrong, in place of what each seed draws: a file, or the list itself. "
            "Peers are called p0, p1 and so on.",
            show_default="drawn",
            rich_help_panel=WHAT,
        ),
    ] = None,
    without: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Leave options of the swarms as they are in a plain one: founders, rules, ring, "
            "wide, frames, shards, exact, bandwidth, memory, dial-out, clocks, tells, orderly.",
            show_default="none",
            rich_help_panel=WHAT,
        ),
    ] = None,
    plant: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Plant a known bug, to see that it is found: no-deduplication or lost-fence.",
            show_default="none",
            rich_help_panel=WHAT,
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Seeds tried side by side; the result is the same.",
            show_default="one per core",
            rich_help_panel=HOW,
        ),
    ] = None,
    shrink: Annotated[
        bool,
        typer.Option(
            "--shrink/--no-shrink",
            help="Make failures small: the fewest faults, peers and options that still fail.",
            rich_help_panel=HOW,
        ),
    ] = True,
    failures_max: Annotated[
        int,
        typer.Option(
            "--failures-max",
            metavar="N",
            help="Stop after so many seeds that fail.",
            rich_help_panel=HOW,
        ),
    ] = 10,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep the result, and faults and last events of every failure, in this folder.",
            show_default="nothing is kept",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json_line: Json = False,
    debug: Debug = False,
) -> None:
    """Fuzz the protocol: inject random faults until an invariant breaks or none does.

    Each seed stands for a small swarm and a list of faults: loss, duplicates, old messages, cuts,
    partitions, pauses, crashes in the middle of anything, restarts with and without what was kept,
    newcomers by the dozen. Its peers decide by the code that live ones run, under virtual time and
    on a network no kinder than a real one. After every event no weight may be lost or created,
    nothing decided twice, no model outside of the hull of those before it. Then the faults stop,
    and everybody has to agree and come to an end.

    A thousand seeds take minutes:

    `rumor fuzz --seeds 0-999`

    A planted bug is found, and told in a few lines:

    `rumor fuzz --seeds 0-999 --plant lost-fence`

    The same seed always does the same. A failure is shown with its last events and with a command
    that repeats it. How to read it, and what faults there are: docs/how-to/fuzz.md.

    Exit status: 0 if nothing broke; 1 if something did; 2 for wrong arguments; 130 if it was
    stopped.
    """
    with edge(debug=debug):
        from ...sim.fuzz import Order
        from ...sim.kernel.faults import read_faults

        order = Order(
            seeds=parse_seeds(seeds),
            workers=workers,
            without=tuple(name.strip() for name in (without or "").split(",") if name.strip()),
            faults=None if faults is None else read_faults(faults),
            plant=plant,
            shrinks=shrink,
            failures_max=failures_max,
            processes=_cores() if processes is None else processes,
        )
        if out is not None:
            _check_folder(out)
        campaign = _run(order)
        _show(campaign, order, line=as_json_line)
        if out is not None:
            _keep(campaign, order, out)
        if campaign.broken:
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


def command_of(broken: "Broken", plant: str | None) -> str:
    """The command that repeats a failure."""
    from ...sim.kernel.faults import faults_as_json

    draft = broken.draft
    words = ["rumor", "fuzz", "--seeds", str(draft.seed), "--workers", str(draft.workers)]
    if draft.without:
        words += ["--without", ",".join(draft.without)]
    if plant is not None:
        words += ["--plant", plant]
    words += ["--faults", json.dumps(faults_as_json(draft.faults)), "--no-shrink"]
    return shlex.join(words)


def as_json(campaign: "Campaign", order: "Order") -> dict[str, Any]:
    """What ``--json`` prints."""
    from ...sim.fuzz.campaign import commit, release

    worst = campaign.worst
    return {
        "seeds": campaign.seeds,
        "violations": [_told(broken, order.plant) for broken in campaign.broken],
        "events": campaign.events,
        "coverage": {what: round(share, 5) for what, share in campaign.coverage.items()},
        "worst": {
            "events": {"seed": worst.events_seed, "events": worst.events},
            "agree_s": {"seed": worst.agree_seed, "agree_s": worst.agree_s},
        },
        "workers": order.workers,
        "plant": order.plant,
        "version": release(),
        "commit": commit(),
    }


def _told(broken: "Broken", plant: str | None) -> dict[str, Any]:
    from ...sim.kernel.faults import faults_as_json

    failure, draft = broken.failure, broken.draft
    return {
        "seed": broken.seed,
        "invariant": failure.invariant,
        "what": failure.what,
        "at_s": failure.at_s,
        "shrunk": broken.shrunk,
        "workers": draft.workers,
        "without": list(draft.without),
        "faults": faults_as_json(draft.faults),
        "command": command_of(broken, plant),
        "trace": list(failure.trace),
    }


def _run(order: "Order") -> "Campaign":
    """Run it, and tell stderr how it goes."""
    from ...sim.fuzz import run_campaign

    done, broke = 0, ""
    try:
        with display_on(sys.stderr, len(order.seeds)) as show:

            def take(seeds: int, failed: "Sequence[Trial]") -> None:
                nonlocal done, broke
                done, broke = seeds, ", ".join(str(trial.seed) for trial in failed)
                show(seeds, failed)

            return run_campaign(order, take)
    except KeyboardInterrupt:
        failed = f", of which {broke} failed" if broke else ""
        fail(f"stopped after {done} seeds{failed}; nothing was kept", STOPPED)


@contextmanager
def display_on(stream: TextIO, seeds: int) -> "Iterator[Progress]":
    """Show how a campaign goes on *stream*, in the way that it can.

    A seed that fails is told at once: a long campaign need not end before somebody looks at it.

    Args:
        stream: Usually stderr.
        seeds: How many there are.
    """
    began_s, told = time.monotonic(), 0
    with progress_on(stream, total=seeds, unit="seeds") as display:

        def show(done: int, failed: "Sequence[Trial]") -> None:
            nonlocal told
            for trial in failed[told:]:
                display.tell(_broke(trial))
            told = len(failed)
            wall_s = time.monotonic() - began_s
            if display.is_due(wall_s):
                known = words(done, seeds, told, wall_s)
                display.show(done, known, f"{wall_s:.0f} s: {done:,} of {seeds:,} seeds, {known}")

        yield show


def words(done: int, seeds: int, failed: int, wall_s: float) -> str:
    """What is known of how it goes and when it ends, beside the number of seeds.

    >>> words(100, 400, 0, 10.0)
    'none failed, about 30 s left'
    """
    left = time_left(done / seeds, wall_s, WORTH_ESTIMATING_S)
    return ", ".join([f"{failed} failed" if failed else "none failed", *left])


def _broke(trial: "Trial") -> str:
    failure = trial.failure
    assert failure is not None
    return f"seed {trial.seed} broke {failure.invariant} at {failure.at_s:.3f} s: {failure.what}"


def _check_folder(out: Path) -> None:
    """See whether a result can be kept there, before anything is tried."""
    from ...sim.results.files import check_writable

    check_free(out, [RESULT], "campaign")
    check_writable(out)


def _keep(campaign: "Campaign", order: "Order", out: Path) -> None:
    """Write what came of it; its figures were shown before."""
    from ...sim.results.files import staged

    told = as_json(campaign, order)
    try:
        with staged(out, last=RESULT) as draft:
            _write(draft / RESULT, told)
            for violation in told["violations"]:
                _write(draft / f"seed-{violation['seed']}.json", violation["faults"])
    except OSError as error:
        fail(f"{out} cannot be written: {error.strerror or error}; no file was kept", FAILED)


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _show(campaign: "Campaign", order: "Order", *, line: bool) -> None:
    from rich.console import Console

    console = Console(stderr=line)
    print_campaign(as_json(campaign, order), console)
    if line:
        print(json.dumps(as_json(campaign, order), allow_nan=False))


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


TABLE_SEEDS_MIN = 10
"""Seeds below which shares of them say nothing."""

TRACE_LINES = 12
LINE_CHARACTERS = 160


def print_campaign(told: dict[str, Any], console: Console) -> None:
    """Print what was met, what took longest, and what broke.

    Args:
        told: What ``--json`` prints.
        console: Where to.
    """
    if told["seeds"] >= TABLE_SEEDS_MIN:
        console.print(_coverage(told["coverage"]))
        console.print()
        console.print(Text(f"Faults, by share of seeds: {_faults(told['coverage'])}", style="dim"))
    worst = told["worst"]
    console.print(
        Text(
            f"Seeds: {told['seeds']:,}, events: {told['events']:,}. Most events: seed "
            f"{worst['events']['seed']} with {worst['events']['events']:,}. Longest until all "
            f"agreed: seed {worst['agree_s']['seed']}, {worst['agree_s']['agree_s']:.0f} s after "
            "the last fault."
        )
    )
    for violation in told["violations"]:
        _print_violation(violation, told, console)
    if not told["violations"]:
        console.print(Text("Nothing broke.", style="green"))


def share(part: float) -> str:
    """A share of seeds; what is there never reads as nothing.

    >>> share(0.5), share(0.0004), share(0.0), share(1.0)
    ('50 %', '0.04 %', 'never', '100 %')
    """
    if part == 0:
        return "never"
    percent = 100 * part
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"


def _coverage(coverage: Mapping[str, float]) -> Table:
    from ...sim.fuzz.campaign import RARE

    table = plain_table("event", "seeds", "what happened", right=["seeds"])
    table.columns[0].no_wrap = True
    for name, words in RARE.items():
        part = coverage.get(name, 0.0)
        table.add_row(name, Text(share(part), style="" if part else "yellow"), words)
    return table


def _faults(coverage: Mapping[str, float]) -> str:
    kinds = {k.removeprefix("fault: "): v for k, v in coverage.items() if k.startswith("fault: ")}
    return ", ".join(f"{kind} {share(part)}" for kind, part in kinds.items()) or "none"


def _print_violation(violation: dict[str, Any], told: dict[str, Any], console: Console) -> None:
    commit = f", commit {told['commit'][:12]}" if told["commit"] else ""
    console.print()
    console.print(
        Text(
            f"Seed {violation['seed']} broke {violation['invariant']} at "
            f"{violation['at_s']:.3f} s (version {told['version']}{commit}):",
            style="bold red",
        )
    )
    console.print(Text(violation["what"]), soft_wrap=True)
    if violation["trace"]:
        console.print(Text("The last events there:", style="dim"))
        for line in violation["trace"][-TRACE_LINES:]:
            short = line if len(line) <= LINE_CHARACTERS else f"{line[:LINE_CHARACTERS]}..."
            console.print(Text(short, style="dim"), soft_wrap=True)
    left = "What is left of it" if violation["shrunk"] else "Not made smaller"
    faults, workers = len(violation["faults"]), violation["workers"]
    counted = "1 fault" if faults == 1 else f"{faults} faults"
    console.print(Text(f"{left}: {counted}, {workers} workers. Once more:"))
    # A command that is folded cannot be copied.
    console.print(Text(violation["command"], style="cyan"), soft_wrap=True)
