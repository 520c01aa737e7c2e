"""Draw mutants of the core with a fixed seed: a commit and a seed determine the list."""

import io
import random
import subprocess
import tarfile
from pathlib import Path

from .mutate import Mutant, mutants_of

__all__ = ["COUNT", "PACKAGES", "SEED", "draw", "draw_from", "sources_of"]

PACKAGES = ("gossip", "topology")
"""Packages from which mutants are drawn, except for `UNCOVERED`."""

UNCOVERED = "gossip/transport/"
"""Folder that only live tests reach, so that `make cover` omits it, too."""

COUNT = 120
SEED = 46

_REPOSITORY = Path(__file__).parents[2]


def draw(sources: dict[str, str], count: int, seed: int) -> list[Mutant]:
    """Draw mutants in proportion to the mutable lines of each module, at most one per line."""
    rng = random.Random(seed)
    by_line = {module: _by_line(module, source) for module, source in sources.items()}
    drawn = []
    for module, part in _parts({m: len(lines) for m, lines in by_line.items()}, count).items():
        lines = sorted(rng.sample(sorted(by_line[module]), part))
        drawn += [rng.choice(by_line[module][line]) for line in lines]
    return drawn


def _by_line(module: str, source: str) -> dict[int, list[Mutant]]:
    found: dict[int, list[Mutant]] = {}
    for mutant in mutants_of(module, source):
        found.setdefault(mutant.line, []).append(mutant)
    return found


def _parts(lines: dict[str, int], count: int) -> dict[str, int]:
    """Split *count* in proportion to *lines*, by largest remainder."""
    exact = {module: count * each / sum(lines.values()) for module, each in lines.items()}
    parts = {module: int(part) for module, part in exact.items()}
    short = sorted(exact, key=lambda module: parts[module] - exact[module])
    for module in short[: count - sum(parts.values())]:
        parts[module] += 1
    return parts


def draw_from(commit: str, count: int = COUNT, seed: int = SEED) -> list[Mutant]:
    """Draw mutants of a commit's core; a mutant's number is its place in the list."""
    return draw(sources_of(commit), count, seed)


def sources_of(commit: str) -> dict[str, str]:
    """Text of each module of the core, by its path without the ending."""
    archive = ["git", "-C", str(_REPOSITORY), "archive", commit, *PACKAGES]
    packed = subprocess.run(archive, check=True, capture_output=True)
    sources = {}
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as tar:
        for member in tar:
            file = tar.extractfile(member)
            if file and member.name.endswith(".py") and not member.name.startswith(UNCOVERED):
                sources[member.name.removesuffix(".py")] = file.read().decode()
    return dict(sorted(sources.items()))
