"""A swarm under virtual time: many workers in one process, deciding as live peers do.

`simulate` runs a whole study of one setting and gives a `Run`; `Swarm` is for tests: a few live
peers and whatever goes wrong with them. `rumor.sim.torture` looks for what breaks the protocol, and
`rumor.sim.faults` reads lists of faults; neither needs torch.
"""

import typing

from .lazy import be_lazy as _be_lazy

if typing.TYPE_CHECKING:
    from .config import SimulationConfig
    from .network import NetworkConfig
    from .progress import Progress
    from .replay import replay
    from .replay_result import Replay
    from .run import Run
    from .simulate import simulate
    from .swarm import Swarm
    from .vectors import VectorTask, consensus, noise

__all__ = [
    "NetworkConfig",
    "Progress",
    "Replay",
    "Run",
    "SimulationConfig",
    "Swarm",
    "VectorTask",
    "consensus",
    "noise",
    "replay",
    "simulate",
]

_HOMES = {
    "NetworkConfig": "network",
    "Progress": "progress",
    "Replay": "replay_result",
    "Run": "run",
    "SimulationConfig": "config",
    "Swarm": "swarm",
    "VectorTask": "vectors",
    "consensus": "vectors",
    "noise": "vectors",
    "replay": "replay",
    "simulate": "simulate",
}

# Torch takes a second, and torture needs none.
_be_lazy(__name__, _HOMES)
