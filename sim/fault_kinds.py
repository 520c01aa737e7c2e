"""What can go wrong: the kinds of fault, what each takes, and what its numbers may be."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeGuard

__all__ = ["KINDS", "LIVE_KINDS", "NEWCOMERS_MAX", "Kind", "allowed", "fits"]

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
