"""Options of ``rumor simulate`` alone: the world that its workers live in, and the computation."""

from pathlib import Path
from typing import Annotated

import typer

from .exchange_options import EXCHANGE
from .options import GOSSIP, OUTPUT, TRAINING

__all__ = [
    "Bandwidth",
    "CheckpointSeconds",
    "Duplicates",
    "Engine",
    "Faults",
    "Format",
    "From",
    "Latency",
    "Loss",
    "Measure",
    "Memory",
    "Mixing",
    "Network",
    "NoPlot",
    "Out",
    "Pace",
    "PushRate",
    "SimulatedTask",
    "Slow",
    "Speeds",
    "StepSeconds",
    "Threads",
    "TimeSeconds",
    "Window",
    "Workers",
]

SPEED = "How fast workers are"
NETWORK = "What lies between them"
FAULTS = "What goes wrong"
COMPUTING = "How it is computed"

SimulatedTask = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="digits, quadratic, mnist, chars, or MODULE:FUNCTION, a function of yours that "
        "returns a Task. Without a model, for up to 100,000 workers: consensus (averaging of "
        "given vectors) and noise (unit Gaussian steps in place of gradients).",
        rich_help_panel=TRAINING,
    ),
]
From = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="FILE",
        help="What `rumor calibrate` measured: paces, network and settings of real peers. Other "
        "options override it.",
        show_default="nothing",
        rich_help_panel=SPEED,
    ),
]
TimeSeconds = Annotated[
    float | None,
    typer.Option(
        "--time-s",
        metavar="S",
        help="Stop at this virtual time, whatever the steps: fast workers take more of them.",
        rich_help_panel=TRAINING,
    ),
]
Workers = Annotated[
    int, typer.Option("--workers", "-n", help="How many workers.", rich_help_panel=GOSSIP)
]
Mixing = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Mixing weights of rules that need them: metropolis, uniform, lazy or fastest.",
        show_default="the family's own",
        rich_help_panel=GOSSIP,
    ),
]
PushRate = Annotated[
    float | None,
    typer.Option(
        "--push-mbit",
        metavar="MBIT",
        help="What each worker may send, in Mbit/s, whatever its link carries; pushes beyond it "
        "are skipped. As --bandwidth of `rumor peer`.",
        show_default="as much as there is",
        rich_help_panel=EXCHANGE,
    ),
]
StepSeconds = Annotated[
    float,
    typer.Option(
        "--step-s",
        metavar="S",
        help="Virtual time of a step at speed 1x, on average.",
        rich_help_panel=SPEED,
    ),
]
Pace = Annotated[
    str,
    typer.Option(
        metavar="SPEC",
        help="How steps of one worker differ: constant, lognormal:cv=0.3 (cv: standard deviation "
        "over mean), pareto:shape=2.5 (now and then very long), or trace:path=FILE.",
        rich_help_panel=SPEED,
    ),
]
Speeds = Annotated[
    str | None,
    typer.Option(
        metavar="CLASSES",
        help="Classes of workers, as in 0.5x:25%,1x:75%: a quarter of them at half speed.",
        show_default="1x for all",
        rich_help_panel=SPEED,
    ),
]
Slow = Annotated[
    list[str] | None,
    typer.Option(
        metavar="WORKER:FACTOR",
        help="That worker's steps take FACTOR times as long: 3:10 makes worker 3 a straggler. "
        "May be given several times.",
        rich_help_panel=SPEED,
    ),
]
Network = Annotated[
    str,
    typer.Option(
        metavar="NAME|FILE.json",
        help="ideal, datacenter, lan, wan, lossy, or a file that says more. "
        "The next four change one thing about it.",
        rich_help_panel=NETWORK,
    ),
]
Latency = Annotated[
    float | None,
    typer.Option(
        "--latency-s",
        metavar="S",
        help="What a message takes at least, one way.",
        show_default="the network's",
        rich_help_panel=NETWORK,
    ),
]
Bandwidth = Annotated[
    float | None,
    typer.Option(
        "--bandwidth-mbit",
        metavar="MBIT",
        help="Of each host's uplink, in Mbit/s.",
        show_default="the network's",
        rich_help_panel=NETWORK,
    ),
]
Loss = Annotated[
    float | None,
    typer.Option(
        metavar="PART",
        help="Probability that a message is lost.",
        show_default="the network's",
        rich_help_panel=NETWORK,
    ),
]
Duplicates = Annotated[
    float | None,
    typer.Option(
        metavar="PART",
        help="Probability that a message comes twice.",
        show_default="the network's",
        rich_help_panel=NETWORK,
    ),
]
Faults = Annotated[
    str | None,
    typer.Option(
        metavar="FILE.json",
        help='Faults, as in [{"at_s": 3, "kind": "crash", "peer": 2}]: crash, restart, '
        "mass-restart, pause, continue, slow, clock-jump, cut, partition, heal, loss, duplicate, "
        "replay, delay, reset, join, leave, finish, diverge. With them each worker gossips about "
        "who lives, as real peers do.",
        show_default="nothing",
        rich_help_panel=FAULTS,
    ),
]
CheckpointSeconds = Annotated[
    float,
    typer.Option(
        "--checkpoint-every-s",
        metavar="S",
        help="Virtual time between two checkpoints of a worker that is to start again from one.",
        rich_help_panel=FAULTS,
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="loop (one worker after another), batched (many at once), fast (batched, with other "
        "last bits), or auto: the faster of loop and batched where these give the same bits.",
        rich_help_panel=COMPUTING,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        help="Cores to use; no bit depends on it.", show_default="all", rich_help_panel=COMPUTING
    ),
]
Window = Annotated[
    int | None,
    typer.Option(
        metavar="STEPS",
        help="Steps that are scheduled before they are computed; no bit depends on it. "
        "Fewer need less memory.",
        show_default="4 for each worker",
        rich_help_panel=COMPUTING,
    ),
]
Memory = Annotated[
    float | None,
    typer.Option(
        "--memory-gib",
        metavar="GIB",
        help="Refuse what would need more memory than this.",
        show_default="what is free",
        rich_help_panel=COMPUTING,
    ),
]
Measure = Annotated[
    int | None,
    typer.Option(
        "--eval-every",
        metavar="STEPS",
        help="Steps of a worker at speed 1x between two measurements.",
        show_default="a fortieth of all",
        rich_help_panel=OUTPUT,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="The run's folder.",
        show_default="runs/sim-TASK-TIME",
        rich_help_panel=OUTPUT,
    ),
]
Format = Annotated[
    str,
    typer.Option(
        metavar="npz|parquet",
        help="Of the files of arrays; parquet needs pyarrow.",
        rich_help_panel=OUTPUT,
    ),
]
NoPlot = Annotated[bool, typer.Option("--no-plot", help="Draw nothing.", rich_help_panel=OUTPUT)]
