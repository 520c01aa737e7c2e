"""Faults as data: a schedule of what goes wrong when, for simulations, live swarms and campaigns.

`rumor.sim.kernel.processes` applies faults to simulated processes, `rumor.cli.launch.faults` to
real ones, and `rumor.train.faults.network` to messages of either.
"""

import json
import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeGuard

from ...gossip.errors import ConfigError, did_you_mean
from ...gossip.types import PeerId
from ..storage.files import read_user_json

__all__ = [
    *("ATTACKS", "KINDS", "LIVE_KINDS", "NETWORK_KINDS", "NEWCOMERS_MAX", "RANDOM_KINDS"),
    *("Fault", "FaultKind", "Slowness", "check_faults", "faults_as_json", "joining"),
    *("names_of_newcomers", "read_faults", "resolve"),
]


NEWCOMERS_MAX = 100_000
"""Maximum number of peers that join during one run; more than any simulation so far."""


# JSON's true and false are numbers to Python.
def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_above_zero(value: object) -> bool:
    return _is_number(value) and value > 0


def _is_count(value: object, least: int, most: float = math.inf) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_peer(value: object) -> bool:
    return (isinstance(value, str) and value != "") or _is_count(value, 0)


def _is_list(value: object, fits: Callable[[object], bool]) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0 and all(map(fits, value))


def _are_peers(value: object) -> bool:
    return _is_list(value, _is_peer)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _given_as(fits: Callable[[Any], bool], words: str) -> Any:
    """Declare an optional field, None by default, with a check and the words for its error."""
    return field(default=None, metadata={"fits": fits, "words": words})


_PEER: Final = "a peer's name, or its index from 0"
_DURATION: Final = "a number above 0 and finite, in seconds"
_FACTOR: Final = "a number above 0 and finite"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. Unset fields are None; the kind defines which ones apply."""

    at_s: float = _given_as(
        lambda value: _is_number(value) and value >= 0, "a number, 0 or more and finite, in seconds"
    )
    """Time from the start."""
    kind: str = _given_as(lambda value: isinstance(value, str), "a kind of fault")
    """A key of `KINDS`."""
    peer: str | int | None = _given_as(_is_peer, _PEER)
    """The affected peer: a name, or a position in the run's list of peers."""
    to: str | int | None = _given_as(_is_peer, _PEER)
    """The other end of a cut."""
    peers: tuple[str | int, ...] | None = _given_as(
        _are_peers, "a list of peers, each a name or an index from 0"
    )
    """The affected peers, if several."""
    groups: tuple[tuple[str | int, ...], ...] | None = _given_as(
        lambda value: _is_list(value, _are_peers),
        "a list of lists of peers, each a name or an index from 0",
    )
    """Groups within which peers can still reach one another."""
    for_s: float | None = _given_as(_is_above_zero, _DURATION)
    """Duration; default: to the end of the run."""
    factor: float | None = _given_as(_is_above_zero, _FACTOR)
    """Factor by which steps take longer."""
    by_s: float | None = _given_as(_is_above_zero, _DURATION)
    """Jump of a clock, or delay of messages."""
    rate: float | None = _given_as(
        lambda value: _is_number(value) and 0 <= value <= 1, "a probability in [0, 1]"
    )
    """Probability for each message."""
    every_s: float | None = _given_as(_is_above_zero, _DURATION)
    """Interval of repetitions."""
    count: int | None = _given_as(
        lambda value: _is_count(value, 1, NEWCOMERS_MAX),
        f"a whole number from 1 to {NEWCOMERS_MAX:,}",
    )
    """Number of newcomers."""
    state: str | None = _given_as(lambda value: value in ["kept", "lost"], '"kept" or "lost"')
    """State of the checkpoint."""
    one_way: bool | None = _given_as(_is_flag, "true or false")
    """True if only one direction is cut."""
    after: int | None = _given_as(
        lambda value: _is_count(value, 0), "a whole number, 0 or more, of effects"
    )
    """Number of effects of the next event that are still executed."""
    accepting: bool | None = _given_as(_is_flag, "true or false")
    """True if it happens as soon as the peer has accepted something."""
    strength: float | None = _given_as(_is_above_zero, _FACTOR)
    """Strength of an attack, as its kind defines it."""
    row: int | None = field(default=None, compare=False, repr=False)
    """Position in its file, counted from 1, for messages."""


