"""``rumor simulate``: many workers in one process, under virtual time."""

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from ...gossip.errors import ConfigError
from ...gossip.specs.parameter import setting
from ...sim.config import SimulationConfig
from ..errors import FAILED, STOPPED, fail, not_written, sigterm_as_interrupt, understanding
from ..reports.console import print_json
from ..run_folder import new_folders
from ..settings.exchange import OutSettings
from ..settings.options import Json, Panel, Source, config_of, given, options_of

if TYPE_CHECKING:
    from ...sim import Run
    from ...sim.results.compare import SideBySide
    from ...sim.results.live_run import LiveRun

__all__ = ["SimulateConfig", "complaint", "simulate", "start_from"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateConfig(OutSettings):
    """The start of a simulation, and what is kept of it."""

    from_file: Path | None = setting(
        None,
        "What `rumor calibrate` measured: paces, network and settings of real peers. Other "
        "options override it.",
        brief="File of `rumor calibrate`.",
        otherwise="none",
        flags=("--from",),
    )

    against: Path | None = setting(
        None,
        "Folder of `rumor launch`, whose run is compared with this simulation: steps per second "
        "of all and of each peer, bytes per second, and the time to an accuracy of the median "
        "peer's own model.",
        brief="Compare with a live run.",
        otherwise="none",
        metavar="LIVE_DIR",
    )

    time_to: float = setting(0.9, "The accuracy whose time ``against`` compares.", above=0, high=1)

    tolerance: float = setting(
        0.2, "How far off a prediction may be under ``against``: 0.2 is 20 %.", above=0
    )

    plot: bool = setting(True, "Draw a picture.")


@options_of(
    Source(SimulationConfig),
    Source(SimulateConfig),
    everyday={
        Panel.TRAINING: ("task", "workers", "steps", "time_s", "lr", "partition"),
        Panel.GOSSIP: ("rule", "topology", "wire"),
        Panel.FAULTS: ("network", "speeds", "faults", "storm"),
        Panel.OUTPUT: ("seed", "out", "from_file", "against"),
    },
    file=False,
)
def simulate(
    ctx: typer.Context,
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE.py:FUNCTION", help="A task or model, as --task.", show_default=False
        ),
    ] = None,
    *,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Train one model with many simulated workers.

    Workers decide by the code that real peers run, and compute real gradients. Only time and
    network are simulated: virtual time is what a clock on the wall would show, counted in
    seconds from 0. A step lasts --set step_s at speed 1x and a message as long as --network
    says, however long this machine takes to compute them. The same settings and seed give the
    same run, to the bit.

    A model of your own, which the function `make` in mymodel.py returns. The same file has the
    data, `train` and `test`: tensors or datasets of inputs and labels; and `loss`, unless labels
    are classes:

    `rumor simulate mymodel.py:make -n 300 --lr 0.05 --set batch_size=64 --set optimizer=adam`

    A quarter of 256 workers four times as fast as the rest, over the internet:

    `rumor simulate -n 256 --speeds 1x:75%,4x:25% --network wan`

    Two halves of 16 that cannot reach each other for a while:

    `rumor simulate -n 16 --partition dirichlet:0.1 --faults examples/partition.json`

    Failures of a real fleet, by name (`--storm list` prints all):

    `rumor simulate -n 32 --time-s 60 --storm torchft-15s`

    How far apart 10,000 workers stay under noise, without a model:

    `rumor simulate --task noise -n 10000 --steps 500 --topology random-regular:d=4`

    Real peers as `rumor calibrate` has measured them, with another rule, and how near that comes:

    `rumor simulate --from calibration.json --rule sgp --against runs/real`

    Exit status: 0 if it worked; 1 if weight was lost, a worker diverged, a file could not be
    written, or the live run is farther off than --set tolerance; 2 for wrong arguments; 130 if it
    was stopped, which keeps nothing.
    """
    from ...sim.results.live_run import read_live_run
    from ...train.tensors.buffers import keep_pages

    if settings["storm"] == "list":
        from ...sim.storm import list_storms

        print(list_storms())
        return
    typed = given(ctx)
    if model is not None:
        if "task" in typed:
            raise ConfigError(f"{model} and --task {settings['task']} are both given: give one")
        settings["task"], typed = model, typed | {"task"}
    own = config_of(SimulateConfig, settings)
    config = config_of(SimulationConfig, settings)
    if own.from_file is not None:
        config = start_from(own.from_file, config, typed)
    live = None
    if own.against is not None:
        with understanding(own.against):
            live = read_live_run(own.against)
    keep_pages()
    with sigterm_as_interrupt(), _folder_of(own.out, config.task_name) as folder:
        run = _run(config)
        unwritten = _keep(run, folder, picture=own.plot)
    summary = {**run.summary, "out": None if unwritten else str(folder)}
    found = None if live is None else _compare(live, run, own, config)
    if as_json:
        print_json(summary if found is None else summary | {"comparison": found.as_json()})
    else:
        from ..reports.simulation import print_comparison, print_run

        print_run(summary, Console())
        if found is not None:
            print_comparison(found, Console())
    if why := unwritten or complaint(run.summary):
        fail(why, FAILED)
    if found is not None and not found.agrees:
        raise typer.Exit(FAILED)


def _compare(
    live: "LiveRun", run: "Run", own: SimulateConfig, config: SimulationConfig
) -> "SideBySide":
    from ...sim.calibration import differences
    from ...sim.results.compare import put_side_by_side
    from ..launch.summary import estimate

    with understanding(own.against):
        begin, end = (live.began_unix_s + part * live.trained_s for part in (0.5, 1.0))
        later = [[row for row in peer.rows if begin <= row["unix_s"] <= end] for peer in live.peers]
        _, distances = estimate(later)
        return put_side_by_side(
            live,
            run,
            target=own.time_to,
            tolerance=own.tolerance,
            live_consensus=float(distances.mean()) if len(distances) else None,
            differences=differences(live, config),
        )


def complaint(summary: Any) -> str:
    """Return why a run failed; empty if no weight was lost."""
    if summary["weight_units_total"] != summary["weight_units_expected"]:
        return "the ledgers do not balance: weight was lost or created, which is a bug"
    return ""


def _run(config: SimulationConfig) -> "Run":
    from ...sim import simulate as run_simulation
    from ...sim.results.figures import describe
    from ..reports.simulation import display_on

    title = describe(asdict(config) | {"rule_spec": str(config.rule_spec)})
    try:
        with display_on(sys.stderr, title, config.time_s) as show:
            return run_simulation(config, progress=show)
    except KeyboardInterrupt:
        fail("stopped; nothing was kept", STOPPED)


def _keep(run: "Run", folder: Path, *, picture: bool) -> str:
    """Write a run's folder; return why not, or an empty string."""
    # Not raised: the figures are worth showing even so.
    try:
        run.save(folder, picture=picture)
    except OSError as error:
        return f"{not_written(folder, error)}; no file was kept"
    except ConfigError as error:
        # The folder was free when this run began.
        return f"{error}; no file was kept"
    except KeyboardInterrupt:
        fail("stopped while the files were written; nothing was kept", STOPPED)
    return ""


@contextmanager
def _folder_of(out: Path | None, task: str) -> Iterator[Path]:
    """Check the folder of a run; a new one is made, and removed if nothing is kept in it."""
    from ...train.storage.files import check_folder, check_writable

    if out is not None:
        check_folder(out)
        yield out
        return
    check_writable(Path("runs"))
    for folder in new_folders(task, "sim-"):
        above_is_new = not folder.parent.exists()
        # Another run of the same second may make it first.
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
            break
    try:
        yield folder
    finally:
        # Only empty ones can be removed.
        with suppress(OSError):
            folder.rmdir()
            if above_is_new:
                folder.parent.rmdir()


def start_from(path: Path, config: SimulationConfig, typed: Collection[str]) -> SimulationConfig:
    """Take settings that were not typed from a file of `rumor calibrate`, and print its notes."""
    from ...sim.calibration import read_calibration

    found = read_calibration(path)
    for note in found.notes:
        print(f"note: {note}", file=sys.stderr)
    names = {entry.name for entry in fields(config)} & {*typed}
    given = {name: getattr(config, name) for name in names}
    return replace(config, **found.simulation_with(given))
