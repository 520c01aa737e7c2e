"""Everything that was asked for, and the command that repeats each cell."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ..condition import Condition
from ..result import Results
from ..study import Cell, Point, Study
from .commands import command
from .controls import chooser, section
from .html import Html, join, tag

__all__ = ["arguments"]


def arguments(results: Results) -> Html:
    """The section on how to run all this again."""
    study = results.study
    pairs = (join([tag("dt", name), tag("dd", *values)]) for name, values in _asked(study))
    cells = list(study.cells())
    lines = join([tag("code", command(cell), data_cell=_key(study, cell)) for cell in cells], "\n")
    listed = tag(
        "details",
        tag("summary", f"All {len(cells):,} commands"),
        tag("pre", lines),
        class_="all",
    )
    return section(
        "arguments",
        "Repeat it",
        "Every argument of the study; what is not given is left to rumor simulate. Each cell runs "
        "by itself with the command below, and gives the same digest. Files are looked for in the "
        "folder that the study was run in.",
        tag("dl", join(pairs), class_="pairs"),
        _picker(study),
        tag(
            "div",
            tag("pre", tag("code", id="command"), tabindex="0"),
            tag("button", "Copy", type="button", class_="plain", id="copy", hidden=True),
            class_="command",
            hidden=True,
            data_script=True,
        ),
        listed,
    )


def _picker(study: Study) -> Html:
    axes = [
        chooser("cell", axis.name, {str(i): text for i, text in enumerate(axis.labels)}, f"{at}")
        for at, axis in enumerate(study.axes)
    ]
    seeds = chooser("cell", "seed", {str(seed): str(seed) for seed in study.seeds}, "seed")
    return tag("div", *axes, seeds, class_="controls", hidden=True, data_script=True)


def _key(study: Study, cell: Cell) -> str:
    places = [str(axis.labels.index(cell.labels[axis.name])) for axis in study.axes]
    return "-".join([*places, str(cell.seed)])


def _asked(study: Study) -> Iterator[tuple[str, list[Html | str]]]:
    for name, value in study.settings.items():
        yield name, [tag("code", _text(value))]
    for axis in study.axes:
        yield (
            f"{axis.name} (varied)",
            [join([_point(axis.name, point) for point in axis.points], ", ")],
        )
    for condition in study.skip:
        yield "left out", [tag("code", _condition(condition))]
    yield "seeds", [tag("code", ", ".join(map(str, study.seeds)))]
    yield "target accuracy", [tag("code", f"{study.target:g}")]


def _point(axis: str, point: Point) -> Html:
    if point.settings == {axis: point.label} or list(point.settings) == [axis]:
        return tag("code", point.label)
    given = ", ".join(f"{name} = {_text(value)}" for name, value in point.settings.items())
    return join([tag("code", point.label), f" ({given or 'nothing set'})"])


def _condition(condition: Condition) -> str:
    return " and ".join(f"{name} = {_text(value)}" for name, value in condition.wanted.items())


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)
