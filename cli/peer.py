"""``rumor peer``: one peer, on this machine or on one of many."""

import json
import logging
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import typer

from .edge import edge
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
    SocksProxy,
    Steps,
    TaskName,
    TimingName,
    TopologySpec,
    TotalSteps,
)
from .peer_options import (
    Advertise,
    Bind,
    Count,
    DialOnly,
    Founders,
    Id,
    Index,
    Join,
    JoinTimeout,
    Linger,
    PeerOut,
    Rendezvous,
    Resume,
    StepMin,
)
from .peer_settings import make_settings, resumed_options

if TYPE_CHECKING:
    from ..train.config import PeerConfig
    from ..train.run import RunConfig

__all__ = ["peer", "stop_on_signals"]


def peer(
    ctx: typer.Context,
    task: TaskName = "digits",
    steps: Steps = None,
    total_steps: TotalSteps = None,
    lr: LearningRate = None,
    lr_schedule: LrScheduleSpec = "constant",
    batch_size: BatchSize = None,
    partition: Partition = "shared",
    index: Index = 0,
    count: Count = 1,
    seed: Seed = 0,
    device: Device = "auto",
    step_s_min: StepMin = 0.0,
    prefetch: Prefetch = None,
    bind: Bind = None,
    dial_only: DialOnly = False,
    advertise: Advertise = None,
    join: Join = None,
    rendezvous: Rendezvous = None,
    founders: Founders = 1,
    id: Id = None,
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
    socks_proxy: SocksProxy = None,
    linger_s: Linger = 30.0,
    leave_s: LeaveSeconds = 10.0,
    join_timeout_s: JoinTimeout = None,
    out: PeerOut = None,
    resume: Resume = None,
    checkpoint_every: CheckpointEvery = "60s",
    log_every: LogEvery = 10,
    eval_every: EvalEvery = 50,
    journal: Journal = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Be one peer of a swarm: found one, or join by the address of any member.

    SIGTERM or Ctrl-C makes it leave, handing its weight to another peer; a second one ends it
    at once. With --out it writes checkpoints, and --resume goes on from the last one.

    Exit status: 0 if it finished or left; 1 if training or the network failed; 2 for wrong
    arguments, a port in use among them.
    """
    stop = threading.Event()
    with edge(debug=debug):
        # As one mapping, options can be kept for the next life, and taken up by it.
        options = dict(ctx.params)
        if resume is not None:
            options = resumed_options(options, _given(ctx))
        run_config, peer_config = make_settings(options)
        report = _run(run_config, peer_config, stop)
        if as_json:
            print(json.dumps(report))


def stop_on_signals(stop: threading.Event) -> None:
    """Let the first SIGTERM or SIGINT set *stop*, and the second end the process at once."""

    def leave(number: int, frame: object) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)
        print(
            "stopping: handing the weight on; once more ends at once", file=sys.stderr, flush=True
        )
        stop.set()

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, leave)


def _given(ctx: typer.Context) -> set[str]:
    """Names of the options that were typed."""
    return {
        name
        for name in ctx.params
        if (source := ctx.get_parameter_source(name)) is not None and source.name != "DEFAULT"
    }


def _run(
    run_config: "RunConfig", peer_config: "PeerConfig", stop: threading.Event
) -> dict[str, Any]:
    from ..gossip.transport_files import allow_more_files
    from ..train.allocator import keep_pages
    from ..train.run import run

    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S"
    )
    stop_on_signals(stop)
    keep_pages()
    allow_more_files()
    report = run(run_config, peer_config, stop=stop)
    accuracy = "" if report.accuracy is None else f"accuracy {report.accuracy:.4f}, "
    logging.getLogger("rumor").info(
        "%s after %d steps: %sloss %.4g, weight %.4f",
        report.state,
        report.steps,
        accuracy,
        report.loss,
        report.weight,
    )
    return report.as_json()
