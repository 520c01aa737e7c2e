"""A simulated run as a moving picture: who is up, who is cut off, and how good the model is."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...gossip.errors import ConfigError
from .figures import describe
from .plots import ACCENT, BLUE, DIM, INK, PALETTE, STYLE, Floats, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from PIL.Image import Image

__all__ = ["States", "animate", "check_film", "states_at"]

_WIDTH, _HEIGHT, _DPI = 8.0, 4.2, 100

_COLORS: Final = 64
"""Of a GIF: lines and points need no more, and each costs bytes."""

_EVENTS_SHOWN: Final = 5
"""The latest ones."""

_LINKS_MAX: Final = 2_000
"""Links of more nothing would be seen."""

_UP, _DOWN, _PAUSED = "up", "down", "paused"

# The state that a fault of one peer leaves it in, and how it is put in words.
_STATES: Final = {
    "crash": _DOWN, "restart": _UP, "pause": _PAUSED, "continue": _UP, "leave": _DOWN
}  # fmt: skip
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

_FILLS: Final[Mapping[str, str]] = {
    "up": BLUE,
    "slow": PALETTE[4],
    "cut off": PALETTE[1],
    "stands still": "#CCCCCC",
    "down": "#FFFFFF",
}


@dataclass(slots=True)
class States:
    """What has happened to all workers by some moment."""

    state: dict[str, str] = field(default_factory=dict)
    """Of each worker that ever was: up, down or paused."""
    slow: set[str] = field(default_factory=set)
    group: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Of each worker that is cut off from all but the members of its group."""
    events: list[str] = field(default_factory=list)
    """All so far, in words."""


def animate(
    summary: Mapping[str, Any],
    series: Mapping[str, Floats],
    names: Sequence[str],
    path: Path,
    *,
    seconds: float = 12.0,
    fps: float = 10.0,
) -> None:
    """Draw a run as a film, as `rumor.sim.Run.animate` has it; *names* are those of its workers,
    newcomers last."""
    check_film(path)
    for name, value in (("seconds", seconds), ("fps", fps)):
        if not (math.isfinite(value) and value > 0):
            raise ConfigError(f"{name} is {value}: it must be a number above 0")
    end_s = float(np.nanmax(series["time_s"], initial=0.0)) or 1.0
    moments = np.linspace(0.0, end_s, max(2, round(seconds * fps)))
    pictures = list(_pictures(summary, series, names, moments))
    options: dict[str, Any] = {"quality": 60, "method": 4}
    if path.suffix.lower() == ".gif":
        options = {"optimize": True}
        pictures = [_fewer_colors(each, pictures[-1]) for each in pictures]
    # The end is to be looked at.
    options["duration"] = [round(1000 / fps)] * (len(pictures) - 1) + [2500]
    pictures[0].save(path, save_all=True, append_images=pictures[1:], loop=0, **options)


def check_film(path: Path) -> None:
    """See whether a film can be written there, before anything long is computed.

    Raises:
        ConfigError: It is in a folder that does not exist, or of an unknown format.
    """
    if path.suffix.lower() not in (".gif", ".webp"):
        raise ConfigError(f"film {path}: it must end in .gif or .webp")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"film {path}: name a file in a folder that exists")


def states_at(faults: Iterable[Mapping[str, Any]], names: Sequence[str], time_s: float) -> States:
    """What was done to whom by a moment, from the faults of a summary, in order of time.

    Workers called ``join-...`` come with a ``join``.

    >>> states_at([{"at_s": 1.0, "kind": "pause", "peer": "a", "for_s": 2.0}], ["a"], 2.0).state
    {'a': 'paused'}
    """
    found = States(state={name: _UP for name in names if not name.startswith("join-")})
    for fault in faults:
        if fault["at_s"] > time_s:
            break
        lasts = fault.get("for_s") is None or time_s < fault["at_s"] + fault["for_s"]
        _note(found, fault, lasts=lasts)
    return found


def _note(found: States, fault: Mapping[str, Any], *, lasts: bool) -> None:
    """What a fault has done; of one that does not last any more, its name alone is left."""
    kind, peer = fault["kind"], str(fault.get("peer"))
    text = _WORDS.get(kind, kind).format(peer)
    if kind == "join":
        joined = sum(name.startswith("join-") for name in found.state)
        new = [f"join-{joined + each}" for each in range(1, 1 + fault.get("count", 1))]
        found.state |= dict.fromkeys(new, _UP)
        found.events += [f"{name} joins" for name in new]
        return
    if kind in _STATES and lasts:
        found.state[peer] = _STATES[kind]
    elif kind == "mass-restart":
        peers = fault.get("peers") or list(found.state)
        found.state |= dict.fromkeys(peers, _DOWN if lasts else _UP)
        text = f"{len(peers)} are killed at once"
    elif kind == "slow" and lasts:
        found.slow.add(peer)
    elif kind == "cut" and lasts:
        found.group[peer] = (peer,)
    elif kind == "partition":
        groups = {name: tuple(group) for group in fault["groups"] for name in group}
        found.group |= groups if lasts else {}
        text = f"{len(groups)} {'is' if len(groups) == 1 else 'are'} cut off from the others"
    elif kind == "heal":
        found.group.clear()
        text = "all cuts heal"
    found.events.append(text)


