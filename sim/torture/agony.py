"""Faults drawn at random: first which kinds there are at all, then when and on whom they fall.

A campaign in which everything happens at once seldom gets far enough to meet anything rare. Which
kinds a seed has is therefore drawn first.

Source: swarm testing, Groce, Zhang, Eide, Chen and Regehr, ISSTA 2012.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from ...gossip import PeerId
from ..faults import Fault

__all__ = ["draw_faults"]

_Draw = Callable[[np.random.Generator, Sequence[PeerId], float], list[Fault]]


def _crash(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    """One dies at once, in the middle of what it does next, or on accepting; it may come back."""
    peer, how = _one(rng, peers), rng.random()
    crash = Fault(
        at_s=at_s,
        kind="crash",
        peer=peer,
        after=int(rng.integers(7)) if how < 0.4 else None,
        accepting=True if how > 0.6 else None,
    )
    back_s, returns, kept = rng.exponential(2.0), rng.random() < 0.7, rng.random() < 0.6
    if not returns:
        return [crash]
    state = "kept" if kept else "lost"
    later_s = _rounded(at_s + 0.3 + back_s)
    return [crash, Fault(at_s=later_s, kind="restart", peer=peer, state=state)]


def _mass_restart(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    some = tuple(peer for peer in peers if rng.random() < 0.6)
    return [
        Fault(
            at_s=at_s,
            kind="mass-restart",
            for_s=_lasting(rng, 2.0),
            peers=some if some and rng.random() < 0.4 else None,
            state="kept" if rng.random() < 0.7 else "lost",
        )
    ]


def _pause(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    peer, for_s = _one(rng, peers), _lasting(rng, 3.0)
    if rng.random() < 0.7:
        return [Fault(at_s=at_s, kind="pause", peer=peer, for_s=for_s)]
    pause = Fault(at_s=at_s, kind="pause", peer=peer)
    return [pause, Fault(at_s=_rounded(at_s + for_s), kind="continue", peer=peer)]


def _slow(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    factor = float(rng.choice([2.0, 5.0, 20.0]))
    return [
        Fault(
            at_s=at_s, kind="slow", peer=_one(rng, peers), factor=factor, for_s=_lasting(rng, 5.0)
        )
    ]


def _clock_jump(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    by_s = float(rng.choice([0.5, 5.0, 60.0, 3600.0]))
    return [Fault(at_s=at_s, kind="clock-jump", peer=_one(rng, peers), by_s=by_s)]


def _cut(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    peer, to = _one(rng, peers), _one(rng, peers)
    some = to != peer and rng.random() < 0.4
    return [
        Fault(
            at_s=at_s,
            kind="cut",
            peer=peer,
            to=to if some else None,
            one_way=True if rng.random() < 0.5 else None,
            for_s=_lasting(rng, 3.0),
        )
    ]


def _partition(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    some = tuple(peer for peer in peers if rng.random() < 0.5) or (peers[0],)
    partition = Fault(at_s=at_s, kind="partition", groups=(some,), for_s=_lasting(rng, 5.0))
    heals = rng.random() < 0.2
    later_s = _rounded(at_s + rng.exponential(3.0))
    return [partition, Fault(at_s=later_s, kind="heal")] if heals else [partition]


def _reset(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    peer = _one(rng, peers) if rng.random() < 0.5 else None
    if rng.random() < 0.5:
        return [Fault(at_s=at_s, kind="reset", peer=peer)]
    return [Fault(at_s=at_s, kind="reset", peer=peer, every_s=0.2, for_s=_lasting(rng, 3.0))]


def _join(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    return [Fault(at_s=at_s, kind="join", count=int(rng.choice([1, 1, 2, 5])))]


def _of_one(kind: str) -> _Draw:
    return lambda rng, peers, at_s: [Fault(at_s=at_s, kind=kind, peer=_one(rng, peers))]


def _burst(kind: str, rates: Sequence[float]) -> _Draw:
    """Messages of one peer or of all, for a while or from the first to the last."""

    def draw(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
        peer = _one(rng, peers) if rng.random() < 0.2 else None
        always, for_s, rate = rng.random() < 0.6, _lasting(rng, 4.0), float(rng.choice(rates))
        return [
            Fault(
                at_s=0.0 if always else at_s,
                kind=kind,
                peer=peer,
                for_s=None if always else for_s,
                by_s=rate if kind == "delay" else None,
                rate=None if kind == "delay" else rate,
            )
        ]

    return draw


_DRAWS: Mapping[str, _Draw] = MappingProxyType(
    {
        "crash": _crash,
        "mass-restart": _mass_restart,
        "pause": _pause,
        "slow": _slow,
        "clock-jump": _clock_jump,
        "cut": _cut,
        "partition": _partition,
        "reset": _reset,
        "join": _join,
        "leave": _of_one("leave"),
        "finish": _of_one("finish"),
        "diverge": _of_one("diverge"),
    }
)

_WEATHER: Mapping[str, _Draw] = MappingProxyType(
    {
        "loss": _burst("loss", [0.02, 0.1, 0.4]),
        "duplicate": _burst("duplicate", [0.05, 0.3]),
        "replay": _burst("replay", [0.03]),
        "delay": _burst("delay", [0.02, 0.2]),
    }
)

_FREQUENT = ("crash", "crash", "cut", "partition", "join")
"""Drawn more often: most of what is rare needs one of them."""


def draw_faults(
    rng: np.random.Generator, peers: Sequence[PeerId], until_s: float, *, diverge: bool
) -> tuple[Fault, ...]:
    """Draw everything that goes wrong, in order of time.

    Args:
        rng: Where from.
        peers: Who is there at the start.
        until_s: Faults begin before this time, seconds.
        diverge: Whether parameters may stop being finite.
    """
    faults: list[Fault] = []
    for draw in _WEATHER.values():
        if rng.random() < 0.5:
            faults += draw(rng, peers, _rounded(rng.uniform(0.0, until_s)))
    kinds = [kind for kind in _DRAWS if rng.random() < 0.45 and (diverge or kind != "diverge")]
    kinds += [kind for kind in _FREQUENT if kind in kinds]
    for _ in range(int(rng.integers(0, 13)) if kinds else 0):
        kind = kinds[int(rng.integers(len(kinds)))]
        faults += _DRAWS[kind](rng, peers, _rounded(rng.uniform(0.0, until_s)))
    return tuple(sorted(faults, key=lambda fault: fault.at_s))


def _one(rng: np.random.Generator, peers: Sequence[PeerId]) -> PeerId:
    return peers[int(rng.random() * len(peers))]


def _lasting(rng: np.random.Generator, mean_s: float) -> float:
    return _rounded(0.1 + rng.exponential(mean_s))


def _rounded(time_s: float) -> float:
    # Three digits read well in a file, and say the same there.
    return round(float(time_s), 3)
