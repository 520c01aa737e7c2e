"""Write the tables of docs/explanation/statistics.md: how often studies are wrong, what they see.

``make verdicts``, from the root of the repository; it takes some five minutes of one core. What
stands outside the two markers is written by hand, and kept.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rumor.sim.study.analysis.ranking import SIGNIFICANT, Comparison, Row
from rumor.sim.study.analysis.rates import Rates, World, is_apart, rates_of
from rumor.sim.study.format import percent
from rumor.sim.study.statistics import holm

__all__ = [
    "BEGIN",
    "END",
    "NULL",
    "PAGE",
    "POWER",
    "Line",
    "as_before",
    "main",
    "rewritten",
    "tables",
]

PAGE = Path("docs/explanation/statistics.md")
BEGIN = (
    "<!-- Down to the next marker all is written by docs/scripts/verdicts.py: `make verdicts`. -->"
)
END = "<!-- Here it ends. -->"

STUDIES = 500
"""Of each line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of a table: words, and the world that its studies are drawn from."""

    words: str
    world: World


def _null() -> Iterator[Line]:
    for points, seeds in ((3, 3), (5, 3), (5, 6), (5, 10), (28, 3)):
        for miss, is_stuck in ((0.0, False), (0.1, False), (0.1, True), (0.3, True), (0.5, True)):
            world = World(points=points, seeds=seeds, miss=miss, is_stuck=is_stuck)
            words = "all arrive"
            if miss:
                ends = "stuck" if is_stuck else "nearly there"
                words = f"{percent(miss)} do not arrive, and end {ends}"
            yield Line(words=f"{points} points, {seeds} seeds; {words}", world=world)
    yield Line(words="27 points, 5 seeds; all arrive", world=World(points=27, seeds=5))
    for points, seeds in ((5, 3), (27, 5)):
        words = f"{points} points, {seeds} seeds, a reference; all arrive"
        yield Line(words=words, world=World(points=points, seeds=seeds, has_reference=True))


def _power() -> Iterator[Line]:
    for seeds in (3, 6, 10):
        head = f"5 points, {seeds} seeds;"
        for slower in (1.2, 1.5, 2.0):
            world = World(seeds=seeds, worse=1, slower=slower)
            yield Line(words=f"{head} one is {slower:g} times as slow", world=world)
        for misses in (0.5, 1.0):
            for is_stuck in (False, True):
                ends = "stuck" if is_stuck else "nearly there"
                world = World(seeds=seeds, worse=1, misses_of_worse=misses, is_stuck=is_stuck)
                often = "never arrives" if misses == 1 else "arrives every other time"
                yield Line(words=f"{head} one {often}, and ends {ends}", world=world)
    world = World(points=28, worse=14, slower=1.5)
    yield Line(words="28 points, 3 seeds; half of them are 1.5 times as slow", world=world)
    for points, seeds in ((5, 3), (27, 5)):
        world = World(points=points, seeds=seeds, worse=points - 1, slower=1.2)
        for words, has_reference in (("", False), (", the first is the reference", True)):
            yield Line(
                words=f"{points} points, {seeds} seeds{words}; all but the first are 1.2 times as "
                "slow",
                world=replace(world, has_reference=has_reference),
            )


NULL: tuple[Line, ...] = tuple(_null())
"""Studies of points that are all alike."""

POWER: tuple[Line, ...] = tuple(_power())
"""Studies of points of which some are worse."""


def as_before(row: Row, comparison: Comparison) -> bool:
    """Whether a row was called worse before arrivals were tested: version 0.1 until November 2026.

    Who did not arrive with every seed stood behind those that did, whatever the noise; only those
    that did were tested.
    """
    first, *others = comparison.ranked
    if row.label == first.label:
        return False
    if comparison.metric.name not in row.figures:
        return True
    pairs = (len(others) + 1) * len(others) // 2
    ps = holm([other.gap.p if other.gap else float("nan") for other in others], family=pairs)
    return any(
        p < SIGNIFICANT for other, p in zip(others, ps, strict=True) if other.label == row.label
    )


def tables(studies: int, null: Sequence[Line] = NULL, power: Sequence[Line] = POWER) -> str:
    """Both tables as Markdown."""
    lines = [
        f"{studies:,} made-up studies a line (`rumor.sim.study.analysis.rates`): times to the "
        "target vary by 10 % between trials of a point, and by 10 % between seeds, in common.",
        "",
        "**False differences**: the part of the studies that call some point worse, though all are "
        "alike.",
        "",
        "| points that are all alike | before | now |",
        "|---|---:|---:|",
    ]
    for line in null:
        before, now = _both(line, studies)
        lines.append(f"| {line.words} | {percent(before.wrong)} | {percent(now.wrong)} |")
    lines += [
        "",
        "**Power**: how often a point that is worse is told apart from the first, and, in "
        "brackets, the part of the studies that are wrong about another one.",
        "",
        "| points of which some are worse | before | now |",
        "|---|---:|---:|",
    ]
    for line in power:
        cells = [f"{percent(one.seen)} ({percent(one.wrong)})" for one in _both(line, studies)]
        lines.append(f"| {line.words} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _both(line: Line, studies: int) -> tuple[Rates, Rates]:
    before, now = rates_of(line.world, studies, [as_before, is_apart])
    return before, now


def rewritten(page: str, shown: str) -> str:
    """A page with these tables between its markers."""
    above, _, rest = page.partition(BEGIN)
    _, _, below = rest.partition(END)
    return f"{above}{BEGIN}\n\n{shown}\n\n{END}{below}"


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--studies", type=int, default=STUDIES, help="of each line")
    shown = tables(parser.parse_args().studies)
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), shown), encoding="utf-8")


if __name__ == "__main__":
    main()
