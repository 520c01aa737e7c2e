"""``rumor demo``: a swarm under stress next to one machine and all-reduce, in the same minute."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from ...gossip.specs.parameter import check_settings, setting
from ..errors import FAILED, fail
from ..launch.checks import training_job
from ..launch.config import Job, LaunchConfig
from ..launch.display import complaint, display_on, failures, is_exact
from ..launch.supervisor import LOOK_S, supervise
from ..launch.swarm import Swarm, noting
from ..reports.console import print_json
from ..run_folder import new_folders
from ..settings.exchange import OutSettings
from ..settings.options import OUTPUT, Json, Source, config_of, options_of

if TYPE_CHECKING:
    from ...sim.results.live_plots import Contestant, LifeLine
    from ...train.faults.schedule import Fault
    from ..launch.summary import Outcome

__all__ = ["DemoConfig", "demo"]

TARGET: Final = 0.88

STEP_S: Final = 0.012
"""Duration of a step of a fast peer, most of it asleep, as on a GPU for instance."""

SLOWNESS: Final = 5
"""Factor on the step of the slow peer."""

SECONDS: Final = 32.0
"""Duration of training."""

_JOIN_AT, _KILL_AT, _RESTART_AT = 0.15, 0.25, 0.35
"""Times of these events, as parts of `SECONDS`."""

EVAL_EVERY: Final = 50
"""Steps of a fast peer between two evaluations."""

_MEAN_OF: Final = 3
"""Evaluations in a row whose mean must reach the target: a single lucky one does not count."""

# The learning rate at which each is fastest: docs/explanation/experiments.md has the table.
_LR: Final = {"rumor": 0.15, "one": 0.05, "allreduce": 0.2}


_NAMES: Final = {
    "rumor": "rumor, 4 peers",
    "one": "one machine",
    "allreduce": "all-reduce, 4 peers",
}
"""The ways to train."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoConfig(OutSettings):
    """What `rumor demo` shows, and for how long."""

    seconds: float = setting(
        SECONDS,
        "Training time; starting all processes takes some more seconds.",
        brief="Training time.",
        low=1,
        high=3600,
        metavar="S",
    )

    def __post_init__(self) -> None:
        check_settings(self)


@options_of(Source(DemoConfig, OUTPUT))
def demo(*, as_json: Json = False, **settings: Any) -> None:
    """Show in a minute how a swarm takes slow, dying and late machines.

    Four peers train on handwritten digits, half of whose labels are wrong: gradients are mostly
    noise, and averaging pays. One peer is five times slower than the others; another is killed and
    comes back from its checkpoint; a fifth one joins late. At the same time, on the same machine,
    one peer trains alone, and four peers, one of them equally slow, train with all-reduce, without
    the kill. Each of the three uses the constant learning rate that is best for it. For the swarm,
    the average of all models is measured; the target is reached when the mean of three evaluations
    in a row reaches it.

    Ctrl-C makes all leave; a second one kills them.

    Exit status: as for `rumor launch`, of all three. Nothing depends on who was faster.
    """
    config = config_of(DemoConfig, settings)
    folder = config.out or next(path for path in new_folders("demo") if not path.exists())
    summary = _run(folder, config.seconds)
    if as_json:
        print_json(summary)
    else:
        _report(summary, Console())
    whys = [complaint(swarm) for swarm in summary["swarms"].values()]
    if summary["unwritten"]:
        whys.append(f"not written to {folder}: {', '.join(summary['unwritten'])}")
    if why := "; ".join(filter(None, whys)):
        fail(why, FAILED)


def _jobs(folder: Path, seconds: float) -> dict[str, Job]:
    from ...train.config import RunConfig

    steps = round(seconds / STEP_S)
    slow_steps = round(steps / SLOWNESS)
    # The kill costs some steps, the newcomer adds more.
    in_all = round(steps * (3 + 1 / SLOWNESS + 0.6))
    config = LaunchConfig(topology="complete", slow=(f"3:{SLOWNESS}",))
    training = RunConfig(
        task="noisy-digits", step_s_min=STEP_S, eval_every=EVAL_EVERY, checkpoint_every="2s"
    )
    swarm = training_job(
        replace(
            config,
            rule=f"gosgd:p={0.8 / STEP_S:.0f},emission=per-second",
            out=folder / "rumor",
        ),
        replace(training, lr=_LR["rumor"], total_steps=in_all, eval_average_every=EVAL_EVERY),
    )
    return {
        "rumor": replace(swarm, faults=_faults(seconds)),
        "one": training_job(
            replace(config, peers=1, slow=(), out=folder / "one-machine"),
            replace(training, lr=_LR["one"], steps=steps),
        ),
        "allreduce": training_job(
            replace(config, rule="allreduce", out=folder / "allreduce"),
            replace(
                training,
                lr=_LR["allreduce"],
                steps=slow_steps,
                eval_every=EVAL_EVERY // SLOWNESS,
            ),
        ),
    }


