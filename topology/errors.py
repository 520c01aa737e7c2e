"""The one error of this layer. It is no `RumorError`: topology imports nothing from rumor."""

__all__ = ["TopologyError"]


class TopologyError(ValueError):
    """A spec, a size, a node or a round is invalid; the message names it and what is valid.

    Topologies are immutable, so no state has changed.
    """
