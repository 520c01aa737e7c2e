"""GoSGD's figure of consensus under noise: how far workers drift apart where steps are noise.

Source: Blot et al. 2016, section on consensus under noise; closed forms for averages.
"""

from collections.abc import Iterator
from math import sqrt
from statistics import mean, stdev

from table import show

from rumor.sim import simulate
from rumor.sim.batched.vector_tasks import noise

WORKERS, SEEDS = 8, 8

# Graph, p, and what an independent Monte Carlo of the equations gave.
GOSGD = (
    ("complete", 0.01, 1398.0, "Monte Carlo +- 56"),
    ("complete", 0.4, 36.5, "Monte Carlo +- .3"),
    ("ring", 0.01, 2230.0, "Monte Carlo"),
    ("ring", 0.4, 55.4, "Monte Carlo"),
)


def gosgd(graph: str, p: float, seed: int) -> float:
    """The stationary sum of squared distances from the mean, per coordinate."""
    run = simulate(
        task=noise(dim=32),
        rule="gosgd",
        topology=graph,
        p=p,
        workers=WORKERS,
        steps=20_000 if p < 0.1 else 5000,
        eval_every=50 if p < 0.1 else 2,
        network="ideal",
        seed=seed,
    )
    return float(run.summary["disagreement_stationary"])


def averaged(tau: int, seed: int) -> float:
    """The same of local steps with an average every *tau* of them, right after each step."""
    run = simulate(
        task=noise(dim=256),
        rule=f"local-sgd:h={tau}",
        topology="complete",
        workers=WORKERS,
        steps=60 * tau,
        eval_every=1,
        network="ideal",
        seed=seed,
    )
    # What is read after a round has been averaged: a step of noise is on top of it.
    return float(run.series["disagreement"][tau:].mean()) + (WORKERS - 1)


def rows() -> Iterator[tuple[str, float, float, str]]:
    """Each way: derived, measured, and how sure both are."""
    for graph, p, figure, source in GOSGD:
        found = [gosgd(graph, p, seed) for seed in range(SEEDS)]
        yield f"gosgd, p {p:g}, {graph}", figure, mean(found), f"{source}; {spread(found)}"
    for tau in (2, 7):
        found = [averaged(tau, seed) for seed in range(SEEDS)]
        closed = (WORKERS - 1) * (tau + 1) / 2
        note = f"(M - 1)(tau + 1) / 2; {spread(found)}"
        yield f"average every {tau} steps", closed, mean(found), note


def spread(found: list[float]) -> str:
    """The standard error."""
    return f"ours +- {stdev(found) / sqrt(len(found)):.2g}, {len(found)} seeds"


if __name__ == "__main__":
    title = "Consensus under noise, 8 workers: the stationary sum of squared distances from the "
    show("noise", title + "mean, per coordinate", ("way", "derived", "measured"), rows())
