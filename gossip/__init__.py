"""The protocol core: what peers decide, without time, sockets or values.

`Protocol` is the state machine, a `Rule` the algorithm it follows, an `Account` what a peer holds.
`rumor.gossip.wire.codec` and `rumor.gossip.transport.zmq_transport` put messages on the wire.
"""

import typing

from .specs.lazy import be_lazy as _be_lazy

if typing.TYPE_CHECKING:
    from .config import ProtocolConfig
    from .effects.ledger import Account, Audit, Entry, Kind, audit
    from .errors import (
        ConfigError,
        DecodeError,
        IncompatiblePeer,
        LocalProtocolError,
        RemoteProtocolError,
        RumorError,
        TrainingError,
        TransportError,
    )
    from .protocol.context import RuleContext
    from .protocol.protocol import Protocol
    from .protocol.rule import Rule
    from .protocol.share import Share
    from .rules.asynchronous.adpsgd import ADPSGD
    from .rules.asynchronous.gosgd import Emission, GoSGD
    from .rules.asynchronous.sgp import SGP
    from .rules.registry import make_rule
    from .rules.synchronous.allreduce import AllReduce
    from .rules.synchronous.dpsgd import DPSGD
    from .specs.parameter import Parameter, checked
    from .types import PeerId, stream
    from .weight import ONE, UNIT, from_units, in_units
    from .wire.messages import Envelope, Member, Phase
    from .wire.schema import Schema, TensorSpec

__all__ = [
    "ADPSGD",
    "DPSGD",
    "ONE",
    "SGP",
    "UNIT",
    "Account",
    "AllReduce",
    "Audit",
    "ConfigError",
    "DecodeError",
    "Emission",
    "Entry",
    "Envelope",
    "GoSGD",
    "IncompatiblePeer",
    "Kind",
    "LocalProtocolError",
    "Member",
    "Parameter",
    "PeerId",
    "Phase",
    "Protocol",
    "ProtocolConfig",
    "RemoteProtocolError",
    "Rule",
    "RuleContext",
    "RumorError",
    "Schema",
    "Share",
    "TensorSpec",
    "TrainingError",
    "TransportError",
    "audit",
    "checked",
    "from_units",
    "in_units",
    "make_rule",
    "stream",
]

_HOMES = {
    "config": ("ProtocolConfig",),
    "effects.ledger": ("Account", "Audit", "Entry", "Kind", "audit"),
    "errors": (
        "ConfigError",
        "DecodeError",
        "IncompatiblePeer",
        "LocalProtocolError",
        "RemoteProtocolError",
        "RumorError",
        "TrainingError",
        "TransportError",
    ),
    "protocol.context": ("RuleContext",),
    "protocol.protocol": ("Protocol",),
    "protocol.rule": ("Rule",),
    "protocol.share": ("Share",),
    "rules.asynchronous.adpsgd": ("ADPSGD",),
    "rules.asynchronous.gosgd": ("Emission", "GoSGD"),
    "rules.asynchronous.sgp": ("SGP",),
    "rules.registry": ("make_rule",),
    "rules.synchronous.allreduce": ("AllReduce",),
    "rules.synchronous.dpsgd": ("DPSGD",),
    "specs.parameter": ("Parameter", "checked"),
    "types": ("PeerId", "stream"),
    "weight": ("ONE", "UNIT", "from_units", "in_units"),
    "wire.messages": ("Envelope", "Member", "Phase"),
    "wire.schema": ("Schema", "TensorSpec"),
}

# Topologies and commands need errors and specs, and none of the protocol.
_be_lazy(__name__, _HOMES)
