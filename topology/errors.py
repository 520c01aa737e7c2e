"""The one error of this layer."""

from ..gossip.errors import ConfigError

__all__ = ["TopologyError"]


class TopologyError(ConfigError):
    """A spec, a size, a node or a round is invalid; the message names it and what is valid."""
