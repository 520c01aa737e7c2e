"""What a network does to some workers only: shared uplinks, single links, partitions."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ..gossip.errors import ConfigError

__all__ = ["ALL", "Cut", "Host", "Link", "check_numbers"]

ALL = ("*",)
"""Stands for all workers."""


def _is_duration(value: float) -> bool:
    return 0 <= value < math.inf


def _is_rate(value: float) -> bool:
    return 0 <= value <= 1


_RANGES: Mapping[str, tuple[Callable[[float], bool], str]] = MappingProxyType(
    {
        "latency_s": (_is_duration, "0 or more and finite, in seconds"),
        "jitter": (_is_duration, "0 or more and finite, in latencies"),
        "bandwidth_mbit": (lambda value: 0 < value < math.inf, "above 0 and finite, in Mbit/s"),
        "loss": (_is_rate, "a probability in [0, 1]"),
        "duplicates": (_is_rate, "a probability in [0, 1]"),
        "reorder": (_is_rate, "a probability in [0, 1]"),
        "start_s": (_is_duration, "0 or more and finite, in seconds"),
    }
)


def check_numbers(settings: object, *names: str) -> None:
    """Refuse numbers that are out of range; None says nothing, and so is in range.

    Args:
        settings: What has them.
        *names: Of its fields.

    Raises:
        ConfigError: One is out of range; the message begins with its name.
    """
    for name in names:
        value = getattr(settings, name)
        fits, allowed = _RANGES[name]
        if value is not None and not fits(value):
            raise ConfigError(f"{name} is {value}: it must be {allowed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A machine with several workers, which share its uplink.

    What they send one another does not leave it, and arrives at once, unless a `Link` says
    otherwise.

    Raises:
        ConfigError: A field is out of range.
    """

    workers: tuple[str, ...]
    """Ids, or indices from 0."""

    bandwidth_mbit: float | None = None
    """Of its uplink, in Mbit/s; None for the network's."""

    def __post_init__(self) -> None:
        _check_workers("workers", self.workers)
        check_numbers(self, "bandwidth_mbit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What links from some workers to others have of their own, each in one direction.

    Raises:
        ConfigError: A field is out of range.
    """

    source: tuple[str, ...] = ALL
    """Who sends: ids or indices."""

    to: tuple[str, ...] = ALL
    """Who receives."""

    latency_s: float | None = None
    """Seconds; None, here and below, for what holds elsewhere."""

    bandwidth_mbit: float | None = None
    """Of each such link, in Mbit/s, behind the uplink: both limit."""

    loss: float | None = None
    """Probability that a message is lost."""

    def __post_init__(self) -> None:
        _check_workers("from", self.source)
        _check_workers("to", self.to)
        check_numbers(self, "latency_s", "bandwidth_mbit", "loss")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A partition in one direction: whatever is on its way between the two times is lost.

    Raises:
        ConfigError: A field is out of range, or it ends before it starts.
    """

    source: tuple[str, ...] = ALL
    """Who sends: ids or indices."""

    to: tuple[str, ...] = ALL
    """Who receives."""

    start_s: float = 0.0
    """Virtual time, in seconds."""

    stop_s: float = math.inf
    """Virtual time, in seconds; infinite for a cut that never heals."""

    def __post_init__(self) -> None:
        _check_workers("from", self.source)
        _check_workers("to", self.to)
        check_numbers(self, "start_s")
        if not self.stop_s > self.start_s:
            raise ConfigError(f"stop_s is {self.stop_s}: it must be after start_s, {self.start_s}")


def _check_workers(name: str, workers: Sequence[str]) -> None:
    if not workers:
        raise ConfigError(f"{name} names no worker: it must be ids, indices, or '*' for all")
    if "*" in workers and tuple(workers) != ALL:
        raise ConfigError(f"{name} names '*' among others: it must stand alone")
