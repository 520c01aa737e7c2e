"""Finishing is not leaving; a leaver hands on its weight, and what comes back of its escrow."""

from dataclasses import replace

import pytest

from rumor.gossip import ONE, GoSGD, Kind, Member, Phase, ProtocolConfig
from rumor.gossip.effects import Effect, PeerDied, PeerLeft, Record
from rumor.gossip.messages import Ack, Ask, Hello, Leave, Push
from rumor.sim.torture.network import Network
from rumor.sim.torture.peers import Peers
from rumor.sim.torture.weather import Weather

from .scene import Scene


def met(scene: Scene, id: str, of: str, phase: Phase) -> None:
    """Let *of* learn from *id* itself in which phase that is."""
    entry = Member(id=id, incarnation=1, heartbeat=99, phase=phase, step=0)
    scene.receive(scene.letter(id, of, Hello(members=(entry,), rooted=True, reply=False)))


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
    met(scene, "b", "a", Phase.QUIET)
    scene.step("a", trained=False)
    assert a.phase is Phase.QUIET and a.done


@pytest.mark.parametrize("phase", [Phase.SEEKING, Phase.JOINING])
def test_a_newcomer_that_comes_too_late_keeps_nobody(phase: Phase) -> None:
    scene = Scene(ProtocolConfig(merge_rounds=1))
    scene.founded("a", "b")
    scene.finish("a")
    met(scene, "b", "a", Phase.QUIET)
    scene.step("a", trained=False)
    met(scene, "c", "a", phase)
    assert scene.peers["a"].done


def test_a_finish_comes_but_once() -> None:
    scene = Scene()
    a = scene.enter("a")
    scene.join("a", "b")
    scene.finish("a")
    assert a.phase is Phase.SEEKING


def test_merging_brings_the_models_together() -> None:
    config = replace(ProtocolConfig(), merge_rounds=40)
    network = Network(5, Peers(rule=lambda peer: GoSGD(0.0), config=config))
    for peer in "abcd":
        network.start(peer, seeds=tuple("abcd"), founders=4)
    network.run(5.0)
    for host in network.running():
        host.finish()
    hosts = network.running()
    network.run(60.0)
    assert not network.running()
    assert all(abs(host.vector.x - hosts[0].vector.x).max() < 1e-3 for host in hosts)


def test_one_that_has_merged_pushes_no_more_though_a_round_trip_takes_many_turns() -> None:
    """Else there would always be a share under way, and it would fall quiet by chance alone."""
    config = ProtocolConfig(merge_rounds=3, found_s=0.5)
    peers = Peers(rule=lambda peer: GoSGD(1.0), config=config, step_s=lambda peer: 0.005)
    network = Network(0, peers, Weather(delay_s=0.2))
    ids = ("a", "b", "c")
    for id in ids:
        network.start(id, seeds=tuple(other for other in ids if other != id), founders=3)
    network.run(20.0)
    for host in network.running():
        host.finishes = True
    network.run(60.0, lambda: all(host.protocol.done for host in network.hosts.values()))
    assert network.now < 40.0
    assert all(host.protocol.done for host in network.hosts.values())


def beats(scene: Scene, id: str, of: str, heartbeat: int) -> list[Effect]:
    """Let *of* hear of *id*, from a leaving c, that it still lives."""
    teller = Member(id="c", incarnation=1, heartbeat=heartbeat, phase=Phase.LEAVING, step=0)
    entry = replace(teller, id=id, phase=Phase.TRAINING)
    body = Hello(members=(teller, entry), rooted=True, reply=False)
    return scene.receive(scene.letter("c", of, body))


def left_alone(*ids: str) -> Scene:
    """Founders; a is about to leave, and nothing of what was said before is on its way."""
    scene = Scene()
    scene.founded(*ids)
    scene.wait(0.5)
    scene.mail.clear()
    return scene


def heirs(scene: Scene, id: str = "a") -> list[str]:
    """To whom weight is on its way."""
    return [peer for peer, _ in scene.peers[id].account.outstanding]


