"""The one error of this layer, which imports nothing of rumor and so has its own."""

__all__ = ["TopologyError"]


class TopologyError(ValueError):
    """A spec, a size, a node or a round is not valid; the message names it and what is.

    Topologies are immutable, so no state has changed.
    """
