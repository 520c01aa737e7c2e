"""What a run starts, and where each of its peers writes."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...gossip.rules.registry import read_rule
from .config import LaunchConfig

if TYPE_CHECKING:
    from ...train.config import RunConfig
    from ...train.faults.schedule import Fault
    from ...train.tasks.registry import Task

__all__ = ["CHANGEABLE", "NOT_OF_TASK", "PROGRAM", "Job", "Place"]

# -P, or a file types.py in the working directory would stand in for Python's own.
PROGRAM: Final = (sys.executable, "-P", "-m", "rumor.cli", "peer")

_DESCRIBED: Final = ("total_steps", "lr_schedule", "partition", "steps")

CHANGEABLE: Final = (
    *("steps", "total_steps", "lr", "lr_schedule", "linger_s", "leave_s"),
    *("log_every", "eval_every", "eval_average_every", "checkpoint_every"),
)
"""Settings that a run may go on with changed: peers that resume are told them again."""

NOT_OF_TASK: Final = (*("index", "count", "seed", "device", "resume", "options"),)
"""Fields of a `RunConfig` that say which peer it is, and not what all of them train."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a run starts, where, and what is done to it."""

    config: LaunchConfig
    name: str
    """Of the script or the task."""
    command: tuple[str, ...]
    """What starts a process; options of `rumor peer` are appended where there is a task."""
    out: Path
    """The run's folder, which need not be there."""
    faults: tuple["Fault", ...] = ()
    """In order of time, peers by name; see `read_live_faults`."""
    training: "RunConfig | None" = None
    """What `rumor peer` is told to train; None for a script."""
    task: "Task | None" = None
    """The same, built."""
    batch_sizes: tuple[int | None, ...] = ()
    """Samples of a step of each peer, where they differ."""

    @property
    def network_fails(self) -> bool:
        """Whether a fault is done to the network between peers."""
        if not self.faults:
            return False
        from ...train.faults.schedule import NETWORK_KINDS

        return any(fault.kind in NETWORK_KINDS for fault in self.faults)

    def described(self, reports: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """What a summary repeats of it.

        Args:
            reports: What peers said of their ends: the rule and the graph may be the script's.
        """
        config, training = self.config, self.training
        told = next((report for report in reports if report.get("rule")), {})
        spec = config.rule_spec or (read_rule("gosgd") if training else None)
        rule = None if spec is None else spec.make()
        trained = {} if training is None else {n: getattr(training, n) for n in _DESCRIBED}
        return {
            "task": self.name,
            "topology": told.get("topology") or config.topology or "exponential",
            "peers": config.peers,
            "seed": config.seed,
            "rule": told.get("rule") or (rule.name if rule else "gosgd"),
            "rule_spec": None if spec is None else str(spec),
            "p": told.get("p", getattr(rule, "p", None)),
            "emission": getattr(rule, "emission", "per-step"),
            "exchange": config.exchange.as_json(),
            **trained,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One peer's place in a run: what it is called, where it writes, how it is started."""

    index: int
    id: str
    folder: Path
    command: tuple[str, ...]
    earlier: tuple[Path, ...] = ()
    """Folders of earlier lives, where those are not this one's."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Of its environment, beside what it inherits."""
