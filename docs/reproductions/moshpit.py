"""Moshpit's table: rounds of averaging among 512 peers, some of whom fail.

As in the authors' code, those who fail in a round sit it out, and the rest of their group averages;
an all-reduce comes to nothing where anyone fails. Theirs is a grid of 1,024 cells, of which 512
drawn ones are taken; here each seed draws anew, there one draw serves all.

Source: Ryabinin et al., NeurIPS 2021, figure 2 and the code behind it.
"""

from collections.abc import Iterator
from statistics import mean, stdev

import numpy as np
from table import show

from rumor.gossip.types import stream
from rumor.sim import simulate
from rumor.sim.batched.vector_tasks import consensus
from rumor.topology import parse

PEERS, ROUNDS_MAX, SEEDS = 512, 50, 20

GRAPHS = {
    "all-reduce": "complete",
    "random groups of 32": "random-groups:m=32",
    "grid of 32 x 32": "moshpit:side=32,d=2",
}

# Rounds until the variance is below 1e-9, and below 1e-4, by way and probability of failure.
PUBLISHED = {
    ("all-reduce", 0.0): (1.0, 1.0),
    ("all-reduce", 0.01): (41.7, None),
    ("random groups of 32", 0.0): (6.1, 3.0),
    ("random groups of 32", 0.01): (6.6, 3.0),
    ("grid of 32 x 32", 0.0): (8.2, 3.6),
    ("grid of 32 x 32", 0.01): (8.8, 3.9),
}


def rounds(way: str, p: float, below: float, seed: int) -> int:
    """Rounds until the variance is so small."""
    rng = stream(seed, "moshpit", f"{way} {p}")
    values = rng.standard_normal(PEERS)
    groups = parse(GRAPHS[way], PEERS, seed=seed)
    for number in range(ROUNDS_MAX):
        if np.var(values) < below:
            return number
        takes_part = rng.random(PEERS) >= p
        if way == "all-reduce":
            values = np.full(PEERS, values.mean()) if takes_part.all() else values
            continue
        matrix = groups.matrix(number)
        shares = matrix @ takes_part.astype(np.float64)
        averages = matrix @ (values * takes_part) / np.where(takes_part, shares, 1)
        values = np.where(takes_part, averages, values)
    return ROUNDS_MAX


def rounds_by_protocol(way: str) -> float:
    """Rounds to 1e-9 without failures, by the rule in the simulator."""
    run = simulate(
        task=consensus(dim=1),
        rule="dpsgd",
        topology=GRAPHS[way],
        workers=PEERS,
        steps=20,
        eval_every=1,
        network="ideal",
    )
    variances = run.series["disagreement"] / PEERS
    return float(run.series["steps"][np.flatnonzero(variances < 1e-9)[0]])


def rows() -> Iterator[tuple[str, float, float, str]]:
    """Each way: published and measured rounds."""
    for (way, p), published in PUBLISHED.items():
        for below, figure in zip((1e-9, 1e-4), published, strict=True):
            if figure is not None:
                found = [rounds(way, p, below, seed) for seed in range(SEEDS)]
                note = f"{SEEDS} seeds, standard deviation {stdev(found):.2g}"
                yield f"{way}, failures {p:g}, variance {below:g}", figure, mean(found), note
    for way in list(GRAPHS)[1:]:
        figure, found_ = PUBLISHED[way, 0.0][0], rounds_by_protocol(way)
        yield f"{way}, by dpsgd, variance 1e-09", figure or 0.0, found_, "1 seed, whole protocol"


if __name__ == "__main__":
    title = f"Averaging among {PEERS} peers: rounds until the variance is as small, at most "
    show("moshpit", f"{title}{ROUNDS_MAX}", ("way", "published", "measured"), rows())
