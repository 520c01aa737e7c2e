"""Faults as data: a list of what goes wrong when, for simulations, live swarms and campaigns.

A schedule is JSON, a list of objects: ``[{"at_s": 3.0, "kind": "crash", "peer": 2}, ...]``. `KINDS`
says which kinds there are and what each takes.
"""

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeGuard

from ....gossip.errors import ConfigError, did_you_mean
from ...models.network import with_distinct_keys
from ..plan import Fault, joining, names_of_newcomers
from .kinds import KINDS

__all__ = [
    "ATTACKS",
    "KINDS",
    "LIVE_KINDS",
    "NETWORK_KINDS",
    "NEWCOMERS_MAX",
    "Fault",
    "check_faults",
    "faults_as_json",
    "faults_of",
    "read_faults",
    "resolve",
]

NEWCOMERS_MAX = 100_000
"""Peers that may join in the course of one run; more than anybody has simulated."""

ATTACKS = tuple(name for name, kind in KINDS.items() if kind.is_attack)
"""Kinds by which peers lie."""

LIVE_KINDS = tuple(name for name, kind in KINDS.items() if kind.live)
"""Kinds that can be done to real processes."""

NETWORK_KINDS = tuple(
    name for name, kind in KINDS.items() if kind.strike is None and name not in ATTACKS
)
"""Kinds that are done to the network."""


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


_PEER = (_is_peer, "a peer's name, or its index from 0")
_DURATION = (_is_above_zero, "a number above 0 and finite, in seconds")
_FACTOR = (_is_above_zero, "a number above 0 and finite")
_FLAG = (lambda value: isinstance(value, bool), "true or false")

_FIELDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "at_s": (
        lambda value: _is_number(value) and value >= 0,
        "a number, 0 or more and finite, in seconds",
    ),
    "kind": (lambda value: isinstance(value, str) and value in KINDS, f"one of {', '.join(KINDS)}"),
    "peer": _PEER,
    "to": _PEER,
    "peers": (_are_peers, "a list of peers, each a name or an index from 0"),
    "groups": (
        lambda value: _is_list(value, _are_peers),
        "a list of lists of peers, each a name or an index from 0",
    ),
    "for_s": _DURATION,
    "factor": _FACTOR,
    "by_s": _DURATION,
    "rate": (lambda value: _is_number(value) and 0 <= value <= 1, "a probability in [0, 1]"),
    "every_s": _DURATION,
    "strength": _FACTOR,
    "count": (
        lambda value: _is_count(value, 1, NEWCOMERS_MAX),
        f"a whole number from 1 to {NEWCOMERS_MAX:,}",
    ),
    "state": (lambda value: value in ["kept", "lost"], '"kept" or "lost"'),
    "one_way": _FLAG,
    "after": (lambda value: _is_count(value, 0), "a whole number, 0 or more, of effects"),
    "accepting": _FLAG,
}

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
    return [{name: _listed(value) for name, value in _given(fault).items()} for fault in faults]


def faults_of(source: str | Path | Sequence[Fault | Mapping[str, object]]) -> tuple[Fault, ...]:
    """Read faults from a file, or as it would have them.

    Raises:
        ConfigError: They cannot be read, or one is not of its form.
    """
    if isinstance(source, str | Path):
        return read_faults(source)
    made = [faults_as_json([f])[0] if isinstance(f, Fault) else dict(f) for f in source]
    # Written out and read again, they are checked like those of a file.
    return read_faults(json.dumps(made)) if made else ()


def check_faults(
    faults: Sequence[Fault], peers: Sequence[str], kinds: Collection[str] = tuple(KINDS)
) -> None:
    """Hold faults against the run that they are for.

    Args:
        peers: Names of the run's peers. Newcomers of ``join`` need not be among them.
        kinds: What this run can do.

    Raises:
        ConfigError: A fault is not of its form, of another kind, or of no peer of this run; the
            message names it.
    """
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
    """Put names of peers in place of positions, in faults that passed `check_faults`.

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


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8") from error


def _parse(text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=with_distinct_keys)
    except json.JSONDecodeError as error:
        raise ConfigError(f"line {error.lineno} is not JSON: {error.msg}") from error
    except RecursionError as error:
        raise ConfigError("it is nested too deeply for a list of faults") from error


def _fault(entry: object, row: int) -> Fault:
    where = f"fault {row}"
    if not isinstance(entry, dict):
        raise ConfigError(f"{where} is {json.dumps(entry)}: it must be an object")
    given = {name: value for name, value in entry.items() if value is not None}
    _check(given, where)
    return Fault(**{name: _frozen(value) for name, value in given.items()}, row=row)


def _check(given: Mapping[str, Any], where: str) -> None:
    """Hold what was given of one fault against what its kind takes."""
    for name in ("at_s", "kind"):
        if name not in given:
            raise ConfigError(f"{where} needs {name}: {_FIELDS[name][1]}")
    if not _FIELDS["kind"][0](given["kind"]):
        hint = did_you_mean(str(given["kind"]), KINDS)
        raise ConfigError(
            f"{where} is of unknown kind {_shown(given['kind'])}{hint} Kinds are {', '.join(KINDS)}"
        )
    kind = KINDS[given["kind"]]
    where, takes = f"{where} ({given['kind']})", ("at_s", "kind", *kind.takes)
    for name in kind.needs:
        if name not in given:
            raise ConfigError(f"{where} needs {name}: {_FIELDS[name][1]}")
    for name, value in given.items():
        if name not in takes:
            raise ConfigError(f"{where} takes no {name!r}; its fields are {', '.join(takes)}")
        if not _FIELDS[name][0](value):
            raise ConfigError(f"{where}: {name} is {_shown(value)}: it must be {_FIELDS[name][1]}")


def _check_peer(peer: str | int, peers: Sequence[str], known: Collection[str], where: str) -> None:
    if isinstance(peer, int):
        if peer >= len(peers):
            last = f"they are 0 to {len(peers) - 1}" if peers else "there is none"
            raise ConfigError(f"{where} {peer} is no peer's index in this run: {last}")
    elif peer not in known:
        hint = did_you_mean(peer, sorted(known), f"; the first is {peers[0]!r}")
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


def _frozen(value: Any) -> Any:
    return tuple(_frozen(part) for part in value) if isinstance(value, list) else value


def _listed(value: Any) -> Any:
    return [_listed(part) for part in value] if isinstance(value, tuple) else value


def _shown(value: object) -> str:
    return json.dumps(_listed(value), default=repr)
