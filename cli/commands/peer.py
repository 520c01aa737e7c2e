"""``rumor peer``: one peer, on this machine or on one of many."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import typer

from ...gossip.errors import ConfigError
from ...gossip.rules.registry import make_rule, parts_of_spec
from ...gossip.specs.parameter import setting, settings_of
from ...train.config import PeerConfig, RunConfig
from ..errors import understanding
from ..reports.console import print_json
from ..settings.exchange import ExchangeConfig
from ..settings.options import (
    GOSSIP,
    OUTPUT,
    SWARM,
    TRAINING,
    Json,
    Source,
    check_kept,
    config_of,
    given,
    options_of,
)

__all__ = [
    "LifeConfig",
    "kept_options",
    "make_settings",
    "peer",
    "stop_on_signals",
]


# File names as in `train.loop.trainer` and `train.storage.incarnation`, which import torch.
_FILE: Final = "options.json"
_INCARNATION_FILE: Final = "life.json"

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)

# Options of a single call.
_NOT_KEPT: Final = ("resume", "out")

# With another value of these it would not be the same peer, training the same model and data.
_FIXED: Final = (
    *("task", "seed", "partition", "index", "count", "batch_size", "id"),
    *("shards", "local", "frozen_may_differ"),
)


@dataclass(frozen=True, kw_only=True)
class LifeConfig:
    """How one incarnation of a peer begins."""

    dial_only: bool = setting(False, "Do not listen at all: a full member that others cannot dial.")

    resume: Path | None = setting(
        None,
        "Continue from the last checkpoint in DIR, the folder of a stopped or killed peer. "
        "Its options need not be given again; ``join``, ``bind``, ``steps`` and such can be "
        "changed.",
        brief="Go on in the folder of an earlier run.",
        metavar="DIR",
    )


_OWNERS: Final = (RunConfig, PeerConfig, ExchangeConfig, LifeConfig)


@options_of(
    Source(RunConfig, TRAINING, without=("resume",)),
    Source(PeerConfig, GOSSIP, without=("signals",)),
    Source(ExchangeConfig, GOSSIP, without=("bandwidth_bytes_s",)),
    Source(LifeConfig, GOSSIP),
    everyday={
        TRAINING: ("task", "steps", "lr", "partition", "index", "count", "device"),
        SWARM: ("id", "bind", "join", "key", "roster"),
        GOSSIP: ("rule", "topology"),
        OUTPUT: ("out", "resume"),
    },
    environment=True,
)
def peer(ctx: typer.Context, *, as_json: Json = False, **settings: Any) -> None:
    """Be one peer: found a swarm, or join one by any member's address.

    SIGTERM, SIGUSR1 or Ctrl-C makes it leave, handing its weight to another peer; a second one ends
    it at once. With --out it writes checkpoints, and --resume continues from the last one.

    Exit status: 0 if it finished or left; 1 if training or the network failed; 2 for wrong
    arguments, a port in use among them.
    """
    typed = given(ctx) & {*settings}
    if settings["resume"] is None:
        # Like a script: from the last checkpoint in the folder, if there is one.
        resumes = os.environ.get("RUMOR_RESUME") == "1" and settings["out"] is not None
        resumes = resumes and (settings["out"] / _INCARNATION_FILE).exists()
        made = make_settings(settings | ({"journal": False} if resumes else {}), typed)
        made = (replace(made[0], resume=resumes), made[1])
    else:
        with understanding(settings["resume"]):
            settings = _resumed_options(settings, typed)
            made = make_settings(settings, typed)
    report = _run(*made, threading.Event())
    if as_json:
        print_json(report)


def stop_on_signals(stop: threading.Event) -> None:
    """Let the first SIGTERM, SIGINT or SIGUSR1 set *stop*, and the second end the process."""
    pid = os.getpid()

    def leave(number: int, frame: object) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        if os.getpid() != pid:
            # A forked child of the task, such as a data loader's worker: the signal ends it.
            os.kill(os.getpid(), number)
            return
        print(
            "stopping: handing the weight on; once more ends at once", file=sys.stderr, flush=True
        )
        stop.set()

    for each in _SIGNALS:
        signal.signal(each, leave)


def _run(run_config: RunConfig, peer_config: PeerConfig, stop: threading.Event) -> dict[str, Any]:
    from ...gossip.transport.addresses import allow_more_files
    from ...train.loop.trainer import run
    from ...train.tensors.buffers import keep_pages

    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S"
    )
    stop_on_signals(stop)
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


def make_settings(
    options: Mapping[str, Any], typed: Collection[str] = ()
) -> tuple[RunConfig, PeerConfig]:
    """Make the settings of a peer from its options.

    Raises:
        ConfigError: An option is out of range.
    """
    if options["journal"] and options["out"] is None:
        raise ConfigError("--set journal needs --out: name a folder for it")
    rule = make_rule(options["rule"])
    exchange = config_of(ExchangeConfig, options).settings()
    settings = {
        **options,
        **exchange,
        **{name: tuple(options[name] or ()) for name in ("advertise", "join")},
        "rule": rule,
        "bind": _binds(options),
        "resume": options["resume"] is not None,
        "options": kept_options(options),
    }
    usual = PeerConfig()
    named = {each.name for each in fields(PeerConfig)} & settings.keys()
    told = {n: settings[n] for n in named if n in typed or settings[n] != getattr(usual, n)}
    return config_of(RunConfig, settings), PeerConfig(**told)


def kept_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that the next incarnation needs, as JSON values."""
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in options.items()
        if name not in _NOT_KEPT
    }


