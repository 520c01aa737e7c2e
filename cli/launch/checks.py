"""Checks that a run can start as requested, before anything is written."""

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...gossip.errors import ConfigError
from ...gossip.transport.keys.key import covers
from ...gossip.transport.keys.keyring import read_keyring
from ..run_folder import new_folders
from .config import PROGRAM, Job, LaunchConfig

if TYPE_CHECKING:
    from ...train.config import RunConfig

__all__ = ["check_settings", "find_command", "script_job", "script_of", "training_job"]

_STEP_S_MIN_SLOW: Final = 0.02
"""Minimum duration of a step with --slow alone: well above the time of a small model."""


def training_job(config: LaunchConfig, training: "RunConfig") -> Job:
    """Check that peers can train a task with these settings."""
    from ...train.tasks.registry import load_task

    out = _find_folder(config, training.task, trains=True)
    task = load_task(training.task, seed=config.seed).trained_with(
        optimizer=training.optimizer, momentum=training.momentum, precision=training.precision
    )
    task.split(training.partition, config.peers, config.seed)
    if training.steps is None and training.total_steps is None:
        training = replace(training, steps=task.steps)
    if config.slow and not training.step_s_min:
        training = replace(training, step_s_min=_STEP_S_MIN_SLOW)
    name, command = training.task, PROGRAM
    job = Job(config=config, name=name, command=command, out=out, training=training, task=task)
    return _faulty(job)


def script_job(config: LaunchConfig, words: Sequence[str], *, here: bool = True) -> Job:
    """Check that a script can be started; with *here* on this machine, so that it must exist."""
    command, name = find_command(words, here=here)
    out = _find_folder(config, Path(name).stem, here=here)
    return _faulty(Job(config=config, name=name, command=command, out=out))


def _faulty(job: Job) -> Job:
    config = job.config
    if config.faults is None:
        return job
    from .faults import read_live_faults

    journal = job.training is not None and job.training.journal
    job = replace(job, faults=read_live_faults(config.faults, config.ids(), journal=journal))
    if job.network_fails:
        # Shares in the memory of one machine are not messages, so they cannot be lost.
        config = replace(config, exchange=replace(config.exchange, shared_memory=False))
    return replace(job, config=config)


def find_command(words: Sequence[str], *, here: bool = True) -> tuple[tuple[str, ...], str]:
    """Return the command that typed words mean, and the name of the script."""
    if not words:
        raise ConfigError(
            "there is nothing to run: write `rumor run -n 4 -- python train.py --my args`"
            ", or give --config a file with a command in it"
        )
    python = sys.executable if here else "python"
    # The first python of PATH may be another one, which lacks rumor.
    arguments = words[1:] if words[0] == "python" else words
    has_name = arguments is words and not words[0].endswith(".py")
    command = tuple(words) if has_name else (python, *arguments)
    if here and shutil.which(command[0]) is None:
        raise ConfigError(f"program {command[0]!r} was not found")
    script = script_of(command)
    if here and script is not None and not Path(script).is_file():
        raise ConfigError(f"script {script!r} was not found in {Path.cwd()}")
    return command, Path(script or command[0]).name


def script_of(command: Sequence[str]) -> str | None:
    """Return the file among a command's words that Python runs; None for another command."""
    is_python = Path(command[0]).name.startswith("python")
    return command[1] if is_python and len(command) > 1 and command[1].endswith(".py") else None


def check_settings(config: LaunchConfig, out: Path, *, trains: bool = False) -> None:
    """Check that settings are consistent: each peer would refuse them, after the start.

    With *trains*, peers follow the default graph if none is named; else the script may choose one.
    """
    from ...train.config import PeerConfig

    told: dict[str, Any] = {"key": config.key, "roster": config.roster}
    if config.rule_spec is not None:
        told["rule"] = config.rule_spec.make()
    if config.topology is not None or trains:
        told |= {"topology": config.topology or "exponential", "founders": config.peers}
    PeerConfig(**told, out=out, loggers=config.loggers, **config.exchange.settings())


def _find_folder(
    config: LaunchConfig, name: str, *, here: bool = True, trains: bool = False
) -> Path:
    """Return the folder of a run, if it is free; nothing is made yet."""
    from ...train.loop.exporter import require_free_ports
    from ...train.storage.files import check_folder
    from .folder import require_same

    folders: Iterator[Path] = new_folders(name)
    out = config.out or next(path for path in folders if not os.path.exists(path))
    check_settings(config, out, trains=trains)
    if config.resume and not here:
        raise ConfigError(
            "--resume is for peers on this machine: with --hosts, name a new --out; checkpoints "
            "stay in each peer's folder on its own"
        )
    if here:
        _require_keys(config)
        if config.metrics_port is not None:
            require_free_ports(config.metrics_port, config.peers, config.metrics_host)
    if config.goes_on:
        require_same(config, out)
    else:
        check_folder(out, resume="--resume" if here else "")
    return out


def _require_keys(config: LaunchConfig) -> None:
    keyring = read_keyring(config.key, config.roster)
    if keyring is None:
        return
    for id in config.ids():
        if not covers(keyring.names, id):
            raise ConfigError(
                f"{config.roster} lists --key {config.key} as {keyring.names}, and one of these is "
                f"called {id}: its owner adds the key as 'peer-*'"
            )
