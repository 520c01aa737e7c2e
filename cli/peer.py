"""``rumor peer``: one peer, on this machine or on one of many."""

import json
import logging
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..gossip.errors import ConfigError
from ..gossip.rules import make_rule
from .edge import edge
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
    TRAINING,
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

if TYPE_CHECKING:
    from ..train.config import PeerConfig
    from ..train.run import RunConfig

__all__ = ["peer", "stop_on_signals"]

Index = Annotated[
    int,
    typer.Option(
        help="Which part of the data is this peer's, from 0 to --count - 1.",
        rich_help_panel=TRAINING,
    ),
]
Count = Annotated[
    int,
    typer.Option(
        help="How many parts the data have, unless shared. All peers must give the same.",
        rich_help_panel=TRAINING,
    ),
]
StepMin = Annotated[
    float,
    typer.Option(metavar="S", help="Steps sleep to at least S seconds.", rich_help_panel=TRAINING),
]
Bind = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS",
        help="Where to listen: tcp://0.0.0.0:7700 lets other machines in, port * is the system's "
        "choice.",
        rich_help_panel=GOSSIP,
    ),
]
DialOnly = Annotated[
    bool,
    typer.Option(
        "--dial-only",
        help="Do not listen at all: a full member that others cannot dial.",
        rich_help_panel=GOSSIP,
    ),
]
Advertise = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="The address that others shall dial, where it is not the one that is bound "
        "(NAT, containers, several interfaces).",
        rich_help_panel=GOSSIP,
    ),
]
Join = Annotated[
    list[str] | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Address of any member; may be given several times. Without one, this peer founds "
        "a swarm.",
        rich_help_panel=GOSSIP,
    ),
]
Rendezvous = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="A folder that all peers see, through which they find one another.",
        rich_help_panel=GOSSIP,
    ),
]
Founders = Annotated[
    int,
    typer.Option(
        help="How many peers start together and found the swarm, this one included.",
        rich_help_panel=GOSSIP,
    ),
]
Linger = Annotated[
    float,
    typer.Option(
        metavar="S",
        help="How long a peer that has taken all its steps waits for the others.",
        rich_help_panel=GOSSIP,
    ),
]
JoinTimeout = Annotated[
    float | None,
    typer.Option(
        metavar="S",
        help="How long to look for a swarm before giving up.",
        show_default="for ever",
        rich_help_panel=GOSSIP,
    ),
]
Id = Annotated[
    str | None,
    typer.Option(
        "--id",
        help="Its name, unique in the swarm.",
        show_default="a random one",
        rich_help_panel=GOSSIP,
    ),
]
PeerOut = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder for its model, metrics, ledger, peer.json and journal.",
        show_default="none are written",
        rich_help_panel=OUTPUT,
    ),
]


def peer(
    task: TaskName = "digits",
    steps: Steps = None,
    lr: LearningRate = None,
    batch_size: BatchSize = None,
    partition: Partition = "shared",
    index: Index = 0,
    count: Count = 1,
    seed: Seed = 0,
    device: Device = "auto",
    step_s_min: StepMin = 0.0,
    prefetch: Prefetch = None,
    bind: Bind = "tcp://127.0.0.1:*",
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
    linger_s: Linger = 30.0,
    leave_s: LeaveSeconds = 10.0,
    join_timeout_s: JoinTimeout = None,
    out: PeerOut = None,
    log_every: LogEvery = 10,
    eval_every: EvalEvery = 50,
    journal: Journal = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Be one peer of a swarm: found one, or join by the address of any member.

    SIGTERM or Ctrl-C makes it leave, handing its weight to another peer; a second one ends it
    at once.

    Exit status: 0 if it finished or left; 1 if training or the network failed; 2 for wrong
    arguments, a port in use among them.
    """
    stop = threading.Event()
    with edge(debug=debug):
        if journal and out is None:
            raise ConfigError("--journal needs --out: name a folder for it")
        chosen = make_rule(rule, p, emission)
        exchange = ExchangeConfig(
            wire=wire,
            shards=shards,
            shards_per_push=shards_per_push,
            shard_order=shard_order,
            exact=exact,
            bandwidth=bandwidth,
            mixing=mixing,
            mix_budget_ms=mix_budget_ms,
            no_shared_memory=no_shared_memory,
        )
        # torch takes a second to import: a typo is answered before.
        from ..train.config import PeerConfig
        from ..train.run import RunConfig

        peer_config = PeerConfig(
            id=id,
            bind=None if dial_only else bind,
            advertise=advertise,
            join=tuple(join or ()),
            rendezvous=rendezvous,
            founders=founders,
            topology=topology,
            rule=chosen,
            seed=seed,
            out=out,
            linger_s=linger_s,
            leave_s=leave_s,
            join_timeout_s=join_timeout_s,
            **exchange.settings(),
        )
        run_config = RunConfig(
            task=task,
            steps=steps,
            lr=lr,
            batch_size=batch_size,
            partition=partition,
            index=index,
            count=count,
            seed=seed,
            device=device,
            out=out,
            log_every=log_every,
            eval_every=eval_every,
            step_s_min=step_s_min,
            journal=journal,
            prefetch=prefetch,
        )
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


def _run(
    run_config: "RunConfig", peer_config: "PeerConfig", stop: threading.Event
) -> dict[str, Any]:
    from ..train.allocator import keep_pages
    from ..train.run import run

    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S"
    )
    stop_on_signals(stop)
    keep_pages()
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
