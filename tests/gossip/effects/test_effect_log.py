"""Effects come out in the order in which they were asked for."""

from rumor.gossip.effects.effect_log import EffectLog
from rumor.gossip.effects.effects import Record, Send
from rumor.gossip.effects.events import Founded
from rumor.gossip.effects.ledger import Account, Entry, Kind
from rumor.gossip.wire.messages import Ack


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
