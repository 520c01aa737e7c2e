"""What a run was that goes on, and how the lives of its peers had ended."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ...gossip.errors import ConfigError
from ...train.storage.files import read_json
from ...train.storage.ledger_file import ledger_paths
from .config import LaunchConfig, Place
from .monitor import Life, LifeEnd, State, Tail, life_in, read_report

__all__ = [
    "folders_of",
    "life_ends_of",
    "lives_before",
    "read_life_ends",
    "require_same",
]


def read_life_ends(out: Path) -> dict[Life, LifeEnd]:
    """What the summary of a run says of each life; nothing where there is none to read.

    Args:
        out: The run's folder.
    """
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
    """How each life of a peer ended, the first one first.

    What its launcher saw is believed before what the peer said at its end; of a life of which
    neither is kept, the last step that it measured is all that is known.

    Args:
        place: Of its last life, as that left it.
        told: What summaries say.
    """
    ends: list[LifeEnd] = []
    step = 0
    for folder in (*place.earlier, place.folder):
        lives = [life_in(path) for path in ledger_paths(folder)]
        said = dict(_said_in(folder, lives))
        measured = _measured_in(folder, lives)
        for life in filter(None, lives):
            # A life that measured nothing stood where the one before it had.
            step = measured.get(life, step)
            silent = LifeEnd(state=State.KILLED, why="", step=step, lives=frozenset({life}))
            ends.append(told.get(life) or said.get(life) or silent)
    if ends:
        return ends
    report = read_report(place.folder)
    nothing = frozenset[Life]()
    if report is None:
        return [LifeEnd(state=State.KILLED, why="", step=0, lives=nothing)]
    return [_as_said(report, nothing)]


def _said_in(folder: Path, lives: list[Life | None]) -> Iterator[tuple[Life, LifeEnd]]:
    """What lives said themselves of their ends, as far as it has not been written over."""
    for name in ("former.peer.json", "peer.json"):
        report = read_report(folder, name)
        if report is not None:
            # It counts the ledgers that there were when it was written.
            position = int(report.get("lives", len(lives))) - 1
            life = lives[position] if 0 <= position < len(lives) else None
            if life is not None:
                yield life, _as_said(report, frozenset({life}))


def _as_said(report: Mapping[str, Any], lives: frozenset[Life]) -> LifeEnd:
    return LifeEnd(
        state=State(report["state"]),
        why=report.get("error") or "",
        step=int(report.get("steps", 0)),
        lives=lives,
    )


def _measured_in(folder: Path, lives: list[Life | None]) -> dict[Life, int]:
    """The last step that each life in a folder measured."""
    known = [life for life in lives if life is not None]
    # A life is named by the millisecond in which it began.
    began_s = [number / 1000 for _, number in known]
    steps: dict[Life, int] = {}
    for row in Tail(folder / "metrics.jsonl").rows():
        position = bisect_right(began_s, row.get("unix_s", float("inf"))) - 1
        if known:
            steps[known[max(0, position)]] = int(row.get("step", 0))
    return steps


_NAMED_MAX: Final = 4
"""Peers that an error names one by one."""


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
    """See that no peer of a run has outlived its launcher: its next life could not begin.

    Args:
        out: The run's folder.
        folders: Those of each peer, by its name.

    Raises:
        ConfigError: One still runs; it says how to stop it.
    """
    from ...train.storage.incarnation import is_locked

    running = [
        (id, folder)
        for id, several in sorted(folders.items())
        for folder in several
        if is_locked(folder)
    ]
    if not running:
        return
    pids = {id: pid for id, folder in running if (pid := _process_in(folder)) is not None}
    named = [id + (f" (process {pids[id]})" if id in pids else "") for id, _ in running]
    if len(named) > _NAMED_MAX:
        named[_NAMED_MAX:] = [f"{len(named) - _NAMED_MAX} more"]
    who = " and ".join(filter(None, [", ".join(named[:-1]), named[-1]]))
    run, them = ("still runs", "it") if len(running) == 1 else ("still run", "them")
    how = f" with `kill {' '.join(map(str, pids.values()))}`" if pids else ""
    raise ConfigError(
        f"--resume {out}: {who} {run}: wait until the end, or stop {them}{how}; nothing was touched"
    )


def _process_in(folder: Path) -> int | None:
    """The process of a peer that runs, if it is the one that a launcher started there."""
    from ...train.storage.incarnation import is_held_by

    try:
        pid = int((folder / "pid").read_text())
    except (OSError, ValueError):
        return None
    return pid if is_held_by(folder, pid) else None
