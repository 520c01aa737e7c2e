"""Identifiers, cheap immutable dataclasses, and named random streams."""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple, TypeVar, dataclass_transform

import numpy as np

__all__ = [
    "INCARNATION_AHEAD_MS_MAX",
    "Incarnation",
    "PeerId",
    "ShareId",
    "SharePart",
    "SnapshotId",
    "frozen",
    "frozen_keywords",
    "stream",
]

_T = TypeVar("_T")

PeerId = str

Incarnation = int
"""One run of a peer: larger after every restart, 0 if unknown."""

INCARNATION_AHEAD_MS_MAX: Final = 86_400_000
"""How far ahead of a peer's own another incarnation may be; larger ones are ignored. One damaged
clock would shut its peer out of the swarm for that long."""

SnapshotId = int


class ShareId(NamedTuple):
    """Identifies a share at its receiver."""

    sender: PeerId
    incarnation: Incarnation
    seq: int
    shard: int = 0


class SharePart(NamedTuple):
    """Identifies one register of a share that carries several."""

    share: ShareId
    part: int

    @classmethod
    def of(cls, term: "ShareId | SharePart") -> "SharePart":
        """Normalize a term of a sum: a share alone stands for its first register."""
        return cls(term, 0) if isinstance(term, ShareId) else term


@dataclass_transform(frozen_default=True)
def frozen(cls: type[_T]) -> type[_T]:
    """Make a slotted dataclass that is frozen for the type checker, but not at run time."""
    # A frozen one calls ``object.__setattr__`` for every field: of the dozen that an event creates,
    # that would be a quarter of the cost of a decision.
    return dataclass(slots=True, unsafe_hash=True)(cls)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def frozen_keywords(cls: type[_T]) -> type[_T]:
    """`frozen`, with keyword-only fields."""
    return dataclass(slots=True, unsafe_hash=True, kw_only=True)(cls)


def stream(seed: int, peer: str, purpose: str) -> np.random.Generator:
    """Open the random stream of a *peer*, or of all of them, for one *purpose*, such as ``"rule"``.

    Streams of different names are independent, and the same in every process.

    Source: Salmon et al., SC 2011 (Philox, a counter-based generator).
    """
    name = f"{seed}\0{peer}\0{purpose}".encode()
    key = int.from_bytes(blake2b(name, digest_size=16).digest(), "little")
    return np.random.Generator(np.random.Philox(key=key))
