"""Random faults of a swarm: of every kind, and aimed at rare events."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from numpy.random import Generator as Random

from ....gossip.types import PeerId
from ....train.faults.schedule import RANDOM_KINDS, Fault
from .scenario import FAULTS_S

__all__ = ["AIMS", "draw_faults"]

# Drawn more often: most rare events need one of them.
_FREQUENT = ("crash", "crash", "cut", "partition", "join")

# A crowd of newcomers costs as much as ten swarms that are equally rare.
_NEWCOMERS_MAX = 6

_Peers = Sequence[PeerId]

# Fields of a fault, except its time and kind where these stay as drawn.
_Fields = dict[str, Any]


def _one(rng: Random, peers: _Peers) -> PeerId:
    return peers[int(rng.random() * len(peers))]


def _lasting(rng: Random, mean_s: float) -> float:
    return _rounded_s(0.1 + rng.exponential(mean_s))


def _rounded_s(time_s: float) -> float:
    """Round a time to three digits, which read well in a file and survive it unchanged."""
    return round(float(time_s), 3)


def _draw_crash(rng: Random, peers: _Peers, at_s: float) -> list[_Fields]:
    # At once, during the next action, or on accepting.
    peer, how = _one(rng, peers), rng.random()
    after = int(rng.integers(7)) if how < 0.4 else None
    crash = {"peer": peer, "after": after, "accepting": True if how > 0.6 else None}
    back_s, returns, kept = rng.exponential(2.0), rng.random() < 0.7, rng.random() < 0.6
    if not returns:
        return [crash]
    state = "kept" if kept else "lost"
    later_s = _rounded_s(at_s + 0.3 + back_s)
    return [crash, {"at_s": later_s, "kind": "restart", "peer": peer, "state": state}]


def _draw_mass_restart(rng: Random, peers: _Peers, at_s: float) -> list[_Fields]:
    some = tuple(peer for peer in peers if rng.random() < 0.6)
    for_s = _lasting(rng, 2.0)
    among = some if some and rng.random() < 0.4 else None
    return [{"for_s": for_s, "peers": among, "state": "kept" if rng.random() < 0.7 else "lost"}]


def _draw_pause(rng: Random, peers: _Peers, at_s: float) -> list[_Fields]:
    peer, for_s = _one(rng, peers), _lasting(rng, 3.0)
    if rng.random() < 0.7:
        return [{"peer": peer, "for_s": for_s}]
    return [{"peer": peer}, {"at_s": _rounded_s(at_s + for_s), "kind": "continue", "peer": peer}]


def _draw_cut(rng: Random, peers: _Peers, at_s: float) -> list[_Fields]:
    peer, to = _one(rng, peers), _one(rng, peers)
    some = to != peer and rng.random() < 0.4
    one_way = True if rng.random() < 0.5 else None
    return [
        {"peer": peer, "to": to if some else None, "one_way": one_way, "for_s": _lasting(rng, 3.0)}
    ]


def _draw_partition(rng: Random, peers: _Peers, at_s: float) -> list[_Fields]:
    some = tuple(peer for peer in peers if rng.random() < 0.5) or (peers[0],)
    partition = {"groups": (some,), "for_s": _lasting(rng, 5.0)}
    heals = rng.random() < 0.2
    later_s = _rounded_s(at_s + rng.exponential(3.0))
    return [partition, {"at_s": later_s, "kind": "heal"}] if heals else [partition]


def _draw_reset(rng: Random, peers: _Peers, at_s: float) -> list[_Fields]:
    peer = _one(rng, peers) if rng.random() < 0.5 else None
    if rng.random() < 0.5:
        return [{"peer": peer}]
    return [{"peer": peer, "every_s": 0.2, "for_s": _lasting(rng, 3.0)}]


def _draw_one(rng: Random, peers: _Peers, at_s: float) -> list[_Fields]:
    return [{"peer": _one(rng, peers)}]


_Draw = Callable[[Random, _Peers, float], list[_Fields]]


def _burst(rates: Sequence[float], of: str = "rate") -> _Draw:
    """Disturb messages of one peer or of all, for a while or always."""

    def draw(rng: Random, peers: _Peers, at_s: float) -> list[_Fields]:
        peer = _one(rng, peers) if rng.random() < 0.2 else None
        always, for_s = rng.random() < 0.6, _lasting(rng, 4.0)
        lasts = {"at_s": 0.0} if always else {"for_s": for_s}
        return [{"peer": peer, of: float(rng.choice(rates)), **lasts}]

    return draw


_DRAWS: Mapping[str, _Draw] = {
    "crash": _draw_crash,
    "mass-restart": _draw_mass_restart,
    "pause": _draw_pause,
    "slow": lambda rng, peers, at_s: [
        {
            "factor": float(rng.choice([2.0, 5.0, 20.0])),
            "peer": _one(rng, peers),
            "for_s": _lasting(rng, 5.0),
        }
    ],
    "clock-jump": lambda rng, peers, at_s: [
        {"by_s": float(rng.choice([0.5, 5.0, 60.0, 3600.0])), "peer": _one(rng, peers)}
    ],
    "cut": _draw_cut,
    "partition": _draw_partition,
    "loss": _burst([0.02, 0.1, 0.4]),
    "duplicate": _burst([0.05, 0.3]),
    "replay": _burst([0.03]),
    "delay": _burst([0.02, 0.2], of="by_s"),
    "reset": _draw_reset,
    "join": lambda rng, peers, at_s: [{"count": int(rng.choice([1, 1, 2, 5]))}],
    "leave": _draw_one,
    "finish": _draw_one,
    "diverge": _draw_one,
}
"""Draws by kind of fault; other kinds come with one of these."""


def draw_faults(rng: Random, peers: _Peers) -> tuple[Fault, ...]:
    """Draw all faults before `FAULTS_S`, in order of time."""

    def drawn(kind: str) -> list[Fault]:
        at_s = _rounded_s(rng.uniform(0.0, FAULTS_S))
        timed: _Fields = {"at_s": at_s, "kind": kind}
        return [Fault(**(timed | fields)) for fields in _DRAWS[kind](rng, peers, at_s)]

    faults: list[Fault] = []
    for kind in RANDOM_KINDS:
        faults += drawn(kind) if rng.random() < 0.5 else []
    others = [kind for kind in _DRAWS if kind not in RANDOM_KINDS]
    kinds = [kind for kind in others if rng.random() < 0.45]
    kinds += [kind for kind in _FREQUENT if kind in kinds]
    for _ in range(int(rng.integers(0, 13)) if kinds else 0):
        faults += drawn(kinds[int(rng.integers(len(kinds)))])
    return _in_order(_without_crowds(faults))


def _without_crowds(faults: Iterable[Fault]) -> Iterator[Fault]:
    joined = 0
    for fault in faults:
        joined += (fault.count or 1) if fault.kind == "join" else 0
        if fault.kind != "join" or joined <= _NEWCOMERS_MAX:
            yield fault


def _aim_at_newcomers(rng: Random, peers: _Peers, faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """Move some faults of single peers to a peer that has just joined, with what follows."""
    come_s: list[float] = []
    for fault in faults:
        come_s += [fault.at_s] * (fault.count or 1) if fault.kind == "join" else []
    if not come_s or rng.random() >= 0.5:
        return faults
    number = int(rng.integers(len(come_s)))
    struck = [f.peer for f in faults if f.kind not in RANDOM_KINDS and f.peer is not None]
    if not struck:
        return faults
    peer, name = struck[int(rng.integers(len(struck)))], f"join-{number + 1}"
    own = [fault for fault in faults if fault.peer == peer]
    later_s = come_s[number] + float(rng.exponential(0.5)) - min(f.at_s for f in own)
    others = [fault for fault in faults if fault.peer != peer]
    moved = [replace(f, peer=name, at_s=_rounded_s(max(0.0, f.at_s + later_s))) for f in own]
    return _in_order([*others, *(f for f in moved if f.to != name)])


def _aim_at_leavers(rng: Random, peers: _Peers, faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """Let a peer leave that is slow, stands still, or is heard by others and hears nothing."""
    if rng.random() >= 0.3:
        return faults
    peer, other = (peers[int(rng.integers(len(peers)))] for _ in range(2))
    at_s, for_s = _rounded_s(rng.uniform(0.0, FAULTS_S)), _rounded_s(0.2 + rng.exponential(3.0))
    cut = Fault(at_s=at_s, kind="cut", peer=peer, one_way=True, for_s=for_s)
    troubles = (
        Fault(at_s=at_s, kind="slow", peer=peer, factor=20.0, for_s=for_s),
        Fault(at_s=at_s, kind="pause", peer=peer, for_s=for_s),
        cut,
        replace(cut, peer=other, to=peer) if other != peer else cut,
    )
    trouble = troubles[int(rng.integers(len(troubles)))]
    leaves_s = _rounded_s(at_s + for_s * rng.uniform(-0.1, 1.0))
    return _in_order([*faults, trouble, Fault(at_s=max(0.0, leaves_s), kind="leave", peer=peer)])


def _split_further(rng: Random, peers: _Peers, faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """Add partitions into three or more, and partitions that outlast most other faults."""
    many, lasts, leaves = (rng.random() < chance for chance in (0.2, 0.4, 0.5))
    order = [peers[int(i)] for i in rng.permutation(len(peers))]
    at_s, parts = rng.uniform(0.0, FAULTS_S), int(rng.integers(2, 5))
    groups = tuple(group for n in range(parts) if (group := tuple(order[n::parts])))
    for_s = rng.exponential(5.0)
    if not many:
        return faults
    if lasts:
        # A tombstone may be as short as 12 s, see "tombstones".
        at_s, for_s = at_s / FAULTS_S, 13.0
    split = Fault(
        at_s=_rounded_s(at_s), kind="partition", groups=groups, for_s=_rounded_s(0.1 + for_s)
    )
    leaver = Fault(at_s=_rounded_s(at_s + for_s * 0.05), kind="leave", peer=order[0])
    return _in_order([*faults, split, *([leaver] if leaves else [])])


def _in_order(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    return tuple(sorted(faults, key=lambda fault: fault.at_s))


_Aim = Callable[[Random, _Peers, tuple[Fault, ...]], tuple[Fault, ...]]

AIMS: Mapping[str, _Aim] = {
    "newcomers": _aim_at_newcomers,
    "leavers": _aim_at_leavers,
    "splits": _split_further,
}
"""Other draws about the faults of a seed, by the name that leaves them out."""
