"""Finishing is not leaving; a leaver hands on its weight and escrow that returns later."""

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Halt
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.rules.asynchronous.gosgd import GoSGD
from rumor.gossip.rules.synchronous.dpsgd import DPSGD
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Ack, Ask, Hello, Leave, Phase, Push
from rumor.sim import NetworkConfig
from rumor.sim.fuzz.peers import Peers
from rumor.sim.fuzz.swarm import FuzzSwarm

from ..scene import Scene, member, only

MERGING = ProtocolConfig(merge_rounds=1)


def announce_phase(scene: Scene, id: str, phase: Phase) -> None:
    scene.send_hello("a", member(id, phase, heartbeat=99, addresses=()))


def test_a_leaver_refuses_shares() -> None:
    scene = Scene().founded(*"abc")
    scene.push("b", "a")
    scene.deliver(Push)
    assert scene.sent(scene.leave("a"), Ack)[0] == Ack(1, 0), "and gives no credit"
    scene.push("c", "a")
    scene.deliver(Push)
    assert scene.peers["a"].staged == 0 and scene.peers["a"].phase is Phase.LEAVING


def test_a_leaver_tries_another_heir_if_the_first_refuses() -> None:
    scene = Scene().founded(*"abc")
    scene.leave("a")
    scene.deliver(Hello, Push)
    first = next(iter(scene.peers["a"].account.outstanding))[0]
    scene.refuse_all(first)
    scene.deliver(Ack)
    (heir,) = scene.peers["a"].account.outstanding
    assert heir[0] != first


def test_a_newcomer_becomes_a_copy_if_only_newcomers_remain() -> None:
    scene = Scene().founded("a")
    scene.join("b", "a")
    scene.deliver(Hello)
    scene.wake_for("b", 0.5, 0.5)
    scene.deliver(lose=(Ask,))
    scene.leave("a")
    scene.deliver()
    scene.step("b", trained=False)
    scene.deliver()
    a, b = scene.peers["a"], scene.peers["b"]
    assert a.phase is Phase.LEFT and a.account.burned == 0
    assert b.phase is Phase.TRAINING and b.account.weight == ONE


def test_the_last_peer_burns_its_weight_and_has_no_deadline() -> None:
    scene = Scene().founded("a")
    a = scene.peers["a"]
    assert scene.tell("z", "a", Leave(True)) == [], "a stranger may leave"
    scene.leave("a")
    assert a.done and (a.account.weight, a.account.burned) == (0, ONE)
    assert a.deadline() == float("inf")
    scene.wait(100.0)
    assert scene.wake("a") == scene.step("a", trained=False) == scene.leave("a") == []
    scene.join("n", "a")
    scene.leave("n")
    assert scene.peers["n"].done and scene.peers["n"].account.burned == 0, "a newcomer has nothing"