def by_deadline(scene: Scene, id: str, until_s: float) -> list[Effect]:
    """Wake a peer only when it says that it has something to do."""
    effects: list[Effect] = []
    while scene.peers[id].deadline() <= until_s:
        scene.now = max(scene.now, scene.peers[id].deadline())
        effects += scene.wake(id)
    scene.now = until_s
    return effects


def test_a_leaver_asks_who_lives_and_hands_on_to_the_first_that_answers() -> None:
    scene = left_alone("a", "b", "c", "d")
    effects = scene.leave("a")
    asked = [hello for hello in scene.sent(effects, Hello) if hello.reply]
    assert len(asked) == 3 and heirs(scene) == []
    answer = Hello(members=(), rooted=True, reply=False)
    effects = scene.receive(scene.letter("c", "a", answer))
    assert heirs(scene) == ["c"] and [p.escrow for p in scene.sent(effects, Push)] == [ONE]


def test_a_leaver_asks_no_more_than_some_of_a_thousand() -> None:
    scene = left_alone("a", *(f"p{index:02}" for index in range(20)))
    asked = [hello for hello in scene.sent(scene.leave("a"), Hello) if hello.reply]
    assert len(asked) == 8


def test_a_leaver_whose_first_answer_is_the_word_of_an_heir_that_just_spoke_does_not_wait() -> None:
    scene = left_alone("a", "b", "c")
    scene.receive(scene.letter("b", "a", Hello(members=(), rooted=True, reply=False)))
    scene.leave("a")
    assert heirs(scene) == ["b"], "heard at this very moment"


def test_a_leaver_waits_for_an_answer_no_longer_than_a_gossip_interval() -> None:
    for before_s in (0.1, 0.5, 0.9):
        scene = left_alone("a", "b", "c")
        by_deadline(scene, "a", scene.now + before_s)
        scene.leave("a")
        by_deadline(scene, "a", scene.now + scene.config.gossip_s)
        assert len(heirs(scene)) == 1


def test_a_leaver_whose_heirs_go_before_they_answer_needs_not_be_woken_either() -> None:
    scene = left_alone("a", "b")
    scene.leave("a")
    scene.receive(scene.letter("b", "a", Leave(True)))
    a = scene.peers["a"]
    assert a.done and a.account.burned == ONE
    assert a.deadline() == float("inf")