def _pictures(
    summary: Mapping[str, Any], series: Mapping[str, Floats], names: Sequence[str], moments: Floats
) -> "Iterator[Image]":
    """One for each moment."""
    from matplotlib import rc_context
    from matplotlib.lines import Line2D
    from PIL.Image import fromarray

    links, style = _links(summary), {"linestyle": "", "marker": "o", "markersize": 6}
    meanings = [
        Line2D([], [], markerfacecolor=color, markeredgecolor=_edge(word), label=word, **style)  # type: ignore[arg-type]
        for word, color in _FILLS.items()
    ]
    with rc_context(STYLE):
        figure = new_figure(_WIDTH, _HEIGHT, None, dpi=_DPI)
        figure.text(0.02, 0.95, describe(summary), fontsize=10.5, fontweight="bold", va="center")
        swarm = figure.add_axes((0.01, 0.08, 0.46, 0.83))
        figure.legend(handles=meanings, loc="lower left", ncols=len(meanings), handletextpad=0.1,
                      columnspacing=1.2, labelcolor=DIM)  # fmt: skip
        curve = figure.add_axes((0.56, 0.42, 0.41, 0.46))
        words = figure.text(0.56, 0.26, "", fontsize=8.5, color=DIM, va="top", linespacing=1.5)
        for time_s in map(float, moments):
            states = states_at(summary.get("faults") or [], names, time_s)
            _draw_swarm(swarm, states, names, links, time_s)
            _draw_curve(curve, series, time_s, float(moments[-1]))
            words.set_text("\n".join(states.events[-_EVENTS_SHOWN:]))
            canvas: Any = figure.canvas
            canvas.draw()
            yield fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def _links(summary: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Pairs of workers that some round of the topology links, each once."""
    from ...topology import parse
    from ...topology.schedules.union import adjacency, union

    built = parse(summary["topology"], summary["workers"], seed=summary["seed"])
    rows, columns = adjacency(union(built.schedule), 0).tocoo().coords
    pairs = {(min(a, b), max(a, b)) for a, b in zip(rows.tolist(), columns.tolist(), strict=True)}
    return sorted(pair for pair in pairs if pair[0] != pair[1]) if len(pairs) <= _LINKS_MAX else []


def _draw_swarm(
    axes: "Axes",
    states: States,
    names: Sequence[str],
    links: Sequence[tuple[int, int]],
    time_s: float,
) -> None:
    from matplotlib.collections import LineCollection

    axes.clear()
    axes.set_axis_off()
    axes.set(xlim=(-1.25, 1.25), ylim=(-1.25, 1.25), aspect="equal")
    angles = np.pi / 2 - 2 * np.pi * np.arange(len(names)) / len(names)
    places = np.column_stack([np.cos(angles), np.sin(angles)])
    # Links over which something can pass.
    state, group = states.state, states.group
    open_ = [
        (places[a], places[b])
        for a, b in links
        if state.get(names[a]) == state.get(names[b]) == _UP
        and group.get(names[a]) == group.get(names[b])
    ]
    alpha = float(np.clip(40 / max(1, len(links)), 0.08, 0.5))
    axes.add_collection(LineCollection(open_, colors=DIM, alpha=alpha, linewidths=0.8))
    here = {index: _look(states, name) for index, name in enumerate(names) if name in state}
    looks, size = list(here.values()), float(np.clip(5200 / len(names), 12, 500))
    x, y = places[list(here)].T
    axes.scatter(
        x,
        y,
        s=[size * (0.4 if look == "down" else 1.0) for look in looks],
        c=[_FILLS[look] for look in looks],
        edgecolors=[_edge(look) for look in looks],
        linewidths=0.8,
        zorder=2,
    )
    up = sum(each != _DOWN for each in state.values())
    box = {"color": "white", "alpha": 0.8, "pad": 1.5}
    style: Any = {"ha": "center", "color": INK, "zorder": 3, "bbox": box}
    axes.text(0, 0.08, f"{up} of {len(here)} up", fontsize=14, **style)
    axes.text(0, -0.12, f"{time_s:.3g} s", fontsize=10, **style)


def _look(states: States, name: str) -> str:
    """A key of `_FILLS`."""
    if states.state[name] != _UP:
        return "down" if states.state[name] == _DOWN else "stands still"
    return "cut off" if name in states.group else "slow" if name in states.slow else "up"


def _edge(look: str) -> str:
    return ACCENT if look == "down" else INK


def _draw_curve(axes: "Axes", series: Mapping[str, Floats], time_s: float, end_s: float) -> None:
    names = ("accuracy", "loss", "disagreement", "consensus_distance")
    name = next(name for name in names if name in series)
    values, times = series[name], series["time_s"]
    quantiles = series.get(f"{name}_quantiles")
    drawn = values if quantiles is None else np.column_stack([values, quantiles])
    known = drawn[np.isfinite(drawn)] if np.isfinite(drawn).any() else np.array([0.0, 1.0])
    low, high = known.min(), known.max()
    room = 0.06 * ((high - low) or 1.0)
    axes.clear()
    axes.set(xlim=(0, end_s), ylim=(low - room, high + room), xlabel="virtual time, s")
    is_merged = name in ("accuracy", "loss")
    axes.set_title(f"{name} of the merged model" if is_merged else name.replace("_", " "))
    seen = times <= time_s
    if quantiles is not None:
        least, most = quantiles[seen, 0], quantiles[seen, -1]
        style: Any = {"color": BLUE, "alpha": 0.15, "linewidth": 0, "label": "all workers"}
        axes.fill_between(times[seen], least, most, **style)
        axes.legend(loc="lower right" if name == "accuracy" else "upper right")
    axes.plot(times[seen], values[seen], color=BLUE, linewidth=1.6)
    axes.plot(times[seen][-1:], values[seen][-1:], "o", color=ACCENT, markersize=4)


def _fewer_colors(picture: "Image", palette_of: "Image") -> "Image":
    """A picture of a GIF, all of which have one palette, without dots that flicker."""
    from PIL.Image import Dither, Quantize

    # Colors that few points have are kept: that is who is cut off.
    palette = palette_of.quantize(_COLORS, method=Quantize.MAXCOVERAGE)
    return picture.quantize(palette=palette, dither=Dither.NONE)
