"""Real peers with keys: members train, other peers are refused, revoked members cut off."""

from pathlib import Path
from typing import Any

import pytest

from rumor.gossip import ConfigError, TransportError
from rumor.gossip.effects.ledger import audit
from rumor.gossip.weight import ONE
from rumor.train import Peer
from rumor.train.runtime.search import bare_address

from ...gossip.transport.keyrings import Swarm
from ...waiting import LIMIT_S, until
from ..members import Member, accounts, linear, one_of, settings, swarm

pytestmark = [pytest.mark.live, pytest.mark.extended]


@pytest.fixture
def keys(tmp_path: Path) -> Swarm:
    made = Swarm(tmp_path)
    for name in ("m1", "m2", "m3"):
        made.machine(name)
    return made


def machine(keys: Swarm, name: str, founders: int = 1, **changes: Any) -> Member:
    """A peer with a key and its own copy of the newest roster."""
    key, roster = keys.folder / f"{name}.key", keys.file(f"{name}.roster")
    given = {"rendezvous": None, "key": key, "roster": roster, "rule": "gosgd:p=1"}
    return one_of(keys.folder, name, founders, **given | changes)


def address_of(member: Member) -> str:
    """Address of a member, without its key."""
    until(lambda: member.peer.address is not None)
    return bare_address(member.address)


@pytest.mark.parametrize("shared_memory", [True, False])
def test_members_with_keys_need_only_an_address_to_join(
    keys: Swarm, shared_memory: bool, caplog: pytest.LogCaptureFixture
) -> None:
    times = {"shared_memory": shared_memory}
    one = machine(keys, "m1", 2, times=times)
    two = machine(keys, "m2", 2, times=times, join=address_of(one))
    with swarm(one, two) as both:
        until(lambda: all(member.mixed() for member in both))
    assert all(member.peer.merged and member.peer.merged.complete for member in both)
    assert audit(accounts(keys.folder / "m1", keys.folder / "m2")).held == 2 * ONE
    assert "without keys" not in caplog.text


def test_a_peer_without_a_valid_key_is_refused_and_training_continues(
    keys: Swarm, caplog: pytest.LogCaptureFixture
) -> None:
    one = machine(keys, "m1").entered()
    version = keys.roster.version
    keys.machine("m4")
    joins: dict[str, Any] = {"join": address_of(one), "rule": "gosgd"}
    unknown = machine(keys, "m4", **joins)
    # Refusals are logged at most once in ten seconds, for all peers together.
    until(lambda: f"is not in version {version} of the roster" in caplog.text)
    until(lambda: "refuses this machine's key, which its roster does not list" in caplog.text)
    bare = one_of(keys.folder / "bare", "m1", 1, rendezvous=None, join_timeout_s=1, **joins)
    bare.thread.join(LIMIT_S)
    assert isinstance(bare.error, TransportError)
    unknown.end(at_once=True)
    assert one.error is None and one.peer.members == ("m1",)
    one.end()


def test_a_key_for_another_name_is_refused_at_startup(keys: Swarm) -> None:
    thief = settings("m2", key=keys.folder / "m1.key", roster=keys.file())
    with pytest.raises(ConfigError, match="the roster lists this machine as m1"):
        Peer(linear(), thief).__enter__()


def test_all_weight_is_accounted_for_after_a_revocation(
    keys: Swarm, caplog: pytest.LogCaptureFixture
) -> None:
    # Each step pushes, so that shares are in flight when a member is cut off.
    one = machine(keys, "m1", 3, topology="complete")
    joins: dict[str, Any] = {"join": address_of(one), "topology": "complete"}
    others = [machine(keys, name, 3, **joins) for name in ("m2", "m3")]
    for member in (one, *others):
        member.entered()
    until(lambda: others[1].mixed() > 20)
    keys.revoke("m3")
    keys.file("m1.roster")
    until(lambda: caplog.text.count("m3 is no longer admitted: its key was revoked") == 2)
    # No member sends it messages any more, not even a reason; its weight dies with it.
    others[1].die()
    others[1].end(at_once=True)
    for member in (one, others[0]):
        member.end(at_once=True)
        assert member.peer.stats().has_left
    found = accounts(*(keys.folder / name for name in ("m1", "m2", "m3")))
    total = audit(found, dead=[each.life for each in found if each.life[0] == "m3"])
    assert total.balanced and total.founded == 3 * ONE
    assert total.died > 0 == total.in_flight
