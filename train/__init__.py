"""Training on live peers: tasks, data, the model as a vector, and `Peer` for one's own loop."""

import typing

from ..gossip.specs.lazy import be_lazy as _be_lazy

if typing.TYPE_CHECKING:
    from .config import CheckpointConfig, PeerConfig
    from .loop.average import Average
    from .loop.trainer import RunConfig, run
    from .model import state_dict
    from .peer import Peer
    from .runtime.script.environment import Environment, environment
    from .runtime.shutdown import MergeResult
    from .tasks.registry import load_task
    from .tasks.sources import LoaderContext
    from .tasks.task import Evaluation, Task

__all__ = [
    "Average",
    "CheckpointConfig",
    "Environment",
    "Evaluation",
    "LoaderContext",
    "MergeResult",
    "Peer",
    "PeerConfig",
    "RunConfig",
    "Task",
    "environment",
    "load_task",
    "run",
    "state_dict",
]

_HOMES = {
    "config": ("CheckpointConfig", "PeerConfig"),
    "loop.average": ("Average",),
    "loop.trainer": ("RunConfig", "run"),
    "model": ("state_dict",),
    "peer": ("Peer",),
    "runtime.script.environment": ("Environment", "environment"),
    "runtime.shutdown": ("MergeResult",),
    "tasks.registry": ("load_task",),
    "tasks.sources": ("LoaderContext",),
    "tasks.task": ("Evaluation", "Task"),
}


# Torch takes a second to import, and reading a list of faults needs none.
_be_lazy(__name__, _HOMES)
