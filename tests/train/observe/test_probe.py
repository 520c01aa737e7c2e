"""Questions to real peers over the loopback interface: answered, and forgotten."""

from collections.abc import Iterator

import pytest

from rumor.train.observe.probe import Probe

from ...waiting import LIMIT_S
from ..members import Member, one_of, swarm

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Member]]:
    folder = tmp_path_factory.mktemp("swarm")
    with swarm(*(one_of(folder, f"p{n}", 2) for n in range(2)), at_once=True) as members:
        yield members


def test_a_link_is_measured_and_the_model_behind_it_named(pair: list[Member]) -> None:
    with Probe(pair[0].address, timeout_s=LIMIT_S) as probe:
        found = probe.sound(bytes_max=1 << 20)
    assert 0 < found.roundtrip_s <= found.roundtrip_s_mean
    assert found.bytes_s > 0


@pytest.mark.parametrize("held_up", [[0], [1], [0, 3], [4, 5]])
def test_a_message_that_is_held_up_slows_no_link(
    held_up: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 GB/s: what counts is the quickest of several messages that are long enough."""
    sent: list[int] = []

    def trip(self: Probe, size: int) -> float:
        sent.append(size)
        return 0.001 + size / 1e9 + 0.5 * (len(sent) - 1 in held_up)

    monkeypatch.setattr(Probe, "_trip", trip)
    probe = Probe.__new__(Probe)
    assert probe._bytes_s(0.001, 1 << 30) == pytest.approx(1e9, rel=1e-3)
    assert sent == sorted(sent)


def test_what_peers_say_of_members_is_counted_apart(pair: list[Member]) -> None:
    counters = pair[0].peer.stats().counters
    with Probe(pair[0].address, timeout_s=LIMIT_S) as probe:
        # It is answered with the model's schema.
        probe.sound(bytes_max=1 << 20)
    assert 0 < counters.membership_bytes < counters.bytes_sent
