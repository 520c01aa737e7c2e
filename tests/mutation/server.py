"""Runs pytest again and again, each time in a fork of a process that has the libraries loaded.

A script: each line that it reads is a JSON list, a time limit in seconds and pytest's arguments;
each line that it writes one, too: exit status, None where the limit was passed, and output.
"""

import json
import os
import signal
import sys
import tempfile
import time

import hypothesis
import msgpack
import networkx
import numpy
import pytest
import scipy.sparse
import xxhash
import zmq

__all__ = ["LOADED", "main"]

LOADED = (hypothesis, msgpack, networkx, numpy, pytest, scipy.sparse, xxhash, zmq)
"""What takes longer to import than most tests run; never the code under test."""

# That hypothesis, a plugin, was imported too early for its assertions to be told in detail.
_HARMLESS = ("-W", "ignore::pytest.PytestAssertRewriteWarning")

_POLL_S = 0.05


def main() -> None:
    """Answer every line of the input."""
    for line in sys.stdin:
        limit_s, arguments = json.loads(line)
        print(json.dumps(_forked(arguments, limit_s)), flush=True)


def _forked(arguments: list[str], limit_s: float) -> tuple[int | None, str]:
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if child == 0:
            os.setsid()
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            os._exit(_pytest(arguments))
        status = _waited(child, time.monotonic() + limit_s)
        output.seek(0)
        return status, output.read()


def _pytest(arguments: list[str]) -> int:
    status = pytest.main([*_HARMLESS, *arguments])
    sys.stdout.flush()
    return int(status)


def _waited(child: int, until_s: float) -> int | None:
    while time.monotonic() < until_s:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(_POLL_S)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


if __name__ == "__main__":
    main()
