"""``rumor compare``: the prediction of a simulation next to a run of real peers."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from ...gossip.specs.parameter import setting
from ..errors import FAILED, understanding
from ..reports.console import plain_table, print_json
from ..settings.options import Json, Source, options_of

if TYPE_CHECKING:
    from ...sim.results.compare import Figure, SideBySide
    from ...sim.results.live_run import LiveRun

__all__ = ["CompareConfig", "compare"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareConfig:
    """Settings of a comparison, and its tolerance."""

    target: float = setting(0.9, "The accuracy whose time is compared.", metavar="ACCURACY")

    tolerance: float = setting(0.2, "How far off a prediction may be: 0.2 is 20 %.", metavar="PART")


@options_of(Source(CompareConfig, "Options"))
def compare(
    live: Annotated[
        Path, typer.Argument(metavar="LIVE_DIR", help="Of `rumor launch`, or of real peers.")
    ],
    simulated: Annotated[Path, typer.Argument(metavar="SIM_DIR", help="Of `rumor simulate`.")],
    *,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Put a live run and a simulation side by side.

    Judged are steps per second, of all and of each peer, bytes per second, and the time to an
    accuracy, which is that of the median peer's own model. The final model and how far models were
    apart are shown as well.

    Exit status: 0 if all that is judged is within --tolerance of the live run; 1 if not; 2 for
    wrong arguments.
    """
    from ...sim.results.compare import put_side_by_side
    from ...sim.results.live_run import read_live_run
    from ...sim.results.run import Run

    with understanding(live):
        run = read_live_run(live)
        consensus = _consensus(run)
    with understanding(simulated):
        loaded = Run.load(simulated)
    with understanding(f"{live} or {simulated}"):
        found = put_side_by_side(run, loaded, live_consensus=consensus, **settings)
    if as_json:
        print_json(found.as_json())
    else:
        with understanding(f"{live} or {simulated}"):
            _print(found, Console())
    if not found.agrees:
        raise typer.Exit(FAILED)


def _print(found: "SideBySide", console: Console) -> None:
    """Print all figures of both, and the verdict."""
    percent = f"{100 * found.tolerance:g} %"
    table = plain_table("", ">live", ">simulated", ">ratio", f"within {percent}")
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
    """Return the distance of the models over the later half, estimated from sketches."""
    from ..launch.summary import estimate

    begin, end = (run.began_unix_s + part * run.trained_s for part in (0.5, 1.0))
    later = [[row for row in peer.rows if begin <= row["unix_s"] <= end] for peer in run.peers]
    _, distances = estimate(later)
    return float(distances.mean()) if len(distances) else None