_FIELDS: Final = {each.name: each.metadata for each in fields(Fault) if each.metadata}


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One kind of fault."""

    help: str
    """The effect, in one sentence."""

    _: KW_ONLY

    needs: tuple[str, ...] = ()
    """Required fields, in addition to ``at_s`` and ``kind``."""

    may: tuple[str, ...] = ()
    """Optional fields."""

    live: bool = True
    """True if it can be applied to real processes."""

    starts: bool = False
    """True if it starts or resumes a process, so that the run cannot end before it."""

    is_attack: bool = False
    """True if it makes peers Byzantine."""

    strength: float | None = 1.0
    """Default strength of an attack; None if it follows from the number of attackers."""

    @property
    def takes(self) -> tuple[str, ...]:
        """All its fields, the required ones first."""
        return self.needs + self.may


def _attack(
    help: str,
    strength: float | None = 1.0,
    may: tuple[str, ...] = ("strength", "for_s"),
) -> FaultKind:
    return FaultKind(
        f"These peers attack: {help}",
        needs=("peers",),
        may=may,
        live=False,
        is_attack=True,
        strength=strength,
    )


KINDS: Mapping[str, FaultKind] = MappingProxyType(
    {
        "crash": FaultKind(
            "The process ends abruptly, as by SIGKILL: at once, after this many effects of its "
            "next event, or right after it has accepted a share, before it answers.",
            needs=("peer",),
            may=("after", "accepting"),
        ),
        "restart": FaultKind(
            "A dead peer starts again, from its last checkpoint (kept) or without state (lost); a "
            "running one is left alone.",
            needs=("peer",),
            may=("state",),
            starts=True,
        ),
        "mass-restart": FaultKind(
            "All these peers crash together, and restart together after for_s.",
            needs=("for_s",),
            may=("peers", "state"),
            starts=True,
        ),
        "pause": FaultKind(
            "The process stops, as by SIGSTOP; messages wait for it.",
            needs=("peer",),
            may=("for_s",),
        ),
        "continue": FaultKind(
            "A paused process continues, as by SIGCONT.", needs=("peer",), starts=True
        ),
        "slow": FaultKind(
            "A peer's steps take factor times as long.", needs=("peer", "factor"), may=("for_s",)
        ),
        "clock-jump": FaultKind("A peer's clock jumps ahead.", needs=("peer", "by_s"), live=False),
        "cut": FaultKind(
            "No message passes between a peer and another (default: all others), or, one way, "
            "from it to them.",
            needs=("peer",),
            may=("to", "for_s", "one_way"),
        ),
        "partition": FaultKind(
            "No message passes between groups of peers; the peers that are not named form one "
            "more.",
            needs=("groups",),
            may=("for_s",),
        ),
        "heal": FaultKind("All cuts and partitions end."),
        "loss": FaultKind(
            "Messages are lost with this probability: of all peers, or to and from one.",
            needs=("rate",),
            may=("peer", "for_s"),
        ),
        "duplicate": FaultKind(
            "Messages arrive twice with this probability, one soon after the other.",
            needs=("rate",),
            may=("peer", "for_s"),
        ),
        "replay": FaultKind(
            "Messages arrive again with this probability, up to minutes later.",
            needs=("rate",),
            may=("peer", "for_s"),
        ),
        "delay": FaultKind(
            "Messages arrive at least this much later, some far later.",
            needs=("by_s",),
            may=("peer", "for_s"),
        ),
        "reset": FaultKind(
            "Connections of one peer or of all are reset, once or repeatedly; messages in flight "
            "are lost, also in the middle of a transfer.",
            may=("peer", "every_s", "for_s"),
        ),
        "join": FaultKind(
            "This many newcomers start, called join-1, join-2 and so on.",
            may=("count",),
            starts=True,
        ),
        "leave": FaultKind("A peer leaves in good order, as by SIGTERM.", needs=("peer",)),
        "finish": FaultKind(
            "A peer takes no more optimizer steps, but keeps mixing until all have finished.",
            needs=("peer",),
            live=False,
        ),
        "diverge": FaultKind("A peer's parameters stop being finite.", needs=("peer",), live=False),
        "nan": _attack("their shares are not numbers.", may=("for_s",)),
        "far": _attack("their shares are strength (1,000) away from their models.", 1000.0),
        "inflate": _attack("their shares claim strength (1,000) times their weight.", 1000.0),
        "flood": _attack("they push strength (20) times per step.", 20.0),
        "sign-flip": _attack("they send their models times minus strength (1)."),
        "ipm": _attack("they send the mean of honest models times minus strength (0.1).", 0.1),
        "alie": _attack(
            "they send the mean of honest models less strength standard deviations (as many as the "
            "paper's formula says).",
            None,
        ),
        "dissensus": _attack(
            "they undo strength (1.5) times the pull of the receiver's honest neighbors.", 1.5
        ),
        "drift": _attack(
            "they send the receiver's model, moved strength (1) times as far as its neighbors are, "
            "always in the same direction."
        ),
    }
)
"""All kinds of fault."""

ATTACKS = tuple(name for name, kind in KINDS.items() if kind.is_attack)
"""Kinds that make peers Byzantine."""

LIVE_KINDS = tuple(name for name, kind in KINDS.items() if kind.live)
"""Kinds that can be applied to real processes."""

RANDOM_KINDS = ("loss", "duplicate", "replay", "delay")
"""Kinds that hit messages at random."""

NETWORK_KINDS = ("cut", "partition", "heal", *RANDOM_KINDS, "reset")
"""Kinds that affect the network."""


def read_faults(source: str | Path | Sequence[Fault | Mapping[str, object]]) -> tuple[Fault, ...]:
    """Read a schedule from a file, JSON text, which begins with a bracket, or objects like its own.

    Returns:
        The faults in order of time; those with equal times keep their order.

    Raises:
        ConfigError: It cannot be read, has another form, or a value is out of range. The message
            names the fault, counted from 1, and the field.
    """
    entries: object = source
    if isinstance(source, str | Path):
        is_text = isinstance(source, str) and source.lstrip().startswith("[")
        entries = read_user_json(str(source) if is_text else Path(source))
    if not isinstance(entries, list | tuple):
        raise ConfigError('it must be a list of faults: [{"at_s": 3.0, "kind": ...}, ...]')
    found = [_fault(entry, row) for row, entry in enumerate(entries, 1)]
    return tuple(sorted(found, key=lambda fault: fault.at_s))


def faults_as_json(faults: Iterable[Fault]) -> list[dict[str, Any]]:
    """Convert faults to the form of a file, without unset fields.

    >>> faults_as_json([Fault(at_s=3.0, kind="crash", peer=2)])
    [{'at_s': 3.0, 'kind': 'crash', 'peer': 2}]
    """
    return [{name: _listed(value) for name, value in _given(fault).items()} for fault in faults]


def check_faults(
    faults: Sequence[Fault], peers: Sequence[str], kinds: Collection[str] = tuple(KINDS)
) -> None:
    """Raise ConfigError unless faults fit the peers of their run, and the *kinds* it supports."""
    joined = joining(faults)
    if joined > NEWCOMERS_MAX:
        raise ConfigError(f"{joined:,} peers are to join: there may be {NEWCOMERS_MAX:,} in all")
    known = {*peers, *names_of_newcomers(joined)}
    for position, fault in enumerate(faults, 1):
        where = f"fault {fault.row or position}"
        _check(_given(fault), where)
        if fault.kind not in kinds:
            raise ConfigError(
                f"{where}: {fault.kind} cannot be done here. What can is {', '.join(kinds)}"
            )
        for name, peer in _peers_of(fault):
            _check_peer(peer, peers, known, f"{where}: {name}")
        _check_ends(fault, peers, where)


def resolve(faults: Iterable[Fault], peers: Sequence[str]) -> tuple[Fault, ...]:
    """Replace positions of peers by names, in faults that passed `check_faults`.

    >>> resolve([Fault(at_s=0.0, kind="leave", peer=1)], ["a", "b"])[0].peer
    'b'
    """

    def named(given: Any) -> Any:
        if isinstance(given, tuple):
            return tuple(map(named, given))
        return peers[given] if isinstance(given, int) else given

    places = ("peer", "to", "peers", "groups")
    return tuple(
        replace(fault, **{name: named(getattr(fault, name)) for name in places}) for fault in faults
    )


def _fault(entry: object, row: int) -> Fault:
    where = f"fault {row}"
    entry = _given(entry) if isinstance(entry, Fault) else entry
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{where} is {_shown(entry)}: it must be an object")
    given = {name: value for name, value in entry.items() if value is not None}
    _check(given, where)
    return Fault(**{name: _frozen(value) for name, value in given.items()}, row=row)


def _check(given: Mapping[str, Any], where: str) -> None:
    for name in ("at_s", "kind"):
        if name not in given:
            raise ConfigError(f"{where} needs {name}: {_FIELDS[name]['words']}")
    if not isinstance(given["kind"], str) or given["kind"] not in KINDS:
        hint = did_you_mean(str(given["kind"]), KINDS)
        raise ConfigError(
            f"{where} is of unknown kind {_shown(given['kind'])}{hint} Kinds are {', '.join(KINDS)}"
        )
    kind = KINDS[given["kind"]]
    where, takes = f"{where} ({given['kind']})", ("at_s", "kind", *kind.takes)
    for name in kind.needs:
        if name not in given:
            raise ConfigError(f"{where} needs {name}: {_FIELDS[name]['words']}")
    for name, value in given.items():
        if name not in takes:
            raise ConfigError(f"{where} takes no {name!r}; its fields are {', '.join(takes)}")
        if not _FIELDS[name]["fits"](value):
            words = _FIELDS[name]["words"]
            raise ConfigError(f"{where}: {name} is {_shown(value)}: it must be {words}")


def _check_peer(peer: str | int, peers: Sequence[str], known: Collection[str], where: str) -> None:
    if isinstance(peer, int):
        if peer >= len(peers):
            last = f"they are 0 to {len(peers) - 1}" if peers else "there is none"
            raise ConfigError(f"{where} {peer} is not a peer's index in this run: {last}")
    elif peer not in known:
        hint = did_you_mean(peer, sorted(known), f"; the first is {peers[0]!r}")
        raise ConfigError(f"{where} {peer!r} is not a peer of this run{hint}")


def _check_ends(fault: Fault, peers: Sequence[str], where: str) -> None:
    (named,) = resolve([fault], peers)
    if named.to is not None and named.to == named.peer:
        raise ConfigError(f"{where}: to is {named.to!r}, the peer itself: it must be another")
    grouped = [peer for group in named.groups or () for peer in group]
    for peer in grouped:
        if grouped.count(peer) > 1:
            raise ConfigError(f"{where}: groups have {peer!r} twice: a peer is in one of them")


def _peers_of(fault: Fault) -> list[tuple[str, str | int]]:
    found = [("peer", fault.peer), ("to", fault.to)]
    found += [("peers", peer) for peer in fault.peers or ()]
    found += [("groups", peer) for group in fault.groups or () for peer in group]
    return [(name, peer) for name, peer in found if peer is not None]


def _given(fault: Fault) -> dict[str, Any]:
    return {name: value for name in _FIELDS if (value := getattr(fault, name)) is not None}


def _frozen(value: Any) -> Any:
    return tuple(_frozen(part) for part in value) if isinstance(value, list) else value


def _listed(value: Any) -> Any:
    return [_listed(part) for part in value] if isinstance(value, tuple) else value


def _shown(value: object) -> str:
    return json.dumps(value, default=repr)


def names_of_newcomers(joined: int) -> tuple[PeerId, ...]:
    """Return the names of the peers that join during a run, in order."""
    return tuple(f"join-{number}" for number in range(1, joined + 1))


def joining(faults: Iterable[Fault]) -> int:
    """Return the number of newcomers in these faults."""
    return sum([fault.count or 1 for fault in faults if fault.kind == "join"])


class Slowness:
    """The factor by which each peer's steps take longer: the largest of concurrent causes.

    A cause belongs to a peer, not to one of its incarnations.
    """

    def __init__(self) -> None:
        self._causes: dict[Hashable, dict[object, float]] = {}

    def begin(self, peer: Hashable, factor: float) -> object:
        """Slow a peer by a factor until `end` is called with the returned object."""
        cause = object()
        self._causes.setdefault(peer, {})[cause] = factor
        return cause

    def end(self, peer: Hashable, cause: object) -> None:
        """Remove one cause, if it is still active."""
        self._causes.get(peer, {}).pop(cause, None)

    def of(self, peer: Hashable) -> float:
        """Return a peer's current factor; 1 without a cause."""
        return max(self._causes.get(peer, {}).values(), default=1.0)
