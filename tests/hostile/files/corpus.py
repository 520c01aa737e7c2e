"""Whole files to spoil, and the commands that read them."""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from rumor.cli.app import app
from rumor.cli.commands import peer as peer_command
from rumor.cli.launch import swarm
from rumor.train.loop import trainer

from ...forked import forked_peers
from .mutations import mutate

__all__ = ["COMMANDS", "Corpus", "complaints", "make_corpus", "not_started"]

GROWN_BYTES_MAX: Final = 256 << 20
"""By how much one command may grow the process, by its resident memory."""

STUDY: Final = """
title = "A small one"
question = "Does it matter?"
seeds = 2
target = 0.8

[settings]
task = "consensus"
workers = 4
steps = 10

[grid]
topology = ["ring", "complete"]

[[grid.data]]
name = "few"
p = 0.5

[[skip]]
topology = "complete"
p = 0.5
"""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Folders in which everything is as rumor wrote it."""

    run: Path
    """Of `rumor launch`: two peers with checkpoints."""
    study: Path
    """A study that was computed."""
    toml: Path
    """What it asks for."""

    @property
    def peer(self) -> Path:
        """The folder of the first peer of `run`."""
        return self.run / "peers" / "peer-0"


@dataclass(frozen=True, slots=True)
class Command:
    """A command that reads what somebody else left."""

    files: Callable[[Corpus], Sequence[Path]]
    """Those that it reads."""
    arguments: Callable[[Corpus, Path], Sequence[object]]
    """By the corpus, and a folder in which it may write."""


def _named(folder: Path, *patterns: str) -> list[Path]:
    return sorted(path for pattern in patterns for path in folder.rglob(pattern))


SIMULATED: Final = ("--workers", "2", "--task", "quadratic", "--steps", "30")

COMMANDS: Final[dict[str, Command]] = {
    "merge": Command(
        lambda c: _named(c.run / "peers", "model.safetensors", "peer.json"),
        lambda c, out: ["merge", c.run, "--force", "-o", out / "merged.safetensors"],
    ),
    "calibrate": Command(
        lambda c: _named(c.run, "options.json", "metrics.jsonl", "peer.json", "summary.json"),
        lambda c, out: ["calibrate", c.run, "-o", out / "calibration.json"],
    ),
    "against": Command(
        lambda c: _named(c.run, "options.json", "metrics.jsonl", "peer.json", "summary.json"),
        lambda c, out: ["simulate", *SIMULATED, "--against", c.run, "--out", out / "simulated"],
    ),
    "study": Command(
        lambda c: [c.toml, c.toml, *_named(c.study, "*.json")],
        lambda c, out: ["study", c.toml, "--resume", "--no-report", "--out", c.study],
    ),
    "launch": Command(
        lambda c: [
            *_named(c.run, "options.json", "metrics.jsonl", "peer.json", "summary.json"),
            *_named(c.run, "ledger.jsonl", "life.json"),
        ],
        lambda c, out: ["launch", "-n", 2, "--task", "quadratic", "--resume", "--out", c.run],
    ),
    "peer": Command(
        lambda c: (
            _named(c.peer, "options.json", "life.json", "peers.json", "*-000003.*", "*-2.*")
            + _named(c.peer / "checkpoints", "*")
        ),
        lambda c, out: ["peer", "--task", "quadratic", "--resume", "--out", c.peer],
    ),
}
"""By name: what is spoilt, and how it is called."""


def make_corpus(folder: Path) -> Corpus:
    """Let rumor write everything that its commands read."""
    settings = ("--task", "quadratic", "--steps", "30", "--set", "checkpoint_every=10steps")
    run, study = folder / "run", folder / "study"
    with forked_peers():
        _done("launch", "--peers", "2", *settings, "--out", run)
    toml = folder / "small.toml"
    toml.write_text(STUDY)
    _done("study", toml, "--no-report", "--jobs", "1", "--out", study)
    return Corpus(run=run, study=study, toml=toml)


def _done(*arguments: object) -> None:
    ended = CliRunner().invoke(app, list(map(str, arguments)))
    assert ended.exit_code == 0, ended.output


@contextmanager
def not_started() -> Iterator[None]:
    """Let what resumes a run do all but train: it reads everything first."""

    def launched(*_: object) -> None:
        raise SystemExit(0)

    def trained(training: Any, stop: object) -> Any:
        folder = training.peer._folder
        try:
            folder.next_incarnation(training.peer.id)
            folder.entered()
        finally:
            training.learner.close()
            folder._let_others_in()
        raise SystemExit(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(swarm, "RunFolder", launched)
        patch.setattr(trainer._Training, "run", trained)
        patch.setattr(peer_command, "stop_on_signals", lambda stop: None)
        patch.setattr(logging, "basicConfig", lambda **_: None)
        yield


def complaints(name: str, corpus: Corpus, out: Path, seeds: range) -> Iterator[str]:
    """What is wrong with what a command makes of spoilt files.

    Args:
        name: Of the command, see `COMMANDS`.
        corpus: What is spoilt; each file is as it was afterwards.
        out: Where the command may write.
        seeds: Each decides on one spoilt file.
    """
    command = COMMANDS[name]
    files = command.files(corpus)
    whole = {path: path.read_bytes() for path in files}
    for seed in seeds:
        rng = Random(f"{name} {seed}")
        path = rng.choice(files)
        path.write_bytes(mutate(whole[path], path.name, rng))
        try:
            if complaint := _complaint(command.arguments(corpus, out)):
                yield f"{name} {path.name} of seed {seed}: {complaint}"
        finally:
            path.write_bytes(whole[path])


def _complaint(arguments: Sequence[object]) -> str:
    """What is wrong with how a command ends; empty where nothing is."""
    before = _rss_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from now on
    ended = CliRunner().invoke(app, list(map(str, arguments)))
    grown_bytes = _rss_bytes("VmHWM") - before
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        return f"a traceback: {ended.exception!r}"
    if ended.exit_code not in (0, 1, 2):
        return f"exit status {ended.exit_code}"
    if "\x1b" in ended.output or "\x07" in ended.output:
        return "a name from the file reached the terminal as it is"
    errors = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    # Some commands end with 1 where all was read, and what was found is not good.
    if len(errors) > 1 or (ended.exit_code and not errors and not ended.stdout):
        return f"{len(errors)} lines of errors: {ended.stderr!r}"
    if errors and len(errors[0]) > 2000:
        return f"an error of {len(errors[0])} characters"
    return f"{grown_bytes} bytes more" if grown_bytes > GROWN_BYTES_MAX else ""


def _rss_bytes(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])
