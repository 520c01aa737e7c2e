"""What goes wrong with a swarm, drawn at random: of every kind, and aimed at what is rare."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from numpy.random import Generator as Random

from ....gossip import PeerId
from ....train.faults.schedule import RANDOM_KINDS, Fault
from .scenario import FAULTS_S, Scenario

__all__ = ["AIMS", "draw_faults"]


_FREQUENT = ("crash", "crash", "cut", "partition", "join")
"""Drawn more often: most of what is rare needs one of them."""

_NEWCOMERS_MAX = 6


Draw = Callable[[Random, Sequence[PeerId], float], list[Fault]]
"""Draws faults that begin at a time, with peers of those that are there at the start."""


def _one(rng: Random, peers: Sequence[PeerId]) -> PeerId:
    return peers[int(rng.random() * len(peers))]


def _lasting(rng: Random, mean_s: float) -> float:
    return _rounded_s(0.1 + rng.exponential(mean_s))


def _rounded_s(time_s: float) -> float:
    """Round a time: three digits read well in a file, and say the same there."""
    return round(float(time_s), 3)


def _draw_crash(rng: Random, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
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
    later_s = _rounded_s(at_s + 0.3 + back_s)
    return [crash, Fault(at_s=later_s, kind="restart", peer=peer, state=state)]


def _draw_mass_restart(rng: Random, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
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


def _draw_pause(rng: Random, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    peer, for_s = _one(rng, peers), _lasting(rng, 3.0)
    if rng.random() < 0.7:
        return [Fault(at_s=at_s, kind="pause", peer=peer, for_s=for_s)]
    pause = Fault(at_s=at_s, kind="pause", peer=peer)
    return [pause, Fault(at_s=_rounded_s(at_s + for_s), kind="continue", peer=peer)]


def _draw_slow(rng: Random, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    factor = float(rng.choice([2.0, 5.0, 20.0]))
    return [
        Fault(
            at_s=at_s, kind="slow", peer=_one(rng, peers), factor=factor, for_s=_lasting(rng, 5.0)
        )
    ]


def _draw_clock_jump(rng: Random, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    by_s = float(rng.choice([0.5, 5.0, 60.0, 3600.0]))
    return [Fault(at_s=at_s, kind="clock-jump", peer=_one(rng, peers), by_s=by_s)]


def _draw_cut(rng: Random, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
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


def _draw_partition(rng: Random, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    some = tuple(peer for peer in peers if rng.random() < 0.5) or (peers[0],)
    partition = Fault(at_s=at_s, kind="partition", groups=(some,), for_s=_lasting(rng, 5.0))
    heals = rng.random() < 0.2
    later_s = _rounded_s(at_s + rng.exponential(3.0))
    return [partition, Fault(at_s=later_s, kind="heal")] if heals else [partition]


def _draw_reset(rng: Random, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    peer = _one(rng, peers) if rng.random() < 0.5 else None
    if rng.random() < 0.5:
        return [Fault(at_s=at_s, kind="reset", peer=peer)]
    return [Fault(at_s=at_s, kind="reset", peer=peer, every_s=0.2, for_s=_lasting(rng, 3.0))]


def _draw_join(rng: Random, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    return [Fault(at_s=at_s, kind="join", count=int(rng.choice([1, 1, 2, 5])))]


def _of_one(kind: str) -> Draw:
    return lambda rng, peers, at_s: [Fault(at_s=at_s, kind=kind, peer=_one(rng, peers))]


def _burst(kind: str, rates: Sequence[float]) -> Draw:
    """Messages of one peer or of all, for a while or from the first to the last."""

    def draw(rng: Random, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
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


_DRAWS: Mapping[str, Draw] = MappingProxyType(
    {
        "crash": _draw_crash,
        "mass-restart": _draw_mass_restart,
        "pause": _draw_pause,
        "slow": _draw_slow,
        "clock-jump": _draw_clock_jump,
        "cut": _draw_cut,
        "partition": _draw_partition,
        "loss": _burst("loss", [0.02, 0.1, 0.4]),
        "duplicate": _burst("duplicate", [0.05, 0.3]),
        "replay": _burst("replay", [0.03]),
        "delay": _burst("delay", [0.02, 0.2]),
        "reset": _draw_reset,
        "join": _draw_join,
        "leave": _of_one("leave"),
        "finish": _of_one("finish"),
        "diverge": _of_one("diverge"),
    }
)
"""By kind of fault; kinds that are not here come with another."""


def draw_faults(
    rng: Random, peers: Sequence[PeerId], until_s: float, *, diverge: bool
) -> tuple[Fault, ...]:
    """Draw everything that goes wrong, in order of time.

    Args:
        rng: Where from.
        peers: Who is there at the start.
        until_s: Faults begin before this time, seconds.
        diverge: Whether parameters may stop being finite.
    """
    draws = dict(_DRAWS)
    faults: list[Fault] = []
    for kind in RANDOM_KINDS:
        draw = draws.pop(kind)
        if rng.random() < 0.5:
            faults += draw(rng, peers, _rounded_s(rng.uniform(0.0, until_s)))
    kinds = [kind for kind in draws if rng.random() < 0.45 and (diverge or kind != "diverge")]
    kinds += [kind for kind in _FREQUENT if kind in kinds]
    for _ in range(int(rng.integers(0, 13)) if kinds else 0):
        kind = kinds[int(rng.integers(len(kinds)))]
        faults += draws[kind](rng, peers, _rounded_s(rng.uniform(0.0, until_s)))
    return _in_order(_without_crowds(faults))


def _without_crowds(faults: Iterable[Fault]) -> Iterator[Fault]:
    """Leave out newcomers beyond so many: a crowd costs as much as ten swarms that are as rare."""
    joined = 0
    for fault in faults:
        if fault.kind == "join":
            joined += fault.count or 1
            if joined > _NEWCOMERS_MAX:
                continue
        yield fault


_Aim = Callable[[Random, Scenario, tuple[Fault, ...]], tuple[Fault, ...]]


def _aim_at_newcomers(
    rng: Random, scenario: Scenario, faults: tuple[Fault, ...]
) -> tuple[Fault, ...]:
    """Let some of what happens to one peer happen to one that has just come, with what follows."""
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


def _aim_at_leavers(
    rng: Random, scenario: Scenario, faults: tuple[Fault, ...]
) -> tuple[Fault, ...]:
    """Let a peer leave that is slow, stands still, or is heard by others and hears nothing."""
    if rng.random() >= 0.3:
        return faults
    peers = scenario.peers
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


def _split_further(rng: Random, scenario: Scenario, faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """Partitions into three and more, and such as last until nearly all else is over."""
    many, lasts, leaves = (rng.random() < chance for chance in (0.2, 0.4, 0.5))
    peers = [scenario.peers[int(i)] for i in rng.permutation(len(scenario.peers))]
    at_s, parts = rng.uniform(0.0, FAULTS_S), int(rng.integers(2, 5))
    groups = tuple(group for n in range(parts) if (group := tuple(peers[n::parts])))
    for_s = rng.exponential(5.0)
    if not many:
        return faults
    if lasts:
        # A tombstone may be as short as 12 s, see "tombstones".
        at_s, for_s = at_s / FAULTS_S, 13.0
    split = Fault(
        at_s=_rounded_s(at_s), kind="partition", groups=groups, for_s=_rounded_s(0.1 + for_s)
    )
    leaver = Fault(at_s=_rounded_s(at_s + for_s * 0.05), kind="leave", peer=peers[0])
    return _in_order([*faults, split, *([leaver] if leaves else [])])


def _in_order(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    return tuple(sorted(faults, key=lambda fault: fault.at_s))


AIMS: Mapping[str, _Aim] = MappingProxyType(
    {
        "newcomers": _aim_at_newcomers,
        "leavers": _aim_at_leavers,
        "splits": _split_further,
    }
)
"""What else a seed decides about its faults, by the name under which that can be left out."""
