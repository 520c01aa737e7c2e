"""The earlier settings of a resumed run, and how the incarnations of its peers ended."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ...gossip.errors import ConfigError
from ...train.storage.files import read_json
from ...train.storage.jsonl import Tail
from ...train.storage.ledger_file import ledger_paths
from .config import LaunchConfig, Place
from .monitor import Life, LifeEnd, State, life_in, read_report

__all__ = [
    "folders_of",
    "life_ends_of",
    "lives_before",
    "read_life_ends",
    "require_same",
]


def read_life_ends(out: Path) -> dict[Life, LifeEnd]:
    """Return the ends of incarnations in the summary of a run; empty without a readable one."""
    # A summary of another version, or a truncated one, is ignored: the ends have less detail then.
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        summary = read_json(out / "summary.json")
        told = [
            (frozenset((peer["id"], int(number)) for number in end["incarnations"]), end)
            for peer in summary["peers_detail"]
            for end in peer.get("ends", ())
        ]
        ends = [
            LifeEnd(
                state=State(end["state"]), why=end["why"] or "", step=int(end["step"]), lives=lives
            )
            for lives, end in told
        ]
        return {life: end for end in ends for life in end.lives}
    return {}


def lives_before(out: Path, places: Sequence[Place]) -> dict[int, list[LifeEnd]]:
    """Return how the incarnations of the peers ended, by index, before any begins again."""
    told = read_life_ends(out)
    been = [p for p in places if any(map(ledger_paths, (*p.earlier, p.folder)))]
    return {place.index: life_ends_of(place, told) for place in been}


def life_ends_of(place: Place, told: Mapping[Life, LifeEnd]) -> list[LifeEnd]:
    """Return how each incarnation of a peer ended, the first one first: from summaries, or from the
    last incarnation's own report. Without both, only the last measured step is known.

    Args:
        place: Place of its last incarnation, as that left it.
        told: Ends in the summaries.
    """
    folders = (*place.earlier, place.folder)
    lives = [(folder, life_in(path)) for folder in folders for path in ledger_paths(folder)]
    ends = []
    for folder, life in lives:
        if life is not None:
            rows = Tail(folder / "metrics.jsonl").rows()
            step = int(rows[-1].get("step", 0)) if rows else 0
            silent = LifeEnd(state=State.KILLED, why="", step=step, lives=frozenset({life}))
            ends.append(told.get(life, silent))
    # The launcher of the next incarnation has moved the report of the last one.
    report = read_report(place.folder) or read_report(place.folder, "former.peer.json")
    if not ends:
        ends = [LifeEnd(state=State.KILLED, why="", step=0, lives=frozenset())]
    # It counts the ledgers at its time of writing: a later incarnation may have ended since.
    count = len(ledger_paths(place.folder))
    if report and ends[-1].lives.isdisjoint(told) and report.get("lives", count) == count:
        ends[-1] = replace(
            ends[-1],
            state=State(report["state"]),
            why=report.get("error") or "",
            step=int(report.get("steps", 0)),
        )
    return ends


def folders_of(out: Path) -> dict[str, list[Path]]:
    """Return the folders of each peer of a run, by its name, earlier incarnations first."""
    from ...train.runtime.peer_folder import peer_folders

    folders = (path for path in (out / "peers").iterdir() if path.is_dir())
    return peer_folders(folder / "options.json" for folder in folders)


def require_same(config: LaunchConfig, out: Path) -> None:
    """Check that the run in a folder is over, and had the same peers.

    Raises:
        ConfigError: It was another one, or some of its peers still run.
    """
    folders = folders_of(out)
    others = sorted({*folders} - {*config.ids()})
    if other := [id for id in others if re.fullmatch(r"join-\d+", id, re.ASCII) is None]:
        raise ConfigError(
            f"--resume {out}: {other[0]} was a peer there, and would be none now: give the same "
            "options as before, -n among them"
        )
    _require_over(out, folders)


def _require_over(out: Path, folders: Mapping[str, Sequence[Path]]) -> None:
    """Check that no peer of a run has outlived its launcher: it could not start again."""
    from ...train.storage.incarnation import is_locked

    running = [id for id, several in sorted(folders.items()) if any(map(is_locked, several))]
    if running:
        raise ConfigError(
            f"--resume {out}: {', '.join(running)} still running: wait until the end, or stop them "
            f"(`kill` the processes that {out}/peers/*/pid name); nothing was touched"
        )
