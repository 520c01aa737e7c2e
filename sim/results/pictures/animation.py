"""A simulated run as a moving picture: who is up, who is cut off, and how good the model is."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ....gossip.errors import ConfigError
from ..title import describe
from .curves import ACCENT, BLUE, DIM, INK, PALETTE, STYLE, Floats, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from PIL.Image import Image

__all__ = ["FORMATS", "States", "animate", "check_film", "states_at"]

FORMATS: Final = (".gif", ".webp")

_WIDTH, _HEIGHT, _DPI = 8.0, 4.2, 100
_COLORS: Final = 64
"""Of a GIF: lines and points need no more, and each costs bytes."""

_TOLD: Final = 5
"""Events that are shown in words, the latest ones."""

_UP, _DOWN, _PAUSED = "up", "down", "paused"

_WORDS: Final[Mapping[str, str]] = {
    "crash": "{} is killed",
    "restart": "{} starts again",
    "pause": "{} stands still",
    "continue": "{} goes on",
    "leave": "{} leaves",
    "slow": "{} is slow",
    "cut": "{} is cut off",
    "diverge": "{} diverges",
    "finish": "{} finishes",
}


@dataclass(slots=True)
class States:
    """What has happened to all workers by some moment."""

    state: dict[str, str] = field(default_factory=dict)
    """Of each worker that ever was: up, down or paused."""
    slow: set[str] = field(default_factory=set)
    group: dict[str, int] = field(default_factory=dict)
    """Of workers that are cut off from those in no group, or in another one."""
    told: list[str] = field(default_factory=list)
    """All events so far in words."""


def animate(
    summary: Mapping[str, Any],
    series: Mapping[str, Floats],
    names: Sequence[str],
    path: Path,
    *,
    seconds: float = 12.0,
    fps: float = 10.0,
) -> None:
    """Draw a run as a film, as `rumor.sim.Run.animate` has it.

    Args:
        names: Of its workers, newcomers last.

    Raises:
        ConfigError: The file is of another format, or a number is out of range.
        OSError: It cannot be written.
    """
    check_film(path)
    for name, value in (("seconds", seconds), ("fps", fps)):
        if not (math.isfinite(value) and value > 0):
            raise ConfigError(f"{name} is {value}: it must be a number above 0")
    end_s = float(np.nanmax(series["time_s"], initial=0.0)) or 1.0
    moments = np.linspace(0.0, end_s, max(2, round(seconds * fps)))
    film = _Film(summary, series, names, end_s)
    pictures = list(film.pictures(moments))
    many = path.suffix.lower() == ".webp"
    kept = pictures if many else [_fewer_colors(each, pictures[-1]) for each in pictures]
    # The end is to be looked at.
    durations = [round(1000 / fps)] * (len(kept) - 1) + [2500]
    options: dict[str, Any] = {"quality": 60, "method": 4} if many else {"optimize": True}
    kept[0].save(path, save_all=True, append_images=kept[1:], duration=durations, loop=0, **options)


def check_film(path: Path) -> None:
    """See whether a film can be written there, before anything long is computed.

    Raises:
        ConfigError: It is in a folder that does not exist, or of an unknown format.
    """
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"film {path}: it must end in {' or '.join(FORMATS)}")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"film {path}: name a file in a folder that exists")


def states_at(faults: Iterable[Mapping[str, Any]], names: Sequence[str], time_s: float) -> States:
    """What was done to whom by a moment.

    Args:
        faults: As a summary has them, in order of time, peers by name.
        names: Of the workers; those called ``join-...`` come with a ``join``.
        time_s: Virtual time, seconds.

    >>> states_at([{"at_s": 1.0, "kind": "pause", "peer": "a", "for_s": 2.0}], ["a"], 2.0).state
    {'a': 'paused'}
    """
    found, joined = States(), 0
    found.state = {name: _UP for name in names if not name.startswith("join-")}
    for at_s, end, fault in _moments(faults):
        if at_s > time_s:
            break
        kind, peer = fault["kind"], fault.get("peer")
        if end:
            _end(found, fault)
            continue
        if kind == "join":
            for _ in range(fault.get("count", 1)):
                joined += 1
                found.state[f"join-{joined}"] = _UP
                found.told.append(f"join-{joined} joins")
            continue
        if kind == "partition":
            for number, group in enumerate(fault["groups"], 1):
                found.group |= dict.fromkeys(group, number)
            count = sum(map(len, fault["groups"]))
            found.told.append(f"{count} {'is' if count == 1 else 'are'} cut off from the others")
        elif kind == "heal":
            found.group.clear()
            found.told.append("all cuts heal")
        elif kind == "mass-restart":
            peers = fault.get("peers") or list(found.state)
            found.state |= dict.fromkeys(peers, _DOWN)
            found.told.append(f"{len(peers)} are killed at once")
        elif kind == "slow":
            found.slow.add(str(peer))
        elif peer is not None and kind in _WORDS:
            _strike(found, kind, str(peer))
        else:
            found.told.append(kind)
    return found


def _strike(found: States, kind: str, peer: str) -> None:
    after = {"crash": _DOWN, "leave": _DOWN, "restart": _UP, "pause": _PAUSED, "continue": _UP}
    if kind in after:
        found.state[peer] = after[kind]
    elif kind == "cut":
        found.group[peer] = len(found.state) + len(found.group)
    found.told.append(_WORDS[kind].format(peer))


def _moments(faults: Iterable[Mapping[str, Any]]) -> list[tuple[float, bool, Mapping[str, Any]]]:
    """When faults begin and end, in order; whether it is the end."""
    moments = []
    for fault in faults:
        moments.append((float(fault["at_s"]), False, fault))
        if fault.get("for_s") is not None:
            moments.append((fault["at_s"] + fault["for_s"], True, fault))
    return sorted(moments, key=lambda moment: moment[0])


def _end(found: States, fault: Mapping[str, Any]) -> None:
    """A fault that lasts is over."""
    kind, peer = fault["kind"], str(fault.get("peer"))
    if kind == "pause" and found.state.get(peer) == _PAUSED:
        found.state[peer] = _UP
    elif kind == "slow":
        found.slow.discard(peer)
    elif kind == "cut":
        found.group.pop(peer, None)
    elif kind == "partition":
        for name in (name for group in fault["groups"] for name in group):
            found.group.pop(name, None)
    elif kind == "mass-restart":
        found.state |= dict.fromkeys(fault.get("peers") or list(found.state), _UP)


class _Film:
    """Draws one picture after another, of which most is the same."""

    def __init__(
        self,
        summary: Mapping[str, Any],
        series: Mapping[str, Floats],
        names: Sequence[str],
        end_s: float,
    ) -> None:
        self._faults = summary.get("faults") or []
        self._names, self._series, self._end_s = names, series, end_s
        self._title = describe(summary)
        angles = np.pi / 2 - 2 * np.pi * np.arange(len(names)) / max(1, len(names))
        self._places = np.column_stack([np.cos(angles), np.sin(angles)])
        self._size = float(np.clip(5200 / max(1, len(names)), 12, 500))
        self._links = _links(summary)

    def pictures(self, moments: Floats) -> "Iterator[Image]":
        """One for each moment."""
        from matplotlib import rc_context
        from PIL.Image import fromarray

        with rc_context(STYLE):
            figure = new_figure(_WIDTH, _HEIGHT, None, dpi=_DPI)
            figure.text(0.02, 0.95, self._title, fontsize=10.5, fontweight="bold", va="center")
            swarm = figure.add_axes((0.01, 0.08, 0.46, 0.83))
            _draw_legend(figure)
            curve = figure.add_axes((0.56, 0.42, 0.41, 0.46))
            words = figure.text(0.56, 0.26, "", fontsize=8.5, color=DIM, va="top", linespacing=1.5)
            for time_s in moments:
                states = states_at(self._faults, self._names, float(time_s))
                self._draw_swarm(swarm, states, float(time_s))
                self._draw_curve(curve, float(time_s))
                words.set_text("\n".join(states.told[-_TOLD:]))
                yield fromarray(_pixels(figure)).convert("RGB")

    def _draw_swarm(self, axes: "Axes", states: States, time_s: float) -> None:
        axes.clear()
        axes.set_axis_off()
        axes.set_xlim(-1.25, 1.25)
        axes.set_ylim(-1.25, 1.25)
        axes.set_aspect("equal")
        self._draw_links(axes, states)
        here = [index for index, name in enumerate(self._names) if name in states.state]
        at = [self._names[index] for index in here]
        colors = [self._color(states, name) for name in at]
        edges = [ACCENT if states.state[name] == _DOWN else INK for name in at]
        sizes = [self._size * (0.4 if states.state[name] == _DOWN else 1.0) for name in at]
        x, y = self._places[here].T if here else ([], [])
        axes.scatter(x, y, s=sizes, c=colors, edgecolors=edges, linewidths=0.8, zorder=2)
        up = sum(state != _DOWN for state in states.state.values())
        for line, (text, size) in enumerate(
            [(f"{up} of {len(at)} up", 14), (f"{time_s:.3g} s", 10)]
        ):
            axes.text(
                0, 0.08 - 0.2 * line, text, ha="center", fontsize=size, color=INK, zorder=3,
                bbox={"color": "white", "alpha": 0.8, "pad": 1.5},
            )  # fmt: skip

    def _draw_links(self, axes: "Axes", states: States) -> None:
        """Links of the topology over which something can pass."""
        from matplotlib.collections import LineCollection

        names, group = self._names, states.group
        open_ = [
            (self._places[a], self._places[b])
            for a, b in self._links
            if states.state.get(names[a]) == states.state.get(names[b]) == _UP
            and group.get(names[a]) == group.get(names[b])
        ]
        alpha = float(np.clip(40 / max(1, len(self._links)), 0.08, 0.5))
        axes.add_collection(LineCollection(open_, colors=DIM, alpha=alpha, linewidths=0.8))

    def _color(self, states: States, name: str) -> str:
        state = states.state[name]
        if state != _UP:
            return _FILLS["down" if state == _DOWN else "stands still"]
        if name in states.group:
            return _FILLS["cut off"]
        return _FILLS["slow" if name in states.slow else "up"]

    def _draw_curve(self, axes: "Axes", time_s: float) -> None:
        name = "accuracy" if "accuracy" in self._series else "loss"
        if name not in self._series:
            name = "disagreement" if "disagreement" in self._series else "consensus_distance"
        values, times = self._series[name], self._series["time_s"]
        axes.clear()
        axes.set_xlim(0, self._end_s)
        quantiles = self._series.get(f"{name}_quantiles")
        drawn = [values] if quantiles is None else [values, *quantiles.T]
        known = np.concatenate([each[np.isfinite(each)] for each in drawn])
        low, high = (known.min(), known.max()) if len(known) else (0.0, 1.0)
        room = 0.06 * ((high - low) or 1.0)
        axes.set_ylim(low - room, high + room)
        axes.set_title(f"{name.replace('_', ' ')} of the merged model" if name in _MERGED else name)
        axes.set_xlabel("virtual time, s")
        seen = times <= time_s
        if quantiles is not None:
            axes.fill_between(
                times[seen], quantiles[seen, 0], quantiles[seen, 4], color=BLUE, alpha=0.15,
                linewidth=0, label="all workers",
            )  # fmt: skip
            axes.legend(loc="lower right" if name == "accuracy" else "upper right")
        axes.plot(times[seen], values[seen], color=BLUE, linewidth=1.6)
        if seen.any():
            axes.plot(times[seen][-1:], values[seen][-1:], "o", color=ACCENT, markersize=4)


_MERGED: Final = ("accuracy", "loss")

_FILLS: Final[Mapping[str, str]] = {
    "up": BLUE,
    "slow": PALETTE[4],
    "cut off": PALETTE[1],
    "stands still": "#CCCCCC",
    "down": "#FFFFFF",
}

_LINKS_MAX: Final = 2_000
"""Links of more nothing would be seen."""


def _links(summary: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Pairs of workers that some round of the topology links, each once."""
    from ....topology import parse
    from ....topology.schedules.union import adjacency, union

    built = parse(summary["topology"], summary["workers"], seed=summary["seed"])
    rows, columns = adjacency(union(built.schedule), 0).tocoo().coords
    pairs = {(min(a, b), max(a, b)) for a, b in zip(rows.tolist(), columns.tolist(), strict=True)}
    return sorted(pair for pair in pairs if pair[0] != pair[1]) if len(pairs) <= _LINKS_MAX else []


def _draw_legend(figure: "Figure") -> None:
    """What the colors mean."""
    axes = figure.add_axes((0.01, 0.01, 0.46, 0.07))
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(-1, 1)
    place = 0.04
    for word, color in _FILLS.items():
        edge = ACCENT if word == "down" else INK
        axes.scatter([place], [0], s=34, c=[color], edgecolors=edge, linewidths=0.8)
        axes.text(place + 0.025, 0, word, va="center", fontsize=8, color=DIM)
        place += 0.12 + 0.016 * len(word)


def _pixels(figure: "Figure") -> Any:
    canvas: Any = figure.canvas
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def _fewer_colors(picture: "Image", palette_of: "Image") -> "Image":
    """A picture of a GIF, all of which have one palette, without dots that flicker."""
    from PIL.Image import Dither, Quantize

    # Colors that few points have are kept: that is who is cut off.
    palette = palette_of.quantize(_COLORS, method=Quantize.MAXCOVERAGE)
    return picture.quantize(palette=palette, dither=Dither.NONE)
