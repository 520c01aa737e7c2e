"""The exchange of peers, as ``rumor peer`` accepts it and ``rumor launch`` passes it on."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ...gossip.config import ProtocolConfig, ShareSettings, timing
from ...gossip.errors import ConfigError
from ...gossip.specs.parameter import setting, settings_of
from ...train.config import ValueSettings

__all__ = ["ExchangeConfig", "OutSettings"]


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
