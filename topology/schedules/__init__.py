"""Schedules of mixing matrices: which nodes mix from which, with what weight, round by round.

They know nodes numbered 0 to n-1 and their weights, but no specs, no families and no peers.
"""

__all__: list[str] = []
