"""Training on live peers: tasks, data, the model as a vector, and `Peer` for one's own loop."""

from .config import CheckpointConfig, PeerConfig
from .peer import Peer
from .run import RunConfig, run
from .task import Evaluation, Task
from .tasks import load_task

__all__ = [
    "CheckpointConfig",
    "Evaluation",
    "Peer",
    "PeerConfig",
    "RunConfig",
    "Task",
    "load_task",
    "run",
]
