"""Faults as data: a schedule of what goes wrong when, for simulations, live swarms and campaigns.

`rumor.sim.kernel.processes` applies faults to simulated processes, `rumor.cli.launch.faults` to
real ones, and `rumor.train.faults.network` to messages of either.
"""

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from itertools import chain
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar

from ...gossip.errors import ConfigError, did_you_mean
from ...gossip.specs.parameter import setting, settings_of
from ...gossip.types import PeerId
from ..storage.files import read_user_json

__all__ = [
    *("ATTACKS", "KINDS", "LIVE_KINDS", "NETWORK_KINDS", "NEWCOMERS_MAX", "RANDOM_KINDS"),
    *("Fault", "FaultKind", "Slowness", "by_worker", "faults_as_json", "joining"),
    *("names_of_newcomers", "parse_slow", "read_faults", "resolve"),
]


NEWCOMERS_MAX = 100_000
"""Maximum number of peers that join during one run; more than any simulation so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. Unset fields are None; the kind defines which ones apply."""

    at_s: float = setting(None, "Time from the start, seconds.", low=0)
    kind: str = setting(None, "A key of `KINDS`.")
    peer: str | int | None = setting(
        None, "The affected peer: a name, or a position in the run's list of peers."
    )
    to: str | int | None = setting(None, "The other end of a cut.")
    peers: tuple[str | int, ...] | None = setting(None, "The affected peers, if several.")
    groups: tuple[tuple[str | int, ...], ...] | None = setting(
        None, "Groups within which peers can still reach one another."
    )
    for_s: float | None = setting(None, "Duration, seconds; default: to the end.", above=0)
    factor: float | None = setting(None, "Factor by which steps take longer.", above=0)
    by_s: float | None = setting(None, "Jump of a clock, or delay of messages, seconds.", above=0)
    rate: float | None = setting(None, "Probability for each message.", low=0, high=1)
    every_s: float | None = setting(None, "Interval of repetitions, seconds.", above=0)
    count: int | None = setting(None, "Number of newcomers.", low=1, high=NEWCOMERS_MAX)
    state: Literal["kept", "lost"] | None = setting(None, "State of the checkpoint.")
    one_way: bool | None = setting(None, "True if only one direction is cut.")
    after: int | None = setting(
        None, "Number of effects of the next event that are still executed.", low=0
    )
    accepting: bool | None = setting(
        None, "True if it happens as soon as the peer has accepted something."
    )
    strength: float | None = setting(None, "Strength of an attack, as its kind says.", above=0)
    row: int | None = field(default=None, compare=False, repr=False)
    """Position in its file, counted from 1, for messages."""


_NAMES: Final = tuple(each.name for each in fields(Fault) if each.metadata)
_SETTINGS: Final = settings_of(Fault)


def _is_peer(value: object) -> bool:
    # JSON's true and false are numbers to Python.
    is_index = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return is_index or (isinstance(value, str) and value != "")


