"""A run of several peers on this machine, from its validation to its summary."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .crew import Crew
from .guard import Guard
from .places import PROGRAM, Places, listening
from .plan import LaunchConfig, check
from .supervise import supervise
from .table import display_on
from .watch import Watch

if TYPE_CHECKING:
    from ..train.tasks import Task
    from .chaos import Chaos
    from .outcome import Outcome
    from .proxy import Proxies
    from .resumption import Resumption

__all__ = ["complaint", "run_swarm", "with_faults", "worked"]


def with_faults(config: LaunchConfig, path: Path) -> LaunchConfig:
    """The same run, with what a file says done to it.

    Raises:
        ConfigError: The file cannot be read, makes no sense for this run, or names what cannot be
            done to real processes.
    """
    from .live_faults import need_network, read_live_faults

    faults = read_live_faults(path, config.ids(), journal=config.journal)
    exchange = config.exchange
    if need_network(faults):
        # What peers of one machine share in memory passes by every proxy.
        exchange = replace(exchange, no_shared_memory=True)
    return replace(config, faults=faults, exchange=exchange)


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
        OSError: A folder cannot be made, or a process not started.
    """
    task, out = check(config, resumes=resumption is not None)
    steps = config.steps or (None if config.total_steps else task.steps)
    title = f"{config.task} on {config.peers} peers, {config.topology}, in {out}"
    with _network_of(config, out, resumption) as network, _guard_of(config) as guard:
        proxy = None if network is None else network.socks_proxy
        places = Places(config, steps, out, program, proxy)
        found = places.found() if resumption is None else resumption.again(places, config)
        crew = Crew(found, guard)
        watch = Watch(crew.places, crew.processes, steps, config.total_steps)
        if resumption is not None:
            resumption.remind(watch)
        chaos = _chaos_of(config, crew, watch, places, network)
        started_s = time.monotonic()
        with display_on(sys.stderr, title) as display:
            sights = supervise(crew, watch, display, chaos)
        wall_s = time.monotonic() - started_s

    from .outcome import read_outcome

    outcomes = [
        read_outcome(place, sight) for place, sight in zip(crew.places, sights, strict=True)
    ]
    records = [] if chaos is None else chaos.records
    return _conclude(config, task, steps, out, wall_s, outcomes, records)


def worked(summary: dict[str, Any]) -> bool:
    """Whether a run counts as a success: somebody finished, the ledger balances, all is kept."""
    finished = any(peer["state"] == "finished" for peer in summary["peers_detail"])
    exact: bool = summary["weight_units_total"] == summary["weight_units_expected"]
    return finished and exact and not summary["unwritten"]


def complaint(summary: dict[str, Any]) -> str:
    """Why a run did not work, in one line."""
    said = [_complaint(summary)] if not worked(summary | {"unwritten": []}) else []
    if summary["unwritten"]:
        said.append(f"not written to {summary['out']}: {', '.join(summary['unwritten'])}")
    return "; ".join(said)


def _complaint(summary: dict[str, Any]) -> str:
    if summary["weight_units_total"] != summary["weight_units_expected"]:
        return "the ledgers do not balance: weight was lost or created, which is a bug"
    peers = summary["peers_detail"]
    if all(peer["state"] == "left" for peer in peers):
        return "stopped before the end"
    whys = [peer["why"] for peer in peers if peer["state"] == "failed" and peer["why"]]
    first = f": {whys[0]}" if whys else ""
    return f"no peer finished{first} (logs: {summary['out']}/peers/*/log.txt)"


@contextmanager
def _network_of(
    config: LaunchConfig, out: Path, resumption: "Resumption | None"
) -> "Iterator[Proxies | None]":
    """The proxies through which peers dial, where faults are to be done to the network."""
    from .live_faults import need_network

    again = resumption is not None and resumption.through_proxies
    if not (again or need_network(config.faults)):
        yield None
        return
    from .proxy import Proxies

    who_listens = partial(listening, out)
    with Proxies(seed=config.seed, who_listens=who_listens) as network:
        yield network


def _guard_of(config: LaunchConfig) -> AbstractContextManager[Guard | None]:
    """Who wakes the peers if this process is killed, where some are to be stopped."""
    stops = any(fault.kind in ("pause", "slow") for fault in config.faults)
    return Guard() if stops else nullcontext()


def _chaos_of(
    config: LaunchConfig, crew: Crew, watch: Watch, places: Places, network: "Proxies | None"
) -> "Chaos | None":
    if not config.faults:
        return None
    from .chaos import Chaos

    return Chaos(config.faults, crew, watch, places, network)


def _conclude(
    config: LaunchConfig,
    task: "Task",
    steps: int | None,
    out: Path,
    wall_s: float,
    outcomes: "Sequence[Outcome]",
    faults: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    from ..train.durable import write_json
    from .outcome import balance
    from .picture import draw
    from .summary import merge_outcomes, summarize

    merged = merge_outcomes(outcomes, task)
    unwritten: list[str] = []
    if merged is not None:
        with _noting(unwritten, out / "model.safetensors") as path:
            merged.save(path)
    balanced = balance(outcomes)
    summary = summarize(config, steps, out, wall_s, outcomes, balanced, merged, faults)
    summary["unwritten"] = unwritten
    with _noting(unwritten, out / "summary.json") as path:
        write_json(path, summary)
    with _noting(unwritten, out / "training.png") as path:
        draw(summary, [outcome.rows for outcome in outcomes], path)
    return summary


@contextmanager
def _noting(unwritten: list[str], path: Path) -> Iterator[Path]:
    """Let a file that cannot be written cost only itself: the figures are worth showing even so."""
    try:
        yield path
    except OSError as error:
        unwritten.append(f"{path.name} ({error.strerror or error})")
