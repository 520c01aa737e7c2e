"""``rumor advise``: which rule, topology and wire suit some machines, by a study of them."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from ...gossip.errors import ConfigError
from ...gossip.specs.parameter import setting
from ...sim.config import SimulationConfig
from ..errors import FAILED, STOPPED, fail, not_written, sigterm_as_interrupt, understanding
from ..live.calibrate import CalibrateConfig, measure
from ..reports.console import counted, print_json, print_path
from ..run_folder import new_folders
from ..settings.options import Json, Panel, Source, config_of, given, options_of
from .study import StudyConfig, compute, outline, print_comparison

if TYPE_CHECKING:
    from ...sim.calibration import Calibration
    from ...sim.study.advise import Advice, Candidate
    from ...sim.study.execution.plan import StudyPlan
    from ...sim.study.results import Results

__all__ = ["AdviseConfig", "advise", "read_hosts"]

PICTURE = "advice.png"

_GROUP = re.compile(
    r"(?:(?P<count>[1-9]\d{0,3}) *[x×] +)?(?P<name>[A-Za-z][\w.-]*)"
    r"(?:\*(?P<factor>\d+(?:\.\d+)?|\.\d+))?"
    r"(?: *@ *(?P<rate>\d+(?:\.\d+)?|\.\d+) ?(?P<scale>[kKmMgG])bit)?",
    re.ASCII,
)
_MBIT = {"k": 1e-3, "m": 1.0, "g": 1e3}


@dataclass(frozen=True, kw_only=True)
class AdviseConfig:
    """The machines, and how candidates are compared."""

    hosts: str | None = setting(
        None,
        "The machines in words, instead of a measurement: 8x a100@10Gbit, 4x rtx*3@100Mbit is "
        "eight machines with uplinks of 10 Gbit/s and four with 100 Mbit/s whose steps take 3 "
        "times as long. ``step_s`` is the time of a step on the others, and ``network`` the "
        "latency and loss of their links.",
        brief="As in 8x a100@10Gbit, 4x rtx*3@100Mbit.",
        otherwise="none",
        metavar="TEXT",
    )

    seeds: int = setting(
        3,
        "Runs of each candidate; with more of them, smaller differences are significant.",
        brief="Runs of each candidate.",
        low=1,
        metavar="N",
    )

    target: float | None = setting(
        None,
        "The loss to reach, of the median peer's own model on held-out data.",
        brief="The loss to reach.",
        otherwise="95 % of the way to the best",
        metavar="LOSS",
    )


@options_of(
    Source(AdviseConfig),
    Source(CalibrateConfig),
    Source(StudyConfig, only=("out", "resume", "jobs")),
    Source(
        SimulationConfig,
        without=("seed", "workers", "threads", "memory_gib"),
        unset=dict.fromkeys(("rule", "topology", "wire"), "compared"),
    ),
    everyday={
        Panel.MACHINES: ("hosts", "join", "network", "step_s"),
        Panel.TRAINING: ("task", "stands_for", "steps", "lr", "partition", "target"),
        "Compared by default": ("rule", "topology", "wire"),
        Panel.OUTPUT: ("seeds", "jobs", "out", "resume"),
    },
    file=False,
)
def advise(
    ctx: typer.Context,
    measured: Annotated[
        Path | None,
        typer.Argument(
            metavar="MEASURED",
            help="Folder of a run of real peers, or file of `rumor calibrate`.",
            show_default=False,
        ),
    ] = None,
    *,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Find the rule, topology and wire that suit your machines.

    It simulates rules with their parameters on your machines, then other topologies with the best
    rule, then other wires, each with several seeds, and ranks them by the time until the median
    peer's own model has reached a loss. It is a study: each finished run is kept. If a machine is
    much slower than the others, all-reduce also runs without it.

    Machines come from a short run, from a file of `rumor calibrate`, or from running peers:

    `rumor advise runs/digits`

    `rumor advise --join node-a:7700 --task mytask:cnn`

    or from a description, here for a model of 30.8 million parameters whose step takes 0.2 s:

    `rumor advise --hosts "8x a100@10Gbit, 4x rtx*3@100Mbit" --stands-for 30.8e6 --step-s 0.2`

    This describes eight machines with uplinks of 10 Gbit/s, and four with 100 Mbit/s whose steps
    take 3 times as long. The number, *FACTOR and @RATE are optional.

    Settings that you name are not compared: with --rule gosgd:p=0.5, only topologies and wires
    are; with --rule gosgd, also its parameters.

    Exit status: 0; 1 if no candidate reaches the loss, or a file could not be written; 2 for wrong
    arguments; 130 if it was stopped, which keeps what was finished.
    """
    # Here, since torch takes a second to import.
    from ...sim.study.advise import advise as advise_on
    from ...sim.study.execution.store import check_folder

    own, study = config_of(AdviseConfig, settings), config_of(StudyConfig, settings)
    names = {entry.name for entry in fields(SimulationConfig)}
    typed = {name: settings[name] for name in given(ctx) & names}
    if own.hosts is None:
        fleet = _measured(measured, config_of(CalibrateConfig, settings))
    elif measured is None and not settings["join"]:
        typed.pop("network", None)
        step_s = typed.pop("step_s", settings["step_s"])
        fleet = read_hosts(own.hosts, step_s=step_s, network=settings["network"])
    else:
        raise ConfigError("give --hosts, or machines to measure, not both")
    for note in fleet.notes:
        print(f"note: {note}", file=sys.stderr)
    task = str(typed.get("task", fleet.settings.get("task", "digits")))
    folder = study.out or next(each for each in new_folders(task, "advise-") if not each.exists())
    check_folder(folder, resume=study.resume)
    study = replace(study, resume=True, report=False)

    def run(plan: "StudyPlan", factor: str) -> "Results":
        print(f"{factor}: {outline(plan)}", file=sys.stderr, flush=True)
        return compute(plan, folder, study)

    try:
        with sigterm_as_interrupt():
            asked: Any = {"seeds": own.seeds, "target": own.target, "jobs": study.jobs}
            found = advise_on(fleet, folder, given=typed, compute=run, **asked)
    except KeyboardInterrupt:
        fail(f"stopped; continue with --out {folder} --resume", STOPPED)
    unwritten = _write(found, folder)
    start = "" if found.best is None else _start(fleet, found.best, typed)
    if as_json:
        order = [row.label for row in found.comparison.rows]
        told = {"target": found.results.study.target, "order": order, "words": found.words}
        print_json(told | {"start": start, "out": str(folder)})
    else:
        _print(fleet, task, found, start, folder)
    if unwritten:
        fail(unwritten, FAILED)
    if found.best is None:
        loss = f"{found.results.study.target:.4g}"
        fail(
            f"no candidate reached a loss of {loss} with every seed: raise --target or --steps",
            FAILED,
        )


