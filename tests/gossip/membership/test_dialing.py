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


class DialRecorder:
    """A peer that looks for a swarm at *seeds*; records which addresses have open sockets."""

    def __init__(self, *seeds: str, returning: bool = False) -> None:
        self.scene = Scene(BRIEF)
        self.scene.enter("a")
        self.open: dict[str, None] = {}
        self.open_max = 0
        self.greeted: list[str] = []
        self.record(self.scene.join("a", *seeds, returning=returning))

    def record(self, effects: Effects) -> Effects:
        for effect in effects:
            if isinstance(effect, Greet):
                self.open[effect.address] = None
                self.greeted.append(effect.address)
            elif isinstance(effect, Dismiss):
                del self.open[effect.address]
            self.open_max = max(self.open_max, len(self.open))
        return effects

    def pass_time(self, seconds: float, step_s: float = 0.2) -> Effects:
        """Let time pass; messages of the peer are dropped."""
        effects: Effects = []
        for _ in range(round(seconds / step_s)):
            effects += self.record(self.scene.wake_for("a", step_s, step_s))
            self.scene.mail.clear()
            self.scene.lines.clear()
        return effects


def lone_member(*seeds: str) -> DialRecorder:
    """A peer that has founded again because none of its seeds answered."""
    dialled = DialRecorder(*seeds, returning=True)
    while dialled.scene.peers["a"].phase is not Phase.TRAINING:
        dialled.pass_time(0.2)
    return dialled


def test_a_seeking_peer_keeps_greeting_a_few_addresses() -> None:
    few = MANY[:DIALED_MAX]
    dialled = DialRecorder(*few)
    dialled.pass_time(20.0)
    assert dialled.greeted == [*few] * 101 and list(dialled.open) == [*few]


def test_a_seeking_peer_tries_many_addresses_in_turn_a_few_at_a_time() -> None:
    dialled = DialRecorder(*MANY)
    assert dialled.greeted == [*MANY[:DIALED_MAX]], "in the given order"
    dialled.pass_time(5 * 5.0 - 0.2)
    assert set(dialled.greeted) == {*MANY}
    # Long enough to connect, and for the answer to arrive on that connection.
    assert min(dialled.greeted.count(address) for address in MANY) >= 20
    dialled.pass_time(60.0)
    assert dialled.open_max == DIALED_MAX
    counts = [dialled.greeted.count(address) for address in MANY]
    assert max(counts) - min(counts) <= 2 * 26, "all addresses are tried about equally often"


def test_the_only_live_address_among_many_is_found_and_its_sockets_are_kept() -> None:
    dialled = DialRecorder(*MANY, "b")
    effects = dialled.pass_time(5 * 5.0 - 0.2)
    assert "b" in dialled.open
    effects += dialled.scene.send_hello("a", member("b")) + dialled.pass_time(10.0)
    assert Dismiss("b") not in effects


def test_a_returning_peer_founds_alone_only_after_trying_all_addresses() -> None:
    dialled = DialRecorder(*MANY, returning=True)
    assert Founded() not in dialled.pass_time(24.8)
    assert Founded() in dialled.pass_time(2.0)
    few = DialRecorder(*MANY[:DIALED_MAX], returning=True)
    assert Founded() in few.pass_time(3.2), "immediately, if all fit at once"


@pytest.mark.extended
@pytest.mark.parametrize("count", [1, 300])
def test_a_member_closes_sockets_to_addresses_that_do_not_answer(count: int) -> None:
    dialled = lone_member(*MANY[:count])
    dialled.pass_time(30.0, 1.0)
    dialled.greeted.clear()
    closed = [not dialled.open]
    for _ in range(600):
        dialled.pass_time(1.0, 1.0)
        closed.append(not dialled.open)
    assert dialled.open_max <= DIALED_MAX
    assert set(dialled.greeted) == {*MANY[:count]}, "greetings never end"
    assert count > 1 or sum(closed) > 100


def test_each_attempt_of_a_member_lasts_long_enough_for_an_answer() -> None:
    dialled = lone_member("b")
    dialled.pass_time(60.0, 1.0)
    actions: list[str] = []
    for _ in range(120):
        effects = [e for e in dialled.pass_time(1.0, 1.0) if isinstance(e, Greet | Dismiss)]
        actions += [type(effect).__name__ for effect in effects] or ["-"]
    assert " ".join(actions).count("Greet Greet Greet - - Dismiss") >= 5


