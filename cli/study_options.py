"""Options of ``rumor study``."""

from pathlib import Path
from typing import Annotated

import typer

from .options import OUTPUT

__all__ = [
    "BackendName",
    "Copy",
    "DryRun",
    "Jobs",
    "ListAll",
    "NoReport",
    "Resume",
    "StudyFolder",
    "StudyName",
    "Target",
]

WHAT = "What is done"
HOW = "How it is computed"

StudyName = Annotated[
    str | None,
    typer.Argument(
        metavar="STUDY.toml|NAME",
        help="A file that ends in .toml, or a study that comes with rumor (--list names them).",
        show_default=False,
    ),
]
StudyFolder = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="The study's folder.",
        show_default="runs/study-NAME",
        rich_help_panel=OUTPUT,
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Go on with what the folder holds: cells of the same arguments, files and code are "
        "not computed again. The grid may have changed.",
        rich_help_panel=WHAT,
    ),
]
BackendName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="loky (processes of this machine), dask:tcp://HOST:PORT, ray (whatever Ray finds, or "
        "a new one on this machine) or ray:ADDRESS. The results are the same.",
        rich_help_panel=HOW,
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        metavar="N",
        help="Cells computed side by side.",
        show_default="as many as cores and memory allow",
        rich_help_panel=HOW,
    ),
]
Target = Annotated[
    float | None,
    typer.Option(
        metavar="ACCURACY",
        help="Accuracy that times and bytes are counted to. It changes no cell.",
        show_default="the study's",
        rich_help_panel=WHAT,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Check all cells, list them, estimate, and compute nothing.",
        rich_help_panel=WHAT,
    ),
]
ListAll = Annotated[
    bool,
    typer.Option("--list", help="List the studies that come with rumor.", rich_help_panel=WHAT),
]
Copy = Annotated[
    Path | None,
    typer.Option(
        "--copy",
        metavar="FILE.toml",
        help="Write the study's file there, to be changed, and compute nothing.",
        show_default=False,
        rich_help_panel=WHAT,
    ),
]
NoReport = Annotated[
    bool, typer.Option("--no-report", help="Write tables only.", rich_help_panel=OUTPUT)
]
