"""A swarm under virtual time: many workers in one process, deciding as live peers do.

`simulate` runs a whole study of one setting and gives a `Run`; `Swarm` is for tests: a few live
peers and whatever goes wrong with them.
"""

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
