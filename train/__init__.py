"""Training on live peers: tasks, data, the model as a vector, and `Peer` for one's own loop."""

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
