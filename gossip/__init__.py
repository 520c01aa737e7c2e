"""The protocol core: the decisions of peers, without clocks, sockets or values.

Scripts need rules, settings, errors, and `audit`; custom rules also `Rule` and `RuleContext`.
`rumor.gossip.protocol.protocol` is the state machine. The docstring of `rumor.train.runtime.runner`
follows a push, and a message that arrives, from end to end.
"""

import typing

from .specs.lazy import be_lazy as _be_lazy

if typing.TYPE_CHECKING:
    from .config import ProtocolConfig
    from .effects.ledger import Audit, audit
    from .errors import (
        ConfigError,
        IncompatiblePeer,
        RumorError,
        TrainingError,
        TransportError,
    )
    from .protocol.context import RuleContext
    from .protocol.rule import Rule
    from .protocol.share import Share
    from .rules.asynchronous.adpsgd import ADPSGD
    from .rules.asynchronous.gosgd import GoSGD
    from .rules.asynchronous.sgp import SGP
    from .rules.outer.diloco import DiLoCo, LocalSGD
    from .rules.registry import make_rule
    from .rules.synchronous.allreduce import AllReduce
    from .rules.synchronous.dpsgd import DPSGD
    from .specs.parameter import Parameter, checked

__all__ = [
    "ADPSGD",
    "DPSGD",
    "SGP",
    "AllReduce",
    "Audit",
    "ConfigError",
    "DiLoCo",
    "GoSGD",
    "IncompatiblePeer",
    "LocalSGD",
    "Parameter",
    "ProtocolConfig",
    "Rule",
    "RuleContext",
    "RumorError",
    "Share",
    "TrainingError",
    "TransportError",
    "audit",
    "checked",
    "make_rule",
]

_HOMES = {
    "config": ("ProtocolConfig",),
    "effects.ledger": ("Audit", "audit"),
    "errors": (
        "ConfigError",
        "IncompatiblePeer",
        "RumorError",
        "TrainingError",
        "TransportError",
    ),
    "protocol.context": ("RuleContext",),
    "protocol.rule": ("Rule",),
    "protocol.share": ("Share",),
    "rules.asynchronous.adpsgd": ("ADPSGD",),
    "rules.asynchronous.gosgd": ("GoSGD",),
    "rules.asynchronous.sgp": ("SGP",),
    "rules.outer.diloco": ("DiLoCo", "LocalSGD"),
    "rules.registry": ("make_rule",),
    "rules.synchronous.allreduce": ("AllReduce",),
    "rules.synchronous.dpsgd": ("DPSGD",),
    "specs.parameter": ("Parameter", "checked"),
}

# Topologies and commands need errors and specs, but none of the protocol.
_be_lazy(__name__, _HOMES)
