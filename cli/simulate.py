"""``rumor simulate``: many workers in one process, under virtual time."""

import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from ..gossip.errors import ConfigError
from .edge import FAILED, STOPPED, edge, fail
from .exchange_options import Exact, ShardOrderName, Shards, ShardsPerPush, WireName
from .options import (
    BatchSize,
    Debug,
    EmissionName,
    Json,
    LearningRate,
    P,
    Partition,
    RuleName,
    Seed,
    Steps,
    TimingName,
    TopologySpec,
    TotalSteps,
)
from .simulate_options import (
    Bandwidth,
    CheckpointSeconds,
    Duplicates,
    Engine,
    Faults,
    Format,
    From,
    Latency,
    Loss,
    Measure,
    Memory,
    Mixing,
    Network,
    NoPlot,
    Out,
    Pace,
    PushRate,
    SimulatedTask,
    Slow,
    Speeds,
    StepSeconds,
    Threads,
    TimeSeconds,
    Window,
    Workers,
)

if TYPE_CHECKING:
    from ..sim import Run, SimulationConfig
    from ..sim.progress import Progress

__all__ = ["simulate", "worked"]


def simulate(
    ctx: typer.Context,
    task: SimulatedTask = "digits",
    steps: Steps = None,
    total_steps: TotalSteps = None,
    time_s: TimeSeconds = None,
    lr: LearningRate = None,
    batch_size: BatchSize = None,
    partition: Partition = "shared",
    seed: Seed = 0,
    workers: Workers = 64,
    from_file: From = None,
    topology: TopologySpec = "exponential",
    mixing: Mixing = None,
    rule: RuleName = "gosgd",
    p: P = None,
    emission: EmissionName = "per-step",
    wire: WireName = "float32",
    shards: Shards = 1,
    shards_per_push: ShardsPerPush = 1,
    shard_order: ShardOrderName = "round-robin",
    exact: Exact = False,
    push_mbit: PushRate = None,
    step_s: StepSeconds = 0.1,
    pace: Pace = "constant",
    speeds: Speeds = None,
    slow: Slow = None,
    network: Network = "lan",
    latency_s: Latency = None,
    bandwidth_mbit: Bandwidth = None,
    loss: Loss = None,
    duplicates: Duplicates = None,
    faults: Faults = None,
    timing: TimingName = "lan",
    checkpoint_every_s: CheckpointSeconds = 60.0,
    engine: Engine = "auto",
    threads: Threads = None,
    window: Window = None,
    memory_gib: Memory = None,
    out: Out = None,
    format: Format = "npz",
    no_plot: NoPlot = False,
    eval_every: Measure = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Train one model with many simulated workers, and see how that would go on real ones.

    Workers decide by the code that real peers run, and compute real gradients. Only time and
    network are made up: virtual time is what clocks on the workers' walls would show, counted
    in seconds from 0. A step lasts --step-s at speed 1x and a message as long as --network
    says, however long this machine takes to compute them. The same settings and seed give the
    same run, to the bit.

    A quarter of 256 workers four times as fast as the rest, over the internet:

    `rumor simulate -n 256 --speeds 1x:75%,4x:25% --network wan`

    Two halves of 16 that cannot reach one another for a while:

    `rumor simulate -n 16 --partition dirichlet:0.1 --faults examples/partition.json`

    How far apart 10,000 workers stay under noise, without a model:

    `rumor simulate --task noise -n 10000 --steps 500 --topology random-regular:d=4`

    Real peers that `rumor calibrate` has measured, with another rule:

    `rumor simulate --from calibration.json --rule sgp`

    Exit status: 0 if it worked; 1 if weight was lost, all workers diverged or a file could not
    be written; 2 for wrong arguments; 130 if it was stopped, which keeps nothing.
    """
    with edge(debug=debug):
        from ..sim import SimulationConfig
        from ..sim.array_files import check_format
        from ..train.allocator import keep_pages

        order: Any = shard_order
        config = SimulationConfig(
            task=task,
            workers=workers,
            topology=topology,
            mixing=mixing,
            rule=rule,
            p=p,
            emission=emission,
            wire=wire,
            shards=shards,
            shards_per_push=shards_per_push,
            shard_order=order,
            exact=exact,
            push_mbit=push_mbit,
            steps=steps,
            total_steps=total_steps,
            time_s=time_s,
            lr=lr,
            batch_size=batch_size,
            partition=partition,
            seed=seed,
            step_s=step_s,
            pace=pace,
            speeds=speeds,
            slow=tuple(slow or ()),
            network=network,
            latency_s=latency_s,
            bandwidth_mbit=bandwidth_mbit,
            loss=loss,
            duplicates=duplicates,
            faults=faults or (),
            timing=timing,
            checkpoint_every_s=checkpoint_every_s,
            engine=engine,
            threads=threads,
            window=window,
            eval_every=eval_every,
            memory_gib=memory_gib,
        )
        if from_file is not None:
            from .calibrated import start_from

            config = start_from(from_file, config, _typed(ctx))
        keep_pages()
        check_format(format)
        with _folder_of(out, config.task_name) as folder:
            run = _run(config)
            complaint = _keep(run, folder, format, picture=not no_plot)
        _show(run, None if complaint else folder, as_json=as_json)
        if complaint or (complaint := _complaint(run.summary)):
            fail(complaint, FAILED)


def worked(summary: dict[str, Any]) -> bool:
    """Whether a run counts as a success: no weight was lost, and somebody trained to the end."""
    return not _complaint(summary)


def _typed(ctx: typer.Context) -> set[str]:
    """Names of the options that were typed."""
    return {
        name
        for name in ctx.params
        if (source := ctx.get_parameter_source(name)) is not None and source.name != "DEFAULT"
    }


def _run(config: "SimulationConfig") -> "Run":
    """Simulate, and tell stderr how it goes."""
    from dataclasses import asdict

    from ..sim import simulate as run_simulation
    from ..sim.title import describe
    from .simulate_progress import display_on, reached

    last: Progress | None = None
    try:
        with display_on(sys.stderr, describe(asdict(config)), config.time_s) as show:

            def take(progress: "Progress") -> None:
                nonlocal last
                last = progress
                show(progress)

            return run_simulation(config, progress=take)
    except KeyboardInterrupt:
        where = "before the first step" if last is None else f"at {reached(last)}"
        fail(f"stopped {where}; nothing was kept", STOPPED)


def _keep(run: "Run", folder: Path, format: str, *, picture: bool) -> str:
    """Write a run's folder; says what went wrong, because the figures are worth showing even so."""
    try:
        run.save(folder, format=format, picture=picture)
    except OSError as error:
        return f"{folder} cannot be written: {error.strerror or error}; no file was kept"
    except ConfigError as error:
        # It was free when this one began.
        return f"{error}; no file was kept"
    except KeyboardInterrupt:
        fail("stopped while the files were written; nothing was kept", STOPPED)
    return ""


def _show(run: "Run", folder: Path | None, *, as_json: bool) -> None:
    summary = {**run.summary, "out": None if folder is None else str(folder)}
    if as_json:
        print(json.dumps(summary, allow_nan=False))
        return
    from .simulate_report import print_run

    print_run(summary, Console())


def _complaint(summary: Any) -> str:
    if summary["weight_units_total"] != summary["weight_units_expected"]:
        return "the ledgers do not balance: weight was lost or created, which is a bug"
    if len(summary["stopped"]) >= summary["workers"]:
        return "all workers diverged: lower --lr, or raise --p"
    return ""


@contextmanager
def _folder_of(out: Path | None, task: str) -> Iterator[Path]:
    """The folder of a run: the one that was asked for, or a new one that no other run takes.

    A new one in which nothing was kept is gone afterwards.
    """
    from ..sim.run_files import check_folder, check_writable

    if out is not None:
        check_folder(out)
        yield out
        return
    name = re.sub(r"[^\w.-]+", "-", task)
    stem = Path("runs") / f"sim-{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    check_writable(stem)
    above_is_new = not stem.parent.exists()
    folder = _take(stem)
    try:
        yield folder
    finally:
        # Only empty ones can be removed.
        with suppress(OSError):
            folder.rmdir()
            if above_is_new:
                stem.parent.rmdir()


def _take(stem: Path) -> Path:
    """Make a folder that was not there; runs that start in the same second get one each."""
    for number in count(1):
        path = stem if number == 1 else stem.with_name(f"{stem.name}-{number}")
        with suppress(FileExistsError):
            path.mkdir(parents=True)
            return path
    raise AssertionError
