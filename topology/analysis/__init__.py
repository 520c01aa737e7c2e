"""What a topology does: its shape, and how fast it mixes.

Only this sub-package computes spectra and shortest paths; it never changes a graph.
"""

__all__: list[str] = []
