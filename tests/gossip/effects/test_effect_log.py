"""Effects come out in the order in which they were asked for."""

from rumor.gossip import Account, Entry, Kind
from rumor.gossip.effects.effect_log import EffectLog
from rumor.gossip.effects.effects import Record, Send
from rumor.gossip.effects.events import Founded
from rumor.gossip.types import Incarnation, PeerId
from rumor.gossip.wire.messages import Ack, Body


class Signer:
    """Notes what it is asked to promise."""

    def __init__(self) -> None:
        self.promised: list[tuple[PeerId, Incarnation, int]] = []

    def decided(self, peer: PeerId, incarnation: Incarnation, escrow: int, accepted: int) -> None:
        raise AssertionError

    def sending(self, peer: PeerId, incarnation: Incarnation, body: Body) -> None:
        raise AssertionError

    def promise(self, peer: PeerId, incarnation: Incarnation, escrow: int) -> None:
        self.promised.append((peer, incarnation, escrow))

    def settles(self, peer: PeerId, incarnation: Incarnation, returned: int) -> bool:
        raise AssertionError


def test_a_change_of_weight_stands_before_the_message_that_follows_from_it() -> None:
    log = EffectLog(Account("a", 1), b"schema", b"swarm")
    log.record(Entry(Kind.FOUNDED, 5))
    log.send("b", 2, Ack(1, 0))
    log.ask(Founded())
    record, send, event = log.effects
    assert record == Record(Entry(Kind.FOUNDED, 5))
    assert isinstance(send, Send) and send.envelope.destination_incarnation == 2
    assert event == Founded()
    assert log.account.weight == 5


def test_nobody_signs_for_a_share_without_weight() -> None:
    log, signer = EffectLog(Account("a", 1), b"schema", b"swarm"), Signer()
    assert not log.promise("b", 2, 5)
    log.witness = signer
    assert not log.promise("b", 2, 0)
    assert log.promise("b", 2, 5)
    assert signer.promised == [("b", 2, 5)]
