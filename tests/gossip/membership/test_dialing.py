"""However many addresses are dead, a few are dialled at a time, and they keep few sockets."""

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
    """A peer that looks for a swarm at these addresses, and which of them have sockets."""

    def __init__(self, *seeds: str, returning: bool = False) -> None:
        self.scene = Scene(BRIEF)
        self.scene.enter("a")
        self.open: dict[str, None] = {}
        self.most = 0
        self.greeted: list[str] = []
        self.take(self.scene.join("a", *seeds, returning=returning))

    def take(self, effects: Effects) -> Effects:
        for effect in effects:
            if isinstance(effect, Greet):
                self.open[effect.address] = None
                self.greeted.append(effect.address)
            elif isinstance(effect, Dismiss):
                del self.open[effect.address]
            self.most = max(self.most, len(self.open))
        return effects

    def passes(self, seconds: float, step_s: float = 0.2) -> Effects:
        """Let time pass; nobody gets its letters."""
        effects: Effects = []
        for _ in range(round(seconds / step_s)):
            effects += self.take(self.scene.passes("a", step_s, step_s))
            self.scene.mail.clear()
            self.scene.lines.clear()
        return effects


def a_member(*seeds: str) -> Dialled:
    """One that has founded anew, none of its seeds having answered."""
    dialled = Dialled(*seeds, returning=True)
    while dialled.scene.peers["a"].phase is not Phase.TRAINING:
        dialled.passes(0.2)
    return dialled


def test_who_seeks_greets_a_few_without_a_pause_as_long_as_it_takes() -> None:
    few = MANY[:DIALED_MAX]
    dialled = Dialled(*few)
    dialled.passes(20.0)
    assert dialled.greeted == [*few] * 101 and list(dialled.open) == [*few]


def test_who_seeks_among_many_tries_all_in_turn_a_bounded_number_at_a_time() -> None:
    dialled = Dialled(*MANY)
    assert dialled.greeted == [*MANY[:DIALED_MAX]], "those first that were named first"
    dialled.passes(5 * 5.0 - 0.2)
    assert set(dialled.greeted) == {*MANY}
    # Long enough to connect, and for the answer to come back on that connection.
    assert min(dialled.greeted.count(address) for address in MANY) >= 20
    dialled.passes(60.0)
    assert dialled.most == DIALED_MAX
    counts = [dialled.greeted.count(address) for address in MANY]
    assert max(counts) - min(counts) <= 2 * 26, "and none is tried much more than another"


def test_the_one_that_lives_among_many_is_found_and_its_sockets_are_kept() -> None:
    dialled = Dialled(*MANY, "b")
    effects = dialled.passes(5 * 5.0 - 0.2)
    assert "b" in dialled.open
    effects += dialled.scene.says("a", member("b")) + dialled.passes(10.0)
    assert Dismiss("b") not in effects


def test_one_that_returns_founds_alone_only_after_all_had_their_try() -> None:
    dialled = Dialled(*MANY, returning=True)
    assert Founded() not in dialled.passes(24.8)
    assert Founded() in dialled.passes(2.0)
    few = Dialled(*MANY[:DIALED_MAX], returning=True)
    assert Founded() in few.passes(3.2), "where all are dialled at once, at once"


@pytest.mark.extended
@pytest.mark.parametrize("count", [1, 300])
def test_a_member_keeps_no_socket_of_those_that_do_not_answer(count: int) -> None:
    dialled = a_member(*MANY[:count])
    dialled.passes(30.0, 1.0)
    dialled.greeted.clear()
    closed = [not dialled.open]
    for _ in range(600):
        dialled.passes(1.0, 1.0)
        closed.append(not dialled.open)
    assert dialled.most <= DIALED_MAX
    assert set(dialled.greeted) == {*MANY[:count]}, "and greets them for ever"
    assert count > 1 or sum(closed) > 100


def test_each_try_of_a_member_lasts_long_enough_to_connect_and_be_answered() -> None:
    dialled = a_member("b")
    dialled.passes(60.0, 1.0)
    words: list[str] = []
    for _ in range(120):
        effects = [e for e in dialled.passes(1.0, 1.0) if isinstance(e, Greet | Dismiss)]
        words += [type(effect).__name__ for effect in effects] or ["-"]
    assert " ".join(words).count("Greet Greet Greet - - Dismiss") >= 5


def test_a_member_dials_no_seed_whose_peer_it_knows() -> None:
    dialled = a_member("b", "c")
    effects = dialled.scene.says("a", member("b")) + dialled.passes(30.0, 1.0)
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
    assert not dialer.is_through(names, 1.2) and dialer.is_through(few, 1.2)
    for tick in range(200):
        dialer.seek(names, 1.4 + 0.2 * tick)
    assert dialer.is_through(names, 1.4 + 0.2 * 199)


def test_a_newcomer_that_joins_lets_go_of_the_others_it_had_greeted() -> None:
    dialled = Dialled("z", *MANY[:20])
    scene = dialled.scene
    scene.founded("z")
    effects = dialled.take(scene.go_on(8.0, "z", "a", step_s=0.2, turns=True))
    assert Joined("z") in effects
    dialled.passes(40.0, 1.0)
    assert "z" in dialled.greeted and Dismiss("z") not in effects
