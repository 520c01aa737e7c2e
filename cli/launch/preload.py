"""Shared modules of forked peers: imported once, by their parent process.

The parent only imports: it has no second thread and touches no GPU, so that forks begin clean. A
user's own task is imported by each fork for itself. In any other process, importing this module
does nothing.
"""

import gc
import os
import sys
from contextlib import suppress
from importlib import import_module

__all__: list[str] = []


def _preload() -> None:
    # Closing the terminal would end it, and the launcher would not learn how peers end.
    with suppress(OSError):
        os.setsid()
    # Imported modules hold no garbage, and pages that a collection writes to would no longer be
    # shared.
    gc.disable()
    for module in (
        *("rumor.cli.app", "rumor.cli.commands.peer", "rumor.train.loop.trainer"),
        "rumor.cli.launch.forking",
        # The first step of an optimizer imports one, and the first parsed option the other.
        *("torch._dynamo", "typer._adapters"),
    ):
        # A fork that needs it will report the error.
        with suppress(Exception):
            import_module(module)
    gc.freeze()


if any("multiprocessing.forkserver" in argument for argument in sys.orig_argv):
    _preload()
