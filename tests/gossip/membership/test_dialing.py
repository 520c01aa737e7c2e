"""However many addresses are dead, a few are dialled at a time, and those in turn."""

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Dismiss, Greet
from rumor.gossip.effects.events import Founded, Joined
from rumor.gossip.membership.dialing import DIALED_MAX, ReconnectBackoff, SeedDialer
from rumor.gossip.wire.messages import Phase

from ..scene import Effects, Scene, member

BRIEF = ProtocolConfig(found_alone_s=3.0, redial_s_max=8.0)

MANY = tuple(f"ghost-{index:03}" for index in range(300))


class Dialled:
    """Which greeted addresses have sockets, as the effects of a peer say."""

    def __init__(self) -> None:
        self.open: dict[str, None] = {}
        self.most = 0
        self.greeted: list[str] = []

    def take(self, effects: Effects) -> Effects:
        for effect in effects:
            if isinstance(effect, Greet):
                self.open[effect.address] = None
                self.greeted.append(effect.address)
            elif isinstance(effect, Dismiss):
                del self.open[effect.address]
            self.most = max(self.most, len(self.open))
        return effects


def passes(scene: Scene, seconds: float, dialled: Dialled, *, step_s: float = 0.2) -> Effects:
    """Let time pass at a, whose letters nobody gets."""
    effects: Effects = []
    for _ in range(round(seconds / step_s)):
        scene.wait(step_s)
        effects += dialled.take(scene.wake("a"))
        scene.mail.clear()
        scene.lines.clear()
    return effects


def test_who_seeks_greets_a_few_without_a_pause_as_long_as_it_takes() -> None:
    scene, dialled = Scene(BRIEF), Dialled()
    scene.enter("a")
    few = MANY[:DIALED_MAX]
    dialled.take(scene.join("a", *few))
    passes(scene, 20.0, dialled)
    assert dialled.greeted == [*few] * 101 and list(dialled.open) == [*few]


def test_who_seeks_among_many_tries_all_in_turn_a_bounded_number_at_a_time() -> None:
    scene, dialled = Scene(BRIEF), Dialled()
    scene.enter("a")
    dialled.take(scene.join("a", *MANY))
    assert dialled.greeted == [*MANY[:DIALED_MAX]], "those first that were named first"
    passes(scene, 5 * 5.0 - 0.2, dialled)
    assert set(dialled.greeted) == {*MANY}
    # Long enough to connect, and for the answer to come back on that connection.
    assert min(dialled.greeted.count(address) for address in MANY) >= 20
    passes(scene, 60.0, dialled)
    assert dialled.most == DIALED_MAX
    counts = [dialled.greeted.count(address) for address in MANY]
    assert max(counts) - min(counts) <= 2 * 26, "and none is tried much more than another"


def test_the_one_that_lives_among_many_is_found_and_its_sockets_are_kept() -> None:
    scene, dialled = Scene(BRIEF), Dialled()
    scene.enter("a")
    dialled.take(scene.join("a", *MANY, "b"))
    effects = passes(scene, 5 * 5.0 - 0.2, dialled)
    assert "b" in dialled.open
    effects += scene.says("a", member("b")) + passes(scene, 10.0, dialled)
    assert Dismiss("b") not in effects


def test_one_that_returns_founds_alone_only_after_all_had_their_try() -> None:
    scene, dialled = Scene(BRIEF), Dialled()
    scene.enter("a")
    dialled.take(scene.join("a", *MANY, returning=True))
    assert Founded() not in passes(scene, 24.8, dialled)
    assert Founded() in passes(scene, 2.0, dialled)
    scene, dialled = Scene(BRIEF), Dialled()
    scene.enter("a")
    dialled.take(scene.join("a", *MANY[:DIALED_MAX], returning=True))
    assert Founded() in passes(scene, 3.2, dialled), "where all are dialled at once, at once"


def a_member(*seeds: str) -> tuple[Scene, Dialled]:
    """One that has founded anew, none of its seeds having answered."""
    scene, dialled = Scene(BRIEF), Dialled()
    scene.enter("a")
    dialled.take(scene.join("a", *seeds, returning=True))
    while scene.peers["a"].phase is not Phase.TRAINING:
        passes(scene, 0.2, dialled)
    return scene, dialled


@pytest.mark.parametrize("count", [1, 300])
def test_a_member_keeps_no_socket_of_those_that_do_not_answer(count: int) -> None:
    scene, dialled = a_member(*MANY[:count])
    passes(scene, 30.0, dialled, step_s=1.0)
    dialled.greeted.clear()
    closed = [not dialled.open]
    for _ in range(600):
        passes(scene, 1.0, dialled, step_s=1.0)
        closed.append(not dialled.open)
    assert dialled.most <= DIALED_MAX
    assert set(dialled.greeted) == {*MANY[:count]}, "and greets them for ever"
    if count == 1:
        assert sum(closed) > 100


def test_each_try_of_a_member_lasts_long_enough_to_connect_and_be_answered() -> None:
    scene, dialled = a_member("b")
    passes(scene, 60.0, dialled, step_s=1.0)
    tries: list[list[str]] = []
    for _ in range(120):
        effects = passes(scene, 1.0, dialled, step_s=1.0)
        tries.append([type(e).__name__ for e in effects if isinstance(e, Greet | Dismiss)])
    text = " ".join(word for tick in tries for word in (tick or ["-"]))
    assert text.count("Greet Greet Greet - - Dismiss") >= 5, text


def test_a_member_dials_no_seed_whose_peer_it_knows() -> None:
    scene, dialled = a_member("b", "c")
    effects = scene.says("a", member("b"))
    effects += passes(scene, 30.0, dialled, step_s=1.0)
    assert Dismiss("b") not in effects and Dismiss("c") in effects


def test_one_that_stood_still_itself_does_not_end_a_try_before_it_was_one() -> None:
    dialer = SeedDialer(ProtocolConfig(), ReconnectBackoff(0.2, 60.0, lambda: 0.5))
    assert dialer.go_on(["b"], 0.0) == (["b"], [])
    assert dialer.go_on(["b"], 100.0) == (["b"], []), "so long it was stopped"
    for now in (101.0, 102.0, 103.0):
        dialer.go_on(["b"], now)


def test_one_that_gives_its_swarm_up_seeks_anew() -> None:
    dialer = SeedDialer(ProtocolConfig(), ReconnectBackoff(0.2, 60.0, lambda: 0.5))
    few, names = list(MANY[:3]), list(MANY)
    assert dialer.seek(few, 0.0) == (few, [])
    assert dialer.go_on(few, 1.0) == (few, [])
    assert dialer.seek(names, 1.2)[0] == names[:DIALED_MAX]
    assert not dialer.is_through(names) and dialer.is_through(few)
    for tick in range(200):
        dialer.seek(names, 1.4 + 0.2 * tick)
    assert dialer.is_through(names)


def test_a_newcomer_that_joins_lets_go_of_the_others_it_had_greeted() -> None:
    scene, dialled = Scene(BRIEF), Dialled()
    scene.founded("z")
    scene.enter("a")
    dialled.take(scene.join("a", "z", *MANY[:20]))
    effects: Effects = []
    for _ in range(40):
        scene.wait(0.2)
        for id in ("z", "a"):
            effects += scene.wake(id)
            effects += scene.step(id, trained=scene.peers[id].phase is Phase.TRAINING)
        scene.deliver()
    dialled.take([effect for effect in effects if isinstance(effect, Greet | Dismiss)])
    assert Joined("z") in effects
    passes(scene, 40.0, dialled, step_s=1.0)
    assert "z" in dialled.greeted and Dismiss("z") not in effects
