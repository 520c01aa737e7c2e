"""What peers share that are forked: imported once, by the process from which they are.

That process imports and does nothing else: it has no second thread and touches no GPU, so that
forks begin clean. A task of the user's is imported by each fork for itself.
"""

import gc
import os
from contextlib import suppress
from importlib import import_module

__all__: list[str] = []

# A terminal that is closed would end it, and nobody would hear how peers end.
with suppress(OSError):
    os.setsid()

# There is no garbage among what is imported, and pages that a collection writes to would not be
# shared any more.
gc.disable()
for _module in (
    *("rumor.cli.app", "rumor.cli.commands.peer", "rumor.train.loop.trainer"),
    # The first step of an optimizer imports it, and the first option that is read the other.
    *("torch._dynamo", "typer._adapters"),
):
    # A fork that needs it will say so.
    with suppress(Exception):
        import_module(_module)
gc.freeze()
