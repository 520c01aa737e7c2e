"""``rumor pull``: the model of a running swarm, read from outside."""

import math
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...gossip.errors import ConfigError, RumorError
from ...gossip.specs.parameter import setting
from ...train.config import Recurrence, TrustSettings
from ..errors import printable, sigterm_as_interrupt
from ..reports.console import print_json, progress_on
from ..run_folder import check_output
from ..settings.options import Force, Json, Members, Source, config_of, options_of
from .top import observing

if TYPE_CHECKING:
    from ...train.observe.observer import Observer
    from ...train.observe.pull import Pulled

__all__ = ["PullConfig", "pull"]


@dataclass(frozen=True, kw_only=True)
class PullConfig(TrustSettings):
    """How a model is read."""

    watch: str | None = setting(
        None,
        "Pull again at this interval until Ctrl-C, and replace the file each time: 10min, 1h.",
        brief="Pull again at this interval.",
        otherwise="once",
        metavar="INTERVAL",
    )

    timeout_s: float = setting(
        60.0,
        "How long to wait for a peer's step to end, and then for each part of its model. A peer "
        "that takes longer is left out.",
        brief="How long a peer's step may take.",
        above=0,
        high=86_400,
    )

    def __post_init__(self) -> None:
        if self.watch is not None and math.isinf(Recurrence(self.watch).every_s):
            raise ConfigError(f"--watch is {self.watch}: it must be a time, such as 10min")


@options_of(Source(PullConfig))
def pull(
    addresses: Members,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="File to write the model to."),
    ],
    *,
    force: Force = False,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Read the average model of a running swarm, without joining it.

    The file holds the weighted average of the models of all live peers, each as it was between two
    of its steps when it was read; no weight moves. A peer that does not answer, or dies meanwhile,
    is left out and named. With keys, a machine on the roster may read.

    `rumor pull node-a -o model.safetensors --watch 10min`

    Exit status: 0 if the file was written; 1 if no peer's model could be read; 2 for wrong
    arguments.
    """
    config = config_of(PullConfig, settings)
    check_output(output, force=force)
    with observing(addresses, config.key, config.roster) as observer, sigterm_as_interrupt():
        _pull(observer, config.timeout_s, output, as_json=as_json)
        if config.watch is None:
            return
        due = Recurrence(config.watch)
        with suppress(KeyboardInterrupt):
            while True:
                while not due.is_due(0):
                    time.sleep(min(1.0, due.every_s))
                due.done(0)
                try:
                    _pull(observer, config.timeout_s, output, as_json=as_json)
                except (RumorError, OSError) as error:
                    # The last file stays, and the swarm may come back.
                    print(f"not pulled: {printable(str(error))}", file=sys.stderr, flush=True)


def _pull(observer: "Observer", timeout_s: float, output: Path, *, as_json: bool) -> None:
    from ...train.observe.pull import pull_once

    began_s = time.monotonic()
    with progress_on(sys.stderr) as progress:
        pulled = pull_once(
            observer,
            timeout_s,
            lambda done, line: progress(time.monotonic() - began_s, done, f"reading {line}"),
        )
    pulled.save(output)
    if as_json:
        print_json(
            {
                "swarm": pulled.swarm,
                "peers": [asdict(peer) for peer in pulled.peers],
                "missing": dict(pulled.missing),
                "frozen": list(pulled.frozen),
                "output": str(output),
            }
        )
    else:
        _print(pulled, output)


def _print(pulled: "Pulled", output: Path) -> None:
    total = sum(peer.weight for peer in pulled.peers)
    for peer in pulled.peers:
        print(f"{peer.id}: {peer.weight / total:.4f} of the whole, at step {peer.step}")
    for id, why in pulled.missing.items():
        print(printable(f"{id}: left out: {why}"))
    if pulled.frozen:
        print(f"{len(pulled.frozen)} frozen parameters are not in the file: peers never send them")
    count = len(pulled.peers)
    print(f"{output}: the average of {count} of {count + len(pulled.missing)} peers", flush=True)
