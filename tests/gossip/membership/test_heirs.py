"""A leaver hands its weight on at once to a live peer, and hardly waits for the dead."""

import pytest

from rumor.gossip.effects.events import PeerDied
from rumor.gossip.effects.ledger import Entry, Kind
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Ack, Hello, Leave, Phase, Push

from ..scene import Effects, Scene, hello, member, of


def left_alone(*ids: str) -> Scene:
    """Founders; a is about to leave, and no mail is in flight."""
    scene = Scene().founded(*ids)
    scene.wait(0.5)
    scene.mail.clear()
    return scene


def answers(scene: Scene, id: str) -> Effects:
    return scene.tell(id, "a", hello())


def asked(scene: Scene) -> int:
    """How many peers a asks whether they are alive when it leaves."""
    return sum(body.reply for body in scene.sent(scene.leave("a"), Hello))


def heirs(scene: Scene) -> list[str]:
    return [peer for peer, _ in scene.peers["a"].account.outstanding]


def by_deadline(scene: Scene, until_s: float) -> None:
    """Wake a only at the deadlines that it reports."""
    a = scene.peers["a"]
    while a.deadline() <= until_s:
        scene.now = max(scene.now, a.deadline())
        scene.wake("a")
    scene.now = until_s


def test_a_leaver_probes_peers_and_hands_its_weight_to_the_first_that_answers() -> None:
    for more in range(5):
        scene = left_alone("a", "b", "c", "d", *(f"e{n}" for n in range(more)))
        assert asked(scene) == 3 + more and heirs(scene) == []
        effects = answers(scene, "d")
        assert heirs(scene) == ["d"] and [p.escrow for p in scene.sent(effects, Push)] == [ONE]
    scene = left_alone("a", "b", "c")
    answers(scene, "b")
    scene.leave("a")
    assert heirs(scene) == ["b"], "heard just now"
    crowd = left_alone("a", *(f"p{index:02}" for index in range(20)))
    assert asked(crowd) == 8, "and only some of a thousand"


@pytest.mark.parametrize("before_s", [0.1, 0.5, 0.9])
def test_a_leaver_waits_for_an_answer_no_longer_than_a_gossip_interval(before_s: float) -> None:
    scene = left_alone("a", "b", "c")
    by_deadline(scene, scene.now + before_s)
    scene.leave("a")
    by_deadline(scene, scene.now + scene.config.gossip_s)
    assert len(heirs(scene)) == 1


def test_a_leaver_hands_its_weight_on_without_waiting_for_open_answers() -> None:
    """Its neighbor b is dead, which no peer has noticed yet."""
    scene = left_alone("a", "b", "c")
    scene.push("a", "b", ONE // 2)
    scene.mail.clear()
    scene.leave("a")
    answers(scene, "c")
    a = scene.peers["a"]
    assert a.account.weight == 0 and a.phase is Phase.LEAVING
    scene.tell("c", "a", Ack(1, ONE // 2))
    assert heirs(scene) == ["b"]
    # Weight and model are safe. It stays only until the silent peer is considered dead.
    effects: Effects = []
    since_s = scene.now
    while not a.done and scene.now < since_s + 60.0:
        effects += scene.passes("a", 1.0)
        scene.says("a", member("c", heartbeat=99))
    assert PeerDied("b") in effects and a.done and scene.now <= since_s + 32.0
    assert a.account.outstanding["b", 1].stranded and a.account.burned == 0
    assert scene.sent(effects, Leave) == [Leave(True)]


def test_hearsay_about_an_heir_is_not_an_answer() -> None:
    scene = left_alone("a", "b", "c")
    scene.leave("a")
    scene.tell("c", "a", Leave(False))
    scene.says("a", member("c", Phase.LEAVING, heartbeat=99), member("b", heartbeat=99))
    assert heirs(scene) == []
    scene.passes("a", scene.config.gossip_s)
    assert heirs(scene) == ["b"]


@pytest.mark.parametrize("speaks", [False, True])
def test_a_leaver_waits_until_its_only_neighbor_answers_or_is_dead(speaks: bool) -> None:
    scene = left_alone("a", "b")
    scene.passes("a", 15.0)
    scene.leave("a")
    scene.passes("a", 5.0)
    a = scene.peers["a"]
    assert heirs(scene) == [] and a.account.weight == ONE, "it is not burned yet"
    if speaks:
        answers(scene, "b")
        assert heirs(scene) == ["b"]
    else:
        assert PeerDied("b") in scene.passes("a", 20.0)
        assert a.done and a.account.burned == ONE


def test_weight_is_burned_only_if_no_peer_is_left() -> None:
    scene = left_alone("a", "b", "c")
    scene.says("a", member("b", Phase.QUIET, heartbeat=99))
    effects = scene.leave("a")
    answers(scene, "c")
    assert heirs(scene) == ["c"]
    for word in (Leave(True), Ack(1, 0)):
        effects += scene.tell("c", "a", word)
    entries = of(effects, Entry)
    assert [entry.weight for entry in entries if entry.kind is Kind.BURNED] == [ONE]
    assert scene.peers["a"].done


def test_a_peer_that_only_dials_out_hands_its_weight_to_a_peer_that_can_be_dialed() -> None:
    scene = Scene()
    scene.enter("a", addresses=())
    scene.join("a")
    for other in (member("b", addresses=()), member("c")):
        scene.says("a", other, rooted=False)
    scene.wait(0.5)
    assert asked(scene) == 1
    scene.passes("a", scene.config.gossip_s)
    assert heirs(scene) == ["c"]


def test_each_shard_is_burned_with_the_weight_it_has() -> None:
    scene = Scene().founded(shards=2)
    scene.act("a", lambda context: context.push("b", ONE, shard=0))
    scene.leave("a", burn=True)
    a = scene.peers["a"]
    assert [account.burned for account in a.accounts] == [0, ONE]
    assert not a.done, "the first one is still in flight"


def test_a_leaver_waits_only_for_peers_that_still_speak() -> None:
    scene = left_alone("a", "b", "c")
    scene.push("a", "b", ONE // 2)
    a, since_s = scene.peers["a"], scene.now + 1.0
    assert not a.is_worth_waiting(since_s)
    scene.wait(2.0)
    answers(scene, "c")
    assert not a.is_worth_waiting(since_s), "c owes nothing"
    answers(scene, "b")
    assert a.is_worth_waiting(since_s) and not a.is_worth_waiting(scene.now + 1.0)
    scene.tell("b", "a", Ack(1, 0))
    assert not a.is_worth_waiting(since_s)
