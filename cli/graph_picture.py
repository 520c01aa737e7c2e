"""The picture of a topology: its graph, or one for each round, and three facts."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..gossip.errors import ConfigError
from ..sim.results.curves import STYLE
from ..topology import Topology
from ..topology.placement import place
from .graph_links import Scale, links_of
from .graph_panel import Panel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..topology import Facts

__all__ = ["check_path", "check_size", "draw", "draw_side_by_side", "headline"]

FORMATS = (".png", ".svg", ".pdf")
"""Of pictures, by the ends of their names."""

NODES_MAX, PUSHES_MAX = 2000, 50_000
"""Nodes, and pushes of a round, beyond which a picture shows nothing but ink."""

PERIOD_MAX = 9
"""Rounds of a period that have a panel each; of a longer one, all but the last place do."""

SAMPLES, SAMPLES_AMONG = 4, 32
"""Rounds that are shown of those drawn at random: the first ones that differ, of so many."""

# Inches.
WIDTH, EDGE, HEADER, FOOTER = 5.0, 0.12, 0.62, 0.30

DIM = "#777777"
TITLE_MAX = 58


def check_path(path: Path) -> None:
    """See whether a picture can be written there, before anything long is computed.

    Raises:
        ConfigError: It is a folder, in a folder that does not exist, or of no format that we write.
    """
    ends = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
    if not path.name:
        raise ConfigError(f"--draw needs the name of a file that ends in {ends}")
    if path.is_dir():
        raise ConfigError(f"--draw {path}: it is a folder, name a file that ends in {ends}")
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"--draw {path}: it must end in {ends}")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"--draw {path}: name a file in a folder that exists")


def check_size(topology: Topology) -> None:
    """See whether a picture would show anything.

    Raises:
        ConfigError: Too many nodes, or too many edges.
    """
    n = topology.n
    if n > NODES_MAX:
        raise ConfigError(
            f"{n:,} nodes would be one blot of ink: a picture takes at most {NODES_MAX:,}"
        )
    pushes = topology.matrix().nnz - n
    if pushes > PUSHES_MAX:
        raise ConfigError(
            f"{pushes:,} edges would be one blot of ink: a picture takes at most {PUSHES_MAX:,}"
        )


def draw(topology: Topology, facts: "Facts", path: Path) -> None:
    """Draw a topology.

    Args:
        topology: One that passes `check_size`.
        facts: Of it.
        path: Where the picture goes; its suffix says in which format.

    Raises:
        OSError: It cannot be written.
    """
    draw_side_by_side([(topology, facts)], path)


def draw_side_by_side(
    several: Sequence[tuple[Topology, "Facts"]], path: Path, dpi: float = 150
) -> None:
    """Draw topologies in one picture, from left to right.

    Args:
        several: Topologies with their facts.
        path: Where the picture goes.
        dpi: Dots per inch.

    Raises:
        OSError: It cannot be written.
    """
    # The object-oriented way: no backend, no state that outlives the call.
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    cards = [_Card(topology, facts) for topology, facts in several]
    with rc_context(STYLE):
        height = HEADER + max(card.height for card in cards) + FOOTER
        figure = Figure(figsize=(WIDTH * len(cards), height), dpi=dpi)
        FigureCanvasAgg(figure)
        for index, card in enumerate(cards):
            card.draw(figure, WIDTH * index)
        figure.savefig(path)


class _Card:
    """One topology's part of a picture; lengths are inches."""

    def __init__(self, topology: Topology, facts: "Facts") -> None:
        self.topology = topology
        self.facts = facts
        self.rounds = _samples(topology) if topology.period is None else _rounds(topology.period)
        self.columns, rows = _shape(len(self.rounds), topology.period)
        self.side = (WIDTH - 2 * EDGE) / self.columns
        self.height = self.side * rows

    def draw(self, figure: "Figure", left: float) -> None:
        width, height = figure.get_size_inches()
        links = [links_of(self.topology, round) for round in self.rounds]
        scale = Scale.over(links, is_log=self.topology.bandwidth is not None)
        panel = Panel(
            place(self.topology),
            self.side * 72,
            self.topology.names,
            self.facts.articulation_points,
            self.facts.bridges,
        )
        top = height - HEADER
        for index in range(len(self.rounds) + 1):
            row, column = divmod(index, self.columns)
            corner = left + EDGE + column * self.side, top - (row + 1) * self.side
            if index == len(self.rounds):
                self._say_more(figure, corner)
                break
            axes = figure.add_axes(
                (corner[0] / width, corner[1] / height, self.side / width, self.side / height)
            )
            panel.draw(axes, links[index], scale)
            if self.topology.period != 1:
                axes.text(
                    0.02,
                    0.985,
                    f"round {self.rounds[index]}",
                    transform=axes.transAxes,
                    fontsize=7.5,
                    color=DIM,
                    va="top",
                    parse_math=False,
                )
        self._write(figure, left, scale)

    def _write(self, figure: "Figure", left: float, scale: Scale) -> None:
        height = figure.get_size_inches()[1]
        title = f"{_shortened(self.topology.spec)}, n = {self.topology.n}"
        _text(
            figure,
            left + EDGE,
            height - 0.13,
            title,
            size=min(11.0, 11.0 * 44 / len(title)),
            weight="bold",
        )
        _text(figure, left + EDGE, height - 0.36, headline(self.facts), size=9)
        note = self._note(scale)
        _text(figure, left + EDGE, height - HEADER - self.height - 0.06, note, size=7.5, color=DIM)

    def _say_more(self, figure: "Figure", corner: tuple[float, float]) -> None:
        period = self.topology.period
        if period is not None and period > len(self.rounds):
            x, y = corner[0] + 0.3 * self.side, corner[1] + self.side / 2
            _text(figure, x, y, f"... of {period} rounds", size=9, color=DIM)

    def _note(self, scale: Scale) -> str:
        parts = []
        if self.topology.period is None:
            parts.append("samples: each round is drawn anew")
        if not scale.is_flat:
            span = f"weight {scale.least:.3g} to {scale.most:.3g}"
            if scale.is_log:
                span = f"bandwidth {scale.least:,.6g} to {scale.most:,.6g} Mbit/s"
            parts.append(f"width and shade: {span}")
        if self.facts.articulation_points or self.facts.bridges:
            parts.append("red: losing it splits the graph")
        return "; ".join(parts)


