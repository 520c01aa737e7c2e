"""Decisions do not change unnoticed: traces of seeds are frozen in traces.txt.

Each line holds a seed, its number of events, and the digest of its trace. A refactoring leaves all
lines as they are; a change that alters a decision on purpose, or renames an event, an effect or one
of their fields, regenerates them with
``python tests/sim/fuzz/test_trace.py`` and says so in the CHANGELOG.
"""

from multiprocessing import Pool
from pathlib import Path

import pytest

from rumor.sim.fuzz import draw
from rumor.sim.fuzz.scenario import workers_of
from rumor.sim.fuzz.trial import run

PATH = Path(__file__).with_name("traces.txt")
LINES = PATH.read_text().splitlines()
SHORT = [line for line in LINES[:14] if int(line.split()[1]) < 2000]
LONG = [line for line in LINES if line not in SHORT]


def traced(seed: int) -> str:
    swarm = run(draw(seed, workers_of(seed, 6)))
    return f"{seed} {swarm.invariants.events} {swarm.invariants.digest}"


@pytest.mark.parametrize("line", SHORT, ids=lambda line: line.split()[0])
def test_decisions_match_the_frozen_traces(line: str) -> None:
    assert traced(int(line.split()[0])) == line


@pytest.mark.extended
@pytest.mark.parametrize("line", LONG, ids=lambda line: line.split()[0])
def test_decisions_of_more_seeds_match_the_frozen_traces(line: str) -> None:
    assert traced(int(line.split()[0])) == line


if __name__ == "__main__":
    with Pool() as pool:
        PATH.write_text("".join(line + "\n" for line in pool.map(traced, range(len(LINES)))))
