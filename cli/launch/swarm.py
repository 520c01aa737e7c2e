"""The swarm of one run: its processes from their start to the end, and its results.

A script's process may make several peers, each of a swarm of its own, for instance one per fold.
The first writes into the process's folder, each further one, and each with a name, into a folder
of its own in there; the results of such a swarm are in ``swarms/NAME``.
"""

import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ...gossip.errors import ConfigError
from ...gossip.transport.addresses import allow_more_files
from ...train.storage.incarnation import INCARNATION_FILE
from ..errors import not_written
from .config import Job, Place
from .display import Display, display_on
from .folder import RunFolder
from .monitor import Life, Monitor, PeerView, Process, ended_view, read_report
from .processes import ProcessGroup

if TYPE_CHECKING:
    from .faults import FaultInjector

__all__ = ["Fleet", "conclude", "noting", "run_swarm", "supervise"]


_LOOK_S = 0.2

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


class Fleet(Protocol):
    """Processes on other machines, see `cluster.fleet.Fleet`."""

    places: list[Place]
    unreached: list[str]

    @property
    def processes(self) -> Sequence[Process]: ...
    def start(self) -> None: ...
    def leave_all(self, number: int = signal.SIGTERM) -> None: ...
    def tell_dead(self, lives: Sequence[Life]) -> None: ...
    def kill_all(self) -> None: ...
    def wait(self) -> None: ...
    def look(self) -> list[str]: ...
    def close(self) -> None: ...


class _Interrupt:
    """Handles Ctrl-C: the first one makes peers leave, the second kills them."""

    def __init__(self, group: ProcessGroup | Fleet) -> None:
        self._group = group
        self.count = 0
        self.number: int = signal.SIGTERM
        """Signal for the peers: a script gets Ctrl-C as Ctrl-C, too."""

    def __call__(self, number: int, frame: object) -> None:
        self.count += 1
        if self.count > 1:
            self._group.kill_all()
            return
        print(
            "\nstopping: peers hand their weight on and leave; once more kills them",
            file=sys.stderr,
        )
        if number == signal.SIGINT:
            self.number = number
        self._group.leave_all(self.number)


def supervise(
    group: ProcessGroup | Fleet,
    monitor: Monitor,
    display: Display,
    faults: "FaultInjector | None" = None,
) -> list[PeerView]:
    """Start all processes, and watch them until the last one has ended.

    Raises:
        OSError: A process could not be started; those that were are killed.
    """
    interrupt = _Interrupt(group)
    started_s = time.monotonic()
    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        display(monitor.views, (), 0.0)
        group.start()
        if interrupt.count:
            # Processes started since then have not received it.
            group.leave_all(interrupt.number)
        while not monitor.over or (faults is not None and faults.will_revive):
            if interrupt.count and isinstance(group, ProcessGroup):
                # Nothing more is done to peers, and a paused one must hear the signal.
                group.release_all()
                faults = None
            news = _wait(faults) + monitor.update()
            # Without this, the others would notice a death after half a minute of silence; for a
            # peer that will be restarted they must wait.
            if faults is None or not faults.will_revive:
                group.tell_dead(monitor.take_deaths())
            display(monitor.views, news, time.monotonic() - started_s)
    except BaseException:
        group.kill_all()
        group.wait()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return monitor.views


def _wait(faults: "FaultInjector | None") -> list[str]:
    """Apply faults that are due until it is time for the next check; return what was done."""
    news: list[str] = []
    look_s = time.monotonic() + _LOOK_S
    while (rest_s := look_s - time.monotonic()) > 0:
        if faults is not None:
            news += faults.update()
            rest_s = min(rest_s, faults.next_s)
        time.sleep(rest_s)
    return news


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
                lines = [] if fleet is None else fleet.look()
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
    """Merge, summarize and draw all swarms of a run that is over.

    Returns:
        The summary of the first swarm, with those of the others as ``further``, by name.
    """
    places = group.places
    reports = () if job.training else [read_report(place.folder) or {} for place in places]
    described = job.described(reports) | {"run": str(job.out), "further": {}}
    if isinstance(group, ProcessGroup):
        described["leftovers"] = group.leftovers()
    else:
        described["unreached"] = sorted({*group.unreached})
    names = sorted({name for place in places for name in _swarms(place)})
    if names in ([], [""]):
        return _conclude(described, job, job.out, wall_s, places, views, faults)
    # Rows of all swarms are in those views.
    summaries: dict[str, dict[str, Any]] = {}
    for name in reversed(names):
        members, seen = [], []
        for place, process, view in zip(places, group.processes, views, strict=True):
            if not name:
                members.append(place)
                seen.append(ended_view(place, process.poll(), view.earlier))
            elif name in _swarms(place):
                earlier = tuple(each / name for each in place.earlier if (each / name).is_dir())
                members.append(replace(place, folder=place.folder / name, earlier=earlier))
                seen.append(ended_view(members[-1], process.poll()))
        out = job.out / "swarms" / name if name else job.out
        out.mkdir(parents=True, exist_ok=True)
        told = {**described, "peers": len(members), "swarm": name}
        if name == names[0]:
            told["further"] = dict(sorted(summaries.items()))
        summaries[name] = _conclude(told, job, out, wall_s, members, seen, () if name else faults)
    return summaries[names[0]]


def _swarms(place: Place) -> set[str]:
    """Return the names of the swarms of a process's peers, empty for the unnamed one."""
    folders = (place.folder, *place.earlier)
    unnamed = {""} if any((folder / INCARNATION_FILE).exists() for folder in folders) else set()
    paths = (path for folder in folders for path in folder.glob(f"*/{INCARNATION_FILE}"))
    return unnamed.union(path.parent.name for path in paths)


def _conclude(
    described: Mapping[str, Any],
    job: Job,
    out: Path,
    wall_s: float,
    places: Sequence[Place],
    views: Sequence[PeerView],
    faults: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Merge, summarize and draw a swarm that is over, and write all files into its folder."""
    from ...sim.results.live_plots import draw
    from ...train.storage.files import write_json
    from .summary import estimate, merge_outcomes, read_outcome, summarize

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
