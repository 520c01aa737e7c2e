"""``rumor launch``: several peers on this machine, watched to their end."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from ...gossip.transport.addresses import require_files
from ..errors import FAILED, fail, understanding
from ..reports.console import print_json
from ..settings.exchange import ExchangeConfig
from ..settings.options import EXCHANGE, FAULTS, GOSSIP, Json, Source, config_of, given, options_of
from .config import LaunchConfig, check
from .display import display_on, failures, script_errors
from .folder import PROGRAM
from .monitor import OnRow
from .processes import fork_server as forking
from .supervisor import supervise
from .swarm import Swarm

if TYPE_CHECKING:
    from ...train.tasks.registry import Task
    from .resume import Resumption
    from .summary import Outcome

__all__ = [
    "LaunchFiles",
    "RunLog",
    "complaint",
    "conclude",
    "is_exact",
    "launch",
    "logging_to",
    "noting",
    "run_swarm",
    "with_faults",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFiles:
    """What a launch reads."""

    faults: Path | None = None
    """What is done to peers and network, and when: a JSON list such as [{"at_s": 3, "kind":
    "crash", "peer": 2}, {"at_s": 8, "kind": "restart", "peer": 2}]. Times count from when all peers
    train. docs/reference/faults.md names the kinds; none unless given."""

    resume: Path | None = None
    """Go on with the run in that folder: all its peers from their last checkpoints, as they were,
    or with another ``steps``, ``total_steps`` or ``lr``, say. None may still run; a new run unless
    given."""

    trust: bool = False
    """With ``resume``: run the task, rule or partition of somebody's own (MODULE:NAME) that the
    folder names, even if the folder is another user's, or brings that code along."""


@options_of(
    Source(LaunchFiles, FAULTS, metavars={"faults": "FILE"}),
    Source("cli.launch.config:LaunchConfig", GOSSIP),
    Source("train.config:RunConfig", GOSSIP, adds=False),
    Source("train.config:PeerConfig", GOSSIP, adds=False),
    Source("cli.settings.exchange:RuleConfig", GOSSIP, adds=False),
    Source("cli.settings.exchange:ExchangeConfig", EXCHANGE),
)
def launch(ctx: typer.Context, *, as_json: Json = False, **settings: Any) -> None:
    """Train one model with several local processes, each a peer of its own.

    The launcher only starts and watches them: they find one another and run without it. If it
    sees one die, it tells the others, which would notice half a minute later. Ctrl-C makes them
    leave; a second one kills them. If the launcher itself is killed (SIGKILL), the peers go on to
    the end, including those that a fault has paused.

    With --faults, things go wrong as a file says: peers are killed, paused, slowed and started
    again, newcomers join. If the network is to fail, each peer does that to the messages it
    receives, and exchanges nothing through shared memory.

    Exit status: 0 if at least one peer finished, none failed, and every unit of weight is accounted
    for (peers that were killed are named); 1 if not; 2 for wrong arguments.
    """
    exchange = config_of(ExchangeConfig, settings)
    config = config_of(LaunchConfig, settings | {"exchange": exchange, "faults": ()})
    resumption = None
    if settings["resume"] is not None:
        from .resume import read_run

        typed = {name: settings[name] for name in given(ctx) & {*settings} - {"resume", "trust"}}
        with understanding(settings["resume"]):
            resumption = read_run(settings["resume"], typed, trust=settings["trust"])
        config = resumption.config
    if settings["faults"] is not None:
        config = with_faults(config, settings["faults"])
    summary = run_swarm(config, resumption=resumption)
    if as_json:
        print_json(summary)
    else:
        from .display import report

        report(summary, Console())
    if why := complaint(summary):
        fail(why, FAILED)


def with_faults(config: LaunchConfig, path: Path) -> LaunchConfig:
    """The same run, with what a file says done to it.

    Raises:
        ConfigError: The file cannot be read, makes no sense for this run, or names what cannot be
            done to real processes.
    """
    from .faults import read_live_faults

    faults = read_live_faults(path, config.ids(), journal=config.journal)
    config = replace(config, faults=faults)
    if config.network_fails:
        # What peers of one machine share in memory is no message that could be lost.
        config = replace(config, exchange=replace(config.exchange, no_shared_memory=True))
    return config


