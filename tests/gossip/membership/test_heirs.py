"""A leaver hands on at once, to one that surely lives, and hardly waits for the dead."""

from dataclasses import replace

from rumor.gossip.effects.effects import Record
from rumor.gossip.effects.events import PeerDied
from rumor.gossip.effects.ledger import Kind
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Ack, Hello, Leave, Phase, Push

from ..scene import Effects, Scene, hello, member


def beats(scene: Scene, id: str, of: str, heartbeat: int) -> Effects:
    """Let *of* hear of *id*, from a leaving c, that it still lives."""
    teller = member("c", Phase.LEAVING, heartbeat=heartbeat, addresses=())
    entry = replace(teller, id=id, phase=Phase.TRAINING)
    body = hello(teller, entry)
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


def by_deadline(scene: Scene, id: str, until_s: float) -> Effects:
    """Wake a peer only when it says that it has something to do."""
    effects: Effects = []
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
    scene.receive(scene.letter("b", "a", hello()))
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
    scene.receive(scene.letter("d", "a", hello()))
    assert sorted(heirs(scene)) == ["b", "c", "d"]
    assert scene.peers["a"].account.weight == 0


def test_a_leaver_does_not_wait_for_one_that_owes_it_an_answer_to_hand_on_its_weight() -> None:
    """Its neighbor b is dead, and nobody has noticed yet."""
    scene = left_alone("a", "b", "c")
    scene.push("a", "b", ONE // 2)
    scene.mail.clear()
    scene.leave("a")
    scene.receive(scene.letter("c", "a", hello()))
    a = scene.peers["a"]
    assert a.account.weight == 0 and a.phase is Phase.LEAVING
    scene.receive(scene.letter("c", "a", Ack(1, ONE // 2)))
    assert a.account.outstanding.keys() == {("b", 1)} and a.phase is Phase.LEAVING
    # Weight and model are safe. It stays only until the silent one is considered dead.
    effects: Effects = []
    since_s = scene.now
    while not a.done and scene.now < since_s + 60.0:
        scene.wait(1.0)
        effects += scene.wake("a")
        scene.says("a", member("c", Phase.TRAINING, heartbeat=99, addresses=()))
    assert PeerDied("b") in effects and a.done and scene.now <= since_s + 32.0
    assert a.account.outstanding["b", 1].stranded and a.account.burned == 0
    assert scene.sent(effects, Leave) == [Leave(True)]


def test_a_leaver_prefers_one_that_answers_to_one_that_is_only_believed_to_live() -> None:
    for seed in range(5):
        scene = left_alone("a", "b", "c", "d", *(f"e{n}" for n in range(seed)))
        scene.leave("a")
        scene.receive(scene.letter("d", "a", hello()))
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
        effects: Effects = []
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
            scene.receive(scene.letter("b", "a", hello()))
            assert heirs(scene) == ["b"]
        else:
            for _ in range(20):
                scene.wait(1.0)
                effects += scene.wake("a")
            assert PeerDied("b") in effects and a.done and a.account.burned == ONE


def test_weight_is_burned_only_where_nobody_is_left() -> None:
    scene = left_alone("a", "b", "c")
    scene.says("a", member("b", Phase.QUIET, heartbeat=99, addresses=()))
    effects = scene.leave("a")
    scene.receive(scene.letter("c", "a", hello()))
    assert heirs(scene) == ["c"]
    scene.receive(scene.letter("c", "a", Leave(True)))
    effects += scene.receive(scene.letter("c", "a", Ack(1, 0)))
    burned = [
        e.entry.weight for e in effects if isinstance(e, Record) and e.entry.kind is Kind.BURNED
    ]
    assert burned == [ONE] and scene.peers["a"].done


def test_one_that_only_dials_out_hands_on_to_one_that_can_be_dialled() -> None:
    scene = Scene()
    scene.enter("a", addresses=())
    scene.join("a")
    for id, addresses in (("b", ()), ("c", ("c",))):
        entry = member(id, addresses=addresses)
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
    scene.receive(scene.letter("b", "a", hello()))
    assert heirs(scene) == ["b"], "c may answer yet"
    by_deadline(scene, "a", scene.now + 2 * scene.config.gossip_s)
    assert sorted(heirs(scene)) == ["b", "c"]


def test_of_several_shards_each_is_burned_as_far_as_there_is_any() -> None:
    scene = Scene()
    scene.founded("a", "b", shards=2)
    scene.act("a", lambda context: context.push("b", ONE, shard=0))
    scene.leave("a", burn=True)
    a = scene.peers["a"]
    assert [account.burned for account in a.accounts] == [0, ONE]
    assert not a.done, "the first one is still on its way"


def test_it_is_worth_waiting_for_one_that_still_speaks_and_for_nobody_else() -> None:
    scene = left_alone("a", "b", "c")
    scene.push("a", "b", ONE // 2)
    a, since_s = scene.peers["a"], scene.now + 1.0
    assert not a.is_worth_waiting(since_s)
    scene.wait(2.0)
    scene.receive(scene.letter("c", "a", hello()))
    assert not a.is_worth_waiting(since_s), "c owes nothing"
    scene.receive(scene.letter("b", "a", hello()))
    assert a.is_worth_waiting(since_s) and not a.is_worth_waiting(scene.now + 1.0)
    scene.receive(scene.letter("b", "a", Ack(1, 0)))
    assert not a.is_worth_waiting(since_s)
