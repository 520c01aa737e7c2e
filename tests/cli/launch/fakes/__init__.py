"""Runs of fake peers, and hand-made pieces of a run."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rumor.sim.results.live_plots as picture
from rumor.cli.launch.checks import training_job
from rumor.cli.launch.config import Job, LaunchConfig, Place
from rumor.cli.launch.folder import RunFolder
from rumor.cli.launch.swarm import run_swarm
from rumor.cli.settings.exchange import ExchangeConfig
from rumor.cli.settings.options import config_of
from rumor.train.config import RunConfig
from rumor.train.faults.schedule import Fault
from rumor.train.storage.files import drafted

__all__ = [
    "FAKE_PEER",
    "PNG",
    "checked_job",
    "detail",
    "draw_nothing",
    "job_of",
    "places_of",
    "run_fakes",
    "summary",
]

PNG = b"\x89PNG"
"""First bytes of every picture."""

FAKE_PEER = (sys.executable, str(Path(__file__).with_name("peer.py")))


def draw_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write an empty picture of a run, since drawing takes longer than the rest of the run."""

    def draw(summary: object, peers: object, disagreement: object, path: Path) -> None:
        with drafted(path) as draft:
            draft.write_bytes(PNG)

    monkeypatch.setattr(picture, "draw", draw)


def checked_job(**settings: Any) -> Job:
    """Return a checked job of fake peers on the quadratic task.

    Args:
        settings: Fields of a `LaunchConfig` and a `RunConfig`.
    """
    config = config_of(LaunchConfig, settings)
    training = config_of(RunConfig, {"task": "quadratic"} | settings | {"out": None})
    return replace(training_job(config, training), command=FAKE_PEER)


def run_fakes(out: Path, *, faults: tuple[Fault, ...] = (), **settings: Any) -> dict[str, Any]:
    """Launch fake peers on the quadratic task and return the run's summary."""
    return run_swarm(replace(checked_job(out=out, **settings), faults=faults))


def job_of(
    out: Path,
    command: Sequence[str] = ("peer",),
    *,
    faults: tuple[Fault, ...] = (),
    exchange: ExchangeConfig | None = None,
    **settings: Any,
) -> Job:
    """Return a job that trains a task, without any checks."""
    fields = settings | ({"exchange": exchange} if exchange else {})
    return Job(
        config=config_of(LaunchConfig, fields),
        name="digits",
        command=tuple(command),
        out=out,
        faults=faults,
        training=config_of(RunConfig, {"steps": 100} | settings),
    )


def places_of(out: Path, command: Sequence[str] = ("peer",), **settings: Any) -> list[Place]:
    """Return the folders, commands and variables of the peers of a new run."""
    return RunFolder(job_of(out, command, **settings)).found()


def detail(peer: int, **changes: Any) -> dict[str, Any]:
    """Return one entry of ``peers_detail``."""
    return {
        "peer": peer,
        "id": f"peer-{peer}",
        "state": "finished",
        "why": None,
        "steps": 500,
        "steps_per_s": 50.0,
        "accuracy": 0.95,
        "loss": 0.2,
        "weight": 1.0,
        "weight_units": 2**40,
        "pushes": 40,
        "skipped": 2,
    } | changes


def summary(**changes: Any) -> dict[str, Any]:
    """Return the summary of a successful run of two peers."""
    units = 2 * 2**40
    return {
        "task": "digits",
        "rule": "gosgd",
        "topology": "ring",
        "peers": 2,
        "p": 0.1,
        "emission": "per-step",
        "accuracy": 0.96,
        "loss": 0.15,
        "consensus_distance": 0.01,
        "weight_units_total": units,
        "weight_units_expected": units,
        "digest": "d" * 32,
        "peers_detail": [detail(0), detail(1)],
        "dead": [],
        "faults": [],
        "unwritten": [],
        "ledger": {"founded": units, "held": units, "died": 0, "burned": 0},
        "out": "runs/x",
    } | changes
