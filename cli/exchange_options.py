"""Options that say what an exchange costs, and when it happens."""

from typing import Annotated

import typer

from .options import TRAINING

__all__ = [
    "Bandwidth",
    "Exact",
    "MixBudget",
    "Mixing",
    "NoSharedMemory",
    "Prefetch",
    "ShardOrderName",
    "Shards",
    "ShardsPerPush",
    "WireName",
]

EXCHANGE = "What an exchange costs"

WireName = Annotated[
    str,
    typer.Option(
        metavar="FORMAT",
        help="How numbers travel. float32: as they are. On links that are slow for the model: "
        "bfloat16 or float16 (the difference from the start, half the bytes), int8 (a quarter, "
        "rounded by chance), topk:0.01 (the hundredth that has moved most; gosgd and sgp only). "
        "All peers should give the same.",
        rich_help_panel=EXCHANGE,
    ),
]
Shards = Annotated[
    int,
    typer.Option(
        metavar="K",
        help="Cut the vector into K pieces, each with a weight of its own, so that a push is a "
        "K-th of the model: for large models, slow links or little memory (gosgd and sgp only). "
        "All peers must give the same.",
        rich_help_panel=EXCHANGE,
    ),
]
ShardsPerPush = Annotated[
    int,
    typer.Option(
        metavar="N",
        help="How many of them a push carries. More keep models closer together, and cost traffic.",
        rich_help_panel=EXCHANGE,
    ),
]
ShardOrderName = Annotated[
    str,
    typer.Option(
        metavar="round-robin|random",
        help="Which of them: those whose turn it is, or some by chance, for when peers keep "
        "sending each other the same ones.",
        rich_help_panel=EXCHANGE,
    ),
]
Exact = Annotated[
    bool,
    typer.Option(
        "--exact",
        help="Keep each share until it is settled, and mix back what was not accepted: the "
        "weighted mean of all models then is conserved, too, not weight alone. Costs the memory "
        "of the shares on their way, those toward dead peers for some minutes; float32 only.",
        rich_help_panel=EXCHANGE,
    ),
]
Bandwidth = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        help="What a peer may send, as in 200mbit, 1gbit or 25MB/s, where others need the link, "
        "too. Pushes beyond it are skipped, not queued.",
        show_default="as much as there is",
        rich_help_panel=EXCHANGE,
    ),
]
Mixing = Annotated[
    str,
    typer.Option(
        metavar="step|sliced|background",
        help="When a share that has come is mixed. step: whole, between two optimizer steps. "
        "sliced: some of it after each step, for models that take longer than --mix-budget-ms. "
        "background: by a thread of its own while steps are computed, for models whose loss can "
        "do without single updates of single numbers. With --journal only step.",
        rich_help_panel=EXCHANGE,
    ),
]
MixBudget = Annotated[
    float,
    typer.Option(
        "--mix-budget-ms",
        metavar="MS",
        help="With --mixing sliced, how long mixing may take after a step.",
        rich_help_panel=EXCHANGE,
    ),
]
NoSharedMemory = Annotated[
    bool,
    typer.Option(
        "--no-shared-memory",
        help="Exchange through sockets with neighbors on this machine, too: to measure these, or "
        "where memory is short.",
        rich_help_panel=EXCHANGE,
    ),
]
Prefetch = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Batches prepared ahead by a thread of their own; 0 for none. Raise it where a GPU "
        "waits for its data, or where a core is idle and samples are large.",
        show_default="2 on a GPU, else 0",
        rich_help_panel=TRAINING,
    ),
]
