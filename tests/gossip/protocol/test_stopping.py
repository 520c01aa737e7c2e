"""A named peer obeys a stop request once, passes it on and answers it."""

import pytest

from rumor.gossip.effects.effects import EndTraining
from rumor.gossip.protocol.leave import STOPPED
from rumor.gossip.rules.asynchronous.gosgd import GoSGD
from rumor.gossip.types import Incarnation, PeerId
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Phase, Stop, Stopping

from ..scene import Effects, Scene, letters

Incarnations = tuple[tuple[PeerId, Incarnation], ...]


def request_stop(
    scene: Scene, to: str, *incarnations: tuple[PeerId, Incarnation], by: str = "asker"
) -> Effects:
    return scene.tell(by, to, Stop(incarnations))


def ends_training(effects: Effects) -> bool:
    return EndTraining(STOPPED) in effects


def sent_stops(effects: Effects) -> list[tuple[str, Stop]]:
    return [(letter.destination, letter.body) for letter in letters(effects, Stop)]


@pytest.fixture
def scene() -> Scene:
    return Scene().founded("a", "b", "c")


def test_training_ends_once_for_repeated_stop_requests(scene: Scene) -> None:
    assert not request_stop(scene, "a", ("b", 1)) and not request_stop(
        scene, "a", ("a", 2), ("b", 1)
    ), "not a"
    first, second = (request_stop(scene, "a", ("a", 1), ("b", 1)) for _ in range(2))
    assert ends_training(first) and not ends_training(second)
    answer = Stopping("", ONE, Phase.TRAINING, 0, False)
    assert scene.sent(first, Stopping) == scene.sent(second, Stopping) == [answer]


def test_a_stop_request_is_repeated_to_the_named_peers_until_they_stop(scene: Scene) -> None:
    request = Stop((("a", 1), ("b", 1)))
    assert sent_stops(request_stop(scene, "a", *request.lives)) == [("b", request)]
    assert sent_stops(scene.wake("a")) == []
    scene.mail.clear()  # the request is lost
    scene.wait(1.0)
    assert sent_stops(scene.wake("a")) == [("b", request)]
    scene.deliver()
    for id in ("a", "b"):
        scene.finish(id)
    scene.deliver()
    scene.wait(1.0)
    assert sent_stops(scene.wake("a")) == [] == sent_stops(scene.wake("b"))


def test_forwarding_members_get_no_answer_and_requesters_are_limited(scene: Scene) -> None:
    effects = request_stop(scene, "a", ("a", 1), ("b", 1), by="b")
    assert ends_training(effects) and not scene.sent(effects, Stopping)
    attempts = [request_stop(scene, "a", ("a", 1), by=f"asker-{number}") for number in range(9)]
    answered = [bool(scene.sent(effects, Stopping)) for effects in attempts]
    assert answered == [True] * 8 + [False]


def test_a_requester_gets_progress_until_the_peer_is_done() -> None:
    scene, answers = Scene(), list[Stopping]()
    scene.founded(rules={"a": GoSGD(p=1.0), "b": GoSGD(p=1.0)})

    def deliver() -> None:
        while scene.mail:
            envelope = scene.mail.popleft()
            if envelope.destination in scene.peers:
                scene.receive(envelope)
            elif envelope.source == "a" and isinstance(envelope.body, Stopping):
                answers.append(envelope.body)

    request_stop(scene, "a", ("a", 1), ("b", 1))
    deliver()
    for id in ("a", "b"):
        scene.finish(id)
    for _ in range(60):
        deliver()
        for id in ("a", "b"):
            scene.step(id, trained=False)
    deliver()
    assert [each.phase for each in answers[:2]] == [Phase.TRAINING, Phase.FINISHED]
    assert answers[-1] == Stopping("", scene.peers["a"].state.weight, Phase.QUIET, 0, True)
    assert len(answers) <= 4
    assert scene.peers["a"].done and scene.peers["a"].has_askers
    assert not request_stop(scene, "a", ("b", 1)) and not scene.peers["a"].has_askers


AB, AC, ABC = (tuple((id, 1) for id in ids) for ids in ("ab", "ac", "abc"))


@pytest.mark.parametrize(
    ("first", "second", "passed_on"),
    [
        (AB, ABC, [("b", ABC), ("c", ABC)]),
        (AB, AC, [("b", AB), ("c", AC)]),
        (AB, AB[:1], []),
    ],
    ids=["wider", "different", "narrower"],
)
def test_each_of_two_requests_goes_to_the_peers_it_names(
    scene: Scene,
    first: Incarnations,
    second: Incarnations,
    passed_on: list[tuple[str, Incarnations]],
) -> None:
    assert sent_stops(request_stop(scene, "a", *first)) == [("b", Stop(first))]
    assert sent_stops(request_stop(scene, "a", *second)) == [
        (to, Stop(incarnations)) for to, incarnations in passed_on
    ]


def test_a_stop_request_does_not_interrupt_a_merging_peer(scene: Scene) -> None:
    scene.finish("a")
    effects = request_stop(scene, "a", ("a", 1), ("b", 1))
    assert not ends_training(effects) and len(sent_stops(effects)) == 1
    assert scene.sent(effects, Stopping)[0].phase is Phase.FINISHED


def test_each_peer_of_a_large_swarm_forwards_a_stop_to_a_few_different_peers() -> None:
    scene = Scene()
    names = [f"p{number:02}" for number in range(20)]
    scene.founded(*names)
    incarnations = [(name, 1) for name in names]
    first = [to for to, _ in sent_stops(request_stop(scene, "p00", *incarnations))]
    other = [to for to, _ in sent_stops(request_stop(scene, "p15", *incarnations))]
    assert first == names[1:9] and other == [*names[16:], *names[:4]]
