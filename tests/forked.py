"""Processes in which torch is loaded already: they begin at once."""

import multiprocessing

__all__ = ["PROCESSES"]

PROCESSES = multiprocessing.get_context("forkserver")
"""Of whoever runs a target of its own in them; the module is imported once, and not by each."""

# torch loads the second at the first step of an optimizer, and digits are in the third.
PROCESSES.set_forkserver_preload(["rumor.train", "torch._dynamo", "sklearn.datasets"])