def test_a_leaver_waits_for_no_answer_where_its_credit_is_used_up() -> None:
    scene = left_alone("a", "b", "c", "d")
    for peer in "bc":
        scene.push("a", peer, ONE // 4)
    scene.leave("a")
    scene.receive(scene.letter("d", "a", Hello(members=(), rooted=True, reply=False)))
    assert sorted(heirs(scene)) == ["b", "c", "d"]
    assert scene.peers["a"].account.weight == 0


def test_a_leaver_does_not_wait_for_one_that_owes_it_an_answer_to_hand_on_its_weight() -> None:
    """Its neighbor b is dead, and nobody has noticed yet."""
    scene = left_alone("a", "b", "c")
    scene.push("a", "b", ONE // 2)
    scene.mail.clear()
    scene.leave("a")
    scene.receive(scene.letter("c", "a", Hello(members=(), rooted=True, reply=False)))
    a = scene.peers["a"]
    assert a.account.weight == 0 and a.phase is Phase.LEAVING
    scene.receive(scene.letter("c", "a", Ack(1, ONE // 2)))
    assert a.account.outstanding.keys() == {("b", 1)} and a.phase is Phase.LEAVING
    # Weight and model are safe. It stays only until the silent one is held for dead.
    effects: list[Effect] = []
    since_s = scene.now
    while not a.done and scene.now < since_s + 60.0:
        scene.wait(1.0)
        effects += scene.wake("a")
        met(scene, "c", "a", Phase.TRAINING)
    assert PeerDied("b") in effects and a.done and scene.now <= since_s + 32.0
    assert a.account.outstanding["b", 1].stranded and a.account.burned == 0
    assert scene.sent(effects, Leave) == [Leave(True)]


def test_a_leaver_prefers_one_that_answers_to_one_that_is_only_believed_to_live() -> None:
    for seed in range(5):
        scene = left_alone("a", "b", "c", "d", *(f"e{n}" for n in range(seed)))
        scene.leave("a")
        scene.receive(scene.letter("d", "a", Hello(members=(), rooted=True, reply=False)))
        assert heirs(scene) == ["d"]


def test_hearsay_of_an_heir_is_no_answer() -> None:
    scene = left_alone("a", "b", "c")
    scene.leave("a")
    scene.receive(scene.letter("c", "a", Leave(False)))
    beats(scene, "b", "a", 99)
    assert heirs(scene) == []
    scene.wait(scene.config.gossip_s)
    scene.wake("a")
    assert heirs(scene) == ["b"]


def test_a_leaver_whose_only_neighbor_is_suspected_waits_for_its_word_or_its_death() -> None:
    for answers in (False, True):
        scene = left_alone("a", "b")
        effects: list[Effect] = []
        for _ in range(15):
            scene.wait(1.0)
            scene.wake("a")
        scene.leave("a")
        for _ in range(5):
            scene.wait(1.0)
            effects += scene.wake("a")
        a = scene.peers["a"]
        assert heirs(scene) == [] and a.account.weight == ONE, "it is not burned yet"
        if answers:
            scene.receive(scene.letter("b", "a", Hello(members=(), rooted=True, reply=False)))
            assert heirs(scene) == ["b"]
        else:
            for _ in range(20):
                scene.wait(1.0)
                effects += scene.wake("a")
            assert PeerDied("b") in effects and a.done and a.account.burned == ONE


def test_weight_is_burned_only_where_nobody_is_left() -> None:
    scene = left_alone("a", "b", "c")
    met(scene, "b", "a", Phase.QUIET)
    effects = scene.leave("a")
    scene.receive(scene.letter("c", "a", Hello(members=(), rooted=True, reply=False)))
    assert heirs(scene) == ["c"]
    scene.receive(scene.letter("c", "a", Leave(True)))
    effects += scene.receive(scene.letter("c", "a", Ack(1, 0)))
    burned = [
        e.entry.units for e in effects if isinstance(e, Record) and e.entry.kind is Kind.BURNED
    ]
    assert burned == [ONE] and scene.peers["a"].done


def test_one_that_only_dials_out_hands_on_to_one_that_can_be_dialled() -> None:
    scene = Scene()
    scene.enter("a", addresses=())
    scene.join("a")
    for id, addresses in (("b", ()), ("c", ("c",))):
        entry = Member(
            id=id, incarnation=1, heartbeat=1, phase=Phase.TRAINING, step=0, addresses=addresses
        )
        scene.receive(scene.letter(id, "a", Hello(members=(entry,), rooted=False, reply=False)))
    scene.wait(0.5)
    effects = scene.leave("a")
    assert len([hello for hello in scene.sent(effects, Hello) if hello.reply]) == 1
    scene.wait(scene.config.gossip_s)
    scene.wake("a")
    assert heirs(scene) == ["c"]


def test_a_leaver_that_is_told_twice_to_go_goes_once() -> None:
    scene = left_alone("a", "b")
    assert scene.sent(scene.leave("a"), Leave) == [Leave(False)]
    assert scene.sent(scene.leave("a"), Leave) == []


def test_where_the_only_heir_that_answers_is_busy_another_is_taken_after_a_while() -> None:
    """It may be gone by the time its answer is due."""
    scene = left_alone("a", "b", "c")
    scene.push("a", "b", ONE // 2)
    scene.leave("a")
    scene.receive(scene.letter("b", "a", Hello(members=(), rooted=True, reply=False)))
    assert heirs(scene) == ["b"], "c may answer yet"
    by_deadline(scene, "a", scene.now + 2 * scene.config.gossip_s)
    assert sorted(heirs(scene)) == ["b", "c"]
