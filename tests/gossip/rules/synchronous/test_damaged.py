"""A round with a share of NaNs continues without its values, or the run ends."""

from collections.abc import Callable

import pytest

from rumor.gossip.effects.effects import Combine, Halt, Measure, Mix
from rumor.gossip.effects.events import ShareRefused
from rumor.gossip.effects.ledger import Account
from rumor.gossip.protocol.rule import Rule, requirements_of
from rumor.gossip.rules.synchronous.allreduce import AllReduce
from rumor.gossip.rules.synchronous.dpsgd import DPSGD
from rumor.gossip.rules.synchronous.rounds import EPOCH
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Ack, Push

from ...scene import Scene, Scripted, only


def deliver_shares(rule: Rule, *, epoch: int = EPOCH) -> Scene:
    """Deliver a share of NaNs from a and a valid share from c to b."""
    senders = {id: Scripted(requirements=requirements_of(rule)) for id in ("a", "c")}
    scene = Scene(requirements=requirements_of(rule)).founded(*"abc", rules={**senders, "b": rule})
    scene.rules.update(senders)
    for id in ("a", "c"):
        scene.act(id, lambda context: context.push("b", ONE // 4, epoch=epoch, round=0))
        while scene.mail:
            envelope = scene.mail.popleft()
            scene.receive(envelope, finite=id == "c" or not isinstance(envelope.body, Push))
    return scene


def held(scene: Scene) -> Account:
    return scene.peers["b"].account


def test_robust_rounds_accept_the_weight_but_not_the_values() -> None:
    scene = deliver_shares(DPSGD(robust="nna:byzantine=0"))
    effects = scene.step("b")
    (measure,) = only(effects, Measure)
    assert [share.sender for share in measure.shares] == ["c"]
    effects = scene.measured("b", dict.fromkeys(measure.shares, 0.5))
    (combined,) = [e for e in effects if isinstance(e, Combine) and e.register == "x"]
    names = [getattr(term, "sender", term) for _, term in combined.terms]
    assert names == ["x", "c"]
    assert sum(part for part, _ in combined.terms) == pytest.approx(1.0)
    # Both shares are settled, so that their senders can continue with the next round.
    assert [ack.accepted for ack in scene.sent(effects, Ack)] == [ONE // 4] * 2


@pytest.mark.parametrize("make", [DPSGD, AllReduce])
def test_rounds_without_a_robust_filter_halt_and_name_the_faulty_peer(
    make: Callable[[], Rule],
) -> None:
    halts = only(deliver_shares(make()).step("b"), Halt)
    assert "a share of a has numbers that are not finite" in halts[0].reason


def test_a_share_of_no_round_is_returned() -> None:
    for rule in (DPSGD(), DPSGD(robust="clip")):
        scene = deliver_shares(rule, epoch=0)
        before = held(scene).weight
        effects = scene.step("b", trained=False)
        assert ShareRefused("a", "not finite") in effects
        assert only(effects, Mix)
        assert held(scene).weight == before + ONE // 4
