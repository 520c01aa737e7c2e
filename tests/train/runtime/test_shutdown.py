"""Leaving, when those who should take the weight do not answer."""

import logging
import socket
import threading
from typing import Any

import pytest
from torch import nn

from rumor.gossip import GoSGD, ProtocolConfig
from rumor.train import Peer, PeerConfig

from ...waiting import turning

pytestmark = pytest.mark.live

QUICK = ProtocolConfig(gossip_s=0.1, seek_s=0.05)


def config(id: str, **changes: Any) -> PeerConfig:
    given: dict[str, Any] = {"protocol": QUICK, "rule": GoSGD(p=1e-9), "linger_s": 0.0}
    return PeerConfig(id=id, leave_s=1e6, **given | changes)


def joined(founder: Peer, **changes: Any) -> Peer:
    """A second peer that has become a copy of the founder, and runs."""
    peer = Peer(nn.Linear(2, 1), config("b", join=(founder.address or "",), **changes))
    with turning(founder.step):
        peer.__enter__()
    return peer


@pytest.mark.extended
def test_a_dead_neighbor_keeps_nobody_from_leaving(caplog: pytest.LogCaptureFixture) -> None:
    """Who waits ``leave_s`` out here waits for eleven days."""
    with Peer(nn.Linear(2, 1), config("a")) as founder:
        joined(founder)._close()  # without a word, as a crash
        with caplog.at_level(logging.WARNING, "rumor"):
            founder.leave()
    assert "left although" in caplog.text and "a weight of 0.5" in caplog.text


def test_who_has_handed_all_on_is_gone_at_once_and_has_nothing_to_say(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Peer(nn.Linear(2, 1), config("a")) as founder:
        peer = joined(founder)
        with turning(founder.step), caplog.at_level(logging.WARNING, "rumor"):
            peer.leave()
        assert founder.weight == 1.0 and peer.stats().weight_units == 0
        peer._close()
        founder.leave()
    assert "although" not in caplog.text


@pytest.mark.extended
def test_a_neighbor_that_takes_long_steps_is_waited_for() -> None:
    """It answers after its own step, long after the leaver's neighbors usually do."""
    with Peer(nn.Linear(2, 1), config("a")) as founder:
        peer = joined(founder)
        timer = threading.Timer(1.0, founder.step)
        timer.start()
        peer.leave()
        timer.join()
        assert founder.weight == 1.0
        peer._close()
        founder.leave()


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_a_peer_listens_at_several_addresses_and_is_found_at_each() -> None:
    several = ("tcp://127.0.0.1:*", "tcp://[::1]:*")
    with Peer(nn.Linear(2, 1), config("a", bind=several)) as founder:
        addresses = founder.stats().addresses
        assert len(addresses) == 2 and founder.address == addresses[0]
        for address in addresses:
            peer = Peer(nn.Linear(2, 1), config("b", bind="tcp://[::1]:*", join=(address,)))
            with turning(founder.step), peer:
                assert peer.weight == 0.5
                peer.leave()
        founder.leave()