def headline(facts: "Facts") -> str:
    """The three facts that a title has room for."""
    least, most = facts.degree_min, facts.degree_max
    degree = f"{most}" if least == most else f"{least} to {most}"
    pushes = "push" if degree == "1" else "pushes"
    if facts.rounds_to_exact is not None:
        rounds = "round" if facts.rounds_to_exact == 1 else "rounds"
        mixing = f"exact after {facts.rounds_to_exact} {rounds}"
    else:
        mixing = f"spectral gap {facts.spectral_gap:.3g}"
    few = facts.effective_neighbors < 1000
    effective = f"{facts.effective_neighbors:{'.3g' if few else ',.0f'}} effective neighbors"
    return f"{degree} {pushes} a round  ·  {mixing}  ·  {effective}"


def _rounds(period: int) -> Sequence[int]:
    return range(period if period <= PERIOD_MAX else PERIOD_MAX - 1)


def _samples(topology: Topology) -> Sequence[int]:
    """Random rounds that differ, so that two ways to draw do not look like one."""
    rounds: list[int] = []
    for round in range(SAMPLES_AMONG):
        if len(rounds) < SAMPLES and not any(_alike(topology, round, other) for other in rounds):
            rounds.append(round)
    return rounds


def _alike(topology: Topology, round: int, other: int) -> bool:
    return not (topology.matrix(round) != topology.matrix(other)).nnz


def _shape(panels: int, period: int | None) -> tuple[int, int]:
    """Columns and rows of panels."""
    places = panels + (period is not None and period > panels)
    columns = next(columns for columns in (1, 2, 3) if columns**2 >= places)
    return columns, -(-places // columns)


def _shortened(spec: str) -> str:
    if len(spec) <= TITLE_MAX:
        return spec
    return f"{spec[:14]}...{spec[-(TITLE_MAX - 17) :]}"


def _text(figure: "Figure", x: float, y: float, text: str, *, size: float, **more: Any) -> None:
    width, height = figure.get_size_inches()
    # Names and paths may hold what would be mathematics to matplotlib.
    figure.text(x / width, y / height, text, fontsize=size, va="top", parse_math=False, **more)
