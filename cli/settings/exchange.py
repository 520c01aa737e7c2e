"""The exchange of peers, as ``rumor peer`` accepts it and ``rumor launch`` passes it on."""

import re
from dataclasses import dataclass, fields
from math import isfinite
from pathlib import Path
from typing import Any, Final

from ...gossip.config import ProtocolConfig, ShareSettings, timing
from ...gossip.errors import ConfigError
from ...gossip.specs.parameter import setting, settings_of
from ...train.config import ValueSettings

__all__ = ["ExchangeConfig", "OutSettings", "parse_rate"]


@dataclass(frozen=True, kw_only=True)
class OutSettings:
    """The output of a command."""

    out: Path | None = setting(
        None, "Folder of results.", otherwise="runs/NAME-TIME", metavar="DIR"
    )


@dataclass(frozen=True, kw_only=True)
class ExchangeConfig(ProtocolConfig, ValueSettings):
    """Contents and mixing of pushes."""

    timing: str = setting(
        "lan",
        "How long peers wait for one another: values for one machine, one network, or the "
        "internet.",
        brief="Timeouts between peers.",
        metavar="local|lan|wan",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shards_per_push > self.shards:
            raise ConfigError(
                f"shards_per_push is {self.shards_per_push}: it must be from 1 to shards, "
                f"{self.shards}"
            )
        self.protocol()

    def settings(self) -> dict[str, Any]:
        """These settings as fields of a `PeerConfig`."""
        values = {each.name: getattr(self, each.name) for each in fields(ValueSettings)}
        return values | {"protocol": self.protocol()}

    def given(self) -> dict[str, Any]:
        """Settings that differ from the defaults, as JSON values."""
        declared = settings_of(type(self))
        found = {name: getattr(self, name) for name in declared}
        return {name: value for name, value in found.items() if value != declared[name].default}

    def as_json(self) -> dict[str, Any]:
        """The settings in a summary: those that are not defaults, and those of simulations."""
        names = [each.name for owner in (ShareSettings, ValueSettings) for each in fields(owner)]
        told = {name: getattr(self, name) for name in (*names, "timing")}
        return told | self.given()

    def protocol(self) -> ProtocolConfig:
        """These settings as a `ProtocolConfig`, with the times of ``timing``."""
        names = {each.name for each in fields(ProtocolConfig)}
        told = {name: value for name, value in self.given().items() if name in names}
        return ProtocolConfig(**{**timing(self.timing), **told})


_SCALES: Final = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "ki": 2**10, "mi": 2**20, "gi": 2**30}

# A small b may mean bits or bytes, so it is rejected.
_RATE: Final = re.compile(
    r"(?P<number>\d+(?:\.\d+)?|\.\d+) ?(?P<scale>[kKmMgG]i?|)(?P<unit>[bB][iI][tT]|B)(?:/s|ps)?",
    re.ASCII,
)


def parse_rate(text: str) -> float:
    """Parse a rate in bits or bytes, and return bytes per second.

    >>> parse_rate("200mbit"), parse_rate("25 MB/s")
    (25000000.0, 25000000.0)
    """
    match = _RATE.fullmatch(text.strip())
    rate = 0.0
    if match is not None:
        bits = 1 if match["unit"] == "B" else 8
        rate = float(match["number"]) * _SCALES[match["scale"].lower()] / bits
    if not 0 < rate or not isfinite(rate):
        raise ConfigError(
            f"bandwidth is {text!r}: it must be a number above 0 and a unit, as in 200mbit, "
            "1gbit or 25MB/s (1 byte, B, is 8 bit)"
        )
    return rate
