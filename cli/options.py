"""Options that several commands share."""

from typing import Annotated

import typer

from ..gossip.rules import parameter_default, parameter_help, rules_help

__all__ = [
    "BatchSize",
    "CheckpointEvery",
    "Debug",
    "Device",
    "EmissionName",
    "EvalEvery",
    "Journal",
    "Json",
    "LearningRate",
    "LeaveSeconds",
    "LogEvery",
    "LrScheduleSpec",
    "P",
    "Partition",
    "RuleName",
    "Seed",
    "SocksProxy",
    "Steps",
    "TaskName",
    "TimingName",
    "TopologySpec",
    "TotalSteps",
]

TRAINING = "What is trained"
GOSSIP = "How peers exchange"
OUTPUT = "Output"

TaskName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="digits, quadratic, mnist, chars, or MODULE:FUNCTION, a function of yours that "
        "returns a Task.",
        rich_help_panel=TRAINING,
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        help="Optimizer steps of each peer.",
        show_default="the task's, unless --total-steps is given",
        rich_help_panel=TRAINING,
    ),
]
TotalSteps = Annotated[
    int | None,
    typer.Option(
        help="Stop when all peers together, those that are gone included, have taken so many "
        "steps. With --steps, whichever comes first.",
        show_default="no limit",
        rich_help_panel=TRAINING,
    ),
]
LrScheduleSpec = Annotated[
    str,
    typer.Option(
        "--lr-schedule",
        metavar="SPEC",
        help="constant, cosine or linear, as in cosine:warmup=0.05,floor=0.1: how the learning "
        "rate falls over --total-steps by the whole swarm's clock, else over the peer's own steps.",
        rich_help_panel=TRAINING,
    ),
]
LearningRate = Annotated[
    float | None,
    typer.Option(
        "--lr", help="Learning rate.", show_default="the task's", rich_help_panel=TRAINING
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        help="Samples per step and peer.", show_default="the task's", rich_help_panel=TRAINING
    ),
]
Partition = Annotated[
    str,
    typer.Option(
        metavar="SPEC",
        help="Who trains on which samples: shared (everyone on all), iid, dirichlet:ALPHA "
        "(the smaller, the fewer classes at a peer) or shards:K.",
        rich_help_panel=TRAINING,
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        help="Seeds the model, the order of the data and the choice of neighbors.",
        rich_help_panel=TRAINING,
    ),
]
TopologySpec = Annotated[
    str,
    typer.Option(
        metavar="SPEC",
        help="Who may push to whom: one of 28 families, which `rumor topology --list` shows.",
        rich_help_panel=GOSSIP,
    ),
]
RuleName = Annotated[
    str,
    typer.Option(
        metavar="SPEC",
        help=f"When to push and how to mix. {rules_help()}",
        rich_help_panel=GOSSIP,
    ),
]
P = Annotated[
    float | None,
    typer.Option(
        "--p",
        help=f"The rule's parameter p. {parameter_help('p')}",
        show_default=parameter_default("p"),
        rich_help_panel=GOSSIP,
    ),
]
EmissionName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help=f"The rule's parameter emission. {parameter_help('emission')}",
        rich_help_panel=GOSSIP,
    ),
]
Device = Annotated[
    str,
    typer.Option(
        help="Where to train: cpu, cuda, cuda:1; auto takes a GPU where there is one.",
        rich_help_panel=TRAINING,
    ),
]
LeaveSeconds = Annotated[
    float,
    typer.Option(
        "--leave-s",
        metavar="S",
        help="How long handing the weight on may take, for a peer that leaves.",
        rich_help_panel=GOSSIP,
    ),
]
TimingName = Annotated[
    str,
    typer.Option(
        metavar="local|lan|wan",
        help="How patient peers are with one another: on one machine, in one network, or across "
        "the internet.",
        rich_help_panel=GOSSIP,
    ),
]
SocksProxy = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="A SOCKS5 proxy that all connections to other peers go through.",
        show_default="none",
        rich_help_panel=GOSSIP,
    ),
]
CheckpointEvery = Annotated[
    str,
    typer.Option(
        metavar="INTERVAL",
        help="How often a checkpoint is written into --out: 60s, 5min or 500steps, both as in "
        "60s,500steps for whichever comes first, or never.",
        rich_help_panel=OUTPUT,
    ),
]
LogEvery = Annotated[
    int, typer.Option(help="Steps between two rows of metrics.jsonl.", rich_help_panel=OUTPUT)
]
EvalEvery = Annotated[
    int,
    typer.Option(help="Steps between two measurements on held-out data.", rich_help_panel=OUTPUT),
]
Journal = Annotated[
    bool,
    typer.Option(
        "--journal",
        help="Write journal.bin, from which `rumor replay` repeats the run bit for bit.",
        rich_help_panel=OUTPUT,
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print one JSON object as the last line of stdout, and nothing else there.",
        rich_help_panel=OUTPUT,
    ),
]
Debug = Annotated[
    bool,
    typer.Option("--debug", help="Show tracebacks.", rich_help_panel=OUTPUT),
]
