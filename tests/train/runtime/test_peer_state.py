"""The state of a peer in the checkpoints of another library."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rumor.gossip import TrainingError, audit
from rumor.gossip.errors import LocalProtocolError
from rumor.train import Peer
from rumor.train.storage.ledger_file import read_ledgers

from ...waiting import LIMIT_S, turning
from ..members import settings

pytestmark = pytest.mark.live


def peer_of(
    id: str | None = None, *, found_alone_s: float = 0.3, size: int = 2, **changes: Any
) -> Peer:
    times = {"found_alone_s": found_alone_s, **changes.pop("times", {})}
    return Peer(nn.Linear(size, size), settings(id, times=times, **changes), checkpoints=False)


def train(peer: Peer, steps: int) -> dict[str, Any]:
    with peer:
        for _ in range(steps):
            peer.step()
        return peer.state_dict()


def test_a_restored_peer_continues_as_its_next_incarnation(tmp_path: Path) -> None:
    # The state has only types of JSON.
    state = json.loads(json.dumps(train(peer_of(out=tmp_path), 3)))
    assert state["steps"] == 3 and state["weight"] == 1.0 and state["addresses"] == []
    back = peer_of(out=tmp_path)
    back.load_state_dict(state)
    assert (back.id, back.steps) == (state["id"], 3)
    after = train(back, 2)
    assert after["steps"] == 5 and after["clock"] == {state["id"]: 5}
    assert after["swarm"] == state["swarm"] and after["incarnation"] > state["incarnation"]
    accounts = read_ledgers(tmp_path)
    assert len(accounts) == 2 and audit(accounts).balanced
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.extended
def test_incarnations_grow_without_a_folder() -> None:
    state = train(peer_of("a"), 1)
    # As if the clock had gone back by an hour.
    state["incarnation"] += 3_600_000
    back = peer_of("a")
    back.load_state_dict(state)
    assert train(back, 1)["incarnation"] == state["incarnation"] + 1


def test_a_restored_peer_rejoins_by_its_saved_addresses() -> None:
    with (one := peer_of("one")), turning(one.step):
        state = train(peer_of("two", join=one.address or ""), 1)
        assert state["addresses"] == [one.address] and 0 < state["weight"] < 1
        # The restored peer gets no address to join.
        back = peer_of("two", found_alone_s=LIMIT_S)
        back.load_state_dict(state)
        with back:
            assert back.members == ("one", "two") and back.stats().swarm == one.stats().swarm


@pytest.mark.extended
def test_the_anchor_is_restored_if_the_wire_needs_it() -> None:
    options: dict[str, Any] = {"times": {"wire": "int8"}}
    state = train(peer_of("a", **options), 2)
    (anchor,) = state["anchor"]
    back = peer_of("a", **options)
    back.load_state_dict(state)
    assert back._vector.anchor_flats is not None
    assert torch.equal(back._vector.anchor_flats[0], anchor)
    assert train(back, 1)["swarm"] == state["swarm"]
    other = peer_of("a", size=30, **options)
    with pytest.raises(TrainingError, match="its anchor is another"):
        other.load_state_dict(state)
    assert other.steps == 0


@pytest.mark.extended
def test_the_state_of_another_peer_restores_only_its_steps(
    caplog: pytest.LogCaptureFixture,
) -> None:
    state = train(peer_of("a"), 3)
    other = peer_of("b")
    other.load_state_dict(state)
    assert (other.id, other.steps) == ("b", 3)
    assert "the state is of peer a: b joins as a newcomer" in caplog.text
    assert train(other, 1)["swarm"] != state["swarm"]


def test_the_state_before_joining_has_only_id_and_steps() -> None:
    assert peer_of("a").state_dict() == {"id": "a", "steps": 0}
    other = peer_of()
    other.load_state_dict({"id": "a", "steps": 4})
    assert (other.id, other.steps) == ("a", 4)
    train(other, 1)


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"steps": "many"},
        {"steps": 1, "swarm": "xyz"},
        {"steps": 1, "clock": [1]},
        {"steps": 1, "addresses": ["no where"]},
        {"steps": 1, "incarnation": None},
    ],
)
def test_an_invalid_state_is_refused_and_changes_nothing(state: dict[str, Any]) -> None:
    peer = peer_of()
    with pytest.raises(TrainingError, match="this is not a peer's state"):
        peer.load_state_dict(state)
    assert peer.steps == 0


@pytest.mark.extended
def test_a_running_peer_refuses_to_load_a_state() -> None:
    with peer_of() as peer:
        for load in (peer.resume, lambda: peer.load_state_dict({"steps": 1})):
            with pytest.raises(LocalProtocolError, match="resume before"):
                load()
