"""Estimates of a link's bandwidth, from the round trips of messages of several sizes."""

import pytest

from rumor.train.observe.probe import Probe


@pytest.mark.parametrize("held_up", [[0], [1], [0, 3], [4, 5]])
def test_a_delayed_message_does_not_lower_the_bandwidth_estimate(
    held_up: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link has 1 GB/s: the estimate uses the fastest of several long messages."""
    sent: list[int] = []

    def trip(self: Probe, size: int) -> float:
        sent.append(size)
        return 0.001 + size / 1e9 + 0.5 * (len(sent) - 1 in held_up)

    monkeypatch.setattr(Probe, "_trip", trip)
    probe = Probe.__new__(Probe)
    assert probe._bytes_s(0.001, 1 << 30) == pytest.approx(1e9, rel=1e-3)
    assert sent == sorted(sent)
