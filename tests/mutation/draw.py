"""Draw mutants of the protocol's core with a fixed seed, and freeze the list.

``python -m rumor.tests.mutation.draw`` writes `mutants.json` anew; `SOURCES` names what it was
drawn from.
"""

import json
import random
from dataclasses import asdict
from pathlib import Path

from .mutate import Mutant, mutants_of

__all__ = ["COMMIT", "LIST", "MODULES", "draw", "load"]

COMMIT = "22399f1"
"""The sources that the frozen list was drawn from."""

MODULES = (
    "exchange/outgoing",
    "exchange/incoming",
    "membership/table",
    "protocol/context",
    "protocol/join",
    "protocol/leave",
    "protocol/protocol",
)
LIST = Path(__file__).with_name("mutants.json")

_SEED = 14
_COUNT = 120


def draw(sources: dict[str, str], count: int, seed: int) -> list[Mutant]:
    """Draw mutants, of each module in proportion to its lines, and at most one of a line.

    Args:
        sources: Text of each module, by its name.
        count: How many in all.
        seed: Of the draw.
    """
    rng = random.Random(seed)
    drawn = []
    for module, part in _parts({m: len(s.splitlines()) for m, s in sources.items()}, count).items():
        by_line: dict[int, list[Mutant]] = {}
        for mutant in mutants_of(module, sources[module]):
            by_line.setdefault(mutant.line, []).append(mutant)
        lines = sorted(rng.sample(sorted(by_line), part))
        drawn += [rng.choice(by_line[line]) for line in lines]
    return drawn


def _parts(lines: dict[str, int], count: int) -> dict[str, int]:
    """Split *count* in proportion to *lines*, by largest remainder."""
    exact = {module: count * each / sum(lines.values()) for module, each in lines.items()}
    parts = {module: int(part) for module, part in exact.items()}
    short = sorted(exact, key=lambda module: parts[module] - exact[module])
    for module in short[: count - sum(parts.values())]:
        parts[module] += 1
    return parts


def load() -> list[Mutant]:
    """The frozen list; a mutant's number is its place in it."""
    return [Mutant(**each) for each in json.loads(LIST.read_text())["mutants"]]


def _freeze() -> None:
    core = Path(__file__).parents[2] / "gossip"
    sources = {module: (core / f"{module}.py").read_text() for module in MODULES}
    mutants = [asdict(mutant) for mutant in draw(sources, _COUNT, _SEED)]
    page = {"commit": COMMIT, "seed": _SEED, "mutants": mutants}
    LIST.write_text(json.dumps(page, indent=1) + "\n")


if __name__ == "__main__":
    _freeze()
