"""Finishing is not leaving; a leaver hands on its weight, and what comes back of its escrow."""

from dataclasses import replace

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Halt
from rumor.gossip.effects.events import PeerLeft
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.rules.asynchronous.gosgd import GoSGD
from rumor.gossip.rules.synchronous.dpsgd import DPSGD
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Ack, Ask, Hello, Leave, Phase, Push
from rumor.sim import NetworkConfig
from rumor.sim.fuzz.peers import Peers
from rumor.sim.fuzz.swarm import FuzzSwarm

from ..scene import Scene, member, of


def test_a_leaver_hands_its_weight_on_and_says_goodbye() -> None:
    scene = Scene()
    scene.founded("a", "b")
    scene.leave("a")
    scene.deliver()
    scene.mix_all("b")
    scene.deliver()
    a, b = scene.peers["a"], scene.peers["b"]
    assert a.done and a.phase is Phase.LEFT and a.account.weight == 0
    assert b.account.weight == 2 * ONE and [m.id for m in b.live()] == ["b"]


def test_a_leaver_waits_for_its_own_escrow_where_there_is_no_other_heir() -> None:
    scene = Scene()
    scene.founded("a", "b")
    scene.push("a", "b", ONE // 2)
    assert not scene.sent(scene.leave("a"), Push)
    effects = scene.receive(scene.letter("b", "a", Ack(1, ONE // 4)))
    (push,) = scene.sent(effects, Push)
    assert push.escrow == ONE - ONE // 4


def test_a_leaver_refuses_what_comes() -> None:
    scene = Scene()
    scene.founded("a", "b", "c")
    scene.push("b", "a", 5)
    scene.deliver(Push)
    (ack, *_) = scene.sent(scene.leave("a"), Ack)
    assert ack == Ack(1, 0)
    scene.push("c", "a", 5)
    scene.deliver(Push)
    assert scene.peers["a"].staged == 0 and scene.peers["a"].phase is Phase.LEAVING


def test_a_leaver_whose_heir_refuses_finds_another() -> None:
    scene = Scene()
    scene.founded("a", "b", "c")
    scene.leave("a")
    scene.deliver(Hello, Push)
    first = next(iter(scene.peers["a"].account.outstanding))[0]
    scene.refuse_all(first)
    scene.deliver(Ack)
    (heir,) = scene.peers["a"].account.outstanding
    assert heir[0] != first


def test_a_leaver_waits_for_an_heir_that_cannot_be_reached_just_now() -> None:
    scene = Scene()
    scene.founded("a", "b")
    scene.leave("a")
    push = next(envelope for envelope in scene.mail if isinstance(envelope.body, Push))
    scene.unsent(push)
    assert scene.peers["a"].phase is Phase.LEAVING
    scene.wait(scene.config.retry_s)
    assert scene.sent(scene.wake("a"), Push)


def test_where_only_newcomers_are_left_one_becomes_a_copy() -> None:
    scene = Scene()
    scene.founded("a")
    scene.enter("b")
    scene.join("b", "a")
    scene.deliver(Hello)
    scene.wait(0.5)
    scene.wake("b")
    scene.deliver(lose=(Ask,))
    scene.leave("a")
    scene.deliver()
    scene.step("b", trained=False)
    scene.deliver()
    a, b = scene.peers["a"], scene.peers["b"]
    assert a.phase is Phase.LEFT and a.account.burned == 0
    assert b.phase is Phase.TRAINING and b.account.weight == ONE


def test_the_last_peer_burns_its_weight() -> None:
    scene = Scene()
    a = scene.enter("a")
    scene.join("a")
    scene.leave("a")
    assert a.done and (a.account.weight, a.account.burned) == (0, ONE)


def test_a_newcomer_leaves_with_nothing() -> None:
    scene = Scene()
    a = scene.enter("a")
    scene.join("a", "b")
    scene.leave("a")
    assert a.done and a.account.burned == 0


def test_a_peer_whose_model_is_unusable_burns_its_weight_and_what_comes_back() -> None:
    scene = Scene()
    scene.founded("a", "b")
    scene.push("a", "b", ONE // 2)
    scene.leave("a", burn=True)
    assert scene.peers["a"].phase is Phase.LEAVING
    scene.receive(scene.letter("b", "a", Ack(1, 0)))
    a = scene.peers["a"]
    assert a.done and a.account.burned == ONE


def test_a_leaver_may_find_out_late_that_its_model_is_unusable() -> None:
    scene = Scene()
    scene.founded("a", "b")
    scene.leave("a")
    scene.leave("a", burn=True)
    scene.receive(scene.letter("b", "a", Ack(1, 0)))
    assert scene.peers["a"].account.burned == ONE


def test_a_peer_that_left_needs_not_be_woken() -> None:
    scene = Scene()
    a = scene.enter("a")
    scene.join("a")
    scene.leave("a")
    assert a.deadline() == float("inf")
    scene.wait(100.0)
    assert scene.wake("a") == []


@pytest.mark.parametrize("burn", [False, True])
def test_what_comes_back_to_a_peer_that_has_left_is_handed_on_too(burn: bool) -> None:
    scene = Scene()
    scene.founded("a", "b", "c")
    scene.push("a", "b", ONE // 2)
    scene.receive(scene.letter("b", "a", Leave(True)))
    scene.leave("a", burn=burn)
    if not burn:
        (heir,) = (life for life in scene.peers["a"].account.outstanding if life[0] == "c")
        scene.receive(scene.letter("c", "a", Ack(1, ONE // 2)))
        assert heir == ("c", 1)
    a = scene.peers["a"]
    assert a.phase is Phase.LEFT and a.account.outstanding["b", 1].stranded
    effects = scene.receive(scene.letter("b", "a", Ack(1, ONE // 4)))
    assert [push.escrow for push in scene.sent(effects, Push)] == ([] if burn else [ONE // 4])
    assert a.account.weight == 0 and not scene.sent(effects, Leave)


class Halting:
    """A rule that cannot go on."""

    name = "halting"
    outstanding_max = 1
    registers: tuple[str, ...] = ()

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def step(self, context: RuleContext) -> Halt:
        return Halt(self._reason)


@pytest.mark.parametrize(
    ("reason", "told"), [("b died", "b died"), ("b\n died\t", "b died"), ("x" * 600, "x" * 512)]
)
def test_who_leaves_because_its_rule_cannot_go_on_says_why(reason: str, told: str) -> None:
    scene = Scene()
    scene.enter("a", rule=Halting(reason))
    scene.enter("c", rule=DPSGD())
    scene.join("a", "c", founders=2)
    scene.join("c", "a", founders=2)
    for _ in range(4):
        scene.deliver()
        scene.wait(1.0)
        for id in "ac":
            scene.wake(id)
    assert not of(scene.step("c"), Halt)
    scene.step("a")
    farewells = scene.sent(scene.leave("a"), Leave)
    assert farewells and {farewell.reason for farewell in farewells} == {told}
    scene.deliver()
    # It is not the one that left without which the other cannot go on.
    assert of(scene.step("c"), Halt) == [Halt(told)]


def test_a_goodbye_is_heard_once() -> None:
    scene = Scene()
    scene.founded("a", "b")
    scene.receive(scene.letter("b", "a", Ask()))
    assert PeerLeft("b") in scene.receive(scene.letter("b", "a", Leave(True)))
    assert scene.receive(scene.letter("b", "a", Leave(True))) == []


def test_a_finished_peer_mixes_on_until_all_have_finished() -> None:
    scene = Scene(ProtocolConfig(merge_rounds=1))
    scene.founded("a", "b")
    scene.finish("a")
    a = scene.peers["a"]
    scene.push("b", "a", 5)
    scene.deliver()
    scene.mix_all("a", trained=False)
    assert a.account.weight == ONE + 5 and a.phase is Phase.FINISHED and not a.merging
    scene.finish("b")
    scene.deliver()
    assert a.merging


def test_a_peer_is_done_when_nobody_else_takes_shares_any_more() -> None:
    scene = Scene(ProtocolConfig(merge_rounds=1))
    scene.founded("a", "b")
    a = scene.peers["a"]
    scene.finish("a")
    scene.says("a", member("b", Phase.QUIET, heartbeat=99, addresses=()))
    scene.step("a", trained=False)
    assert a.phase is Phase.QUIET and a.done


def test_a_peer_falls_quiet_only_when_its_escrow_is_settled() -> None:
    scene = Scene(ProtocolConfig(merge_rounds=1))
    scene.founded("a", "b")
    a = scene.peers["a"]
    scene.finish("a")
    scene.says("a", member("b", Phase.QUIET, heartbeat=99, addresses=()))
    scene.act("a", lambda context: context.push("b", 5), trained=False)
    scene.step("a", trained=False)
    assert (a.phase, a.done) == (Phase.FINISHED, False)
    scene.receive(scene.letter("b", "a", Ack(1, 5)))
    scene.step("a", trained=False)
    assert (a.phase, a.done) == (Phase.QUIET, True)


def test_a_quiet_peer_stays_until_what_was_stranded_and_is_found_is_settled() -> None:
    scene = Scene(ProtocolConfig(merge_rounds=1))
    scene.founded("a", "b")
    a = scene.peers["a"]
    scene.push("a", "b", 5)
    scene.finish("a")
    for _ in range(40):
        scene.wait(1.0)
        scene.wake("a")
    scene.step("a", trained=False)
    assert a.account.outstanding["b", 1].stranded
    assert a.phase is Phase.QUIET and a.done
    scene.says("a", member("b", Phase.QUIET, heartbeat=99, addresses=()))
    assert not a.account.outstanding["b", 1].stranded and not a.done
    scene.receive(scene.letter("b", "a", Ack(1, 0)))
    assert a.done


def test_one_that_was_outlived_leaves_at_once_though_all_it_had_is_under_way() -> None:
    scene = Scene()
    scene.founded("a", "b")
    scene.push("a", "b", ONE)
    later = member("a", incarnation=5, addresses=())
    entry = member("b", heartbeat=99, addresses=())
    hello = Hello(members=(entry, later), rooted=True, reply=False)
    scene.receive(scene.letter("b", "a", hello))
    scene.leave("a")
    assert scene.peers["a"].phase is Phase.LEFT


@pytest.mark.parametrize("phase", [Phase.SEEKING, Phase.JOINING])
def test_a_newcomer_that_comes_too_late_keeps_nobody(phase: Phase) -> None:
    scene = Scene(ProtocolConfig(merge_rounds=1))
    scene.founded("a", "b")
    scene.finish("a")
    scene.says("a", member("b", Phase.QUIET, heartbeat=99, addresses=()))
    scene.step("a", trained=False)
    scene.says("a", member("c", phase, heartbeat=99, addresses=()))
    assert scene.peers["a"].done


def test_a_finish_comes_but_once() -> None:
    scene = Scene()
    a = scene.enter("a")
    scene.join("a", "b")
    scene.finish("a")
    assert a.phase is Phase.SEEKING


def test_one_that_finished_while_it_looked_for_a_swarm_is_finished_once_it_has_joined() -> None:
    scene = Scene()
    scene.founded("b", "c")
    a = scene.enter("a")
    scene.join("a", "b")
    scene.finish("a")
    for _ in range(30):
        scene.deliver()
        for peer in "abc":
            scene.step(peer, trained=False)
        scene.wait(0.2)
        for peer in "abc":
            scene.wake(peer)
    assert a.weight > 0 and a.phase is Phase.FINISHED


def test_merging_brings_the_models_together() -> None:
    config = replace(ProtocolConfig(), merge_rounds=40)
    swarm = FuzzSwarm(5, Peers(rule=lambda peer: GoSGD(0.0), config=config), tuple("abcd"), 4)
    swarm.run(10.0)
    swarm.finish()
    hosts = swarm.running()
    swarm.run(70.0)
    assert not swarm.running()
    assert all(abs(host.vector.x - hosts[0].vector.x).max() < 1e-3 for host in hosts)


def test_one_that_has_merged_pushes_no_more_though_a_round_trip_takes_many_turns() -> None:
    """Else there would always be a share under way, and it would fall quiet by chance alone."""
    config = ProtocolConfig(merge_rounds=3, found_s=0.5)
    peers = Peers(rule=lambda peer: GoSGD(1.0), config=config, step_s=lambda peer: 0.005)
    network = NetworkConfig(latency_s=0.2, jitter=1.0)
    swarm = FuzzSwarm(0, peers, ("a", "b", "c"), 3, network)
    swarm.run(20.0)
    swarm.finish()
    swarm.run(60.0, lambda: all(host.protocol.done for host in swarm.peers.values()))
    assert swarm.now < 40.0
    assert all(host.protocol.done for host in swarm.peers.values())
