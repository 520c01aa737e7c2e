"""The protocol core: what peers decide, without time, sockets or values.

`Protocol` is the state machine, a `Rule` the algorithm it follows, an `Account` what a peer holds.
`rumor.gossip.wire.codec` and `rumor.gossip.transport.zmq_transport` put messages on the wire.
"""

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
from .rules.parameter import Parameter, checked
from .rules.registry import make_rule
from .rules.synchronous.allreduce import AllReduce
from .rules.synchronous.dpsgd import DPSGD
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
