"""``rumor demo``: gossip and all-reduce under the same faults, at the same time."""

import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.live import Live

from ...gossip.specs.parameter import setting
from ..errors import FAILED, fail
from ..launch.checks import training_job
from ..launch.config import PROGRAM, Job, LaunchConfig, Place
from ..launch.display import Display, complaint, is_exact
from ..launch.faults import FaultInjector
from ..launch.folder import RunFolder
from ..launch.monitor import Monitor
from ..launch.processes import ProcessGroup
from ..launch.swarm import conclude, noting, supervise
from ..reports.console import plain_table, print_json, print_path
from ..run_folder import new_folders
from ..settings.exchange import OutSettings
from ..settings.options import Json, Source, config_of, options_of
from .story import NAMES, Story, way_of

__all__ = ["DemoConfig", "demo"]

_PEERS: Final = ("peer-0", "peer-1", "peer-2", "peer-3")
# Processes of all-reduce.
_RANKS: Final = ("rank-0", "rank-1", "rank-2", "rank-3")

_WHOLE_S: Final = 60.0

_PHASES: Final = {
    "all well": 0.0,
    "one killed": 15.0,
    "one slowed tenfold": 25.0,
    "one more joins rumor": 35.0,
}
"""Their beginnings in a demo of `_WHOLE_S`."""

_FAULTS: Final[tuple[tuple[float, dict[str, Any], tuple[str | None, ...]], ...]] = (
    (15.0, {"kind": "crash"}, ("peer-1", "rank-1")),
    # As torchrun does: all start again; the others have failed, or wait in vain.
    (16.0, {"kind": "crash"}, _RANKS),
    (16.0, {"kind": "restart", "state": "kept"}, ("peer-1", *_RANKS)),
    (25.0, {"kind": "slow", "factor": 10.0, "for_s": 35.0}, ("peer-2", "rank-2")),
    (35.0, {"kind": "join"}, (None,)),
    (_WHOLE_S, {"kind": "crash"}, _RANKS),
    (_WHOLE_S, {"kind": "leave"}, (*_PEERS, "join-1")),
)
"""Faults, and the end: when, what, and to whom."""

# Sentences about faults that did nothing, or that one about the process itself follows.
_SAID: Final = re.compile("nothing is done|is killed|is asked to leave")

