"""``rumor advise``: which rule, topology and wire suit machines that were measured."""

import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from ...gossip.specs.parameter import setting
from ..errors import FAILED, fail
from ..reports.console import counted, plain_table, print_json, progress_on
from ..settings.options import Json, Source, config_of, options_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...sim.calibration import Advice, Calibration

__all__ = ["AdviseConfig", "advise"]

_SHOWN = 3
"""Number of candidates with their commands."""

_SIGNIFICANT = 0.05
"""A difference with a larger p may be noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviseConfig:
    """How candidates are compared."""

    steps: int | None = setting(
        None, "Optimizer steps of each peer.", low=1, otherwise="those of the measured run"
    )

    seeds: int = setting(
        2,
        "Runs of each candidate; with more of them, smaller differences are significant.",
        low=1,
        metavar="N",
    )

    target: float | None = setting(
        None,
        "Loss that the median peer's own model is to reach.",
        otherwise="95 % of the way to the best one that any candidate ends with",
        metavar="LOSS",
    )


@options_of(Source(AdviseConfig, "Options"))
def advise(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="What `rumor calibrate -o FILE` has measured.")
    ],
    *,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Say which rule, topology and wire suit measured machines.

    Candidates are simulated on the paces, the network and the task of real peers, by the code that
    real peers run, and ranked by the time until the median peer's own model has a loss. p says how
    often noise alone puts a candidate as far behind the best one: above 0.05, the order of the two
    is not significant.

    `rumor calibrate runs/digits-20261124-101500 -o measured.json`

    `rumor advise measured.json`

    Exit status: 0; 1 if no candidate gets to the target; 2 for wrong arguments.
    """
    # Here, since torch takes a second to import.
    from ...sim.calibration import advise as advise_on
    from ...sim.calibration import read_calibration

    config = config_of(AdviseConfig, settings)
    calibration = read_calibration(file)
    for note in calibration.notes:
        print(f"note: {note}", file=sys.stderr)
    began_s = time.monotonic()
    with progress_on(sys.stderr) as display:

        def tell(done: int, total: int, words: str) -> None:
            line = f"{done} of {counted(total, 'run')}" + (f", next {words}" if words else "")
            display.show(time.monotonic() - began_s, done / total, line, line)

        target, found = advise_on(
            calibration, steps=config.steps, seeds=config.seeds, target=config.target, tell=tell
        )
    if as_json:
        advice = [asdict(each) | {"time_s": each.time_s} for each in found]
        print_json({"target": target, "seeds": config.seeds, "advice": advice})
    else:
        _print(calibration, target, found, Console())
    if found[0].time_s is None:
        fail(f"no candidate came to a loss of {target:.4g}: raise --target or --steps", FAILED)


def _print(
    calibration: "Calibration", target: float, found: "Sequence[Advice]", console: Console
) -> None:
    task = calibration.settings.get("task", "digits")
    title = f"{task} on {counted(len(calibration.peers), 'peer')}, until a loss of {target:.4g}"
    console.print(Text(title, style="bold"))
    table = plain_table("candidate", ">time", ">p", ">loss", ">MB", "")
    for advice in found:
        words = [advice.candidate.name]
        if advice.why:
            table.add_row(*map(Text, words), *[Text("-")] * 4, Text(advice.why))
            continue
        assert advice.loss is not None and advice.bytes_sent is not None
        words += ["never" if advice.time_s is None else f"{advice.time_s:.3g} s"]
        words += ["" if advice.p is None else f"{advice.p:.2g}"]
        words += [f"{advice.loss:.4g}", f"{advice.bytes_sent / 1e6:,.3g}", ""]
        table.add_row(*map(Text, words))
    console.print(table)
    best = [advice for advice in found if advice.time_s is not None][:_SHOWN]
    for place, advice in enumerate(best):
        head = "Best: " if place == 0 else "Then: "
        n = len(calibration.peers)
        command = f"rumor launch -n {n} --task {task} {advice.candidate.options}"
        console.print(head + command, highlight=False, markup=False, soft_wrap=True)
    others = [advice for advice in found[1:] if advice.time_s is not None]
    if others and all(advice.p is None for advice in others):
        console.print("One seed says nothing about noise: raise --seeds to see how sure this is.")
    elif alike := [a.candidate.name for a in others if a.p is not None and a.p > _SIGNIFICANT]:
        line = f"No significant difference from the best: {'; '.join(alike)}. Raise --seeds."
        console.print(line, highlight=False, markup=False, soft_wrap=True)
