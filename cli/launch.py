"""``rumor launch``: several peers on this machine, watched to their end."""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from .edge import FAILED, edge, fail
from .exchange import ExchangeConfig
from .exchange_options import (
    Bandwidth,
    Exact,
    MixBudget,
    Mixing,
    NoSharedMemory,
    Prefetch,
    ShardOrderName,
    Shards,
    ShardsPerPush,
    WireName,
)
from .options import (
    GOSSIP,
    OUTPUT,
    BatchSize,
    Debug,
    Device,
    EmissionName,
    EvalEvery,
    Journal,
    Json,
    LearningRate,
    LeaveSeconds,
    LogEvery,
    P,
    Partition,
    RuleName,
    Seed,
    Steps,
    TaskName,
    TopologySpec,
)
from .plan import PROGRAM, LaunchConfig, check, make_folders
from .supervise import supervise
from .table import display_on

if TYPE_CHECKING:
    from ..train.tasks import Task
    from .outcome import Outcome

__all__ = ["launch", "run_swarm", "worked"]


def launch(
    peers: Annotated[
        int, typer.Option("--peers", "-n", help="How many processes.", rich_help_panel=GOSSIP)
    ] = 4,
    task: TaskName = "digits",
    steps: Steps = None,
    lr: LearningRate = None,
    batch_size: BatchSize = None,
    partition: Partition = "shared",
    seed: Seed = 0,
    device: Device = "auto",
    topology: TopologySpec = "exponential",
    rule: RuleName = "gosgd",
    p: P = None,
    emission: EmissionName = "per-step",
    wire: WireName = "float32",
    shards: Shards = 1,
    shards_per_push: ShardsPerPush = 1,
    shard_order: ShardOrderName = "round-robin",
    exact: Exact = False,
    bandwidth: Bandwidth = None,
    mixing: Mixing = "step",
    mix_budget_ms: MixBudget = 2.0,
    no_shared_memory: NoSharedMemory = False,
    step_s_min: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="Steps sleep to at least S seconds.",
            show_default="0, with --slow 0.02",
            rich_help_panel=GOSSIP,
        ),
    ] = None,
    slow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PEER:FACTOR",
            help="That peer's steps take at least FACTOR times --step-s-min, asleep: "
            "3:10 slows peer 3 tenfold. May be given several times.",
            rich_help_panel=GOSSIP,
        ),
    ] = None,
    prefetch: Prefetch = None,
    linger_s: Annotated[
        float,
        typer.Option(
            metavar="S",
            help="How long a peer that has taken all its steps waits for slower ones.",
            rich_help_panel=GOSSIP,
        ),
    ] = 3600.0,
    leave_s: LeaveSeconds = 10.0,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The run's folder.",
            show_default="runs/TASK-TIME",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    log_every: LogEvery = 10,
    eval_every: EvalEvery = 50,
    journal: Journal = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Train one model with several local processes, each a peer of its own.

    The launcher only starts and watches them: they find one another and go on without it, and
    killing one is to the others a machine that died. Ctrl-C makes them leave; a second one kills
    them. If the launcher itself is killed (SIGKILL), the peers go on to the end.

    Exit status: 0 if at least one peer finished and every unit of weight is accounted for
    (peers that were killed or failed are named); 1 if not; 2 for wrong arguments.
    """
    with edge(debug=debug):
        config = LaunchConfig(
            peers=peers,
            task=task,
            topology=topology,
            rule=rule,
            p=p,
            emission=emission,
            exchange=ExchangeConfig(
                wire=wire,
                shards=shards,
                shards_per_push=shards_per_push,
                shard_order=shard_order,
                exact=exact,
                bandwidth=bandwidth,
                mixing=mixing,
                mix_budget_ms=mix_budget_ms,
                no_shared_memory=no_shared_memory,
            ),
            steps=steps,
            lr=lr,
            batch_size=batch_size,
            partition=partition,
            seed=seed,
            device=device,
            step_s_min=step_s_min,
            slow=tuple(slow or ()),
            prefetch=prefetch,
            log_every=log_every,
            eval_every=eval_every,
            linger_s=linger_s,
            leave_s=leave_s,
            journal=journal,
            out=out,
        )
        summary = run_swarm(config)
        _show(summary, as_json=as_json)
        if not worked(summary):
            fail(_complaint(summary), FAILED)


def run_swarm(config: LaunchConfig, program: Sequence[str] = PROGRAM) -> dict[str, Any]:
    """Run a swarm from its validation to its summary.

    Args:
        config: What to run.
        program: What starts a peer; its options are appended.

    Returns:
        The summary, which also lies in the run's folder.

    Raises:
        ConfigError: It cannot start; nothing was written.
        TrainingError: A peer left files that cannot be read.
        OSError: A file cannot be written, or a process not started.
    """
    task, out = check(config)
    steps = config.steps or task.steps
    places = make_folders(config, steps, out, program)
    title = f"{config.task} on {config.peers} peers, {config.topology}, in {out}"
    started_s = time.monotonic()
    with display_on(sys.stderr, title) as display:
        sights = supervise(places, steps, display)
    wall_s = time.monotonic() - started_s

    from .outcome import read_outcome

    outcomes = [read_outcome(place, sight) for place, sight in zip(places, sights, strict=True)]
    return _conclude(config, task, steps, out, wall_s, outcomes)


def worked(summary: dict[str, Any]) -> bool:
    """Whether a run counts as a success: somebody finished, and the ledger balances."""
    finished = any(peer["state"] == "finished" for peer in summary["peers_detail"])
    exact: bool = summary["weight_units_total"] == summary["weight_units_expected"]
    return finished and exact


def _conclude(
    config: LaunchConfig,
    task: "Task",
    steps: int,
    out: Path,
    wall_s: float,
    outcomes: "Sequence[Outcome]",
) -> dict[str, Any]:
    from .outcome import balance
    from .picture import draw
    from .summary import merge_outcomes, summarize

    merged = merge_outcomes(outcomes, task, out / "model.safetensors")
    summary = summarize(config, steps, out, wall_s, outcomes, balance(outcomes), merged)
    (out / "summary.json").write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n")
    draw(summary, [outcome.rows for outcome in outcomes], out / "training.png")
    return summary


def _show(summary: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(summary, allow_nan=False))
        return
    from .report import report

    report(summary, Console())


def _complaint(summary: dict[str, Any]) -> str:
    if summary["weight_units_total"] != summary["weight_units_expected"]:
        return "the ledgers do not balance: weight was lost or created, which is a bug"
    peers = summary["peers_detail"]
    if all(peer["state"] == "left" for peer in peers):
        return "stopped before the end"
    whys = [peer["why"] for peer in peers if peer["state"] == "failed" and peer["why"]]
    first = f": {whys[0]}" if whys else ""
    return f"no peer finished{first} (logs: {summary['out']}/peers/*/log.txt)"
