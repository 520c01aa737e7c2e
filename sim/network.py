"""Networks of the simulator: presets with the reason for each number, or a file."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from os.path import isfile
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..gossip.errors import ConfigError
from .network_file import check_fields, part_as_json, read_fields
from .network_parts import Cut, Host, Link, check_numbers

__all__ = [
    "PRESETS",
    "Cut",
    "Host",
    "Link",
    "NetworkConfig",
    "as_json",
    "network_of",
    "read_network",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConfig:
    """What happens to a message between two workers. Chances are of whole messages.

    Without arguments it is `ideal`: each message arrives when it is sent.

    Raises:
        ConfigError: A field is out of range.
    """

    latency_s: float = 0.0
    """From the last byte sent to its arrival, one way, in seconds: the least it takes."""

    jitter: float = 0.0
    """Mean of what is added to the latency, exponentially distributed, in latencies. A link stays
    in order, as TCP is: what would arrive before an earlier message waits for that one."""

    bandwidth_mbit: float | None = None
    """Of each host's uplink, in Mbit/s (10^6 bits), one message at a time for all its links; None
    for no limit. Downlinks do not limit."""

    loss: float = 0.0
    """Probability that a message is lost, having used the uplink. Not that of a packet, which TCP
    sends again (that is jitter): a connection that breaks loses a message."""

    duplicates: float = 0.0
    """Probability of a second copy, which arrives late by up to 4 latencies, out of order."""

    reorder: float = 0.0
    """Probability that a message is late by up to 4 latencies, and is overtaken."""

    hosts: tuple[Host, ...] = ()
    """Workers that share an uplink; each other one has its own."""

    links: tuple[Link, ...] = ()
    """Links that differ. Where several fit a link, the last that gives a number holds."""

    cuts: tuple[Cut, ...] = ()
    """Partitions."""

    def __post_init__(self) -> None:
        check_numbers(
            self, "latency_s", "jitter", "bandwidth_mbit", "loss", "duplicates", "reorder"
        )

    def with_changes(
        self,
        *,
        latency_s: float | None = None,
        bandwidth_mbit: float | None = None,
        loss: float | None = None,
        duplicates: float | None = None,
    ) -> "NetworkConfig":
        """Change what is given; hosts, links and cuts stay as they are.

        Args:
            latency_s: Seconds.
            bandwidth_mbit: Mbit/s; infinite for no limit.
            loss: Probability.
            duplicates: Probability.

        Returns:
            The changed network.

        Raises:
            ConfigError: A number is out of range.
        """
        given = {
            "latency_s": latency_s,
            "bandwidth_mbit": bandwidth_mbit,
            "loss": loss,
            "duplicates": duplicates,
        }
        changes: dict[str, Any] = {
            name: value for name, value in given.items() if value is not None
        }
        if bandwidth_mbit == math.inf:
            changes["bandwidth_mbit"] = None
        return replace(self, **changes)


PRESETS: Mapping[str, NetworkConfig] = MappingProxyType(
    {
        "ideal": NetworkConfig(),
        "datacenter": NetworkConfig(latency_s=0.0001, bandwidth_mbit=25_000),
        "lan": NetworkConfig(latency_s=0.0005, bandwidth_mbit=1_000),
        "wan": NetworkConfig(latency_s=0.04, jitter=0.1, bandwidth_mbit=100, loss=0.0001),
        "lossy": NetworkConfig(
            latency_s=0.1,
            jitter=0.5,
            bandwidth_mbit=20,
            loss=0.05,
            duplicates=0.02,
            reorder=0.05,
        ),
    }
)
"""Networks by name.

``ideal``: nothing but the algorithm.

``datacenter``: 0.1 ms is a switch or two and both kernels; 25 Gbit/s is a common network card.
No jitter: it is far below the time of a step, and a link in constant time costs no state.

``lan``: 0.5 ms is half of a ping across an office; 1 Gbit/s is its Ethernet. No jitter, as above.

``wan``: 40 ms is half of a ping across a continent; a tenth of that is what queues on the way
add; 100 Mbit/s is a good uplink of an office or a home; a connection that breaks takes a message
in 10,000 with it.

``lossy``: 100 ms, half a latency of jitter and 20 Mbit/s are a mobile link or a bad hotel; one
message in 20 is lost, one in 50 comes twice, one in 20 is overtaken. Worse than what a transport
over TCP lets through, to see what a swarm can stand.
"""


def read_network(text: str) -> NetworkConfig:
    """Find a network by name, or read it from a file.

    A file is a JSON object with the fields of `NetworkConfig`, all of them optional, and
    ``preset``, what it starts from (``ideal`` unless given)::

        {"preset": "lan", "loss": 0.01,
         "hosts": [{"workers": ["0", "1"], "bandwidth_mbit": 100}],
         "links": [{"from": "0", "to": ["2", "3"], "latency_s": 0.1}],
         "cuts": [{"from": "*", "to": "3", "start_s": 10, "stop_s": 20}]}

    ``from``, ``to`` and ``workers`` are an id or an index, a list of them, or ``"*"`` for all,
    which ``from`` and ``to`` are unless given. A ``bandwidth_mbit`` of null is no limit, a
    ``stop_s`` of null is never.

    Args:
        text: A key of `PRESETS`, or the path of a file.

    Returns:
        The network.

    Raises:
        ConfigError: It is neither, or the file is not as above; the message names file and key.

    >>> read_network("wan").latency_s
    0.04
    """
    if text in PRESETS:
        return PRESETS[text]
    path = Path(text)
    if not text.endswith(".json") and not isfile(path):
        close = get_close_matches(text, PRESETS, n=1)
        hint = f", did you mean {close[0]!r}?" if close else "."
        raise ConfigError(
            f"unknown network {text!r}{hint} It must be {', '.join(PRESETS)} or a .json file"
        )
    try:
        return _from(*read_fields(path))
    except ConfigError as error:
        raise ConfigError(f"network {path}: {error}") from None


def network_of(content: Mapping[str, Any]) -> NetworkConfig:
    """Make a network of what a file says, as `read_network` shows it.

    Raises:
        ConfigError: It is not of that form; the message names the key.

    >>> network_of({"preset": "lan", "loss": 0.01}).latency_s
    0.0005
    """
    return _from(*check_fields(content))


def _from(preset: object, given: Mapping[str, Any]) -> NetworkConfig:
    if not isinstance(preset, str) or preset not in PRESETS:
        raise ConfigError(f"preset is {preset!r}: it must be one of {', '.join(PRESETS)}")
    return replace(PRESETS[preset], **given)


def as_json(config: NetworkConfig) -> dict[str, object]:
    """Say what a network is in the form of a file.

    Args:
        config: Any network.

    Returns:
        What `read_network` reads back as *config*, for ``json.dumps``.

    >>> as_json(PRESETS["datacenter"])
    {'latency_s': 0.0001, 'bandwidth_mbit': 25000}
    """
    found: dict[str, object] = {}
    for field in fields(NetworkConfig):
        value = getattr(config, field.name)
        if value != field.default:
            is_number = isinstance(value, int | float)
            found[field.name] = value if is_number else [part_as_json(part) for part in value]
    return found