def run_swarm(
    config: LaunchConfig,
    program: Sequence[str] = PROGRAM,
    resumption: "Resumption | None" = None,
) -> dict[str, Any]:
    """Run a swarm from its validation to its summary.

    Args:
        config: What to run.
        program: What starts a peer; its options are appended.
        resumption: The run that it goes on with; None for a new one.

    Returns:
        The summary, which also lies in the run's folder, but for what its ``unwritten`` names.

    Raises:
        ConfigError: It cannot start; nothing was written.
        TrainingError: A peer left files that cannot be read.
        OSError: A process cannot be started.
    """
    require_files()
    # A server imports torch while this process does so, too.
    forks = program == PROGRAM
    with ExitStack() as stack:
        server = stack.enter_context(forking.fork_server()) if forks else None
        with understanding(config.out) if resumption else nullcontext():
            task, out = check(config, resumes=resumption is not None)
        steps = config.steps or (None if config.total_steps else task.steps)
        described = config.described(steps)
        title = f"{config.task} on {config.peers} peers, {config.topology}, in {out}"
        log = stack.enter_context(logging_to(config.loggers, out, described))
        founded = Swarm.founded(config, steps, out, program, resumption, server, log.row)
        swarm = stack.enter_context(founded)
        started_s = time.monotonic()
        with display_on(sys.stderr, title) as display:
            supervise(swarm.group, swarm.monitor, display, swarm.injector)
        wall_s = time.monotonic() - started_s
        log.summary = conclude(described, task, out, wall_s, swarm.outcomes(), swarm.faults)
    return log.summary


@dataclass(slots=True)
class RunLog:
    """What a launcher's loggers are fed with."""

    row: OnRow
    summary: dict[str, Any] = field(default_factory=dict)
    """What the run came to."""


@contextmanager
def logging_to(loggers: Sequence[str], out: Path, described: Mapping[str, Any]) -> Iterator[RunLog]:
    """Give what feeds a run's loggers, which are closed at the end.

    Args:
        loggers: Their specs.
        out: The run's folder, whose name is the run's.
        described: Settings.

    Raises:
        ConfigError: A logger cannot be made.
    """
    from ...train.loggers import LoggedRun, LogWriter, make_loggers

    writer = LogWriter(make_loggers(loggers))
    writer.open(LoggedRun(name=out.name, folder=out, config=described))
    log = RunLog(writer.log)
    try:
        yield log
    finally:
        writer.close(log.summary)


def is_exact(summary: Mapping[str, Any]) -> bool:
    """Whether every unit of weight that a run was founded with is accounted for."""
    return bool(summary["weight_units_total"] == summary["weight_units_expected"])


def complaint(summary: dict[str, Any]) -> str:
    """Why a run did not work, in one line; empty where somebody finished, and all else is well."""
    out, peers = summary["out"], summary["peers_detail"]
    said = [*failures(summary), *script_errors(summary)]
    if summary.get("unreached"):
        whose = ", ".join(summary["unreached"])
        said.append(f"the ledgers of {whose} are out of reach, so that no weight can be counted")
    elif not is_exact(summary):
        said.append("the ledgers do not balance: weight was lost or created, which is a bug")
    elif all(peer["state"] == "left" for peer in peers):
        said.append("stopped before the end")
    elif not any(peer["state"] == "finished" for peer in peers):
        said.append(f"no peer finished (logs: {out}/peers/*/log.txt)")
    if len(swarms := summary.get("swarms", ())) > 1:
        named = "; ".join(", ".join(swarm) for swarm in swarms)
        folders = " ".join(f"{out}/peers/{id}" for id in swarms[0])
        said.append(
            f"these peers trained in {len(swarms)} swarms, whose models cannot be averaged: "
            f"{named}. Merge each swarm by itself, as in `rumor merge {folders} -o one.safetensors`"
        )
    if summary["unwritten"]:
        said.append(f"not written to {out}: {', '.join(summary['unwritten'])}")
    return "; ".join(said)


def conclude(
    described: Mapping[str, Any],
    task: "Task | None",
    out: Path,
    wall_s: float,
    outcomes: "Sequence[Outcome]",
    faults: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Merge, sum up and draw a run that is over, and write it all into its folder.

    Args:
        described: What was asked for, as a summary repeats it.
        task: What was trained; None where only a script knows.
        out: The run's folder.
        wall_s: How long it took, seconds.
        outcomes: Of all peers.
        faults: What was done to them.

    Returns:
        The summary; its ``unwritten`` names files that could not be written.
    """
    from ...sim.results.live_plots import draw
    from ...train.storage.files import write_json
    from .summary import estimate, merge_outcomes, summarize

    merged = merge_outcomes(outcomes, task)
    unwritten: list[str] = []
    if merged is not None:
        with noting(unwritten, out / "model.safetensors") as path:
            merged.save(path)
    summary = summarize(described, out, wall_s, outcomes, merged, faults)
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
