"""Faults that ``rumor launch`` is asked for: what real processes on one machine can be done to."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..gossip.errors import ConfigError
from ..sim.fault_kinds import LIVE_KINDS
from ..sim.faults import Fault, check_faults, read_faults, resolve

__all__ = ["NETWORK_KINDS", "joiners", "need_network", "read_live_faults"]

NETWORK_KINDS: Final = frozenset(
    ("cut", "partition", "heal", "loss", "duplicate", "delay", "reset")
)
"""Kinds that are done to the network, through proxies."""


def read_live_faults(path: Path, peers: Sequence[str], *, journal: bool) -> tuple[Fault, ...]:
    """Read a schedule of faults and hold it against a run of real processes.

    Args:
        path: The file.
        peers: Names of those that found the run.
        journal: Whether they keep journals.

    Returns:
        The faults in order of time, peers by name.

    Raises:
        ConfigError: It cannot be read or makes no sense, or real processes cannot do it.
    """
    try:
        faults = read_faults(path)
        check_faults(faults, peers, LIVE_KINDS)
        for position, fault in enumerate(faults, 1):
            _check(replace(fault, row=fault.row or position), journal=journal)
    except ConfigError as error:
        raise ConfigError(f"--faults {path}: {error}") from None
    return resolve(faults, peers)


def need_network(faults: Sequence[Fault]) -> bool:
    """Whether some are done to the network, so that peers must dial through proxies."""
    return any(fault.kind in NETWORK_KINDS for fault in faults)


def joiners(faults: Sequence[Fault]) -> int:
    """How many newcomers there are to be."""
    return sum(fault.count or 1 for fault in faults if fault.kind == "join")


def _check(fault: Fault, *, journal: bool) -> None:
    where = f"fault {fault.row} ({fault.kind})"
    for name in ("after", "accepting"):
        if getattr(fault, name):
            raise ConfigError(
                f"{where}: {name} is for simulations alone: a real process is killed where it is"
            )
    if fault.factor is not None and fault.factor < 1:
        raise ConfigError(f"{where}: factor is {fault.factor}: a real process is no faster than 1")
    if journal and "restart" in fault.kind and fault.state != "lost":
        raise ConfigError(
            f'{where}: with --journal, state must be "lost": a journal begins with its peer'
        )
