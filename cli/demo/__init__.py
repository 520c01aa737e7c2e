"""``rumor demo``: gossip and all-reduce under the same faults, at the same time."""

__all__: list[str] = []
