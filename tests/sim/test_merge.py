"""A complete merge leaves models within the tolerance, for every rule, pace and link speed."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rumor.gossip import ProtocolConfig
from rumor.gossip.rules.registry import RULES
from rumor.sim import Swarm
from rumor.sim.models.network import Link

from ..faults import fault
from ..rules import fitting
from .test_testing import BAD, QUICK, wide

UNEQUAL = replace(
    BAD,
    links=(
        Link(source=("peer-0",), to=("peer-1",), latency_s=0.4),
        Link(source=("peer-2",), to=("peer-3",), latency_s=1.0),
    ),
)

RULE_NAMES = [
    name if name == "gosgd" else pytest.param(name, marks=pytest.mark.extended) for name in RULES
]


def parameters(swarm: Swarm, peer: str) -> Tensor:
    return torch.cat([p.detach().flatten() for p in swarm.model(peer).parameters()]).double()


@pytest.mark.parametrize("name", RULE_NAMES)
def test_a_complete_merge_leaves_models_within_the_tolerance(name: str) -> None:
    settings = fitting(name)
    task = wide().trained_with(momentum=settings.pop("momentum", None))
    protocol = replace(QUICK, merge_rounds=ProtocolConfig().merge_rounds)
    given: dict[str, Any] = {"network": UNEQUAL, "protocol": protocol, "seed": 1} | settings
    swarm = Swarm(task, peers=4, faults=[fault(0.0, "slow", 3, factor=7.0)], **given)
    swarm.run(3.0)
    # Only a stalled rule could exceed this limit; the number of turns is not asserted.
    assert swarm.finish(1000.0)
    assert swarm.audit().balanced
    models = {peer: parameters(swarm, peer) for peer in swarm.peers}
    agreements = {id: swarm._find(id).protocol.agreement for id in swarm.peers}
    assert all(agreement.reached for agreement in agreements.values()), agreements
    for one in models.values():
        for other in models.values():
            assert float((one - other).norm() / one.norm()) <= protocol.merge_tolerance
