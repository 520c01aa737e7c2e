"""How the lives of a peer ended that were over before its run goes on."""

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..train.ledger_file import ledger_paths
from .places import Place
from .watch import Former, Life, State, Tail, life_in, read_report

__all__ = ["past_of", "told_by"]


def told_by(out: Path) -> dict[Life, Former]:
    """What the summary of a run says of each life; nothing where there is none to read.

    Args:
        out: The run's folder.
    """
    # Of another version, or cut off: what it would say is then told in fewer words.
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        summary = json.loads((out / "summary.json").read_text())
        told = [
            (frozenset((peer["id"], int(number)) for number in end["incarnations"]), end)
            for peer in summary["peers_detail"]
            for end in peer.get("ends", ())
        ]
        formers = [
            Former(
                state=State(end["state"]), why=end["why"] or "", step=int(end["step"]), lives=lives
            )
            for lives, end in told
        ]
        return {life: former for former in formers for life in former.lives}
    return {}


def past_of(place: Place, told: Mapping[Life, Former]) -> list[Former]:
    """How each life of a peer ended, the first one first.

    What its launcher saw is believed before what the peer said at its end; of a life of which
    neither is kept, the last step that it measured is all that is known.

    Args:
        place: Of its last life, as that left it.
        told: What summaries say.
    """
    formers: list[Former] = []
    step = 0
    for folder in (*place.former, place.folder):
        lives = [life_in(path) for path in ledger_paths(folder)]
        said = dict(_said_in(folder, lives))
        measured = _measured_in(folder, lives)
        for life in filter(None, lives):
            # A life that measured nothing stood where the one before it had.
            step = measured.get(life, step)
            silent = Former(state=State.KILLED, why="", step=step, lives=frozenset({life}))
            formers.append(told.get(life) or said.get(life) or silent)
    if formers:
        return formers
    report = read_report(place.folder)
    nothing = frozenset[Life]()
    if report is None:
        return [Former(state=State.KILLED, why="", step=0, lives=nothing)]
    return [_as_said(report, nothing)]


def _said_in(folder: Path, lives: list[Life | None]) -> Iterator[tuple[Life, Former]]:
    """What lives said themselves of their ends, as far as it has not been written over."""
    for name in ("former.peer.json", "peer.json"):
        report = read_report(folder, name)
        if report is not None:
            # It counts the ledgers that there were when it was written.
            position = int(report.get("lives", len(lives))) - 1
            life = lives[position] if 0 <= position < len(lives) else None
            if life is not None:
                yield life, _as_said(report, frozenset({life}))


def _as_said(report: Mapping[str, Any], lives: frozenset[Life]) -> Former:
    return Former(
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