def _measured(measured: Path | None, links: CalibrateConfig) -> "Calibration":
    from ...sim.calibration import read_calibration

    if measured is None and not links.join:
        raise ConfigError("say which machines: MEASURED, --join or --hosts")
    if measured is not None and not measured.is_dir() and not links.join:
        return read_calibration(measured)
    with understanding(measured or ", ".join(links.join)):
        return measure(measured, links)[0]


def read_hosts(text: str, *, step_s: float, network: str = "lan") -> "Calibration":
    """Read a description of machines.

    Args:
        text: Groups as in ``8x a100@10Gbit, 4x rtx*3@100Mbit``: a number (default: 1), a name, how
            many times as long a step takes (default: 1), and what an uplink carries (default: as
            *network* says).
        step_s: Duration of a step where no factor is given, seconds.
        network: As `rumor.sim.models.network.read_network` takes it.
    """
    from ...sim.calibration import Calibration, PeerPace
    from ...sim.models.network import Host, read_network

    peers: list[PeerPace] = []
    hosts: list[Host] = []
    for group in text.split(","):
        match = _GROUP.fullmatch(group.strip())
        if match is None:
            raise ConfigError(
                f"--hosts has {group.strip()!r}: each group must be as in 4x rtx*3@100Mbit"
            )
        rate, scale = match["rate"], match["scale"]
        mbit = float(rate) * _MBIT[scale.lower()] if rate else None
        for number in range(int(match["count"] or 1)):
            if mbit is not None:
                hosts.append(Host(workers=(str(len(peers)),), bandwidth_mbit=mbit))
            pace_s = step_s * float(match["factor"] or 1)
            peers.append(PeerPace(id=f"{match['name']}-{number}", step_s=pace_s))
    found = replace(read_network(network), hosts=tuple(hosts))
    return Calibration(source=text, peers=tuple(peers), network=found)


def _start(fleet: "Calibration", best: "Candidate", typed: Mapping[str, Any]) -> str:
    """Return the line that starts the recommended swarm."""
    from ...sim.models.network import NetworkConfig
    from ...sim.study.advise import slow_peers

    if fleet.network != NetworkConfig():
        return f"rumor run --hosts hosts.txt {best.options} -- python train.py"
    n = len(fleet.peers) - best.is_without_slow * len(slow_peers(fleet))
    if (task := typed.get("task", fleet.settings.get("task"))) is None:
        return f"rumor run -n {n} {best.options} -- python train.py"
    own = [f" --{name} {typed[name]}" for name in ("lr", "partition") if name in typed]
    return f"rumor launch -n {n} --task {task}{''.join(own)} {best.options}"


def _write(found: "Advice", folder: Path) -> str:
    """Write the page, the tables and the picture; return why not, or an empty string."""
    from ...sim.study import write_tables
    from ...sim.study.report import charts, write_report
    from ...train.storage.files import drafted

    try:
        write_tables(found.results, folder)
        write_report(found.results, folder)
        with drafted(folder / PICTURE) as draft:
            draft.write_bytes(charts.png(charts.ranking([found.comparison])))
    except OSError as error:
        return not_written(folder, error)
    return ""


def _print(fleet: "Calibration", task: str, found: "Advice", start: str, folder: Path) -> None:
    from ...sim.study.advise import slow_peers

    console, target = Console(), found.results.study.target
    title = f"{task} on {counted(len(fleet.peers), 'peer')}, until a loss of {target:.4g}"
    console.print(Text(title, style="bold"))
    print_comparison(found.comparison, console, found.whys)
    console.print()
    for sentence in found.words:
        console.print(Text(sentence), soft_wrap=True)
    slow = ", ".join(fleet.peers[index].id for index in slow_peers(fleet))
    if any(each.is_without_slow for each in found.candidates.values()):
        console.print(Text(f"Fast peers are all except {slow}."), soft_wrap=True)
    for trial, why in found.results.failures.items():
        if trial.rpartition(", seed ")[0] not in found.whys:
            console.print(Text(f"{trial} failed: {why}", style="red"), soft_wrap=True)
    for what, path in (("Picture", folder / PICTURE), ("Report", folder / "report.html")):
        print_path(what, path, console)
    if found.best is not None:
        without = f", without {slow}" * found.best.is_without_slow
        print_path(f"Start the first{without}", start, console)
