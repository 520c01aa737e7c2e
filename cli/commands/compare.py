"""``rumor compare``: what a simulation predicted beside what real peers did."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from ..console import plain_table
from ..errors import FAILED, reporting_errors
from ..options import Debug, Json

if TYPE_CHECKING:
    from ...sim.calibration import LiveRun
    from ...sim.results.compare import Figure, SideBySide

__all__ = ["compare", "print_side_by_side"]


def compare(
    live: Annotated[
        Path, typer.Argument(metavar="LIVE_DIR", help="Of `rumor launch`, or of real peers.")
    ],
    simulated: Annotated[Path, typer.Argument(metavar="SIM_DIR", help="Of `rumor simulate`.")],
    target: Annotated[
        float, typer.Option(metavar="ACCURACY", help="The accuracy whose time is compared.")
    ] = 0.9,
    tolerance: Annotated[
        float, typer.Option(metavar="PART", help="How far off a prediction may be: 0.2 is 20 %.")
    ] = 0.2,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Put a live run and a simulation side by side, and say whether they agree.

    Judged are steps per second, of all and of each peer, bytes per second, and the time to an
    accuracy, which is that of the median peer's own model. The final model and how far models were
    apart are shown beside it.

    Exit status: 0 if all that is judged is within --tolerance of the live run; 1 if not; 2 for
    wrong arguments.
    """
    with reporting_errors(debug=debug):
        from ...sim.calibration import read_live_run
        from ...sim.results.compare import put_side_by_side
        from ...sim.results.run import Run

        run = read_live_run(live)
        found = put_side_by_side(
            run,
            Run.load(simulated),
            target=target,
            tolerance=tolerance,
            live_consensus=_consensus(run),
        )
        if as_json:
            print(json.dumps(found.as_json(), allow_nan=False))
        else:
            print_side_by_side(found, Console())
    if not found.agrees:
        raise typer.Exit(FAILED)


def print_side_by_side(found: "SideBySide", console: Console) -> None:
    """Print all figures of both, and the verdict.

    Args:
        found: What was compared.
        console: Where to.
    """
    table = plain_table()
    table.add_column("", no_wrap=True)
    for name in ("live", "simulated", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    percent = f"{100 * found.tolerance:g} %"
    table.add_column(f"within {percent}", no_wrap=True)
    for figure in found.figures:
        ratio = "-" if figure.ratio is None else f"{figure.ratio:.3f}"
        both = (_in_words(value, figure.unit) for value in (figure.live, figure.simulated))
        table.add_row(Text(figure.name), *both, ratio, _verdict(figure, found.tolerance))
    console.print(table)
    console.print()
    console.print(f"Rates are of the first {found.seconds:.4g} s, in which all trained.")
    for difference in found.differences:
        console.print(Text(f"note: {difference}"), soft_wrap=True)
    bad = [f.name for f in found.figures if f.judged and f.agrees(found.tolerance) is False]
    words = f"Not within {percent}: {', '.join(bad)}." if bad else f"All within {percent}."
    console.print(Text(words, style="bold"))


def _verdict(figure: "Figure", tolerance: float) -> str:
    agrees = figure.agrees(tolerance)
    if agrees is None or not figure.judged:
        return ""
    return "yes" if agrees else "NO"


def _in_words(value: float | None, unit: str) -> str:
    if value is None:
        return "never" if unit == "s" else "-"
    if unit == "B/s":
        return f"{value / 1e3:,.4g} kB/s"
    return f"{value:.4g}{' s' if unit == 's' else ''}"


def _consensus(run: "LiveRun") -> float | None:
    """How far apart the models were over the later half, estimated from sketches."""
    from ..launch.summary import estimate

    begin, end = (run.began_unix_s + part * run.trained_s for part in (0.5, 1.0))
    later = [[row for row in peer.rows if begin <= row["unix_s"] <= end] for peer in run.peers]
    _, distances = estimate(later)
    return float(distances.mean()) if len(distances) else None
