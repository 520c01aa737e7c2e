"""Analysis of topologies: their shape, and how fast they mix.

Only this sub-package computes spectra and shortest paths; it never changes a graph.
"""

__all__: list[str] = []
