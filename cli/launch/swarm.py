"""The swarm of one run: its folders, its processes, and what is done to them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from ...gossip.errors import ConfigError
from ..errors import not_written
from .folder import PROGRAM, RunFolder
from .monitor import Monitor, OnRow
from .processes.group import ProcessGroup, watchdog

if TYPE_CHECKING:
    from pathlib import Path
    from subprocess import Popen

    from .config import LaunchConfig
    from .faults import FaultInjector
    from .processes.fork_server import ForkServer
    from .resume import Resumption
    from .summary import Outcome

__all__ = ["Swarm"]


class Swarm:
    """Peers that train one model on this machine; made by `founded`.

    Args:
        config: What to run.
        steps: Of each peer; None where only all together have a number of them.
        out: The run's folder.
        program: What starts a peer; its options are appended.
        resumption: The run that it goes on with; None for a new one.
        awake: Wakes paused peers if this process is killed.
        server: Peers are forked from it.
        on_row: Takes a peer's name and each row of its metrics.

    Raises:
        ConfigError: A folder cannot be made.
    """

    def __init__(
        self,
        config: "LaunchConfig",
        steps: int | None,
        out: "Path",
        program: Sequence[str],
        resumption: "Resumption | None",
        awake: "Popen[bytes] | None",
        server: "ForkServer | None",
        on_row: OnRow | None,
    ) -> None:
        self.config, self.steps, self.out = config, steps, out
        run_folder = RunFolder(config, steps, out, program)
        try:
            if resumption is None:
                found = run_folder.found()
            else:
                found = resumption.again(run_folder, config)
        except OSError as error:
            raise ConfigError(not_written(out, error)) from None
        self.group = ProcessGroup(found, awake, server)
        group, total = self.group, config.total_steps
        self.monitor = Monitor(group.places, group.processes, steps, total, on_row)
        if resumption is not None:
            resumption.remind(self.monitor)
        self.injector = self._injector(run_folder) if config.faults else None
        """Does faults, where there are any."""

    @classmethod
    @contextmanager
    def founded(
        cls,
        config: "LaunchConfig",
        steps: int | None,
        out: "Path",
        program: Sequence[str] = PROGRAM,
        resumption: "Resumption | None" = None,
        server: "ForkServer | None" = None,
        on_row: OnRow | None = None,
    ) -> "Iterator[Swarm]":
        """Make a run's folders; no process is started yet. Arguments are those of `Swarm`."""
        pauses = any(fault.kind in ("pause", "slow") for fault in config.faults)
        with watchdog() if pauses else nullcontext() as awake:
            yield cls(config, steps, out, program, resumption, awake, server, on_row)

    def _injector(self, run_folder: RunFolder) -> "FaultInjector":
        from .faults import FaultInjector

        faults, seed = self.config.faults, self.config.seed
        return FaultInjector(faults, self.group, self.monitor, run_folder, seed=seed)

    @property
    def faults(self) -> list[dict[str, Any]]:
        """What was done to it."""
        return [] if self.injector is None else self.injector.records

    def outcomes(self) -> "list[Outcome]":
        """What each peer came to; all have ended.

        Raises:
            TrainingError: A peer left files that cannot be read.
        """
        from .summary import read_outcomes

        return read_outcomes(self.group.places, self.monitor.views)
