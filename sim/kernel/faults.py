"""Faults as data: a list of what goes wrong when, for simulations, live swarms and campaigns.

A schedule is JSON, a list of objects: ``[{"at_s": 3.0, "kind": "crash", "peer": 2}, ...]``. `KINDS`
says which kinds there are and what each takes.
"""

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeGuard

from ...gossip.errors import ConfigError

__all__ = [
    "KINDS",
    "LIVE_KINDS",
    "NEWCOMERS_MAX",
    "Fault",
    "Kind",
    "allowed",
    "check_faults",
    "faults_as_json",
    "fits",
    "read_faults",
    "resolve",
]


NEWCOMERS_MAX = 100_000
"""Peers that may join in the course of one run; more than anybody has simulated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of fault."""

    help: str
    """What happens, in one sentence."""

    needs: tuple[str, ...] = ()
    """Fields that must be given, beside ``at_s`` and ``kind``."""

    may: tuple[str, ...] = ()
    """Fields that may be given."""

    @property
    def takes(self) -> tuple[str, ...]:
        """All its fields, those that it needs first."""
        return self.needs + self.may


_KINDS = {
    "crash": Kind(
        help="The process ends without a word, as by SIGKILL: at once, after so many effects of "
        "what it does next, or when it has next accepted something before it can say so.",
        needs=("peer",),
        may=("after", "accepting"),
    ),
    "restart": Kind(
        help="A peer that is down starts its next life, from its last checkpoint (kept) or with "
        "nothing (lost); one that runs is left alone.",
        needs=("peer",),
        may=("state",),
    ),
    "mass-restart": Kind(
        help="All these peers crash at once, and come back together after a while.",
        needs=("for_s",),
        may=("peers", "state"),
    ),
    "pause": Kind(
        help="The process stands still, as by SIGSTOP; what comes meanwhile waits for it.",
        needs=("peer",),
        may=("for_s",),
    ),
    "continue": Kind(help="A paused process goes on, as by SIGCONT.", needs=("peer",)),
    "slow": Kind(
        help="Steps of a peer take so many times as long.",
        needs=("peer", "factor"),
        may=("for_s",),
    ),
    "clock-jump": Kind(help="A peer's clock jumps ahead.", needs=("peer", "by_s")),
    "cut": Kind(
        help="Nothing passes between a peer and another (all others), or nothing from it to them.",
        needs=("peer",),
        may=("to", "for_s", "one_way"),
    ),
    "partition": Kind(
        help="Nothing passes between groups of peers; those that are not named form one more.",
        needs=("groups",),
        may=("for_s",),
    ),
    "heal": Kind(help="All cuts and partitions end."),
    "loss": Kind(
        help="So many of the messages are lost: of all peers, or those to and from one.",
        needs=("rate",),
        may=("peer", "for_s"),
    ),
    "duplicate": Kind(
        help="So many of the messages come twice, one soon after the other.",
        needs=("rate",),
        may=("peer", "for_s"),
    ),
    "replay": Kind(
        help="So many of the messages come again when they are up to minutes old.",
        needs=("rate",),
        may=("peer", "for_s"),
    ),
    "delay": Kind(
        help="Messages come so much later; in a simulation some of them far later than that.",
        needs=("by_s",),
        may=("peer", "for_s"),
    ),
    "reset": Kind(
        help="Connections are reset, and what is on its way is lost, in the middle of a transfer "
        "too: of one peer or of all, once or again and again.",
        may=("peer", "every_s", "for_s"),
    ),
    "join": Kind(help="So many newcomers start, called join-1, join-2 and so on.", may=("count",)),
    "leave": Kind(help="A peer leaves in good order, as by SIGTERM.", needs=("peer",)),
    "finish": Kind(
        help="A peer takes no more optimizer steps, and goes on mixing until all have finished.",
        needs=("peer",),
    ),
    "diverge": Kind(help="A peer's parameters stop being finite.", needs=("peer",)),
}

KINDS: Mapping[str, Kind] = MappingProxyType(_KINDS)
"""All kinds of fault."""

LIVE_KINDS = (
    "crash", "restart", "mass-restart", "pause", "continue", "slow", "cut", "partition", "heal",
    "loss", "duplicate", "delay", "reset", "join", "leave",
)  # fmt: skip
"""Those that can be done to real processes."""


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


_STATES = ["kept", "lost"]
_PEER = "a peer's name, or its index from 0"

