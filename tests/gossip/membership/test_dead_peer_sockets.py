"""The dead keep few sockets, and are dialled for ever all the same."""

import pytest

from rumor.gossip.effects.effects import Meet, Part, Send
from rumor.gossip.effects.events import PeerRecovered
from rumor.gossip.membership import dialing
from rumor.gossip.wire.messages import Member

from ..scene import Scene, member


def a_peer(id: str, heartbeat: int = 1, incarnation: int = 1) -> Member:
    addresses = (f"tcp://{id}:7700",)
    return member(id, heartbeat=heartbeat, incarnation=incarnation, addresses=addresses)


@pytest.fixture
def bereaved(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A peer that has seen three others die, and keeps the sockets of one."""
    monkeypatch.setattr(dialing, "OPEN_MAX", 1)
    scene = Scene()
    scene.enter("a")
    scene.join("a")
    for id in "bcd":
        scene.says("a", a_peer(id))
    parted = []
    for _ in range(40):
        scene.wait(1.0)
        parted += [e.peer for e in scene.wake("a") if isinstance(e, Part)]
    assert set(parted) == {"c", "d"}
    return scene


def test_beyond_a_few_each_trial_opens_speaks_and_parts(bereaved: Scene) -> None:
    opened, spoken, parted = 0, 0, 0
    for _ in range(600):
        bereaved.wait(1.0)
        effects = bereaved.wake("a")
        for effect in effects:
            opened += isinstance(effect, Meet) and effect.peer == "c"
            parted += isinstance(effect, Part) and effect.peer == "c"
            spoken += isinstance(effect, Send) and effect.envelope.destination == "c"
        assert opened - parted in (-1, 0, 1), "a socket is open during a trial only"
    assert opened >= 6 and parted >= opened - 1 and spoken >= 3 * (opened - 1)


def test_one_that_is_heard_again_has_its_sockets_again(bereaved: Scene) -> None:
    effects = bereaved.says("a", a_peer("c", heartbeat=50))
    assert PeerRecovered("c") in effects and Meet("c", ("tcp://c:7700",)) in effects
    assert Meet("d", ("tcp://d:7700",)) not in effects
    for _ in range(10):
        bereaved.wait(1.0)
        assert Part("c") not in bereaved.wake("a")


def test_a_new_life_of_one_that_was_parted_from_is_met(bereaved: Scene) -> None:
    effects = bereaved.says("a", a_peer("d", incarnation=2))
    assert Meet("d", ("tcp://d:7700",)) in effects
