"""``rumor launch``: several peers on this machine, watched to their end."""

import json
from pathlib import Path
from typing import Annotated, Any

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
from .local_run import complaint, run_swarm, with_faults, worked
from .options import (
    GOSSIP,
    OUTPUT,
    BatchSize,
    CheckpointEvery,
    Debug,
    Device,
    EmissionName,
    EvalEvery,
    Journal,
    Json,
    LearningRate,
    LeaveSeconds,
    LogEvery,
    LrScheduleSpec,
    P,
    Partition,
    RuleName,
    Seed,
    Steps,
    TaskName,
    TimingName,
    TopologySpec,
    TotalSteps,
)
from .plan import LaunchConfig

__all__ = ["launch"]

FAULTS = "What goes wrong"


def launch(
    ctx: typer.Context,
    peers: Annotated[
        int, typer.Option("--peers", "-n", help="How many processes.", rich_help_panel=GOSSIP)
    ] = 4,
    task: TaskName = "digits",
    steps: Steps = None,
    total_steps: TotalSteps = None,
    lr: LearningRate = None,
    lr_schedule: LrScheduleSpec = "constant",
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
    timing: TimingName = "lan",
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
    faults: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What is done to peers and network, and when: a JSON list such as "
            '[{"at_s": 3, "kind": "crash", "peer": 2}, {"at_s": 8, "kind": "restart", "peer": 2}]. '
            "Times count from when all peers train. docs/faults.md names the kinds.",
            show_default="none",
            rich_help_panel=FAULTS,
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Go on with the run in that folder: all its peers from their last checkpoints, as "
            "they were, or with another --steps, --total-steps or --lr, say. None may still run.",
            show_default="a new run",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
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
    checkpoint_every: CheckpointEvery = "60s",
    journal: Journal = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Train one model with several local processes, each a peer of its own.

    The launcher only starts and watches them: they find one another and go on without it, and
    killing one is to the others a machine that died. Ctrl-C makes them leave; a second one kills
    them. If the launcher itself is killed (SIGKILL), the peers go on to the end, those too that
    a fault holds just then.

    With --faults, things go wrong as a file says: peers are killed, paused, slowed and started
    again, newcomers join. Where it is the network that fails, peers dial one another through
    proxies within the launcher, and exchange nothing through shared memory.

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
                timing=timing,
            ),
            steps=steps,
            total_steps=total_steps,
            lr=lr,
            lr_schedule=lr_schedule,
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
            checkpoint_every=checkpoint_every,
            journal=journal,
            out=out,
        )
        resumption = None
        if resume is not None:
            from .resumption import read_run

            resumption = read_run(resume, _typed(ctx))
            config = resumption.config
        if faults is not None:
            config = with_faults(config, faults)
        summary = run_swarm(config, resumption=resumption)
        _show(summary, as_json=as_json)
        if not worked(summary):
            fail(complaint(summary), FAILED)


def _typed(ctx: typer.Context) -> dict[str, Any]:
    """What was typed of the settings of a run, by name."""
    no_settings = ("resume", "as_json", "debug")
    return {
        name: value
        for name, value in ctx.params.items()
        if name not in no_settings
        and (source := ctx.get_parameter_source(name)) is not None
        and source.name != "DEFAULT"
    }


def _show(summary: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(summary, allow_nan=False))
        return
    from .report import report

    report(summary, Console())
