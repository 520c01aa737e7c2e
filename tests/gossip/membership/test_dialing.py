"""Only a few addresses are dialed at a time, so dead ones keep few sockets open."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Dismiss, Greet
from rumor.gossip.effects.events import Founded, Joined
from rumor.gossip.membership.dialing import DIALED_MAX, ReconnectBackoff, SeedDialer
from rumor.gossip.types import stream
from rumor.gossip.wire.messages import Phase

from ..scene import Effects, Scene, member

BRIEF = ProtocolConfig(found_alone_s=3.0, redial_s_max=8.0)

MANY = tuple(f"ghost-{index:03}" for index in range(300))


class Dialled:
    """A peer that looks for a swarm at these addresses; records which of them have sockets."""

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
        """Let time pass; its messages reach no peer."""
        effects: Effects = []
        for _ in range(round(seconds / step_s)):
            effects += self.take(self.scene.passes("a", step_s, step_s))
            self.scene.mail.clear()
            self.scene.lines.clear()
        return effects


def a_member(*seeds: str) -> Dialled:
    """A peer that has founded anew, since none of its seeds answered."""
    dialled = Dialled(*seeds, returning=True)
    while dialled.scene.peers["a"].phase is not Phase.TRAINING:
        dialled.passes(0.2)
    return dialled


def test_a_seeking_peer_keeps_greeting_a_few_addresses() -> None:
    few = MANY[:DIALED_MAX]
    dialled = Dialled(*few)
    dialled.passes(20.0)
    assert dialled.greeted == [*few] * 101 and list(dialled.open) == [*few]


def test_a_seeking_peer_tries_many_addresses_in_turn_a_few_at_a_time() -> None:
    dialled = Dialled(*MANY)
    assert dialled.greeted == [*MANY[:DIALED_MAX]], "in the given order"
    dialled.passes(5 * 5.0 - 0.2)
    assert set(dialled.greeted) == {*MANY}
    # Long enough to connect, and for the answer to arrive on that connection.
    assert min(dialled.greeted.count(address) for address in MANY) >= 20
    dialled.passes(60.0)
    assert dialled.most == DIALED_MAX
    counts = [dialled.greeted.count(address) for address in MANY]
    assert max(counts) - min(counts) <= 2 * 26, "none is tried much more often than another"


def test_the_only_live_address_among_many_is_found_and_its_sockets_are_kept() -> None:
    dialled = Dialled(*MANY, "b")
    effects = dialled.passes(5 * 5.0 - 0.2)
    assert "b" in dialled.open
    effects += dialled.scene.says("a", member("b")) + dialled.passes(10.0)
    assert Dismiss("b") not in effects


def test_a_returning_peer_founds_alone_only_after_trying_all_addresses() -> None:
    dialled = Dialled(*MANY, returning=True)
    assert Founded() not in dialled.passes(24.8)
    assert Founded() in dialled.passes(2.0)
    few = Dialled(*MANY[:DIALED_MAX], returning=True)
    assert Founded() in few.passes(3.2), "immediately, if all fit at once"


@pytest.mark.extended
@pytest.mark.parametrize("count", [1, 300])
def test_a_member_closes_sockets_to_addresses_that_do_not_answer(count: int) -> None:
    dialled = a_member(*MANY[:count])
    dialled.passes(30.0, 1.0)
    dialled.greeted.clear()
    closed = [not dialled.open]
    for _ in range(600):
        dialled.passes(1.0, 1.0)
        closed.append(not dialled.open)
    assert dialled.most <= DIALED_MAX
    assert set(dialled.greeted) == {*MANY[:count]}, "and greets them forever"
    assert count > 1 or sum(closed) > 100


def test_each_try_of_a_member_lasts_long_enough_to_get_an_answer() -> None:
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


def test_a_peer_that_was_stopped_does_not_count_that_time_as_a_try() -> None:
    dialer = SeedDialer(ProtocolConfig(), ReconnectBackoff(0.2, 60.0, lambda: 0.5))
    assert dialer.go_on(["b"], 0.0) == (["b"], [])
    assert dialer.go_on(["b"], 100.0) == (["b"], []), "it was stopped meanwhile"
    for now in (101.0, 102.0, 103.0):
        dialer.go_on(["b"], now)


def test_a_peer_that_gives_up_its_swarm_seeks_again() -> None:
    dialer = SeedDialer(ProtocolConfig(), ReconnectBackoff(0.2, 60.0, lambda: 0.5))
    few, names = list(MANY[:3]), list(MANY)
    assert dialer.seek(few, 0.0) == (few, [])
    assert dialer.go_on(few, 1.0) == (few, [])
    assert dialer.seek(names, 1.2)[0] == names[:DIALED_MAX]
    assert not dialer.is_through(names, 1.2) and dialer.is_through(few, 1.2)
    for tick in range(200):
        dialer.seek(names, 1.4 + 0.2 * tick)
    assert dialer.is_through(names, 1.4 + 0.2 * 199)


def test_a_newcomer_that_joins_closes_its_other_greeted_addresses() -> None:
    dialled = Dialled("z", *MANY[:20])
    scene = dialled.scene
    scene.founded("z")
    effects = dialled.take(scene.go_on(8.0, "z", "a", step_s=0.2, turns=True))
    assert Joined("z") in effects
    dialled.passes(40.0, 1.0)
    assert "z" in dialled.greeted and Dismiss("z") not in effects


def fixed(draw: float = 0.5, first_s: float = 1.0, most_s: float = 60.0) -> ReconnectBackoff:
    """Jitter that is always at this fraction of its range; 0.5 is the middle."""
    return ReconnectBackoff(first_s, most_s, lambda: draw)


def dialled_at(backoff: ReconnectBackoff, seconds: float, step_s: float = 0.25) -> list[float]:
    times = [step_s * n for n in range(round(seconds / step_s))]
    return [now for now in times if backoff.due(["b"], now, 1)]


@pytest.mark.parametrize(
    ("draw", "first_s", "most_s", "waits"),
    [
        (0.5, 1.0, 8.0, [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]),
        (0.0, 4.0, 16.0, [2.0, 4.0, 8.0, 8.0]),
        (1.0, 4.0, 16.0, [6.0, 12.0, 24.0, 24.0]),
        (0.25, 4.0, 16.0, [3.0, 6.0, 12.0, 12.0]),
        (0.5, 5.0, 1.0, [5.0, 5.0, 5.0]),
    ],
)
def test_waits_double_up_to_the_maximum_with_jitter_of_half(
    draw: float, first_s: float, most_s: float, waits: list[float]
) -> None:
    times = dialled_at(fixed(draw, first_s, most_s), 200.0)
    assert [after - before for before, after in pairwise(times)][: len(waits)] == waits


def test_addresses_that_have_waited_longest_are_dialed_first() -> None:
    backoff = fixed()
    assert backoff.due(["b"], 0.0, 1) == ["b"]
    assert backoff.due(["a", "b"], 0.5, 2) == ["a"]
    assert backoff.due(["a", "b"], 5.0, 1) == ["b"], "it was due at 1.0, and a at 1.5"
    assert backoff.due(["b", "a"], 5.0, 1) == ["a"]
    assert backoff.due(["a", "b"], 5.0, 2) == []


def test_an_address_that_answers_meanwhile_starts_over() -> None:
    backoff = fixed()
    for now in (0.0, 1.0, 3.0):
        assert backoff.due(["b"], now, 1) == ["b"]
    assert backoff.due([], 4.0, 1) == []
    assert [now for now in (5.0, 6.0, 8.0) if backoff.due(["b"], now, 1)] == [5.0, 6.0, 8.0]


def test_after_a_hint_all_addresses_are_dialed_often_again() -> None:
    backoff = fixed()
    names = ["b", "c", "d"]
    for now in (0.0, 1.0, 3.0, 7.0, 15.0):
        assert backoff.due(names, now, 3) == names
    assert backoff.due(names, 16.0, 3) == []
    backoff.hurry()
    assert sorted(backoff.due(names, 16.0, 3)) == names
    assert sorted(backoff.due(names, 17.0, 3)) == names


@given(st.integers(0, 1000), st.integers(1, 30), st.integers(1, 8))
def test_no_wait_exceeds_its_jitter(seed: int, silent: int, most: int) -> None:
    names = [f"p{index}" for index in range(silent)]
    rng, last = stream(seed, "a", "reconnect"), dict.fromkeys(names, 0.0)
    backoff = ReconnectBackoff(1.0, 4.0, lambda: float(rng.random()))
    for tenth in range(1200):
        now = tenth / 10
        due = backoff.due(names, now, most)
        assert len(due) <= most and len(set(due)) == len(due)
        for name in due:
            last[name] = now
        # If only a few may be dialed at a time, they take turns.
        assert max(now - at for at in last.values()) <= 6.0 + 0.1 * (1 + silent / most)
