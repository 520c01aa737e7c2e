"""Options of ``rumor peer`` alone."""

from pathlib import Path
from typing import Annotated

import typer

from .options import GOSSIP, OUTPUT, TRAINING

__all__ = [
    "Advertise",
    "Bind",
    "Count",
    "DialOnly",
    "Founders",
    "Id",
    "Index",
    "Join",
    "JoinTimeout",
    "Linger",
    "PeerOut",
    "Rendezvous",
    "Resume",
    "StepMin",
]

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
    list[str] | None,
    typer.Option(
        metavar="ADDRESS",
        help="Where to listen: tcp://0.0.0.0:7700 lets other machines in, tcp://[::]:7700 also by "
        "IPv6, port * is the system's choice. May be given several times.",
        show_default="tcp://127.0.0.1:*",
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
    list[str] | None,
    typer.Option(
        metavar="HOST:PORT",
        help="The address that others shall dial, a name or a number, where it is not the one "
        "that is bound (NAT, containers, several interfaces). May be given several times, the "
        "best one first.",
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
        help="Folder for its model, checkpoints, metrics, ledger, peer.json and journal.",
        show_default="none are written",
        rich_help_panel=OUTPUT,
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Go on from the last checkpoint in DIR, the folder of a peer that was stopped or "
        "killed. Its options need not be given again; --join, --bind, --steps and such can be "
        "changed.",
        show_default=False,
        rich_help_panel=OUTPUT,
    ),
]