@pytest.mark.parametrize("late", [False, True], ids=["known at once", "detected late"])
def test_a_peer_with_an_unusable_model_burns_its_weight_and_returned_escrow(late: bool) -> None:
    scene = Scene().founded()
    if late:
        scene.leave("a")
    else:
        scene.push("a", "b", ONE // 2)
    scene.leave("a", burn=True)
    assert scene.peers["a"].phase is Phase.LEAVING
    scene.tell("b", "a", Ack(1, 0))
    a = scene.peers["a"]
    assert a.done and a.account.burned == ONE


@pytest.mark.parametrize("burn", [False, True])
def test_escrow_that_returns_to_a_leaver_is_handed_on(burn: bool) -> None:
    scene = Scene().founded(*"abc")
    a = scene.peers["a"]
    scene.push("a", "b", ONE // 2)
    scene.tell("b", "a", Leave(True))
    scene.leave("a", burn=burn)
    assert [peer for peer, _ in a.account.outstanding] == (["b"] if burn else ["b", "c"])
    if not burn:
        scene.tell("c", "a", Ack(1, ONE // 2))
    assert a.phase is Phase.LEFT and a.account.outstanding["b", 1].stranded
    effects = scene.tell("b", "a", Ack(1, ONE // 4))
    assert [push.escrow for push in scene.sent(effects, Push)] == ([] if burn else [ONE // 4])
    assert a.account.weight == 0 and not scene.sent(effects, Leave)


class Halting:
    name = "halting"
    outstanding_max = 1
    registers: tuple[str, ...] = ()

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def step(self, context: RuleContext) -> Halt:
        return Halt(self._reason)


@pytest.mark.parametrize(
    ("reason", "expected"), [("b died", "b died"), ("b\n died\t", "b died"), ("x" * 600, "x" * 512)]
)
def test_a_peer_that_leaves_after_a_halt_sends_the_reason(reason: str, expected: str) -> None:
    scene = Scene().founded("a", "c", rules={"a": Halting(reason), "c": DPSGD()})
    assert not only(scene.step("c"), Halt)
    scene.step("a")
    farewells = scene.sent(scene.leave("a"), Leave)
    assert farewells and {farewell.reason for farewell in farewells} == {expected}
    scene.deliver()
    # The peer that left is not the cause of the halt.
    assert only(scene.step("c"), Halt) == [Halt(expected)]


@pytest.mark.parametrize("phase", [Phase.SEEKING, Phase.JOINING])
def test_a_peer_is_done_when_no_peer_takes_shares_and_all_are_settled(phase: Phase) -> None:
    scene = Scene(MERGING).founded()
    a = scene.peers["a"]
    scene.finish("a")
    announce_phase(scene, "b", Phase.QUIET)
    scene.act("a", lambda context: context.push("b", 5), trained=False)
    scene.step("a", trained=False)
    assert (a.phase, a.done) == (Phase.FINISHED, False)
    scene.tell("b", "a", Ack(1, 5))
    scene.step("a", trained=False)
    assert (a.phase, a.done) == (Phase.QUIET, True)
    announce_phase(scene, "c", phase)
    assert a.done, "a late newcomer does not reopen the peer"


def test_a_quiet_peer_stays_until_recovered_escrow_is_settled() -> None:
    scene = Scene(MERGING).founded()
    a = scene.peers["a"]
    scene.push("a", "b")
    scene.finish("a")
    scene.strand("a", "b")
    scene.step("a", trained=False)
    assert a.phase is Phase.QUIET and a.done
    announce_phase(scene, "b", Phase.QUIET)
    assert not a.account.outstanding["b", 1].stranded and not a.done
    scene.tell("b", "a", Ack(1, 0))
    assert a.done


def test_a_superseded_incarnation_leaves_at_once_even_with_all_weight_in_flight() -> None:
    scene = Scene().founded()
    scene.push("a", "b", ONE)
    scene.send_hello("a", member("b", heartbeat=99), member("a", incarnation=5))
    scene.leave("a")
    assert scene.peers["a"].phase is Phase.LEFT


def test_a_peer_that_finished_while_seeking_is_finished_once_it_joins() -> None:
    scene = Scene().founded(*"bc")
    a = scene.enter("a")
    scene.join("a", "b")
    scene.finish("a")
    phases = [a.phase]
    for _ in range(30):
        for peer in "abc":
            scene.step(peer, trained=False)
        scene.run_for(0.2, step_s=0.2)
    assert a.state.weight > 0 and [*phases, a.phase] == [Phase.SEEKING, Phase.FINISHED]


def test_a_merged_peer_stops_pushing_even_if_round_trips_take_many_steps() -> None:
    """Otherwise a share would always be in flight, and the peer would rarely become quiet."""
    config = ProtocolConfig(merge_rounds=3, found_s=0.5)
    peers = Peers(rule=lambda peer: GoSGD(1.0), config=config, step_s=lambda peer: 0.005)
    network = NetworkConfig(latency_s=0.2, jitter=1.0)
    swarm = FuzzSwarm(0, peers, ("a", "b", "c"), 3, network)
    swarm.run(4.0)
    swarm.finish()
    swarm.run(44.0, lambda: all(host.protocol.done for host in swarm.peers.values()))
    assert swarm.now < 24.0
    assert all(host.protocol.done for host in swarm.peers.values())


@pytest.mark.extended
def test_a_swarm_of_64_shrinks_to_2_and_strands_nothing() -> None:
    ids = tuple(f"p{index:02}" for index in range(64))
    scene = Scene().founded(*ids)
    for id in ids[2:]:
        scene.leave(id)
        for _ in range(6):
            scene.deliver()
            for heir in scene.peers:
                if scene.peers[heir].staged:
                    scene.mix_all(heir, trained=False)
            scene.wait(0.5)
            scene.wake(id)
            if scene.peers[id].done:
                break
        assert scene.peers[id].done and not scene.peers[id].state.weight
        del scene.peers[id]
        scene.mail.clear()
    assert sum(peer.state.weight for peer in scene.peers.values()) == 64 * ONE
