"""What came of a replay, for people and for programs."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from ..train.journal_head import Head
from .replay_difference import Difference

__all__ = ["PeerVerdict", "Replay", "Verdict"]


class Verdict(StrEnum):
    """What came of one peer's replay."""

    IDENTICAL = "identical"
    """Nothing differs, as far as its journal goes."""
    DIFFERS = "differs"
    """It parted ways with the live run."""
    STOPPED = "stopped"
    """It could not go on: its journal is damaged, or a share that it needs is not to be had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerVerdict:
    """How one life of a peer was replayed."""

    id: str
    incarnation: int
    folder: Path
    records: int
    """Records of its journal that were taken in, the head not counted."""
    steps: int
    """Optimizer steps taken."""
    mixed: int
    """Shares mixed."""
    verdict: Verdict
    closed: bool
    """Whether its journal has an end; False for a peer that was killed."""
    compared: bool
    """Whether its model was found equal to the one that the live run saved."""
    difference: Difference | None
    """Where it first differs."""
    why: str
    """Why it could not go on, in words; empty where it could."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What came of a replay."""

    peers: tuple[PeerVerdict, ...]
    """By id and incarnation."""
    difference: Difference | None
    """The one that was found first, over all peers."""
    warnings: tuple[str, ...]
    """Why bits may differ though nothing is wrong."""
    wall_s: float
    """What it took, seconds."""
    head: Head
    """Of the first peer: the task, the rule, the topology."""

    @property
    def identical(self) -> bool:
        """Whether nothing differs, and every journal could be replayed as far as it goes."""
        return all(peer.verdict is Verdict.IDENTICAL for peer in self.peers)

    def as_json(self) -> dict[str, Any]:
        """The result as values that JSON has."""
        return {
            "identical": self.identical,
            "task": self.head.training["task"],
            "rule": self.head.rule["name"],
            "topology": self.head.topology,
            "seed": self.head.seed,
            "peers": len(self.peers),
            "steps": sum(peer.steps for peer in self.peers),
            "records": sum(peer.records for peer in self.peers),
            "mixed": sum(peer.mixed for peer in self.peers),
            "difference": _plain(self.difference),
            "warnings": list(self.warnings),
            "wall_s": self.wall_s,
            "peers_detail": [
                {name: _plain(getattr(peer, name)) for name in peer.__slots__}
                for peer in self.peers
            ],
        }


def _plain(value: object) -> object:
    if isinstance(value, Difference):
        return {name: getattr(value, name) for name in value.__slots__}
    return str(value) if isinstance(value, Path) else value
