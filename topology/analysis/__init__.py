"""What a topology does: its shape, how fast it mixes, and what moves when a peer comes or goes.

Only this sub-package computes spectra and shortest paths; it never changes a graph.
"""

__all__: list[str] = []
