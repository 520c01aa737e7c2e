"""Requests to a whole swarm, which its owner signs."""

from ...wire.messages import Stop
from .certificates import PersonKey, is_signed_by
from .files import canonical

__all__ = ["is_stop_signed", "signed_stop"]

_FORMAT = "rumor stop 1"


def signed_stop(owner: PersonKey, swarm: bytes, stop: Stop) -> Stop:
    """The same request under the owner's signature.

    Args:
        owner: Signs.
        swarm: Hash of the swarm's anchor: in another one, the signature does not fit.
        stop: Names the lives that are to end.
    """
    return Stop(stop.lives, owner.sign(_signed(swarm, stop)))


def is_stop_signed(owner: bytes, swarm: bytes, stop: Stop) -> bool:
    """Whether the owner of a roster, by the public key, has asked this swarm to stop."""
    return bool(stop.signature) and is_signed_by(owner, stop.signature, _signed(swarm, stop))


def _signed(swarm: bytes, stop: Stop) -> bytes:
    lives = [[peer, str(incarnation)] for peer, incarnation in stop.lives]
    return canonical(_FORMAT, {"swarm": swarm.hex(), "lives": lives})
