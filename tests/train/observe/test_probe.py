"""The bandwidth of a link, from how long messages of several sizes take."""

import pytest

from rumor.train.observe.probe import Probe


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
