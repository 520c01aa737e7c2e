"""What stands at the head of a journal: all that a peer was, before it took anything in."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from ..gossip import (
    Account,
    ConfigError,
    Protocol,
    ProtocolConfig,
    Rule,
    Schema,
    TrainingError,
    stream,
)
from ..gossip.rules import make_rule, spec_of
from ..gossip.wire import parse_wire
from ..topology import View
from .config import PeerConfig
from .machine import machine
from .uptime import uptime_s
from .vector import Vector

__all__ = ["Head", "rule_settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """One life of a peer at its start."""

    id: str
    incarnation: int
    addresses: tuple[str, ...]
    """Where others could reach it."""
    anchor: bytes
    """Hash of its model's vector, 16 bytes."""
    schema: bytes
    """Hash of its model's schema, 16 bytes."""
    rule: Mapping[str, Any]
    """See `rule_settings`."""
    topology: str
    """Spec of the graph."""
    seed: int
    """Of the peer's choices."""
    protocol: ProtocolConfig
    """Sizes and times."""
    shards: int
    """Into how many pieces the vector is cut."""
    host: bytes
    """Whose memory it can read, 16 bytes; empty for nobody's."""
    training: Mapping[str, Any]
    """Fields of the `RunConfig`."""
    machine: Mapping[str, Any]
    """Versions, threads and processors."""
    unix_s: float
    """When it started, by the calendar, seconds."""
    clock_s: float
    """The same moment on the clock that its protocol was told, seconds."""

    def as_json(self) -> dict[str, Any]:
        """The head as values that JSON has."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return fields | {
            "addresses": list(self.addresses),
            "anchor": self.anchor.hex(),
            "schema": self.schema.hex(),
            "host": self.host.hex(),
            "protocol": asdict(self.protocol),
            "rule": dict(self.rule),
            "training": dict(self.training),
            "machine": dict(self.machine),
        }

    @classmethod
    def of(
        cls,
        config: PeerConfig,
        account: Account,
        addresses: tuple[str, ...],
        vector: Vector,
        rule: Rule,
        host: bytes,
        training: Mapping[str, Any],
    ) -> Self:
        """The head of a peer that is about to start.

        Raises:
            ConfigError: The rule cannot be made again from what stands in a head.
        """
        return cls(
            id=account.id,
            incarnation=account.incarnation,
            addresses=addresses,
            anchor=vector.anchor(),
            schema=vector.schema.hash,
            rule=rule_settings(rule),
            topology=config.topology,
            seed=config.seed,
            protocol=config.protocol,
            shards=config.shards,
            host=host,
            training=training,
            machine=machine(vector.flats[0].device),
            unix_s=time.time(),
            clock_s=uptime_s(),
        )

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what `as_json` gave.

        Raises:
            TrainingError: Something is missing, or is not what it must be.
        """
        try:
            return cls(
                **dict(values)
                | {
                    "addresses": tuple(values["addresses"]),
                    "anchor": bytes.fromhex(values["anchor"]),
                    "schema": bytes.fromhex(values["schema"]),
                    "host": bytes.fromhex(values["host"]),
                    "protocol": ProtocolConfig(**values["protocol"]),
                }
            )
        except (KeyError, TypeError, ValueError) as error:
            raise TrainingError(f"the head of a journal is not understood: {error}") from None

    def make_rule(self) -> Rule:
        """The rule, as it was at the start.

        Raises:
            ConfigError: There is no such rule here.
        """
        if "spec" in self.rule:
            return make_rule(self.rule["spec"])
        # A journal of before rules had specs.
        return make_rule(self.rule["name"], self.rule["p"], self.rule["emission"])

    def make_protocol(self, schema: Schema, rule: Rule) -> Protocol:
        """The protocol, as it was before it took anything in."""
        return Protocol(
            id=self.id,
            incarnation=self.incarnation,
            schema=schema,
            anchor=self.anchor,
            rule=rule,
            neighbors=View(self.topology, self.seed),
            rng=lambda purpose: stream(self.seed, self.id, purpose),
            config=self.protocol,
            addresses=self.addresses,
            keeps_anchor=self.keeps_anchor,
            host=self.host,
        )

    @property
    def keeps_anchor(self) -> bool:
        """Whether its vector keeps the anchor, which lossy formats are differences from."""
        return parse_wire(self.protocol.wire).needs_anchor


def rule_settings(rule: Rule) -> dict[str, Any]:
    """What a rule can be made from again: its name, and the spec that says all of its parameters.

    Raises:
        ConfigError: No spec makes it again.
    """
    try:
        spec = spec_of(rule)
        alike = make_rule(spec).outstanding_max == rule.outstanding_max
    except ConfigError as error:
        raise ConfigError(f"rule {rule.name} cannot be journaled: {error}") from error
    if not alike:
        raise ConfigError(
            f"rule {rule.name} cannot be journaled: {spec} makes one with another outstanding_max"
        )
    return {"name": rule.name, "spec": spec}