def _faults(seconds: float) -> "tuple[Fault, ...]":
    from ...train.faults.schedule import Fault

    return (
        Fault(at_s=_JOIN_AT * seconds, kind="join"),
        Fault(at_s=_KILL_AT * seconds, kind="crash", peer="peer-1"),
        Fault(at_s=_RESTART_AT * seconds, kind="restart", peer="peer-1", state="kept"),
    )


def _run(folder: Path, seconds: float) -> dict[str, Any]:
    """Train all three, and write the results."""
    from ...train.storage.files import write_json

    swarms = {key: Swarm.founded(job) for key, job in _jobs(folder, seconds).items()}
    main, *others = swarms.values()
    started_s = time.monotonic()
    title = f"noisy-digits, one peer {SLOWNESS} times slower, in {folder}"
    with display_on(sys.stderr, title) as display:
        try:
            for swarm in others:
                swarm.group.start()
            supervise(main.group, main.monitor, display, main.injector)
            if any(view.state == "left" for view in main.monitor.views):
                for swarm in others:
                    swarm.group.leave_all()
            while not all(swarm.monitor.over for swarm in others):
                for swarm in others:
                    swarm.monitor.update()
                display(main.monitor.views, [], time.monotonic() - started_s)
                time.sleep(LOOK_S)
        finally:
            for swarm in others:
                swarm.group.kill_all()
                swarm.group.wait()
    wall_s = time.monotonic() - started_s
    outcomes = {key: swarm.outcomes() for key, swarm in swarms.items()}
    contestants = {key: _contestant(_NAMES[key], outcomes[key]) for key in swarms}
    summary: dict[str, Any] = {
        "target": TARGET,
        "wall_s": wall_s,
        "reached_s": {key: each.reached_s for key, each in contestants.items()},
        "swarms": {key: swarm.concluded(wall_s) for key, swarm in swarms.items()},
        "out": str(folder),
    }
    summary["unwritten"] = unwritten = list[str]()
    with noting(unwritten, folder / "demo.png") as path:
        _draw(contestants, outcomes["rumor"], summary, path)
    with noting(unwritten, folder / "summary.json") as path:
        write_json(path, summary)
    return summary


def _contestant(name: str, outcomes: "Sequence[Outcome]") -> "Contestant":
    from ...sim.results.live_plots import Contestant

    began_s = _began_s(outcomes)
    # One peer of a swarm measures the average of all, and another one if it dies. With all-reduce,
    # or on one machine, each model is the average.
    rows = _measured(outcomes, "average_") or _measured(outcomes[:1], "")
    times_s = [unix_s - began_s for unix_s, _, _ in rows]
    accuracies = [accuracy for _, _, accuracy in rows]
    return Contestant(
        name=name,
        times_s=times_s,
        losses=[loss for _, loss, _ in rows],
        accuracies=accuracies,
        reached_s=_reached_s(times_s, accuracies, TARGET),
    )


def _measured(outcomes: "Sequence[Outcome]", prefix: str) -> list[tuple[float, float, float]]:
    """Return when models were measured, by the calendar, and their losses and accuracies."""
    names = ("unix_s", f"{prefix}test_loss", f"{prefix}accuracy")
    rows = (row for outcome in outcomes for row in outcome.rows if row.get(names[-1]) is not None)
    return sorted((row[names[0]], row[names[1]], row[names[2]]) for row in rows)


def _began_s(outcomes: "Sequence[Outcome]") -> float:
    """Return when the first peer began to train, by the calendar."""
    firsts = [each.rows[0] for each in outcomes if each.rows]
    return min((row["unix_s"] - row["time_s"] for row in firsts), default=0.0)


def _reached_s(
    times_s: Sequence[float], accuracies: Sequence[float], target: float
) -> float | None:
    """Return when the mean of several evaluations in a row first reached the target.

    >>> _reached_s([1.0, 2.0, 3.0, 4.0], [0.5, 0.9, 0.8, 0.9], 0.8)
    4.0
    """
    for end in range(_MEAN_OF, len(accuracies) + 1):
        if sum(accuracies[end - _MEAN_OF : end]) / _MEAN_OF >= target:
            return times_s[end - 1]
    return None


