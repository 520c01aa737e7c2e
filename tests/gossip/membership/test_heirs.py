"""A leaver hands its weight to a live peer at once, and waits little for dead peers."""

import pytest

from rumor.gossip.effects.events import PeerDied
from rumor.gossip.effects.ledger import Entry, Kind
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Ack, Hello, Leave, Phase, Push

from ..scene import Effects, Scene, hello, member, only


def leaving_scene(*ids: str) -> Scene:
    """Founders without mail in flight; a is about to leave."""
    scene = Scene().founded(*ids)
    scene.wait(0.5)
    scene.mail.clear()
    return scene


def answer(scene: Scene, id: str) -> Effects:
    return scene.tell(id, "a", hello())


def probe_count(scene: Scene) -> int:
    """Let a leave; return the number of peers that it probes."""
    return sum(body.reply for body in scene.sent(scene.leave("a"), Hello))


def heirs(scene: Scene) -> list[str]:
    return [peer for peer, _ in scene.peers["a"].account.outstanding]


def wake_at_deadlines(scene: Scene, until_s: float) -> None:
    """Wake a only at the deadlines that it reports."""
    a = scene.peers["a"]
    while a.deadline() <= until_s:
        scene.now = max(scene.now, a.deadline())
        scene.wake("a")
    scene.now = until_s


def test_a_leaver_probes_peers_and_hands_its_weight_to_the_first_that_answers() -> None:
    for extra in range(5):
        scene = leaving_scene("a", "b", "c", "d", *(f"e{n}" for n in range(extra)))
        assert probe_count(scene) == 3 + extra and heirs(scene) == []
        effects = answer(scene, "d")
        assert heirs(scene) == ["d"] and [p.escrow for p in scene.sent(effects, Push)] == [ONE]
    scene = leaving_scene("a", "b", "c")
    answer(scene, "b")
    scene.leave("a")
    assert heirs(scene) == ["b"], "b has just sent a message"
    crowd = leaving_scene("a", *(f"p{index:02}" for index in range(20)))
    assert probe_count(crowd) == 8, "at most eight peers are probed"


@pytest.mark.parametrize("before_s", [0.1, 0.5, 0.9])
def test_a_leaver_waits_for_an_answer_no_longer_than_a_gossip_interval(before_s: float) -> None:
    scene = leaving_scene("a", "b", "c")
    wake_at_deadlines(scene, scene.now + before_s)
    scene.leave("a")
    wake_at_deadlines(scene, scene.now + scene.config.gossip_s)
    assert len(heirs(scene)) == 1


def test_a_leaver_hands_its_weight_on_without_waiting_for_open_shares() -> None:
    """Its neighbor b is dead, which no peer has noticed yet."""
    scene = leaving_scene("a", "b", "c")
    scene.push("a", "b", ONE // 2)
    scene.mail.clear()
    scene.leave("a")
    answer(scene, "c")
    a = scene.peers["a"]
    assert a.account.weight == 0 and a.phase is Phase.LEAVING
    scene.tell("c", "a", Ack(1, ONE // 2))
    assert heirs(scene) == ["b"]
    # Weight and model are safe. It stays only until the silent peer is considered dead.
    effects: Effects = []
    since_s = scene.now
    while not a.done and scene.now < since_s + 60.0:
        effects += scene.wake_for("a", 1.0)
        scene.send_hello("a", member("c", heartbeat=99))
    assert PeerDied("b") in effects and a.done and scene.now <= since_s + 32.0
    assert a.account.outstanding["b", 1].stranded and a.account.burned == 0
    assert scene.sent(effects, Leave) == [Leave(True)]


def test_hearsay_about_an_heir_does_not_count_as_an_answer() -> None:
    scene = leaving_scene("a", "b", "c")
    scene.leave("a")
    scene.tell("c", "a", Leave(False))
    scene.send_hello("a", member("c", Phase.LEAVING, heartbeat=99), member("b", heartbeat=99))
    assert heirs(scene) == []
    scene.wake_for("a", scene.config.gossip_s)
    assert heirs(scene) == ["b"]


@pytest.mark.parametrize("answers_probe", [False, True])
def test_a_leaver_waits_until_its_only_neighbor_answers_or_is_dead(answers_probe: bool) -> None:
    scene = leaving_scene("a", "b")
    scene.wake_for("a", 15.0)
    scene.leave("a")
    scene.wake_for("a", 5.0)
    a = scene.peers["a"]
    assert heirs(scene) == [] and a.account.weight == ONE, "it is not burned yet"
    if answers_probe:
        answer(scene, "b")
        assert heirs(scene) == ["b"]
    else:
        assert PeerDied("b") in scene.wake_for("a", 20.0)
        assert a.done and a.account.burned == ONE


def test_weight_is_burned_only_if_no_peer_remains() -> None:
    scene = leaving_scene("a", "b", "c")
    scene.send_hello("a", member("b", Phase.QUIET, heartbeat=99))
    effects = scene.leave("a")
    answer(scene, "c")
    assert heirs(scene) == ["c"]
    for message in (Leave(True), Ack(1, 0)):
        effects += scene.tell("c", "a", message)
    entries = only(effects, Entry)
    assert [entry.weight for entry in entries if entry.kind is Kind.BURNED] == [ONE]
    assert scene.peers["a"].done


def test_a_dial_only_leaver_hands_its_weight_to_a_listening_peer() -> None:
    scene = Scene()
    scene.enter("a", addresses=())
    scene.join("a")
    for other in (member("b", addresses=()), member("c")):
        scene.send_hello("a", other, rooted=False)
    scene.wait(0.5)
    assert probe_count(scene) == 1
    scene.wake_for("a", scene.config.gossip_s)
    assert heirs(scene) == ["c"]


def test_each_shard_burns_its_remaining_weight() -> None:
    scene = Scene().founded(shards=2)
    scene.act("a", lambda context: context.push("b", ONE, shard=0))
    scene.leave("a", burn=True)
    a = scene.peers["a"]
    assert [account.burned for account in a.accounts] == [0, ONE]
    assert not a.done, "the first shard is still in flight"


def test_a_leaver_waits_only_for_live_peers_with_open_shares() -> None:
    scene = leaving_scene("a", "b", "c")
    scene.push("a", "b", ONE // 2)
    a, since_s = scene.peers["a"], scene.now + 1.0
    assert not a.is_worth_waiting(since_s)
    scene.wait(2.0)
    answer(scene, "c")
    assert not a.is_worth_waiting(since_s), "c owes nothing"
    answer(scene, "b")
    assert a.is_worth_waiting(since_s) and not a.is_worth_waiting(scene.now + 1.0)
    scene.tell("b", "a", Ack(1, 0))
    assert not a.is_worth_waiting(since_s)
