"""Published figures next to those of a study: additions to the study's own page."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from rumor.sim.study import Results
from rumor.sim.study.analysis.ranking import SIGNIFICANT
from rumor.sim.study.format import count, listed, number, shown
from rumor.sim.study.metrics import METRICS, values_of
from rumor.sim.study.statistics import Difference, differences, holm, interval, minimum_detectable

__all__ = [
    "NOTES",
    "against_published",
    "relay_order",
    "slow_links",
    "table_row",
]

VERDICTS: Final[Mapping[tuple[bool, bool], str]] = MappingProxyType(
    {
        (True, True): "It is reproduced as far as these seeds tell: the ring is behind, and "
        "all-reduce is not significantly different from SGP in rounds ({would}).",
        (True, False): "Half of it is reproduced: the ring is behind SGP in rounds, which is "
        "behind all-reduce.",
        (False, True): "Half of it is reproduced: SGP in rounds is not significantly different "
        "from all-reduce ({would}), but nor is the ring.",
        (False, False): "It is not reproduced: SGP in rounds is not ahead of the ring, and is "
        "significantly different from all-reduce.",
    }
)
"""Sentences by whether the ring is behind, and whether all-reduce is not ahead."""

MOMENTUM: Final = "0.9"
"""Momentum of the trials that are compared with that table, if the study has several."""

RELAY: Final = ("D-PSGD on a ring", "SGP in rounds", "all-reduce")
"""Points of the study's axis that represent rows of that table, the worst there first."""

PUBLISHED: Final = (
    ("training efficiency, a failure every 60 s, 30 groups (torchft, PyTorch's blog, June 2025)",
     "81.2 %", "at least 98 %", "torchft-60s", "goodput"),
    ("the same, a failure about every 15 s", "13.4 %", "at least 60 %", "torchft-15s", "goodput"),
    ("replicas in each exchange, 32 of them, 125 faults an hour (ft-diloco, 2026)",
     "16, though 30 are alive", "all that are alive", "ft-diloco-125", "members_taking_part"),
    ("the same: until a victim is fully back", "149 s", "-", "ft-diloco-125", "back_s"),
    ("the same: a survivor's next exchange after a kill, 2 replicas", "12 to 14 s",
     "2 steps, 6 s", "ft-diloco-125", "wait_s_longest"),
)  # fmt: skip
"""Published figures: the figure, its value, the aim, and the condition and metric to compare."""


def table_row(cells: Sequence[str]) -> str:
    """Format a line of a table."""
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def relay_order(results: Results) -> str:
    """Say from the data whether the order of RelaySGD's table is reproduced."""
    table = [_values(results, name, "accuracy") for name in RELAY]
    if not all(table):
        return "Trials are missing to say whether the order of RelaySGD's table is reproduced."
    below, beside = _steps(table)
    would = number(100 * minimum_detectable(beside, SIGNIFICANT / len((below, beside))), 2)
    verdict = VERDICTS[below.p < SIGNIFICANT and below.mean > 0, not beside.p < SIGNIFICANT].format(
        would=f"detectable: {would} points"
    )
    means = listed([shown(interval(values.values()).mean, "%") for values in table])
    return f"""\
### The order of RelaySGD's table

Vogels et al. (NeurIPS 2021; CIFAR-10, VGG-11, 16 workers, Dirichlet 0.01) report 53.9 % for D-PSGD
on a ring, 86.7 % for SGP on a time-varying exponential graph, and 87.0 % for all-reduce. Here,
final accuracies at Dirichlet 0.01 are {means}:
SGP in rounds is {_points(below)} above the ring;
all-reduce is {_points(beside)} above SGP in rounds.
**{verdict}**

Accuracy on 360 images is coarse, and near this network's maximum. Finer figures of the
same trials, in the order of that table:

- {_finer(results, "loss")}
- {_finer(results, "time_to_target_s")}

Differences here: handwritten digits instead of photographs, 2,410 parameters,
{count(len(results.study.seeds), "seed")}. The figures are those with momentum {MOMENTUM}."""


def _steps(table: Sequence[Mapping[int, float]]) -> tuple[Difference, Difference]:
    """Compare SGP in rounds with the ring, and all-reduce with it; p is corrected for both."""
    ring, rounds, mean = table
    found = *differences([rounds], ring), *differences([mean], rounds)
    below, beside = (
        replace(one, p=p) for one, p in zip(found, holm([one.p for one in found]), strict=True)
    )
    return below, beside


