"""Valid files to corrupt, and the commands that read them."""

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
from rumor.cli.launch import swarm
from rumor.train.loop import trainer
from rumor.train.loop.signals import SignalHandling

from ...forked import forked_peers
from .mutations import mutate

__all__ = ["COMMANDS", "Corpus", "failures", "make_corpus", "not_started"]

GROWN_BYTES_MAX: Final = 256 << 20
"""Maximum growth of resident memory during one command."""

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
    """Folders with unchanged files of rumor."""

    run: Path
    """Folder of `rumor launch`: two peers with checkpoints."""
    study: Path
    """Folder of a finished study."""
    toml: Path
    """Definition of the study."""

    @property
    def peer(self) -> Path:
        """The folder of the first peer of `run`."""
        return self.run / "peers" / "peer-0"


@dataclass(frozen=True, slots=True)
class Command:
    """A command that reads files of other users."""

    files: Callable[[Corpus], Sequence[Path]]
    """Return the files that the command reads."""
    arguments: Callable[[Corpus, Path], Sequence[object]]
    """Return the arguments for a corpus and an output folder."""


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
            _named(c.peer, "options.json", "life.json", "*-000003.*", "*-2.*")
            + _named(c.peer / "checkpoints", "*")
        ),
        lambda c, out: ["peer", "--task", "quadratic", "--resume", "--out", c.peer],
    ),
}
"""Commands by name."""


def make_corpus(folder: Path) -> Corpus:
    """Let rumor write all files that its commands read."""
    settings = ("--task", "quadratic", "--steps", "30", "--set", "checkpoint_every=10steps")
    run, study = folder / "run", folder / "study"
    with forked_peers():
        _done("launch", "--peers", "2", *settings, "--out", run)
    toml = folder / "small.toml"
    toml.write_text(STUDY)
    _done("study", toml, "--no-report", "--jobs", "1", "--out", study)
    return Corpus(run=run, study=study, toml=toml)


def _done(*arguments: object) -> None:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output


@contextmanager
def not_started() -> Iterator[None]:
    """Let resumed runs read all their files, but exit before they train."""

    def exit_at_launch(*_: object) -> None:
        raise SystemExit(0)

    def exit_before_training(training: Any, stop: object) -> Any:
        folder = training.peer._folder
        try:
            folder.next_incarnation(training.peer.id)
            folder.entered()
        finally:
            training.learner.close()
            folder._let_others_in()
        raise SystemExit(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(swarm, "RunFolder", exit_at_launch)
        patch.setattr(trainer._Training, "run", exit_before_training)
        patch.setattr(SignalHandling, "install", lambda self: None)
        patch.setattr(logging, "basicConfig", lambda **_: None)
        yield


def failures(name: str, corpus: Corpus, out: Path, seeds: range) -> Iterator[str]:
    """Run a command on corrupted files and yield a description of each failure.

    Args:
        name: Name of the command, see `COMMANDS`.
        corpus: Files to corrupt; each file is restored afterwards.
        out: Output folder of the command.
        seeds: Each seed selects and corrupts one file.
    """
    command = COMMANDS[name]
    files = command.files(corpus)
    original = {path: path.read_bytes() for path in files}
    for seed in seeds:
        rng = Random(f"{name} {seed}")
        path = rng.choice(files)
        path.write_bytes(mutate(original[path], path.name, rng))
        try:
            if failure := _failure(command.arguments(corpus, out)):
                yield f"{name} {path.name} of seed {seed}: {failure}"
        finally:
            path.write_bytes(original[path])


def _failure(arguments: Sequence[object]) -> str:
    """Run a command; return the reason of a failure, or an empty text."""
    before = _rss_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak of resident memory
    result = CliRunner().invoke(app, list(map(str, arguments)))
    grown_bytes = _rss_bytes("VmHWM") - before
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return f"a traceback: {result.exception!r}"
    if result.exit_code not in (0, 1, 2):
        return f"exit status {result.exit_code}"
    if "\x1b" in result.output or "\x07" in result.output:
        return "a name from the file reached the terminal as it is"
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    # Some commands exit with status 1 after they have read all files and found a problem.
    if len(errors) > 1 or (result.exit_code and not errors and not result.stdout):
        return f"{len(errors)} lines of errors: {result.stderr!r}"
    if errors and len(errors[0]) > 2000:
        return f"an error of {len(errors[0])} characters"
    return f"{grown_bytes} bytes more" if grown_bytes > GROWN_BYTES_MAX else ""


def _rss_bytes(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])
