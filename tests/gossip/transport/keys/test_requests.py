"""Requests to stop are the owner's, for one swarm and the lives that they name."""

from dataclasses import replace

from rumor.gossip.transport.keys.certificates import PersonKey
from rumor.gossip.transport.keys.requests import is_stop_signed, signed_stop
from rumor.gossip.wire.messages import Stop

SWARM = bytes(16)
STOP = Stop((("a", 1), ("b", 2**62)))


def test_what_the_owner_has_signed_holds_for_that_swarm_and_these_lives() -> None:
    owner = PersonKey.generate("ada")
    signed = signed_stop(owner, SWARM, STOP)
    assert is_stop_signed(owner.public, SWARM, signed)
    assert not is_stop_signed(owner.public, bytes(15) + b"x", signed)
    later = replace(signed, lives=(("a", 1), ("b", 2**62 + 1)))
    assert not is_stop_signed(owner.public, SWARM, later)


def test_nobody_else_can_sign_it() -> None:
    owner, other = PersonKey.generate("ada"), PersonKey.generate("eve")
    assert not is_stop_signed(owner.public, SWARM, signed_stop(other, SWARM, STOP))
    assert not is_stop_signed(owner.public, SWARM, STOP)
