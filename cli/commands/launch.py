"""``rumor launch``: several peers on this machine that train a task, watched to their end."""

from contextlib import nullcontext
from typing import Any

from ...train.config import RunConfig
from ..errors import understanding
from ..launch.checks import training_job
from ..launch.config import LaunchConfig
from ..launch.display import end
from ..launch.swarm import run_swarm
from ..settings.exchange import ExchangeConfig
from ..settings.options import Json, Panel, Source, config_of, options_of

__all__ = ["launch"]


@options_of(
    Source(LaunchConfig),
    Source(RunConfig, without=("index", "count", "resume")),
    Source(ExchangeConfig),
    everyday={
        Panel.TRAINING: (
            *("peers", "task", "steps", "total_steps", "lr"),
            *("partition", "device", "seed"),
        ),
        Panel.GOSSIP: ("rule", "topology", "wire", "timing"),
        Panel.FAULTS: ("slow", "faults"),
        Panel.OUTPUT: ("out", "resume"),
    },
)
def launch(*, as_json: Json = False, **settings: Any) -> None:
    """Train one model with several processes of this machine.

    The launcher only starts and watches them: they find one another and run without it. If it
    sees one die, it notifies the others, which would notice half a minute later. Ctrl-C makes them
    leave; a second one kills them. If the launcher itself is killed (SIGKILL), the peers continue
    to the end.

    --faults injects the faults of a file: it kills, pauses, slows and restarts peers, and starts
    newcomers. Each peer applies faults of the network to the messages that it receives, and then
    exchanges nothing through shared memory.

    Exit status: 0 if at least one peer finished, none failed, and every unit of weight is accounted
    for (peers that were killed are named); 1 if not; 2 for wrong arguments.
    """
    exchange = config_of(ExchangeConfig, settings)
    config = config_of(LaunchConfig, settings | {"exchange": exchange})
    training = config_of(RunConfig, settings | {"device": "auto", "resume": False})
    with understanding(config.out) if config.goes_on else nullcontext():
        job = training_job(config, training)
        end(run_swarm(job), as_json=as_json)