def _points(found: Difference) -> str:
    """Describe a difference of accuracies."""
    between = f"{100 * found.low:+.2g} to {100 * found.high:+.2g}"
    return f"{100 * found.mean:+.2g} points ({between}, {_judged(found)})"


def _finer(results: Results, name: str) -> str:
    """Describe how the three compare in a metric that is a ratio."""
    metric = METRICS[name]
    table = [_values(results, method, name) for method in RELAY]
    if any(len(values) < len(results.study.seeds) for values in table):
        return f"{metric.words} is not known of all seeds"
    means = listed([shown(interval(values.values()).mean, metric.unit) for values in table])
    logs = [{seed: math.log(value) for seed, value in values.items()} for values in table]
    below, beside = (f"{math.exp(one.mean):.2f} times ({_judged(one)})" for one in _steps(logs))
    return (
        f"{metric.words} is {means}, that of SGP in rounds {below} that of the ring, "
        f"that of all-reduce {beside} that of SGP in rounds"
    )


def _judged(found: Difference) -> str:
    return f"p = {found.p:.2g}: {'significant' if found.p < 0.05 else 'not significant'}"


def _values(results: Results, method: str, name: str) -> dict[int, float]:
    """Return a metric of one method where data differ most, by seed."""
    places = {"method": method, "data": "Dirichlet 0.01", "momentum": MOMENTUM}
    axes = {axis.name for axis in results.study.axes}
    found = results.where(**{k: v for k, v in places.items() if k in axes}).results
    return values_of(found, METRICS[name], results.study.target)


LINKS: Final[Mapping[str, Mapping[str, float]]] = MappingProxyType(
    {
        "DiLoCo H=128": {"50 Mbit/s": 0.1155, "200 Mbit/s": 0.3609, "1000 Mbit/s": 0.7152,
                         "5000 Mbit/s": 0.87},
        "DiLoCo H=32": {"50 Mbit/s": 0.0241, "200 Mbit/s": 0.1001, "1000 Mbit/s": 0.3601,
                        "5000 Mbit/s": 0.681},
    }
)  # fmt: skip
"""Published utilization by rule and link: diloco-measured, 2026."""

FITTED: Final = ("DiLoCo H=128", "200 Mbit/s")
"""The length of a step is fitted to this."""

WITHIN: Final = 0.15
"""Aim: maximum distance of a prediction from the published figure, relative to it."""


def slow_links(results: Results) -> str:
    """Compare published utilization with simulated utilization."""
    found = {
        place: interval(values.values()).mean
        for place, group in results.groups().items()
        if (values := values_of(group, METRICS["utilization"], results.study.target))
    }
    head = ["rule", "link", "published", "here", "off by", "aim: within 15 %"]
    lines, outside = [table_row(head), table_row(["---"] * len(head))], 0
    for rule, links in LINKS.items():
        for link, figure in links.items():
            here = found.get((rule, link))
            if here is None:
                continue
            off = here / figure - 1
            fits = "fitted" if (rule, link) == FITTED else "yes" if abs(off) <= WITHIN else "missed"
            outside += fits == "missed"
            cells = f"{100 * figure:.4g} %", f"{100 * here:.3g} %", f"{round(100 * off):+d} %"
            lines.append(table_row([rule, link, *cells, fits]))
    ours = [
        f"{rule} computes {100 * here:.3g} % of the time."
        for (rule, link), here in found.items()
        if rule.startswith("GoSGD") and link == "50 Mbit/s"
    ]
    return "\n".join(
        ["### Compared with published figures", "", *lines, "",
         f"{count(outside, 'prediction')} {'are' if outside != 1 else 'is'} outside of the aim. "
         "From 200 to 50 Mbit/s, published waiting with H = 32 grows 4.5 times (from 9.0 to 40 "
         "times the computing); a link of a quarter of the rate explains at most 4 times.", "",
         " ".join(["Aim for gossip: at least 95 % at 50 Mbit/s, at no higher loss for equal "
                   "tokens.", *ours])]
    )  # fmt: skip


