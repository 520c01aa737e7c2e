"""What a run was that goes on, and how the lives of its peers had ended."""

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
    """What the summary of a run says of each life; nothing where there is none to read."""
    # Of another version, or cut off: what it would say is then told in fewer words.
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
    """How the lives of the peers of a run ended, by their index, before any begins again."""
    told = read_life_ends(out)
    been = [p for p in places if any(map(ledger_paths, (*p.earlier, p.folder)))]
    return {place.index: life_ends_of(place, told) for place in been}


def life_ends_of(place: Place, told: Mapping[Life, LifeEnd]) -> list[LifeEnd]:
    """How each life of a peer ended, the first one first: as summaries say, or as the last life
    said itself. Of a life of which neither is known, the last step that was measured is told.

    Args:
        place: Of its last life, as that left it.
        told: What summaries say.
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
    # The launcher of the next life has moved what the last one said.
    report = read_report(place.folder) or read_report(place.folder, "former.peer.json")
    if not ends:
        ends = [LifeEnd(state=State.KILLED, why="", step=0, lives=frozenset())]
    # It counts the ledgers that there were when it was written: a later life may have ended since.
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
    """The folders of each peer of a run, by its name, those of earlier lives first."""
    from ...train.runtime.peer_folder import peer_folders

    folders = (path for path in (out / "peers").iterdir() if path.is_dir())
    return peer_folders(folder / "options.json" for folder in folders)


def require_same(config: LaunchConfig, out: Path) -> None:
    """See that the run in a folder is over, and had the same peers.

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
    """See that no peer of a run has outlived its launcher: its next life could not begin."""
    from ...train.storage.incarnation import is_locked

    running = [id for id, several in sorted(folders.items()) if any(map(is_locked, several))]
    if running:
        raise ConfigError(
            f"--resume {out}: {', '.join(running)} still running: wait until the end, or stop them "
            f"(`kill` the processes that {out}/peers/*/pid name); nothing was touched"
        )
