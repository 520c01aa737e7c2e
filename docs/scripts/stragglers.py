"""Draw the cost of slow workers and slow links for a barrier, and for gossip: ``make stragglers``.

Writes docs/images/stragglers.png and prints the same figures as tables. The same settings give the
same picture. Paths are relative to the root of the repository.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import log
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING

from rumor.sim import SimulationConfig, simulate
from rumor.sim.results.plots import STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["PICTURE", "RULES", "STUDIES", "Study", "draw", "main", "measure", "table", "time_to"]

PICTURE = Path("docs/images/stragglers.png")

RULES = MappingProxyType(
    {
        "allreduce": ("#B0300A", "s", 3.4),
        "gosgd": ("#0072B2", "o", 2.2),
        "adpsgd": ("#009E73", "^", 2.2),
    }
)
"""Compared rules: color, marker, width of the curve."""

GOAL = 0.95
SEEDS = (1, 2, 3)
STEP_S, LATENCY_S = 0.1, 0.001

COMMON = SimulationConfig(
    task="digits",
    workers=64,
    topology="exponential",
    lr=0.5,
    batch_size=32,
    step_s=STEP_S,
    latency_s=LATENCY_S,
    # Gives the same bits as the loop for this model; naming it saves the check of that.
    engine="dense",
)

HORIZON_S, HORIZON_S_MAX = 8.0, 128.0
"""Length of a run, and its maximum: a run that falls short is repeated at twice the length."""

STAGES = 6
"""Sequential exchanges of an all-reduce among 64."""

ROUNDS = 56
"""Enough rounds to reach the goal."""

FACTORS = (1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Study:
    """The varied setting: ``half`` or ``one`` of the workers slow, or the ``links``."""

    what: str
    title: str
    label: str
    values: tuple[float, ...]
    unit: str

    def config(self, value: float) -> SimulationConfig:
        """Return the swarm at one value; equal swarms of two studies have equal configs."""
        if self.what == "links":
            return replace(COMMON, latency_s=value / 1000)
        if value == 1:
            return COMMON
        if self.what == "one":
            return replace(COMMON, slow=(f"0:{value:g}",))
        return replace(COMMON, speeds=f"1x:50%,{1 / value:g}x:50%")

    def round_s(self, value: float) -> float:
        """Return the duration of a round that all wait for, seconds."""
        if self.what == "links":
            return STEP_S + STAGES * value / 1000
        return STEP_S * value


STUDIES = (
    Study("one", "One worker of 64 is slow", "times as slow", FACTORS, "x"),
    Study("half", "Half of the workers are slow", "times as slow", FACTORS, "x"),
    Study("links", "All links are slow", "latency, ms", (0.1, 1.0, 10.0, 30.0, 100.0), " ms"),
)

Times = Mapping[str, Sequence[float]]
"""For each rule, virtual seconds to the goal by value; infinite if never reached."""


def main() -> None:
    """Simulate, draw, and print."""
    found = [measure(study) for study in STUDIES]
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    draw(found, PICTURE)
    print("\n\n".join(table(study, times) for study, times in zip(STUDIES, found, strict=True)))


def measure(study: Study) -> Times:
    """Find the time to the goal for each rule and value, the median over seeds."""
    return {
        rule: [
            median(time_to(study.config(value), rule, study.round_s(value), seed) for seed in SEEDS)
            for value in study.values
        ]
        for rule in RULES
    }


@cache
def time_to(config: SimulationConfig, rule: str, round_s: float, seed: int) -> float:
    """Return the virtual time of the first measurement of a merged model that is good enough."""
    # With a barrier nothing happens between two rounds, so measuring more often shows nothing new.
    gap_s = round_s if rule == "allreduce" else STEP_S
    horizon_s = ROUNDS * gap_s if rule == "allreduce" else HORIZON_S
    while horizon_s <= HORIZON_S_MAX:
        run = simulate(
            config,
            rule=rule,
            p=1.0 if rule == "gosgd" else None,
            seed=seed,
            time_s=horizon_s,
            eval_every=max(2, round(gap_s / STEP_S)),
        )
        time_s: float | None = run.summary["time_to"][str(GOAL)]
        if time_s is not None:
            return time_s
        horizon_s *= 2
    return float("inf")


def table(study: Study, times: Times) -> str:
    """Return the figures as a Markdown table."""
    heads = " | ".join(f"{value:g}{study.unit}" for value in study.values)
    rows = [f"| {study.title.lower()}: | {heads} |", f"|---|{'---:|' * len(study.values)}"]
    rows += [
        f"| `{rule}` | {' | '.join(f'{time:.1f}' for time in found)} |"
        for rule, found in times.items()
    ]
    return "\n".join(rows)


def draw(found: Sequence[Times], path: Path) -> None:
    """Draw all studies side by side, on one scale."""
    # Without pyplot: no backend, and no state that outlives the call.
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(STYLE | {"font.size": 10.5, "axes.titlesize": 12}):
        figure = Figure(figsize=(11.5, 4.4), dpi=110)
        FigureCanvasAgg(figure)
        panels = figure.subplots(1, len(STUDIES), sharey=True)
        for axes, study, times in zip(panels, STUDIES, found, strict=True):
            _draw_study(axes, study, times)
        panels[0].set_ylabel(f"virtual seconds to {GOAL} accuracy")
        figure.subplots_adjust(left=0.055, right=0.895, top=0.76, bottom=0.13, wspace=0.56)
        figure.text(0.012, 0.93, TITLE, fontsize=15, fontweight="bold")
        figure.text(0.012, 0.87, SUBTITLE, fontsize=10.5)
        figure.savefig(path)


TITLE = "All-reduce waits for the slowest worker and for every link. Gossip does not"
SUBTITLE = (
    f"64 workers train digits, a step takes {STEP_S:g} s at full speed, links {1000 * LATENCY_S:g} "
    "ms; in bold: how many times as long as at the left end"
)

TICKS = (2, 5, 10, 20, 50)
LABEL_GAP = 1.17
"""Least ratio of the heights of two labels that do not overlap."""


def _draw_study(axes: "Axes", study: Study, times: Times) -> None:
    from matplotlib.ticker import NullLocator

    for rule, (color, marker, width) in RULES.items():
        style = {"color": color, "marker": marker, "linewidth": width, "markersize": 6.5}
        axes.plot(study.values, times[rule], **style)
    for rule, height in _spread({rule: found[-1] for rule, found in times.items()}).items():
        growth = times[rule][-1] / times[rule][0]
        axes.annotate(
            f"{rule} {growth:.1f}x",
            (study.values[-1], height),
            xytext=(9, 0),
            textcoords="offset points",
            va="center",
            color=RULES[rule][0],
            fontsize=10,
            fontweight="bold",
            annotation_clip=False,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title(study.title)
    axes.set_xlabel(study.label)
    axes.set_xticks(study.values, [f"{value:g}" for value in study.values])
    axes.set_yticks(TICKS, [f"{tick}" for tick in TICKS])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(TICKS[0], TICKS[-1])


def _spread(heights: Mapping[str, float]) -> dict[str, float]:
    """Move overlapping labels apart."""
    found: dict[str, float] = {}
    names = sorted(heights, key=lambda name: heights[name])
    for below, name in zip([None, *names], names, strict=False):
        height = heights[name]
        if below is not None and log(height / heights[below]) < log(LABEL_GAP):
            middle = (height * heights[below]) ** 0.5
            found[below], height = middle / LABEL_GAP**0.5, middle * LABEL_GAP**0.5
        found[name] = height
    return found


if __name__ == "__main__":
    main()
