"""Networks of the simulator: presets, a file, or JSON."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os.path import isfile
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ...gossip.errors import ConfigError
from ...gossip.specs.parameter import check_settings, setting
from ...gossip.specs.spec import find
from ...train.storage.files import read_user_json
from .tables import as_table, fields_given

__all__ = [
    "ALL",
    "PRESETS",
    "Host",
    "Link",
    "NetworkConfig",
    "network_of",
    "network_text",
    "read_network",
]


ALL = ("*",)
"""Stands for all workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A machine with several workers, which share its uplink and its downlink.

    Messages between them do not leave it, and arrive at once, unless a `Link` says otherwise.
    """

    workers: tuple[str, ...]
    """Ids, or indices from 0."""
    bandwidth_mbit: float | None = setting(
        None, "Bandwidth of its uplink, Mbit/s; None for the network's.", above=0
    )
    downlink_mbit: float | None = setting(
        None,
        "Bandwidth of its downlink, Mbit/s; None for its own uplink's, or else the network's.",
        above=0,
        is_endless=True,
    )

    def __post_init__(self) -> None:
        check_settings(self)
        _check_workers("workers", self.workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Properties of links from some workers to others, each in one direction."""

    source: tuple[str, ...] = field(default=ALL, metadata={"key": "from"})
    """Senders: ids or indices."""
    to: tuple[str, ...] = ALL
    """Receivers: ids or indices."""
    latency_s: float | None = setting(
        None, "Latency, seconds; None, here and below, for the network's value.", low=0
    )
    bandwidth_mbit: float | None = setting(
        None, "Bandwidth of each such link, Mbit/s, behind the uplink: both limit.", above=0
    )
    loss: float | None = setting(None, "Probability that a message is lost.", low=0, high=1)
    shared: bool = setting(
        False,
        "True if all these links share the bandwidth: that of a switch, or of a single line "
        "between two sites.",
    )

    def __post_init__(self) -> None:
        check_settings(self)
        _check_workers("from", self.source)
        _check_workers("to", self.to)
        if self.shared and self.bandwidth_mbit is None:
            raise ConfigError("shared needs bandwidth_mbit, that of all these links together")


def _check_workers(name: str, workers: Sequence[str]) -> None:
    if not workers:
        raise ConfigError(f"{name} names no worker: it must be ids, indices, or '*' for all")
    if "*" in workers and tuple(workers) != ALL:
        raise ConfigError(f"{name} names '*' among others: it must stand alone")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConfig:
    """Properties of the network between workers. Probabilities are per whole message.

    The default is `ideal`: each message arrives when it is sent.

    Raises:
        ConfigError: A field is out of range.
    """

    latency_s: float = setting(
        0.0, "Minimum time from the last byte sent to its arrival, one way, seconds.", low=0
    )
    jitter: float = setting(
        0.0,
        "Mean of the exponentially distributed addition to the latency, in latencies. A link stays "
        "in order, like TCP: a message that would overtake an earlier one waits for it.",
        low=0,
    )
    bandwidth_mbit: float | None = setting(
        None,
        "Bandwidth of each host's uplink, Mbit/s (10^6 bits), one message at a time for all its "
        "links; None for no limit.",
        above=0,
    )
    downlink_mbit: float | None = setting(
        None,
        "Bandwidth of each host's downlink, Mbit/s: messages from several sides queue there. None "
        "for the same as ``bandwidth_mbit``, infinite for no limit.",
        above=0,
        is_endless=True,
    )
    loss: float = setting(
        0.0,
        "Probability that a message is lost, having used the uplink. This is not packet loss, "
        "which TCP repairs (that is jitter): a connection that breaks loses a message.",
        low=0,
        high=1,
    )
    duplicates: float = setting(
        0.0,
        "Probability of a second copy, which arrives late by up to 4 latencies, out of order.",
        low=0,
        high=1,
    )
    reorder: float = setting(
        0.0,
        "Probability that a message is late by up to 4 latencies, and is overtaken.",
        low=0,
        high=1,
    )
    hosts: tuple[Host, ...] = ()
    """Workers that share an uplink and a downlink; every other worker has its own."""
    links: tuple[Link, ...] = ()
    """Links that differ. If several entries match a link, the last one with a value applies."""

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def downlink(self) -> float | None:
        """Mbit/s of each downlink; None for no limit."""
        if self.downlink_mbit is None:
            return self.bandwidth_mbit
        return None if self.downlink_mbit == math.inf else self.downlink_mbit

    def with_changes(self, **changes: float | None) -> "NetworkConfig":
        """Return a copy with the fields that are not None; infinite bandwidth means no limit."""
        given: dict[str, Any] = {name: v for name, v in changes.items() if v is not None}
        if given.get("bandwidth_mbit") == math.inf:
            given["bandwidth_mbit"] = None
        return replace(self, **given)


PRESETS: Mapping[str, NetworkConfig] = MappingProxyType(
    {
        "ideal": NetworkConfig(),
        "datacenter": NetworkConfig(latency_s=0.0001, bandwidth_mbit=25_000),
        "lan": NetworkConfig(latency_s=0.0005, bandwidth_mbit=1_000),
        "wan": NetworkConfig(latency_s=0.04, jitter=0.1, bandwidth_mbit=100, loss=0.0001),
        "lossy": NetworkConfig(
            latency_s=0.1, jitter=0.5, bandwidth_mbit=20, loss=0.05, duplicates=0.02, reorder=0.05
        ),
    }
)
"""Networks by name; docs/reference/simulation.md gives the reason for each number."""


def read_network(text: str) -> NetworkConfig:
    """Find a network by name, or read it from JSON or a file.

    A file is a JSON object with the fields of `NetworkConfig` and ``preset``, its starting point;
    docs/reference/files.md shows one.

    >>> read_network("wan").latency_s, read_network('{"preset": "wan", "loss": 0.1}').loss
    (0.04, 0.1)
    """
    if text in PRESETS:
        return PRESETS[text]
    if text.lstrip().startswith("{"):
        try:
            return network_of(json.loads(text))
        except (ConfigError, ValueError, RecursionError) as error:
            raise ConfigError(f"network {text}: {error}") from None
    path = Path(text)
    if not text.endswith(".json") and not isfile(path):
        find("network", text, PRESETS, ", or a .json file")
    content = read_user_json(path)
    try:
        return network_of(content)
    except ConfigError as error:
        raise ConfigError(f"network {path}: {error}") from None


def network_text(network: NetworkConfig) -> str:
    """Return the text that `read_network` reads as this network: a name if it has one, else JSON.

    >>> network_text(PRESETS["wan"]), network_text(NetworkConfig(loss=0.1))
    ('wan', '{"loss": 0.1}')
    """
    names = [name for name, preset in PRESETS.items() if preset == network]
    return names[0] if names else json.dumps(as_table(network))


def network_of(content: Mapping[str, Any]) -> NetworkConfig:
    """Make a network from a file's content, see `read_network`."""
    changes = fields_given(NetworkConfig, content, more=("preset",))
    preset = content.get("preset", "ideal")
    if not isinstance(preset, str) or preset not in PRESETS:
        raise ConfigError(f"preset is {preset!r}: it must be one of {', '.join(PRESETS)}")
    return replace(PRESETS[preset], **changes)
