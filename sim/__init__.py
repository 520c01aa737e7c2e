"""A swarm under virtual time: many workers in one process, deciding as live peers do.

`simulate` runs a whole study of one setting and gives a `Run`; `Swarm` is for tests: a few live
peers and whatever goes wrong with them. `rumor.sim.torture` looks for what breaks the protocol, and
`rumor.sim.faults` reads lists of faults; neither needs torch.
"""

import importlib
import sys
import types
import typing

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


class _Package(types.ModuleType):
    """Only what is asked for is imported: torch takes a second, and torture needs none."""

    def __getattr__(self, name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # Importing rumor.sim.replay, the module, must not hide replay, the function.
        if not (name in _HOMES and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
