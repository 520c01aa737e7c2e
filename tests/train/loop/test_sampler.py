"""A dataset, divided among the members of a swarm."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from rumor.gossip.errors import LocalProtocolError
from rumor.train import MemberSampler, Peer


def samplers(ids: str, size: int, seed: int = 0, ranks: int = 1) -> dict[str, MemberSampler]:
    """One sampler per process; each letter is a member that knows all others."""
    config, environment = SimpleNamespace(seed=seed), SimpleNamespace(ranks=ranks)
    own: Any = {"members": tuple(ids), "config": config, "environment": environment}
    peers: Any = [SimpleNamespace(id=id, rank=r, **own) for id in ids for r in range(ranks)]
    return {f"{p.id}{p.rank or ''}": MemberSampler(range(size), p) for p in peers}


@pytest.mark.parametrize(("members", "size"), [("a", 7), ("abc", 12), ("abc", 13), ("abcde", 3)])
def test_members_get_equal_parts_that_cover_the_dataset(members: str, size: int) -> None:
    parts = [[*each] for each in samplers(members, size).values()]
    assert {len(part) for part in parts} == {len(samplers(members, size)["a"])}
    counted = Counter(sample for part in parts for sample in part)
    assert counted.keys() == {*range(size)} and sum(counted.values()) - size < len(members)
    assert len(members) > size or max(counted.values()) <= 2


def test_processes_of_one_peer_divide_its_part() -> None:
    parts = [{*each} for each in samplers("ab", 24, ranks=3).values()]
    assert [len(part) for part in parts] == [4] * 6 and set().union(*parts) == {*range(24)}
    nodes = samplers("ab", 24)
    assert set().union(*parts[:3]) == {*nodes["a"]}


def test_each_epoch_is_shuffled_and_a_returning_member_continues() -> None:
    sampler = samplers("ab", 50)["a"]
    first, state, second = [*sampler], sampler.state_dict(), [*sampler]
    assert {*first} != {*second}
    returned = samplers("ab", 50)["a"]
    returned.load_state_dict(state)
    assert [*returned] == second
    assert [*samplers("ab", 50, seed=1)["a"]] != first


def test_parts_are_divided_among_current_members_at_each_epoch() -> None:
    sampler = samplers("abc", 30)["b"]
    assert len([*sampler]) == len(sampler) == 10
    peer: Any = sampler._peer
    peer.members = ("b", "c")
    assert len([*sampler]) == len(sampler) == 15


@pytest.mark.live
def test_a_loader_yields_the_part_of_a_peer() -> None:
    data = TensorDataset(torch.arange(10.0))
    peer = Peer(nn.Linear(1, 1))
    loader = DataLoader(data, batch_size=5, sampler=MemberSampler(data, peer))
    with pytest.raises(LocalProtocolError, match="the peer is not running"):
        next(iter(loader))
    with peer:
        assert len(loader) == 2
        assert sorted(torch.cat([batch for (batch,) in loader]).tolist()) == [*range(10)]
