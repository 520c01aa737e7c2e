"""A request to stop is obeyed once by the peers that it names, passed on, and answered."""

import pytest

from rumor.gossip.effects.effects import EndTraining
from rumor.gossip.protocol.leave import STOPPED
from rumor.gossip.rules.asynchronous.gosgd import GoSGD
from rumor.gossip.types import Incarnation, PeerId
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Phase, Stop, Stopping

from ..scene import Effects, Scene, letters

Lives = tuple[tuple[PeerId, Incarnation], ...]


def asks(scene: Scene, to: str, *lives: tuple[PeerId, Incarnation], by: str = "asker") -> Effects:
    return scene.tell(by, to, Stop(lives))


def ended(effects: Effects) -> bool:
    return EndTraining(STOPPED) in effects


def told(effects: Effects) -> list[tuple[str, Stop]]:
    return [(letter.destination, letter.body) for letter in letters(effects, Stop)]


@pytest.fixture
def scene() -> Scene:
    return Scene().founded("a", "b", "c")


def test_training_ends_once_however_often_a_stop_is_requested(scene: Scene) -> None:
    assert not asks(scene, "a", ("b", 1)) and not asks(scene, "a", ("a", 2), ("b", 1)), "not a"
    first, second = (asks(scene, "a", ("a", 1), ("b", 1)) for _ in range(2))
    assert ended(first) and not ended(second)
    answer = Stopping("", ONE, Phase.TRAINING, 0, False)
    assert scene.sent(first, Stopping) == scene.sent(second, Stopping) == [answer]


def test_it_is_passed_on_to_the_named_peers_until_they_stop(scene: Scene) -> None:
    request = Stop((("a", 1), ("b", 1)))
    assert told(asks(scene, "a", *request.lives)) == [("b", request)]
    assert told(scene.wake("a")) == []
    scene.mail.clear()  # it was lost
    scene.wait(1.0)
    assert told(scene.wake("a")) == [("b", request)]
    scene.deliver()
    for id in ("a", "b"):
        scene.finish(id)
    scene.deliver()
    scene.wait(1.0)
    assert told(scene.wake("a")) == [] == told(scene.wake("b"))


def test_members_that_pass_it_on_get_no_answer_and_requesters_are_limited(scene: Scene) -> None:
    effects = asks(scene, "a", ("a", 1), ("b", 1), by="b")
    assert ended(effects) and not scene.sent(effects, Stopping)
    asked = [asks(scene, "a", ("a", 1), by=f"asker-{number}") for number in range(9)]
    answered = [bool(scene.sent(effects, Stopping)) for effects in asked]
    assert answered == [True] * 8 + [False]


def test_the_requester_gets_progress_until_no_peer_needs_this_one() -> None:
    scene, heard = Scene(), list[Stopping]()
    scene.founded(rules={"a": GoSGD(p=1.0), "b": GoSGD(p=1.0)})

    def deliver() -> None:
        while scene.mail:
            envelope = scene.mail.popleft()
            if envelope.destination in scene.peers:
                scene.receive(envelope)
            elif envelope.source == "a" and isinstance(envelope.body, Stopping):
                heard.append(envelope.body)

    asks(scene, "a", ("a", 1), ("b", 1))
    deliver()
    for id in ("a", "b"):
        scene.finish(id)
    for _ in range(60):
        deliver()
        for id in ("a", "b"):
            scene.step(id, trained=False)
    deliver()
    assert [each.phase for each in heard[:2]] == [Phase.TRAINING, Phase.FINISHED]
    assert heard[-1] == Stopping("", scene.peers["a"].state.weight, Phase.QUIET, 0, True)
    assert len(heard) <= 4
    assert scene.peers["a"].done and scene.peers["a"].has_askers
    assert not asks(scene, "a", ("b", 1)) and not scene.peers["a"].has_askers


AB, AC, ABC = (tuple((id, 1) for id in ids) for ids in ("ab", "ac", "abc"))


@pytest.mark.parametrize(
    ("first", "second", "passed_on"),
    [
        (AB, ABC, [("b", ABC), ("c", ABC)]),
        (AB, AC, [("b", AB), ("c", AC)]),
        (AB, AB[:1], []),
    ],
    ids=["a wider one", "another", "a narrower one"],
)
def test_two_requests_each_go_to_the_peers_they_name(
    scene: Scene, first: Lives, second: Lives, passed_on: list[tuple[str, Lives]]
) -> None:
    assert told(asks(scene, "a", *first)) == [("b", Stop(first))]
    assert told(asks(scene, "a", *second)) == [(to, Stop(lives)) for to, lives in passed_on]


def test_a_peer_that_is_already_merging_continues(scene: Scene) -> None:
    scene.finish("a")
    effects = asks(scene, "a", ("a", 1), ("b", 1))
    assert not ended(effects) and len(told(effects)) == 1
    assert scene.sent(effects, Stopping)[0].phase is Phase.FINISHED


def test_in_a_large_swarm_each_peer_passes_it_on_to_a_few_different_ones() -> None:
    scene = Scene()
    names = [f"p{number:02}" for number in range(20)]
    scene.founded(*names)
    lives = [(name, 1) for name in names]
    first = [to for to, _ in told(asks(scene, "p00", *lives))]
    other = [to for to, _ in told(asks(scene, "p15", *lives))]
    assert first == names[1:9] and other == [*names[16:], *names[:4]]