_WHEN: Final = re.compile(r"^fault at \S+ s: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoConfig(OutSettings):
    """How long `rumor demo` takes, and where it writes."""

    seconds: float = setting(
        _WHOLE_S,
        "Training time; starting and ending all processes takes some more seconds.",
        brief="Training time.",
        low=1,
        high=3600,
        metavar="S",
    )


@options_of(Source(DemoConfig))
def demo(*, as_json: Json = False, **settings: Any) -> None:
    """Compare gossip and all-reduce under the same faults, in a minute.

    Four peers train a small language model on the source of Python's standard library. At the
    same time, four processes train the same model on the same batches with torch's
    DistributedDataParallel over gloo. On Linux, each way has one half of the processor's cores.
    After a quarter of the time one process of each way is killed, and restarts from its checkpoint
    a second later; all-reduce cannot continue without it, so all of its processes restart. Then one
    process of each way runs a tenth of the time (SIGSTOP, SIGCONT). At last, a fifth peer joins
    gossip; all-reduce would have to restart for another process, and gets none.

    Ctrl-C ends all; a second one kills them.

    Exit status: 1 if a peer of rumor failed, weight was lost, or the demo was stopped before its
    end. Nothing depends on who was faster.
    """
    config = config_of(DemoConfig, settings)
    folder = config.out or next(path for path in new_folders("demo") if not path.exists())
    summary = _run(folder, config.seconds)
    is_over = all(fault["done"] for fault in summary["faults"])
    if as_json:
        print_json(summary)
    elif is_over:
        _report(summary, Console())
    # At the end all peers are asked to leave, and none finishes.
    why = complaint(summary["swarm"] | {"unwritten": summary["unwritten"]})
    if not is_over or why != "stopped before the end":
        fail(why, FAILED)


class _Folder(RunFolder):
    """The folder of the peers, which also has places for the processes of all-reduce."""

    def __init__(self, job: Job, ranks: Path) -> None:
        super().__init__(job)
        self._ranks, self._count = ranks, job.config.peers

    def rank(self, index: int, start: int) -> Place:
        """Return the place of a process of all-reduce that is started this often."""
        folder = self._ranks / f"rank-{index}"
        folder.mkdir(parents=True, exist_ok=start > 1)
        told = (str(self._ranks), str(index), str(self._count), str(start))
        return Place(
            index=index,
            id=folder.name,
            folder=folder,
            command=(*PROGRAM[:3], "rumor.cli.demo.allreduce", *told),
            # Otherwise gloo looks for an interface by this machine's name.
            variables={"GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0"},
        )

    def next_life(self, place: Place, *, kept: bool) -> Place:
        """Return the place for the next start of a process."""
        if way_of(place.id) == "rumor":
            return super().next_life(place, kept=kept)
        return self.rank(place.index, int(place.command[-1]) + 1)


def _run(folder: Path, seconds: float) -> dict[str, Any]:
    from ...train.faults.schedule import Fault
    from ...train.storage.files import write_json
    from .allreduce import LR, TRAINING
    from .pictures import draw

    part = seconds / _WHOLE_S
    training = replace(TRAINING, lr=LR["rumor"])
    config = LaunchConfig(
        peers=len(_PEERS),
        topology="complete",
        rule="gosgd:p=0.5",
        log_every=1,
        out=folder / "rumor",
    )
    job = training_job(config, training)
    places = _Folder(job, folder / "all-reduce")
    group = ProcessGroup([*places.found(), *(places.rank(n, 1) for n in range(len(_RANKS)))])
    story = Story({name: part * begin_s for name, begin_s in _PHASES.items()}, seconds)
    monitor = Monitor(group.places, group.processes, None, on_row=story.take)
    whole = [Fault(at_s=at_s, peer=id, **fault) for at_s, fault, ids in _FAULTS for id in ids]
    faults = [
        replace(fault, at_s=part * fault.at_s, for_s=fault.for_s and part * fault.for_s)
        for fault in whole
    ]
    injector = FaultInjector(faults, group, monitor, places)
    started_s = time.monotonic()
    with _display(story, group, monitor) as display:
        supervise(group, monitor, display, injector)
    wall_s = time.monotonic() - started_s
    ours = [n for n, place in enumerate(group.places) if way_of(place.id) == "rumor"]
    peers = ProcessGroup(group.places[n] for n in ours)
    peers.processes = [group.processes[n] for n in ours]
    told = conclude(job, peers, [monitor.views[n] for n in ours], wall_s)
    unwritten = list[str](told["unwritten"])
    summary = {way: story.figures(way) for way in NAMES} | {
        "wall_s": wall_s,
        "cores": len(_halves()["rumor"]),
        "faults": injector.records,
        "swarm": told,
        "out": str(folder),
        "unwritten": unwritten,
    }
    with noting(unwritten, folder / "demo.png") as path:
        draw(story, "Gossip and all-reduce under the same faults (short dips: evaluations)", path)
    with noting(unwritten, folder / "summary.json") as path:
        write_json(path, summary)
    return summary


@contextmanager
def _display(story: Story, group: ProcessGroup, monitor: Monitor) -> Iterator[Display]:
    """Show the demo on stderr: drawn again and again on a terminal, else a line for each event."""
    from .pictures import screen_of

    console = Console(file=sys.stderr)
    told: list[str] = []
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def display(views: Sequence[Any], news: Sequence[str], elapsed_s: float) -> None:
            _pin(group)
            if story.began_unix_s is None and monitor.began:
                story.began_unix_s = time.time()
            now_s = 0.0 if story.began_unix_s is None else time.time() - story.began_unix_s
            lines = [
                f"{now_s:.1f} s {_WHEN.sub('', each)}"
                for each in news
                if now_s < story.seconds and not _SAID.search(each)
            ]
            told.extend(lines)
            if console.is_terminal:
                live.update(screen_of(story, told, now_s, console.width), refresh=True)
            else:
                for line in lines:
                    console.print(line, highlight=False, markup=False, soft_wrap=True)

        yield display


def _halves() -> dict[str, list[int]]:
    """Return the cores of each way; none where a process cannot be kept to some."""
    cores = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []
    half = len(cores) // 2
    return {"rumor": cores[:half], "all-reduce": cores[half : 2 * half]}


def _pin(group: ProcessGroup) -> None:
    """Keep each way to one half of the cores, so that neither gains by what hits the other."""
    halves = _halves()
    for place, process in zip(group.places, group.processes, strict=False):
        if halves["rumor"] and process.poll() is None:
            for thread in Path(f"/proc/{process.pid}/task").glob("*"):
                # It may have ended.
                with suppress(OSError):
                    os.sched_setaffinity(int(thread.name), halves[way_of(place.id)])


def _report(summary: dict[str, Any], console: Console) -> None:
    columns = [(what, way) for what in ("steps_per_s", "loss") for way in NAMES]
    titles = {"steps_per_s": "steps/s", "loss": "loss"}
    table = plain_table("", *(f">{titles[what]}\n{way}" for what, way in columns))
    for phase in _PHASES:
        found = [summary[way][what][phase] for what, way in columns]
        table.add_row(phase, *("-" if each is None else f"{each:.3g}" for each in found))
    pauses = (f"{summary[way]['pause_s']:.1f} s" for way in NAMES)
    table.add_row("longest pause of all", *pauses)
    console.print(table)
    console.print("\nSteps of all processes; loss on held-out text, of peer-0 and rank-0.")
    if summary["cores"]:
        console.print(f"Cores of each way: {summary['cores']}.", highlight=False)
    if is_exact(summary["swarm"]):
        console.print("All averaging weight of rumor is accounted for.")
    print_path("Picture", f"{summary['out']}/demo.png", console)