def against_published(results: Results) -> str:
    """Rank rules by place, and compare published figures with the first rule of each family."""
    study, lines = results.study, []
    for at in study.axes[1].labels:
        there = results.where(**{study.axes[1].name: at})
        firsts = [_first_of(there, name) for name in ("time_to_loss_s", "loss", "bytes_to_loss")]
        ours, theirs = (_first_of(there, "time_to_loss_s", of) for of in ("GoSGD", "DiLoCo"))
        times = number(theirs[1] / ours[1]) if ours and theirs else ""
        lines.append(table_row([at, *(f[0] if f else "" for f in (*firsts, ours, theirs)), times]))
    heads = ["", "first at the loss", "lowest loss at equal tokens", "fewest bytes to the loss",
             "best GoSGD", "best DiLoCo", "DiLoCo's time over GoSGD's"]  # fmt: skip
    told = [
        table_row([what, figure, aim, condition, *_of_families(results, condition, name)])
        for what, figure, aim, condition, name in PUBLISHED
    ]
    columns = ["published", "figure", "aim", "condition here", "best GoSGD", "best DiLoCo"]
    return "\n".join(
        ["### Who wins where", "", table_row(heads), table_row(["---"] * len(heads)), *lines, "",
         "Aim where speeds differ: DiLoCo takes at least 3 times as long as GoSGD.", "",
         "### Other target losses", "",
         "The first to reach that loss with every seed; in brackets the time of the best "
         "DiLoCo over that of the best GoSGD, if both reach it with every seed. "
         f"{number(study.target, 3)} was chosen after the trials, as a loss that most rules get to "
         "within them; before, with learning rates of a shorter search, it was 3.1.", "",
         *_at_other_losses(results), "",
         "### Compared with published figures", "", "Published figures are of other machines, "
         "models and clocks; ours are simulated. Efficiency is compared with goodput. [Slow links]"
         "(../utilization/README.md) and [SPARTA at 256](../sparta/README.md) have pages of "
         "their own.", "", table_row(columns), table_row(["---"] * len(columns)), *told]
    )  # fmt: skip


ASIDE: Final = (-0.15, -0.1, -0.05, 0.05)
"""Differences of the other targets of the loss from the study's target."""


def _at_other_losses(results: Results) -> Iterator[str]:
    """Yield a table of the first rule, and DiLoCo's time over GoSGD's, by target loss."""
    axis, target = results.study.axes[1], results.study.target
    losses = sorted([target, *(target + aside for aside in ASIDE)])
    heads = ["first at a loss of", *(f"{number(loss, 3)}" for loss in losses)]
    yield from (table_row(heads), table_row(["---"] * len(heads)))
    for at in axis.labels:
        there, cells = results.where(**{axis.name: at}), [at]
        for loss in losses:
            first = _first_of(there, "time_to_loss_s", target=loss)
            ours, theirs = (
                _first_of(there, "time_to_loss_s", of, loss) for of in ("GoSGD", "DiLoCo")
            )
            times = f" ({number(theirs[1] / ours[1])})" if ours and theirs else ""
            cells.append(f"{first[0]}{times}" if first else "none")
        yield table_row(cells)


def _first_of(
    there: Results, name: str, of: str = "", target: float | None = None
) -> tuple[str, float] | None:
    """Return the best mean of a metric with its label, among labels that begin with *of*."""
    metric, found = METRICS[name], []
    for (label, *_), group in there.groups().items():
        values = values_of(group, metric, there.study.target if target is None else target)
        if label.startswith(of) and len(values) == len(group):
            found.append((label, interval(values.values()).mean))
    key = (lambda one: one[1]) if metric.lower_is_better else (lambda one: -one[1])
    return min(found, key=key) if found else None


def _of_families(results: Results, condition: str, name: str) -> Iterator[str]:
    there = results.where(**{results.study.axes[1].name: condition})
    for of in ("GoSGD", "DiLoCo"):
        # Of the rule that is first at the loss: a rule that never exchanges never waits, either.
        first = _first_of(there, "time_to_loss_s", of) or _first_of(there, "loss", of)
        found = _first_of(there, name, first[0]) if first else None
        yield f"{shown(found[1], METRICS[name].unit)} ({found[0]})" if found else "not computed"


NOTES: Final[Mapping[str, Callable[[Results], str]]] = MappingProxyType(
    {"heterogeneous-data": relay_order, "proof": against_published, "utilization": slow_links}
)
"""Additions to a study's page, by the study's name."""
