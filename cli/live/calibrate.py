"""``rumor calibrate``: how fast real peers are."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from ..errors import FAILED, fail, not_written, understanding
from ..reports.console import plain_table, print_json
from ..run_folder import check_output
from ..settings.exchange import parse_rate
from ..settings.options import Json, Panel, options_of

if TYPE_CHECKING:
    from ...sim.calibration import Calibration

__all__ = ["calibrate", "measure"]

FILE = "calibration.json"


@options_of()
def calibrate(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="LIVE_DIR",
            help="Folder of `rumor launch`, of one `rumor peer --out`, or a folder with several of "
            "these; the run need not be over.",
            show_default=False,
        ),
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help=f"File to write ({FILE} in LIVE_DIR).",
            show_default=False,
            rich_help_panel=Panel.OUTPUT,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure real peers, for `rumor simulate --from FILE`.

    From LIVE_DIR come the pace of each peer and all settings of the run, but not the speed of its
    links: `rumor doctor` measures that, and `rumor simulate --network` takes it.

    Predict a run of 4 local peers with another rule:

    `rumor calibrate runs/digits -o digits.json`, then
    `rumor simulate --from digits.json --rule allreduce`

    Exit status: 0 if it worked; 1 if the file could not be written; 2 for wrong arguments.
    """
    path = out or folder / FILE
    if folder.is_dir():
        from ...train.storage.files import check_writable

        check_output(path)
        check_writable(path.parent)
    found = measure(folder)
    if as_json:
        print_json({**found.as_json(), "out": str(path)})
    else:
        _print(found, Console())
    # Last, since the figures are worth showing also where they cannot be written.
    try:
        found.write(path)
    except OSError as error:
        fail(not_written(path, error), FAILED)
    if not as_json:
        print(f"\nrumor simulate --from {path}")


def measure(folder: Path) -> "Calibration":
    """Read the paces and settings of peers from the folder of a run."""
    from ...sim.calibration import calibrate as calibrate_run
    from ...sim.results.live_run import read_live_run

    with understanding(folder):
        run = read_live_run(folder)
        rate = run.peers[0].options.get("bandwidth")
        return calibrate_run(run, push_mbit=None if rate is None else parse_rate(rate) * 8e-6)


def _print(found: "Calibration", console: Console) -> None:
    table = plain_table("peer", ">step", ">varies by", ">an exchange adds", ">steps seen")
    for peer in found.peers:
        varies = f"{100 * peer.step_s_cv:.2g} %" if peer.step_s_cv else "-"
        adds = f"{1000 * peer.exchange_s:.3g} ms" if peer.exchange_s else "-"
        step = f"{1000 * peer.step_s:.4g} ms"
        table.add_row(Text(peer.id), step, varies, adds, f"{peer.steps:,}")
    console.print(table)
    for note in found.notes:
        console.print(Text(f"note: {note}"), style="dim", soft_wrap=True)
