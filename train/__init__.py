"""Training on live peers: tasks, data, the model as a vector, and `Peer` for one's own loop."""

import typing

from ..gossip.specs.lazy import be_lazy as _be_lazy

if typing.TYPE_CHECKING:
    from .config import CheckpointConfig, PeerConfig
    from .loop.sampler import MemberSampler
    from .observe.pull import Pulled, pull
    from .peer import Peer
    from .runtime.script.environment import environment
    from .runtime.shutdown import MergeResult
    from .tasks.registry import load_task
    from .tasks.task import Evaluation, Task

__all__ = [
    "CheckpointConfig",
    "Evaluation",
    "MemberSampler",
    "MergeResult",
    "Peer",
    "PeerConfig",
    "Pulled",
    "Task",
    "environment",
    "load_task",
    "pull",
]

_HOMES = {
    "config": ("CheckpointConfig", "PeerConfig"),
    "loop.sampler": ("MemberSampler",),
    "observe.pull": ("Pulled", "pull"),
    "peer": ("Peer",),
    "runtime.script.environment": ("environment",),
    "runtime.shutdown": ("MergeResult",),
    "tasks.registry": ("load_task",),
    "tasks.task": ("Evaluation", "Task"),
}


# Torch takes a second to import, and reading a list of faults needs none.
_be_lazy(__name__, _HOMES)