_FIELDS: Mapping[str, tuple[Callable[[object], bool], str]] = MappingProxyType(
    {
        "at_s": (
            lambda value: _is_number(value) and value >= 0,
            "a number, 0 or more and finite, in seconds",
        ),
        "kind": (
            lambda value: isinstance(value, str) and value in _KINDS,
            "one of " + ", ".join(_KINDS),
        ),
        "peer": (_is_peer, _PEER),
        "to": (_is_peer, _PEER),
        "peers": (_are_peers, "a list of peers, each a name or an index from 0"),
        "groups": (
            lambda value: _is_list(value, _are_peers),
            "a list of lists of peers, each a name or an index from 0",
        ),
        "for_s": (_is_above_zero, "a number above 0 and finite, in seconds"),
        "factor": (_is_above_zero, "a number above 0 and finite"),
        "by_s": (_is_above_zero, "a number above 0 and finite, in seconds"),
        "rate": (
            lambda value: _is_number(value) and 0 <= value <= 1,
            "a probability in [0, 1]",
        ),
        "every_s": (_is_above_zero, "a number above 0 and finite, in seconds"),
        "count": (
            lambda value: _is_count(value, 1, NEWCOMERS_MAX),
            f"a whole number from 1 to {NEWCOMERS_MAX:,}",
        ),
        "state": (lambda value: value in _STATES, '"kept" or "lost"'),
        "one_way": (lambda value: isinstance(value, bool), "true or false"),
        "after": (lambda value: _is_count(value, 0), "a whole number, 0 or more, of effects"),
        "accepting": (lambda value: isinstance(value, bool), "true or false"),
    }
)


def allowed(field: str) -> str:
    """Say what a field of a fault may be, to follow "it must be"."""
    return _FIELDS[field][1]


