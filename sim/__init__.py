"""A swarm under virtual time: many workers in one process, deciding as live peers do.

`simulate` simulates one setting and returns a `Run`; `Swarm` is for tests: a few live peers and
their faults. `rumor.sim.fuzz` searches for protocol bugs, and `rumor.train.faults.schedule` reads
lists of faults; neither needs torch.
"""

import typing

from ..gossip.specs.lazy import be_lazy as _be_lazy

if typing.TYPE_CHECKING:
    from .config import SimulationConfig
    from .models.network import NetworkConfig
    from .results.run import Run
    from .simulate import simulate
    from .testing import Swarm

__all__ = [
    "NetworkConfig",
    "Run",
    "SimulationConfig",
    "Swarm",
    "simulate",
]

_HOMES = {
    "config": ("SimulationConfig",),
    "models.network": ("NetworkConfig",),
    "results.run": ("Run",),
    "simulate": ("simulate",),
    "testing": ("Swarm",),
}

# Torch takes a second to import, and fuzzing does not need it.
_be_lazy(__name__, _HOMES)
