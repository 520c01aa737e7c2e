"""The swarm of one run: its processes from their start to the end, and its results."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...gossip.errors import ConfigError
from ...gossip.transport.addresses import allow_more_files
from ..errors import not_written
from .config import Job
from .display import display_on
from .folder import RunFolder
from .monitor import Monitor, PeerView, read_report
from .processes import ProcessGroup
from .supervisor import Fleet, supervise

__all__ = ["conclude", "noting", "run_swarm"]


def run_swarm(job: Job, fleet: Fleet | None = None) -> dict[str, Any]:
    """Run a swarm from its start to its summary, which is also written to the run's folder."""
    from ...train.loggers import LoggedRun
    from ...train.loggers.logger import make_loggers
    from ...train.loggers.writer import LogWriter

    if fleet is None:
        allow_more_files()
    described, summary = job.described(), dict[str, Any]()
    writer = LogWriter(make_loggers(job.config.loggers))
    writer.open(LoggedRun(name=job.out.name, folder=job.out, config=described))
    try:
        folder = RunFolder(job)
        try:
            group = fleet or ProcessGroup(folder.found())
        except OSError as error:
            raise ConfigError(not_written(job.out, error)) from None
        training = job.training
        steps, total = (training.steps, training.total_steps) if training else (None, None)
        monitor = Monitor(group.places, group.processes, steps, total, writer.log)
        injector = None
        if job.faults and isinstance(group, ProcessGroup):
            # Most runs have no faults.
            from .faults import FaultInjector

            seed = job.config.seed
            injector = FaultInjector(job.faults, group, monitor, folder, seed=seed)
        title = f"{job.name} on {job.config.peers} peers, {described['topology']}, in {job.out}"
        with display_on(sys.stderr, title) as display:

            def show(views: Sequence[PeerView], news: Sequence[str], elapsed_s: float) -> None:
                lines = [] if fleet is None else fleet.lines()
                display(views, [*lines, *news], elapsed_s)

            started_s = time.monotonic()
            views = supervise(group, monitor, show, injector)
            if fleet is not None:
                fleet.close()
                show(views, (), time.monotonic() - started_s)
            wall_s = time.monotonic() - started_s
        faults = [] if injector is None else injector.records
        summary |= conclude(job, group, views, wall_s, faults)
    finally:
        writer.close(summary)
    return summary


def conclude(
    job: Job,
    group: ProcessGroup | Fleet,
    views: Sequence[PeerView],
    wall_s: float,
    faults: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Merge, summarize and draw a run that is over, and write all files into its folder."""
    from ...sim.results.live_plots import draw
    from ...train.storage.files import write_json
    from .summary import estimate, merge_outcomes, read_outcome, summarize

    places, out = group.places, job.out
    reports = () if job.training else [read_report(place.folder) or {} for place in places]
    described = job.described(reports)
    if not isinstance(group, ProcessGroup):
        described["unreached"] = sorted({*group.unreached})
    outcomes = [read_outcome(place, view) for place, view in zip(places, views, strict=True)]
    merged, evaluation = merge_outcomes(outcomes, job.task)
    unwritten: list[str] = []
    if merged is not None:
        with noting(unwritten, out / "model.safetensors") as path:
            merged.save(path)
    summary = summarize(described, out, wall_s, outcomes, merged, evaluation, faults)
    summary["unwritten"] = unwritten
    with noting(unwritten, out / "summary.json") as path:
        write_json(path, summary)
    with noting(unwritten, out / "training.png") as path:
        rows = [outcome.rows for outcome in outcomes]
        draw(summary, rows, estimate(rows), path)
    return summary


@contextmanager
def noting(unwritten: list[str], path: Path) -> Iterator[Path]:
    """Let a file that cannot be written cost only itself: the figures are worth showing even so."""
    try:
        yield path
    except OSError as error:
        unwritten.append(f"{path.name} ({error.strerror or error})")