def fits(field: str, value: object) -> bool:
    """Whether a field of a fault may have a value; one that is given.

    >>> fits("rate", 0.5), fits("rate", 1.5), fits("peer", 2), fits("peer", "2")
    (True, False, True, True)
    """
    return _FIELDS[field][0](value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong. What is not given is None; `KINDS` says what a kind takes."""

    at_s: float
    """When, seconds from the start."""

    kind: str
    """A key of `KINDS`."""

    peer: str | int | None = None
    """Of whom: a name, or a position in the list of peers of a run."""

    to: str | int | None = None
    """The other end of a cut."""

    peers: tuple[str | int, ...] | None = None
    """Of whom, where these are several."""

    groups: tuple[tuple[str | int, ...], ...] | None = None
    """Who can still reach one another."""

    for_s: float | None = None
    """How long it lasts, seconds; to the end of the run where it is not given."""

    factor: float | None = None
    """How many times as long steps take."""

    by_s: float | None = None
    """How far a clock jumps or how much later messages come, seconds."""

    rate: float | None = None
    """Probability for each message."""

    every_s: float | None = None
    """How often it happens again, seconds."""

    count: int | None = None
    """How many."""

    state: str | None = None
    """Whether a checkpoint is ``kept`` or ``lost``."""

    one_way: bool | None = None
    """Whether only one direction is cut."""

    after: int | None = None
    """Effects of the next event that are still carried out."""

    accepting: bool | None = None
    """Whether it happens as soon as something has been accepted."""

    row: int | None = field(default=None, compare=False, repr=False)
    """Where it stands in its file, counted from 1; messages name it."""


_NAMES = tuple(entry.name for entry in fields(Fault) if entry.name != "row")


def read_faults(source: str | Path) -> tuple[Fault, ...]:
    """Read a schedule.

    Args:
        source: A file in UTF-8; or the JSON itself, a text that begins with a bracket.

    Returns:
        The faults in order of time; those of one time as they are given.

    Raises:
        ConfigError: It cannot be read, is not of that form, or a value is out of range. The message
            names the fault, counted from 1, and the field.
    """
    is_text = isinstance(source, str) and source.lstrip().startswith("[")
    content = _parse(str(source) if is_text else _read(Path(source)))
    if not isinstance(content, list):
        raise ConfigError('it must be a list of faults: [{"at_s": 3.0, "kind": ...}, ...]')
    found = [_fault(entry, row) for row, entry in enumerate(content, 1)]
    return tuple(sorted(found, key=lambda fault: fault.at_s))


def faults_as_json(faults: Iterable[Fault]) -> list[dict[str, Any]]:
    """Write faults as a file has them, without what is not given.

    >>> faults_as_json([Fault(at_s=3.0, kind="crash", peer=2)])
    [{'at_s': 3.0, 'kind': 'crash', 'peer': 2}]
    """
    return [
        {name: _listed(value) for name in _NAMES if (value := getattr(fault, name)) is not None}
        for fault in faults
    ]


def check_faults(
    faults: Sequence[Fault], peers: Sequence[str], kinds: Collection[str] = tuple(KINDS)
) -> None:
    """Hold faults against the run that they are for.

    Args:
        faults: In any order.
        peers: Names of the run's peers. Newcomers of ``join`` need not be among them.
        kinds: What this run can do.

    Raises:
        ConfigError: A fault is not of its form, of another kind, or of no peer of this run; the
            message names it.
    """
    joined = sum([fault.count or 1 for fault in faults if fault.kind == "join"])
    if joined > NEWCOMERS_MAX:
        raise ConfigError(f"{joined:,} peers are to join: there may be {NEWCOMERS_MAX:,} in all")
    known = {*peers, *(f"join-{number}" for number in range(1, joined + 1))}
    for position, fault in enumerate(faults, 1):
        where = _where(fault.row or position)
        _check(_given(fault), where)
        if fault.kind not in kinds:
            raise ConfigError(
                f"{where}: {fault.kind} cannot be done here. What can is {', '.join(kinds)}"
            )
        for name, peer in _peers_of(fault):
            _check_peer(peer, peers, known, f"{where}: {name}")
        _check_ends(fault, peers, where)


def resolve(faults: Iterable[Fault], peers: Sequence[str]) -> tuple[Fault, ...]:
    """Put names in place of positions.

    Args:
        faults: Which `check_faults` finds nothing wrong with.
        peers: Names of the run's peers.

    >>> resolve([Fault(at_s=0.0, kind="leave", peer=1)], ["a", "b"])[0].peer
    'b'
    """

    def named(peer: str | int | None) -> str | None:
        return peers[peer] if isinstance(peer, int) else peer

    def all_named(group: tuple[str | int, ...]) -> tuple[str | int, ...]:
        return tuple(peers[peer] if isinstance(peer, int) else peer for peer in group)

    return tuple(
        replace(
            fault,
            peer=named(fault.peer),
            to=named(fault.to),
            peers=fault.peers and all_named(fault.peers),
            groups=fault.groups and tuple(all_named(group) for group in fault.groups),
        )
        for fault in faults
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8") from error


def _parse(text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise ConfigError(f"line {error.lineno} is not JSON: {error.msg}") from error
    except RecursionError as error:
        raise ConfigError("it is nested too deeply for a list of faults") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ConfigError(f"{next(key for key in keys if keys.count(key) > 1)} is given twice")
    return found


def _fault(entry: object, row: int) -> Fault:
    where = _where(row)
    if not isinstance(entry, dict):
        raise ConfigError(f"{where} is {json.dumps(entry)}: it must be an object")
    given = {name: value for name, value in entry.items() if value is not None}
    _check(given, where)
    return Fault(**{name: _frozen(value) for name, value in given.items()}, row=row)


def _check(given: Mapping[str, Any], where: str) -> None:
    """Hold what was given of one fault against what its kind takes."""
    for name in ("at_s", "kind"):
        if name not in given:
            raise ConfigError(f"{where} needs {name}: {allowed(name)}")
    if not fits("kind", given["kind"]):
        close = get_close_matches(str(given["kind"]), KINDS, n=1)
        hint = f", did you mean {close[0]!r}?" if close else "."
        raise ConfigError(
            f"{where} is of unknown kind {_shown(given['kind'])}{hint} Kinds are {', '.join(KINDS)}"
        )
    kind = KINDS[given["kind"]]
    where, takes = f"{where} ({given['kind']})", ("at_s", "kind", *kind.takes)
    for name in kind.needs:
        if name not in given:
            raise ConfigError(f"{where} needs {name}: {allowed(name)}")
    for name, value in given.items():
        if name not in takes:
            raise ConfigError(f"{where} takes no {name!r}; its fields are {', '.join(takes)}")
        if not fits(name, value):
            raise ConfigError(f"{where}: {name} is {_shown(value)}: it must be {allowed(name)}")


def _check_peer(peer: str | int, peers: Sequence[str], known: Collection[str], where: str) -> None:
    if isinstance(peer, int):
        if peer >= len(peers):
            last = f"they are 0 to {len(peers) - 1}" if peers else "there is none"
            raise ConfigError(f"{where} {peer} is no peer's index in this run: {last}")
    elif peer not in known:
        close = get_close_matches(peer, sorted(known), n=1)
        hint = f", did you mean {close[0]!r}?" if close else f"; the first is {peers[0]!r}"
        raise ConfigError(f"{where} {peer!r} is no peer of this run{hint}")


def _check_ends(fault: Fault, peers: Sequence[str], where: str) -> None:
    """A cut has two ends, and nobody stands on both sides of a partition."""
    (named,) = resolve([fault], peers)
    if named.to is not None and named.to == named.peer:
        raise ConfigError(f"{where}: to is {named.to!r}, the peer itself: it must be another")
    grouped = [peer for group in named.groups or () for peer in group]
    for peer in grouped:
        if grouped.count(peer) > 1:
            raise ConfigError(f"{where}: groups have {peer!r} twice: a peer is in one of them")


def _peers_of(fault: Fault) -> list[tuple[str, str | int]]:
    """Every mention of a peer, and the field that it is in."""
    found = [("peer", fault.peer), ("to", fault.to)]
    found += [("peers", peer) for peer in fault.peers or ()]
    found += [("groups", peer) for group in fault.groups or () for peer in group]
    return [(name, peer) for name, peer in found if peer is not None]


def _given(fault: Fault) -> dict[str, Any]:
    return {name: value for name in _NAMES if (value := getattr(fault, name)) is not None}


def _where(row: int) -> str:
    return f"fault {row}"


def _frozen(value: Any) -> Any:
    return tuple(_frozen(part) for part in value) if isinstance(value, list) else value


def _listed(value: Any) -> Any:
    return [_listed(part) for part in value] if isinstance(value, tuple) else value


def _shown(value: object) -> str:
    return json.dumps(_listed(value), default=repr)
