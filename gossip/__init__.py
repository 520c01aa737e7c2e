"""The protocol core: what peers decide, without time, sockets or values.

`Protocol` is the state machine, a `Rule` the algorithm it follows, an `Account` what a peer holds.
`rumor.gossip.codec` and `rumor.gossip.transport` put messages on the wire.
"""

from .adpsgd import ADPSGD
from .allreduce import AllReduce
from .config import ProtocolConfig
from .dpsgd import DPSGD
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
from .gosgd import Emission, GoSGD
from .ledger import Account, Audit, Entry, Kind, audit
from .messages import Envelope, Member, PeerId, Phase
from .parameter import Parameter, checked
from .protocol import Protocol
from .rule import Rule
from .rules import make_rule
from .schema import Schema, TensorSpec
from .sgp import SGP
from .streams import stream
from .turn import Share, Turn
from .weight import ONE, UNIT, from_units, in_units

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
    "RumorError",
    "Schema",
    "Share",
    "TensorSpec",
    "TrainingError",
    "TransportError",
    "Turn",
    "audit",
    "checked",
    "from_units",
    "in_units",
    "make_rule",
    "stream",
]
