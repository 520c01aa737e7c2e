"""``rumor peer``: one peer, on this machine or on one of many."""

import logging
import os
import sys
import threading
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import typer

from ...gossip.errors import ConfigError
from ...gossip.rules.registry import make_rule
from ...train.config import PeerConfig, RunConfig
from ..reports.console import print_json
from ..settings.exchange import ExchangeConfig
from ..settings.options import Json, Panel, Source, config_of, given, options_of

__all__ = ["peer"]

# As in `train.storage.incarnation`, which imports torch.
_INCARNATION_FILE: Final = "life.json"


@options_of(
    Source(RunConfig),
    Source(PeerConfig, without=("signals",)),
    Source(ExchangeConfig),
    everyday={
        Panel.TRAINING: ("task", "steps", "lr", "partition", "index", "count", "device"),
        Panel.SWARM: ("id", "bind", "join", "key", "roster"),
        Panel.GOSSIP: ("rule", "topology"),
        Panel.OUTPUT: ("out", "resume"),
    },
    environment=True,
)
def peer(ctx: typer.Context, *, as_json: Json = False, **settings: Any) -> None:
    """Be one peer: found a swarm, or join one by any member's address.

    SIGTERM, SIGUSR1 or Ctrl-C makes it leave, handing its weight to another peer; a second one ends
    it at once. With --out it writes checkpoints, and the same command with --resume continues from
    the last one, or starts anew without one.

    Exit status: 0 if it finished or left; 1 if training or the network failed; 2 for wrong
    arguments, a port in use among them.
    """
    out = settings["out"]
    if settings["resume"] and out is None:
        raise ConfigError("--resume continues in the folder of an earlier run: name it with --out")
    resumes = settings["resume"] or os.environ.get("RUMOR_RESUME") == "1"
    resumes = resumes and out is not None and (out / _INCARNATION_FILE).exists()
    # The journal of an earlier incarnation stays as it is.
    settings |= {"resume": resumes, "journal": settings["journal"] and not resumes}
    report = _run(*_configs(settings, given(ctx)))
    if as_json:
        print_json(report)


def _run(run_config: RunConfig, peer_config: PeerConfig) -> dict[str, Any]:
    from ...gossip.transport.addresses import allow_more_files
    from ...train.loop.signals import SignalHandling
    from ...train.loop.trainer import run
    from ...train.tensors.buffers import keep_pages

    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S"
    )
    stop = threading.Event()
    SignalHandling(stop).install()
    keep_pages(messages=True)
    allow_more_files()
    report = run(run_config, peer_config, stop=stop)
    accuracy = "" if report.accuracy is None else f"accuracy {report.accuracy:.4f}, "
    logging.getLogger("rumor").info(
        "%s after %d steps: %sloss %.4g, weight %.4f",
        report.state,
        report.stats.steps,
        accuracy,
        report.loss,
        report.stats.weight,
    )
    return report.as_json()


def _configs(options: Mapping[str, Any], typed: Collection[str]) -> tuple[RunConfig, PeerConfig]:
    if options["journal"] and options["out"] is None:
        raise ConfigError("--set journal needs --out: name a folder for it")
    rule = make_rule(options["rule"])
    exchange = config_of(ExchangeConfig, options).settings()
    settings = {
        **options,
        **exchange,
        "rule": rule,
        "options": {
            name: str(value) if isinstance(value, Path) else value
            for name, value in options.items()
            if name not in ("resume", "out")
        },
    }
    usual = PeerConfig()
    named = {each.name for each in fields(PeerConfig)} & settings.keys()
    told = {n: settings[n] for n in named if n in typed or settings[n] != getattr(usual, n)}
    return config_of(RunConfig, settings), PeerConfig(**told)