def _resumed_options(options: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Return the options of a peer that resumes: its earlier options, and those changed now."""
    folder: Path = options["resume"]
    kept = _read_options(folder)
    declared = {name: each for owner in _OWNERS for name, each in settings_of(owner).items()}
    kept |= check_kept(kept, declared, folder / _FILE)
    for name, code in _code_in(kept).items():
        if name not in given:
            raise ConfigError(
                f"{folder / _FILE} names {name} {code}, code that does not come with rumor: give "
                f"--{name} {code} to import and run it"
            )
    for name in _FIXED:
        if name in given and options[name] != kept.get(name):
            raise ConfigError(
                f"{name} is {options[name]}, and was {kept.get(name)} in {folder}: a peer "
                "that resumes goes on with the same"
            )
    if options["out"] not in (None, folder):
        raise ConfigError(f"--out is {options['out']}: a peer that resumes goes on in {folder}")
    # The journal of an earlier incarnation stays as it is.
    whole = dict(options) | kept | {"journal": False} | {name: options[name] for name in given}
    if "bind" in given and "dial_only" not in given:
        whole["dial_only"] = False
    return whole | {"out": folder}


def _code_in(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the user's own tasks, rules or partitions among the options, as ``module:name``."""
    named = {"task": str(options.get("task")), "rule": parts_of_spec(str(options.get("rule")))[0]}
    partition = options.get("partition")
    if isinstance(partition, str) and ":" in partition:
        # Here, because it imports torch.
        from ...train.tasks.partition import partition_module

        named["partition"] = partition if partition_module(partition) is not None else ""
    return {name: code for name, code in named.items() if ":" in code}


def _read_options(folder: Path) -> dict[str, Any]:
    """Return the options of the peer with this folder."""
    if not os.path.isdir(folder):
        raise ConfigError(f"--resume {folder}: there is no such folder")
    path = folder / _FILE
    # Here, because it imports torch.
    from ...train.storage.files import read_json

    try:
        kept = read_json(path)
    except FileNotFoundError:
        told = "this is not the folder of a peer: name one that `rumor peer --out` has made"
        if (folder / "peers").is_dir():
            told = "this is the folder of a run: its command goes on with it, with --resume added"
        raise ConfigError(f"--resume {folder}: {told}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"--resume {folder}: {path} cannot be read: {reason}") from None
    if not isinstance(kept, dict):
        raise ConfigError(f"--resume {folder}: {path} does not hold the options of a peer")
    return kept


def _binds(options: Mapping[str, Any]) -> str | tuple[str, ...] | None:
    if options["dial_only"]:
        return None
    bind: str | tuple[str, ...] = options["bind"]
    return bind
