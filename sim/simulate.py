"""`simulate`: a swarm from its settings to its `Run`."""

import time
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import Any

from ..gossip import TrainingError
from ..gossip.errors import ConfigError
from .config import SimulationConfig
from .cores import alone
from .plan import Stop
from .progress import Progress
from .run import Run
from .simulation import Simulation, why_diverged
from .stepper import Failure

__all__ = ["simulate"]

# Workers that may diverge one by one: each costs a new start. More of them are a wrong setting.
_STOPS_MAX = 8


def simulate(
    config: SimulationConfig | None = None,
    *,
    progress: Callable[[Progress], None] | None = None,
    **settings: Any,
) -> Run:
    """Train one model with many simulated workers under virtual time.

    Workers decide by the code that live peers run, and compute real gradients. The same settings
    give the same run, to the last bit of every parameter, whatever the window, the number of
    threads and the process.

    Args:
        config: All settings; the defaults unless given.
        progress: Called after each window.
        settings: Fields of `SimulationConfig` that differ from *config*.

    Returns:
        Figures, curves over virtual time, and the merged model.

    Raises:
        ConfigError: A setting is out of range, or the run would not fit into memory.
        TopologyError: The topology is not valid for so many workers.
        TrainingError: Too many workers diverged, or one that a synchronous rule cannot do without.

    >>> run = simulate(task="consensus", workers=8, topology="complete", steps=50, p=0.5, seed=1)
    >>> bool(run.series["disagreement"][-1] < 0.1 * run.series["disagreement"][0])
    True
    """
    _check_known(settings)
    config = replace(config or SimulationConfig(), **settings)
    with alone():
        return _run_until_finite(config, progress)


def _run_until_finite(config: SimulationConfig, progress: Callable[[Progress], None] | None) -> Run:
    """Run, and run again with those stopped whose values were found not to be finite."""
    simulation = Simulation(config)
    simulation.prepare()
    started_s = time.perf_counter()
    stops: list[Stop] = []
    while True:
        try:
            return simulation.run(stops, started_s, progress)
        except Failure as failure:
            stops.append(failure.stop)
            if len(stops) > min(_STOPS_MAX, max(0, config.workers - 1)):
                raise TrainingError(why_diverged(simulation.ids, stops, config)) from None


def _check_known(settings: Iterable[str]) -> None:
    known = [field.name for field in fields(SimulationConfig)]
    for name in settings:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f", did you mean {close[0]}?" if close else f": it must be one of {known}"
            raise ConfigError(f"simulate has no setting {name!r}{hint}")