def _are_peers(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0 and all(map(_is_peer, value))


def _are_groups(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0 and all(map(_are_peers, value))


_PEERS: Final[Mapping[str, tuple[Callable[[object], bool], str]]] = {
    "peer": (_is_peer, "a peer's name, or its index from 0"),
    "to": (_is_peer, "a peer's name, or its index from 0"),
    "peers": (_are_peers, "a list of peers, each a name or an index from 0"),
    "groups": (_are_groups, "a list of lists of peers, each a name or an index from 0"),
}
"""The fields that name peers: whether a value fits, and its form in words."""


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


def resolve(
    faults: Sequence[Fault], peers: Sequence[str], kinds: Collection[str] = tuple(KINDS)
) -> tuple[Fault, ...]:
    """Return faults with names in place of positions of peers.

    >>> resolve([Fault(at_s=0.0, kind="leave", peer=1)], ["a", "b"])[0].peer
    'b'

    Raises:
        ConfigError: A fault does not fit the peers of the run, or is not one of the *kinds*.
    """
    joined = joining(faults)
    if joined > NEWCOMERS_MAX:
        raise ConfigError(f"{joined:,} peers are to join: there may be {NEWCOMERS_MAX:,} in all")
    known, found = {*peers, *names_of_newcomers(joined)}, []
    for position, fault in enumerate(faults, 1):
        where = f"fault {fault.row or position}"
        _check(_given(fault), where)
        if fault.kind not in kinds:
            raise ConfigError(
                f"{where}: {fault.kind} cannot be done here. What can is {', '.join(kinds)}"
            )
        places = {n: getattr(fault, n) for n in _PEERS if getattr(fault, n) is not None}
        names = {n: _named(place, peers, known, f"{where}: {n}") for n, place in places.items()}
        if names.get("to") and names["to"] == names.get("peer"):
            raise ConfigError(
                f"{where}: to is {names['to']!r}, the peer itself: it must be another"
            )
        grouped = list(chain.from_iterable(names.get("groups", ())))
        for peer in grouped:
            if grouped.count(peer) > 1:
                raise ConfigError(f"{where}: groups have {peer!r} twice: a peer is in one of them")
        found.append(replace(fault, **names))
    return tuple(found)


def _named(place: Any, peers: Sequence[str], known: Collection[str], where: str) -> Any:
    """Return the name of a peer, or of each in a list."""
    if isinstance(place, list | tuple):
        return tuple(_named(each, peers, known, where) for each in place)
    if isinstance(place, int):
        if place < len(peers):
            return peers[place]
        last = f"they are 0 to {len(peers) - 1}" if peers else "there is none"
        raise ConfigError(f"{where} {place} is not a peer's index in this run: {last}")
    if place not in known:
        hint = did_you_mean(place, sorted(known), f"; the first is {peers[0]!r}")
        raise ConfigError(f"{where} {place!r} is not a peer of this run{hint}")
    return place


def _fault(entry: object, row: int) -> Fault:
    where = f"fault {row}"
    entry = _given(entry) if isinstance(entry, Fault) else entry
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{where} is {entry!r}: it must be an object")
    given = {name: value for name, value in entry.items() if value is not None}
    _check(given, where)
    return Fault(**{name: _frozen(value) for name, value in given.items()}, row=row)


def _check(given: Mapping[str, Any], where: str) -> None:
    if (kind := given.get("kind")) is None:
        raise ConfigError(f"{where} needs kind: one of {', '.join(KINDS)}")
    if not isinstance(kind, str) or kind not in KINDS:
        hint = did_you_mean(str(kind), KINDS)
        raise ConfigError(f"{where} is of unknown kind {kind!r}{hint} Kinds are {', '.join(KINDS)}")
    where, takes = f"{where} ({kind})", ("at_s", "kind", *KINDS[kind].takes)
    for name in ("at_s", *KINDS[kind].needs):
        if name not in given:
            raise ConfigError(f"{where} needs {name}: {_form(name)}")
    for name, value in given.items():
        if name not in takes:
            raise ConfigError(f"{where} takes no {name!r}; its fields are {', '.join(takes)}")
        if name in _PEERS:
            fits, words = _PEERS[name]
            if not fits(value):
                raise ConfigError(f"{where}: {name} is {value!r}: it must be {words}")
            continue
        try:
            _SETTINGS[name].check(value)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None


def _form(name: str) -> str:
    """Return the valid values of a field, in words."""
    return _PEERS[name][1] if name in _PEERS else _SETTINGS[name].allowed


def _given(fault: Fault) -> dict[str, Any]:
    return {name: value for name in _NAMES if (value := getattr(fault, name)) is not None}


def _frozen(value: Any) -> Any:
    return tuple(_frozen(part) for part in value) if isinstance(value, list) else value


def _listed(value: Any) -> Any:
    return [_listed(part) for part in value] if isinstance(value, tuple) else value


def names_of_newcomers(joined: int) -> tuple[PeerId, ...]:
    """Return the names of the peers that join during a run, in order."""
    return tuple(f"join-{number}" for number in range(1, joined + 1))


def joining(faults: Iterable[Fault]) -> int:
    """Return the number of newcomers in these faults."""
    return sum([fault.count or 1 for fault in faults if fault.kind == "join"])


_T = TypeVar("_T")
_FACTOR: Final = re.compile(r"\d+\.?\d*|\.\d+", re.ASCII)


def by_worker(
    option: str,
    texts: Sequence[str],
    ids: Sequence[str],
    read: Callable[[str], _T | None],
    form: str,
) -> dict[int, _T]:
    """Read ``WORKER:VALUE`` texts, where WORKER is an id, or an index from 0; return the values
    by index.

    *read* converts a value, or returns None. Messages name the *option* and its *form*.

    Raises:
        ConfigError: An entry has another form, or names an unknown worker or one twice.
    """
    found: dict[int, _T] = {}
    for text in texts:
        name, _, rest = text.strip().rpartition(":")
        value = read(rest) if name else None
        if value is None:
            raise ConfigError(f"{option} {text!r} is not {form}")
        # Ids take precedence: nodes of a file may have numbers as names, which need not start at 0.
        if name in ids:
            worker = ids.index(name)
        elif name.isascii() and name.isdigit() and int(name) < len(ids):
            worker = int(name)
        else:
            raise ConfigError(
                f"{option} {text!r}: there is no worker {name}, only 0 to {len(ids) - 1}, "
                f"called {ids[0]} to {ids[-1]}"
            )
        if worker in found:
            raise ConfigError(f"{option} names worker {worker} twice")
        found[worker] = value
    return found


def parse_slow(texts: Sequence[str], ids: Sequence[str]) -> dict[int, float]:
    """Parse ``WORKER:FACTOR``, where WORKER is an id, or an index from 0; return factors by index.

    >>> parse_slow(["3:10", "peer-0:1.5"], ids=["peer-0", "peer-1", "peer-2", "peer-3"])
    {3: 10.0, 0: 1.5}
    """

    def read(text: str) -> float | None:
        return float(text) if _FACTOR.fullmatch(text) and 1 <= float(text) < inf else None

    form = (
        "WORKER:FACTOR: write 3:10 for steps of worker 3 that take 10 times as long (FACTOR >= 1)"
    )
    return by_worker("slow", texts, ids, read, form)


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
