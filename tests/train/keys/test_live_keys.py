"""Real peers with keys: members train together, and the revoked are cut off."""

from pathlib import Path
from typing import Any

import pytest

from rumor.gossip import ConfigError
from rumor.gossip.effects.ledger import audit
from rumor.gossip.weight import ONE
from rumor.train import Peer
from rumor.train.runtime.search import bare_address

from ...gossip.transport.keyrings import Swarm
from ...waiting import until
from ..members import Member, accounts, linear, one_of, settings

pytestmark = [pytest.mark.live, pytest.mark.extended]


@pytest.fixture
def keys(tmp_path: Path) -> Swarm:
    return Swarm(tmp_path, "m1", "m2", "m3")


def test_a_key_for_another_name_is_refused_at_the_start(keys: Swarm) -> None:
    thief = settings("m2", key=keys.folder / "m1.key", roster=keys.file())
    with pytest.raises(ConfigError, match="the roster lists this machine as m1"):
        Peer(linear(), thief).__enter__()


def test_weight_is_accounted_for_to_the_last_unit_after_a_revocation(
    keys: Swarm, caplog: pytest.LogCaptureFixture
) -> None:
    def machine(name: str, **changes: Any) -> Member:
        """A peer with a key, and a roster of its own that is the newest one."""
        given: dict[str, Any] = {
            "key": keys.folder / f"{name}.key",
            "roster": keys.file(f"{name}.roster"),
        }
        # Each step pushes: something is in flight whenever somebody is cut off.
        given |= {"rule": "gosgd:p=1", "topology": "complete", "rendezvous": None}
        return one_of(keys.folder, name, 3, **given | changes)

    one = machine("m1")
    until(lambda: one.peer.address is not None)
    others = [machine(name, join=bare_address(one.address)) for name in ("m2", "m3")]
    for member in (one, *others):
        member.entered()
    until(lambda: others[1].mixed() > 20)
    keys.revoke("m3")
    keys.file("m1.roster")
    until(lambda: caplog.text.count("m3 is no longer admitted: its key was revoked") == 2)
    # Nobody talks to it any more, not even to tell it why; what it still had is lost with it.
    others[1].die()
    others[1].end(at_once=True)
    for member in (one, others[0]):
        member.end(at_once=True)
        assert member.peer.stats().has_left
    found = accounts(*(keys.folder / name for name in ("m1", "m2", "m3")))
    assert "without keys" not in caplog.text
    total = audit(found, dead=[each.life for each in found if each.life[0] == "m3"])
    assert total.balanced and total.founded == 3 * ONE
    assert total.died > 0 == total.in_flight