def test_a_member_dials_no_seed_whose_peer_it_knows() -> None:
    dialled = lone_member("b", "c")
    effects = dialled.scene.send_hello("a", member("b")) + dialled.pass_time(30.0, 1.0)
    assert Dismiss("b") not in effects and Dismiss("c") in effects


def test_time_while_stopped_does_not_count_as_a_dial_attempt() -> None:
    dialer = SeedDialer(ProtocolConfig(), ReconnectBackoff(0.2, 60.0, lambda: 0.5))
    assert dialer.go_on(["b"], 0.0) == (["b"], [])
    assert dialer.go_on(["b"], 100.0) == (["b"], []), "the process was stopped in between"
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


def test_a_newcomer_that_joins_keeps_the_socket_of_its_donor() -> None:
    dialled = DialRecorder("z", *MANY[:20])
    scene = dialled.scene
    scene.founded("z")
    effects = dialled.record(scene.run_for(8.0, "z", "a", step_s=0.2, turns=True))
    assert Joined("z") in effects
    dialled.pass_time(40.0, 1.0)
    assert "z" in dialled.greeted and Dismiss("z") not in effects


def fixed_jitter(draw: float = 0.5, first_s: float = 1.0, most_s: float = 60.0) -> ReconnectBackoff:
    """A backoff whose jitter is always *draw* of its range; 0.5 is the middle."""
    return ReconnectBackoff(first_s, most_s, lambda: draw)


def dial_times(backoff: ReconnectBackoff, seconds: float, step_s: float = 0.25) -> list[float]:
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
def test_waits_double_up_to_the_maximum_with_half_jitter(
    draw: float, first_s: float, most_s: float, waits: list[float]
) -> None:
    times = dial_times(fixed_jitter(draw, first_s, most_s), 200.0)
    assert [after - before for before, after in pairwise(times)][: len(waits)] == waits


def test_addresses_that_waited_longest_are_dialed_first() -> None:
    backoff = fixed_jitter()
    assert backoff.due(["b"], 0.0, 1) == ["b"]
    assert backoff.due(["a", "b"], 0.5, 2) == ["a"]
    assert backoff.due(["a", "b"], 5.0, 1) == ["b"], "it was due at 1.0, and a at 1.5"
    assert backoff.due(["b", "a"], 5.0, 1) == ["a"]
    assert backoff.due(["a", "b"], 5.0, 2) == []


def test_the_backoff_of_an_address_resets_when_it_answers() -> None:
    backoff = fixed_jitter()
    for now in (0.0, 1.0, 3.0):
        assert backoff.due(["b"], now, 1) == ["b"]
    assert backoff.due([], 4.0, 1) == []
    assert [now for now in (5.0, 6.0, 8.0) if backoff.due(["b"], now, 1)] == [5.0, 6.0, 8.0]


def test_a_hint_resets_the_backoff_of_all_addresses() -> None:
    backoff = fixed_jitter()
    names = ["b", "c", "d"]
    for now in (0.0, 1.0, 3.0, 7.0, 15.0):
        assert backoff.due(names, now, 3) == names
    assert backoff.due(names, 16.0, 3) == []
    backoff.hurry()
    assert sorted(backoff.due(names, 16.0, 3)) == names
    assert sorted(backoff.due(names, 17.0, 3)) == names


@given(st.integers(0, 1000), st.integers(1, 30), st.integers(1, 8))
def test_no_wait_exceeds_the_maximum_with_jitter(seed: int, silent: int, limit: int) -> None:
    names = [f"p{index}" for index in range(silent)]
    rng, last = stream(seed, "a", "reconnect"), dict.fromkeys(names, 0.0)
    backoff = ReconnectBackoff(1.0, 4.0, lambda: float(rng.random()))
    for tenth in range(1200):
        now = tenth / 10
        due = backoff.due(names, now, limit)
        assert len(due) <= limit and len(set(due)) == len(due)
        for name in due:
            last[name] = now
        # If only a few may be dialed at a time, they take turns.
        assert max(now - at for at in last.values()) <= 6.0 + 0.1 * (1 + silent / limit)