def _draw(
    contestants: "Mapping[str, Contestant]",
    outcomes: "Sequence[Outcome]",
    summary: dict[str, Any],
    path: Path,
) -> None:
    from ...sim.results.live_plots import draw_race

    swarm = summary["swarms"]["rumor"]
    note = (
        f"rumor: the average of all peers' models. Diamonds: the mean of {_MEAN_OF} evaluations in "
        f"a row is first at {summary['target']:g}.\nWeight is {_verdict(swarm)}: "
        f"{swarm['weight_units_total']:,} units are there, "
        f"{swarm['weight_units_expected']:,} should be."
    )
    title = f"Four peers, one {SLOWNESS} times slower, one killed; a fifth one joins late"
    lines = _life_lines(outcomes, swarm["faults"])
    draw_race(list(contestants.values()), lines, summary["target"], title, note, path)


def _life_lines(
    outcomes: "Sequence[Outcome]", faults: Sequence[Mapping[str, Any]]
) -> "list[LifeLine]":
    from ...sim.results.live_plots import Event, LifeLine

    began_s = _began_s(outcomes)
    lines = []
    for number, outcome in enumerate(outcomes):
        id = outcome.id
        times_s = [row["unix_s"] - began_s for row in outcome.rows]
        done = [
            (fault["kind"], each["unix_s"] - began_s)
            for fault in faults
            for each in fault["done"]
            if fault.get("peer") == id
        ]
        events = [Event(at_s, "killed") for kind, at_s in done if kind == "crash"]
        again = [at_s for kind, at_s in done if kind == "restart"]
        spans = _spans(times_s, [at_s for kind, at_s in done if kind == "crash"], again)
        events += [Event(begin_s, "back from its checkpoint") for begin_s, _ in spans[1:]]
        if id.startswith("join-"):
            events.append(Event(times_s[0] if times_s else 0.0, "joins"))
        name = f"{id} ({SLOWNESS} times slower)" if number == 3 else id
        lines.append(LifeLine(name=name, spans_s=spans, events=events))
    return lines


def _spans(
    times_s: Sequence[float], killed_s: Sequence[float], again_s: Sequence[float]
) -> list[tuple[float, float]]:
    """Return the incarnations of a peer, from its rows and from when it was killed."""
    if not times_s:
        return []
    cuts = sorted([*killed_s, *again_s])
    bounds = [times_s[0], *cuts, times_s[-1]]
    spans = []
    for begin_s, end_s in pairwise(bounds):
        within = [time_s for time_s in times_s if begin_s <= time_s <= end_s]
        if within and begin_s not in killed_s:
            spans.append((within[0], end_s))
    return spans


def _report(summary: dict[str, Any], console: Console) -> None:
    """Print three sentences, and where the files are."""
    swarm, reached = summary["swarms"]["rumor"], summary["reached_s"]
    target, out = summary["target"], summary["out"]
    ours = reached["rumor"]
    goal = f"an accuracy of {target:g}"
    came = f"reached {goal} after {ours:.1f} s" if ours else f"did not reach {goal}"
    console.print()
    sentences = [
        *(f"{why}." for each in summary["swarms"].values() for why in failures(each)),
        f"Four peers, of which one was {SLOWNESS} times slower, one was killed and came back, "
        f"and a fifth one came late, {came}; weight is {_verdict(swarm)} to the "
        f"unit ({swarm['weight_units_total']}).",
        _compared("One machine alone", reached["one"], ours),
        _compared(
            "All-reduce, with the slow peer but without the kill,", reached["allreduce"], ours
        ),
    ]
    for sentence in sentences:
        console.print(sentence, highlight=False, markup=False)
    if not any(each.startswith("demo.png") for each in summary["unwritten"]):
        console.print(f"Picture: {out}/demo.png", highlight=False, markup=False, soft_wrap=True)


def _verdict(swarm: Mapping[str, Any]) -> str:
    return "exact" if is_exact(swarm) else "NOT EXACT"


def _compared(who: str, theirs: float | None, ours: float | None) -> str:
    """Say how much longer another way took, or that it did not.

    >>> _compared("One machine", 20.0, 10.0)
    'One machine took 20.0 s: 2.0 times as long.'
    >>> _compared("One machine", 8.0, 10.0)
    'One machine was faster: it took 8.0 s.'
    """
    if theirs is None:
        return f"{who} did not get there within this run."
    if ours is None or theirs <= ours:
        return f"{who} was faster: it took {theirs:.1f} s."
    return f"{who} took {theirs:.1f} s: {theirs / ours:.1f} times as long."
