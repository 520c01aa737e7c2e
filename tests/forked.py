"""Processes forked with torch already loaded: they start at once, without an import."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import IO, Any

import pytest

from rumor.cli.launch import processes
from rumor.cli.launch.forking import Forked, begin_forking, run_rumor

__all__ = ["PROCESSES", "Forked", "forked", "forked_peers"]

PROCESSES = multiprocessing.get_context("forkserver")
"""Context for tests that run their own target; modules are imported once, not by each process."""


def forked(log: Path, *arguments: str) -> Forked:
    """Start ``rumor`` or a script in this folder."""
    environment = dict(os.environ)
    with pytest.MonkeyPatch.context() as patch:
        # The fork server keeps the environment in which it starts, even one changed by a test.
        for name in environment:
            if name.startswith("RUMOR_"):
                patch.delenv(name)
        begin_forking()
    return Forked(_start(arguments), log, environment)


@contextmanager
def forked_peers(real: Sequence[str] = ()) -> Iterator[None]:
    """Let a launcher in this process fork the scripts of its peers, too.

    Args:
        real: IDs of peers that are started as usual.
    """

    def start(command: Sequence[str], **options: Any) -> Forked | subprocess.Popen[bytes]:
        if options["env"]["RUMOR_ID"] in real:
            return subprocess.Popen(command, **options)
        return _peer(command, **options)

    stand_in = SimpleNamespace(Popen=start, DEVNULL=subprocess.DEVNULL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "subprocess", stand_in)
        yield


def _peer(
    command: Sequence[str],
    *,
    stdin: int,
    stdout: IO[bytes],
    stderr: IO[bytes],
    env: Mapping[str, str],
    start_new_session: bool,
    **_: object,
) -> Forked:
    assert (stdin, stderr, start_new_session) == (subprocess.DEVNULL, stdout, True)
    return Forked(partial(_script, command[1:]), Path(stdout.name), env)


def _start(arguments: Sequence[str]) -> partial[None]:
    if arguments[0] == "rumor":
        return partial(run_rumor, arguments[1:])
    return partial(_script, arguments)


def _script(arguments: Sequence[str]) -> None:
    sys.argv = list(arguments)
    run_path(arguments[0], run_name="__main__")
