"""What a simulation is told of faults, read, held against its workers, and put in order."""

from collections.abc import Mapping, Sequence
from json import dumps
from pathlib import Path

from ..gossip import PeerId
from ..gossip.errors import ConfigError
from .config import SimulationConfig
from .faults import Fault, as_json, check_faults, read_faults, resolve
from .plan import FaultPlan

__all__ = ["given", "names_of", "plan_faults"]


def plan_faults(config: SimulationConfig) -> FaultPlan | None:
    """Make out what is to go wrong.

    Args:
        config: Of a simulation.

    Returns:
        What goes wrong; None where nothing does.

    Raises:
        ConfigError: A fault is not of its form, names a worker that there is not, or comes after
            the end.
    """
    faults = given(config.faults)
    if not faults:
        return None
    names = names_of(config.workers, None)
    check_faults(faults, names)
    if config.time_s is not None:
        for fault in faults:
            if fault.at_s > config.time_s:
                where = f"fault {fault.row or faults.index(fault) + 1} ({fault.kind})"
                raise ConfigError(
                    f"{where} is at {fault.at_s:g} s, after the end of the run at "
                    f"{config.time_s:g} s"
                )
    return FaultPlan(
        faults=resolve(faults, names),
        founders=config.workers,
        checkpoint_every_s=config.checkpoint_every_s,
    )


def names_of(workers: int, trouble: FaultPlan | None) -> tuple[PeerId, ...]:
    """Name all workers: those that are there at the start, then newcomers in order.

    >>> names_of(2, None)
    ('peer-0', 'peer-1')
    """
    width = len(str(workers - 1))
    names = [f"peer-{index:0{width}d}" for index in range(workers)]
    faults = () if trouble is None else trouble.faults
    joins = [fault.count or 1 for fault in faults if fault.kind == "join"]
    return (*names, *(f"join-{number}" for number in range(1, sum(joins) + 1)))


def given(source: str | Path | Sequence[Fault | Mapping[str, object]]) -> tuple[Fault, ...]:
    """Read faults from wherever they are.

    Args:
        source: A file, or faults as it would have them.

    Raises:
        ConfigError: They cannot be read, or one is not of its form.
    """
    if isinstance(source, str | Path):
        return read_faults(source)
    made = [as_json([f])[0] if isinstance(f, Fault) else dict(f) for f in source]
    # Written out and read again, they are checked like those of a file.
    return read_faults(dumps(made)) if made else ()
