"""The swarms of a run whose processes make several peers each, such as one for each fold.

The first peer of a process writes into the process's folder, each further one, and each that has a
name, into a folder of its own in there. The results of such a swarm are in ``swarms/NAME``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ....train.storage.incarnation import INCARNATION_FILE
from ..command import conclude
from ..folder import Place
from ..monitor import LifeEnd, Process, ended_view
from ..resume import life_ends_of, read_life_ends
from ..summary import read_outcomes

__all__ = ["conclude_further", "is_further_alone", "names_of"]


def names_of(places: Sequence[Place]) -> list[str]:
    """Names of all swarms but the first, sorted."""
    paths = (path for place in places for path in _paths(place))
    return sorted({path.name for path in paths})


def is_further_alone(places: Sequence[Place]) -> bool:
    """Check whether all peers have names, so that none writes into its process's folder."""
    folders = [folder for place in places for folder in (*place.earlier, place.folder)]
    has_first = any((folder / INCARNATION_FILE).exists() for folder in folders)
    return not has_first and bool(names_of(places))


def conclude_further(
    described: Mapping[str, Any],
    out: Path,
    wall_s: float,
    places: Sequence[Place],
    processes: Sequence[Process],
) -> dict[str, dict[str, Any]]:
    """Merge, sum up and draw each further swarm of a run that is over.

    Args:
        described: What was asked for, as a summary repeats it.
        out: The run's folder.
        wall_s: How long it took, seconds.
        places: Of its processes.
        processes: In the same order.

    Returns:
        Summaries, by the swarm's name.
    """
    found = {}
    for name in names_of(places):
        folder = out / "swarms" / name
        folder.mkdir(parents=True, exist_ok=True)
        told = read_life_ends(folder)
        own, views = [], []
        for place, process in zip(places, processes, strict=True):
            if name not in {path.name for path in _paths(place)}:
                continue
            earlier = tuple(each / name for each in place.earlier if (each / name).is_dir())
            own.append(replace(place, folder=place.folder / name, earlier=earlier))
            # The last life is the one whose end is seen now.
            ends: Sequence[LifeEnd] = life_ends_of(own[-1], told)[:-1]
            views.append(ended_view(own[-1], process.poll(), ends))
        told_of = {**described, "peers": len(own)}
        found[name] = conclude(told_of, None, folder, wall_s, read_outcomes(own, views))
    return found


def _paths(place: Place) -> Iterator[Path]:
    for folder in (*place.earlier, place.folder):
        yield from (path.parent for path in folder.glob(f"*/{INCARNATION_FILE}"))
