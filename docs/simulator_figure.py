"""Draw what slow workers and slow links cost a barrier, and gossip: ``make stragglers``.

Writes docs/images/stragglers.png and prints a table of the same figures. The same settings give
the same picture, whatever the machine. Paths are relative to the root of the repository.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rumor.sim import SimulationConfig, simulate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["PICTURE", "RULES", "STUDIES", "Study", "draw", "main", "measure", "table", "time_to"]

PICTURE = Path("docs/images/stragglers.png")

RULES = MappingProxyType(
    {
        "allreduce": ("#B0300A", "s"),
        "gosgd": ("#0072B2", "o"),
        "adpsgd": ("#009E73", "^"),
    }
)
"""What is compared, with color and marker."""

P = {"gosgd": 1.0}

GOAL = "0.95"
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
    # A gradient that batches gives the same bits as one by one: asked for, so that no time is
    # spent on finding out which is faster.
    engine="batched",
)

HORIZON_S, HORIZON_S_MAX = 8.0, 256.0
"""How long a run lasts at first, and at last: it is begun again for twice as long while it falls
short of the goal."""

STAGES = 6
"""Exchanges one after another in an all-reduce of 64."""


@dataclass(frozen=True, slots=True)
class Study:
    """One thing that is varied."""

    title: str
    label: str
    values: tuple[float, ...]
    unit: str

    def settings(self, value: float) -> dict[str, Any]:
        """What to change of what all studies have in common."""
        if self.unit == "ms":
            return {"latency_s": value / 1000}
        if self.title.startswith("One"):
            return {"slow": (f"0:{value:g}",)}
        return {"speeds": f"1x:50%,{1 / value:.17f}x:50%"}

    def round_s(self, value: float) -> float:
        """How long a round takes that everybody waits for, seconds."""
        if self.unit == "ms":
            return STEP_S + STAGES * value / 1000
        return STEP_S * value


FACTORS = (1.0, 2.0, 3.0, 5.0, 10.0)

STUDIES = (
    Study("Half of the workers are slow", "times as slow", FACTORS, "x"),
    Study("One worker of 64 is slow", "times as slow", FACTORS, "x"),
    Study("All are fast, links are slow", "latency, ms", (0.1, 1.0, 10.0, 30.0, 100.0), "ms"),
)

Times = Mapping[str, Sequence[float | None]]
"""Of each rule, virtual seconds to the goal, one for each value; None where it was not reached."""


def main() -> None:
    """Simulate, draw, and print."""
    found = [measure(study) for study in STUDIES]
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    draw(found, PICTURE)
    for study, times in zip(STUDIES, found, strict=True):
        print(table(study, times), end="\n\n")


def measure(study: Study) -> Times:
    """Find the time to the goal for each rule and value, the median over seeds."""
    return {rule: [_median(study, rule, value) for value in study.values] for rule in RULES}


def _median(study: Study, rule: str, value: float) -> float | None:
    times = [time_to(study, rule, value, seed) for seed in SEEDS]
    reached = [time for time in times if time is not None]
    return median(reached) if len(reached) == len(times) else None


def time_to(study: Study, rule: str, value: float, seed: int) -> float | None:
    """Find the virtual time at which the merged model is first measured to be good enough."""
    # A barrier lets nothing happen between two rounds: there is no more to be seen in between.
    gap_s = study.round_s(value) if rule == "allreduce" else STEP_S
    horizon_s = HORIZON_S
    while horizon_s <= HORIZON_S_MAX:
        run = simulate(
            COMMON,
            rule=rule,
            p=P.get(rule),
            seed=seed,
            time_s=horizon_s,
            eval_every=max(2, round(gap_s / STEP_S)),
            **study.settings(value),
        )
        time_s: float | None = run.summary["time_to"][GOAL]
        if time_s is not None:
            return time_s
        horizon_s *= 2
    return None


def table(study: Study, times: Times) -> str:
    """Write the figures down, in Markdown."""
    heads = (f"{value:g}{'' if study.unit == 'x' else ' '}{study.unit}" for value in study.values)
    rows = [
        f"| {study.title.lower()}: | {' | '.join(heads)} |",
        f"|---|{'---:|' * len(study.values)}",
    ]
    for rule, found in times.items():
        cells = ("-" if time is None else f"{time:.1f}" for time in found)
        rows.append(f"| `{rule}` | {' | '.join(cells)} |")
    return "\n".join(rows)


def draw(found: Sequence[Times], path: Path) -> None:
    """Draw all studies side by side, on one scale."""
    # The object-oriented way: no backend, no state that outlives the call.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.5, 4.3), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(STUDIES), sharey=True)
    for axes, study, times in zip(panels, STUDIES, found, strict=True):
        _draw_study(axes, study, times)
    panels[0].set_ylabel("virtual seconds to 0.95 accuracy")
    figure.suptitle(
        "One slow worker, or a slow network, holds up a barrier; gossip goes on",
        fontweight="bold",
        fontsize=14,
    )
    figure.savefig(path)


def _draw_study(axes: "Axes", study: Study, times: Times) -> None:
    from matplotlib.ticker import NullFormatter, NullLocator

    for rule, (color, marker) in RULES.items():
        heights = [float("nan") if time is None else time for time in times[rule]]
        width = 3.2 if rule == "allreduce" else 2.2
        axes.plot(study.values, heights, color=color, marker=marker, linewidth=width, markersize=6)
        _name(axes, rule, color, study.values, heights)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title(study.title, fontsize=12)
    axes.set_xlabel(study.label)
    axes.set_xticks(study.values, [f"{value:g}" for value in study.values])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_yticks([2, 5, 10, 20, 50], ["2", "5", "10", "20", "50"])
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(2, 60)
    axes.grid(color="#DDDDDD", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)


def _name(
    axes: "Axes", rule: str, color: str, values: Sequence[float], heights: Sequence[float]
) -> None:
    """Write a rule's name at the end of its curve, and how much longer than at the start."""
    axes.annotate(
        f"{rule}\n{heights[-1] / heights[0]:.1f}x",
        (values[-1], heights[-1]),
        xytext=(8, 0),
        textcoords="offset points",
        va="center",
        color=color,
        fontweight="bold",
        annotation_clip=False,
    )


if __name__ == "__main__":
    main()
