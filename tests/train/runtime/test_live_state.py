"""Local state: a joining peer copies that of its donor, a lone resumed peer restores its own."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from rumor.gossip import ConfigError, GoSGD, TrainingError
from rumor.train import CheckpointConfig, Peer
from rumor.train.storage.merge import open_model

from ...waiting import turning
from ..members import settings

pytestmark = pytest.mark.live

LOCAL = ("teacher", "queue", "head")


class Everything(nn.Module):
    """A student, its teacher, a queue with its position, a local head, and extra state."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.student = nn.Linear(4, 3)
        self.backbone = nn.Linear(4, 3).requires_grad_(False)
        torch.nn.init.ones_(self.backbone.weight)
        torch.nn.init.ones_(self.backbone.bias)
        self.teacher = nn.Linear(4, 3).requires_grad_(False)
        self.head = nn.Linear(3, 2)
        self.queue: Tensor
        self.place: Tensor
        self.cache: Tensor
        self.register_buffer("queue", torch.randn(6, 3))
        self.register_buffer("place", torch.tensor(0))
        self.register_buffer("cache", torch.zeros(2), persistent=False)
        self.register_buffer("untouched", torch.ones(5), persistent=False)
        self.seen: dict[str, Any] = {"sum": torch.zeros(1), "kinds": {0}}

    def get_extra_state(self) -> Any:
        return self.seen

    def set_extra_state(self, state: Any) -> None:
        self.seen = state

    def train_step(self, optimizer: torch.optim.Optimizer) -> None:
        inputs = torch.randn(5, 4)
        optimizer.zero_grad()
        features = self.student(inputs) - self.teacher(inputs) + self.backbone(inputs)
        self.head(features).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            for mine, trained in zip(
                self.teacher.parameters(), self.student.parameters(), strict=True
            ):
                mine.data.mul_(0.9).add_(trained, alpha=0.1)
            self.queue[int(self.place)] = features[0]
            self.place.add_(1).remainder_(6)
        self.cache = torch.cat([self.cache, inputs[0, :1]])
        self.seen = {"sum": self.seen["sum"] + inputs.sum(), "kinds": {*self.seen["kinds"], 1}}

    def state(self) -> dict[str, Tensor]:
        """The whole state as tensors."""
        found = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        state = {name: tensor.detach().clone() for name, tensor in found.items()}
        return state | {"seen": self.seen["sum"].clone()}


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> dict[str, bool]:
    return {name: torch.equal(tensor, other[name]) for name, tensor in one.items()}


def peer_of(model: Everything, id: str, **changes: Any) -> tuple[Peer, torch.optim.Optimizer]:
    options: dict[str, Any] = {"rule": GoSGD(p=0.5), "local": LOCAL} | changes
    peer = Peer(model, settings(id, times={"found_s": 0.05}, **options))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=0.01)
    if not {"checkpoint", "out"}.isdisjoint(changes):
        peer.register(optimizer=optimizer)
    return peer, optimizer


def test_a_resumed_lone_peer_ends_like_an_uninterrupted_peer(tmp_path: Path) -> None:
    def run(name: str, stop: int, *, resumes: bool) -> dict[str, Tensor]:
        model = Everything(0)
        checkpoint = CheckpointConfig(folder=tmp_path / name, every="5steps")
        peer, optimizer = peer_of(model, "solo", checkpoint=checkpoint)
        assert peer.resume() is resumes
        with peer:
            while peer.steps < stop:
                model.train_step(optimizer)
                peer.step()
        assert resumes or model.seen["kinds"] == {0, 1}
        return model.state()

    whole = run("whole", 12, resumes=False)
    run("halved", 7, resumes=False)
    back = run("halved", 12, resumes=True)
    assert all(equal(whole, back).values()), equal(whole, back)
    (path, *_) = sorted((tmp_path / "halved").glob("*.safetensors"))
    kept = {name.removeprefix("model.").removeprefix("own.tensors.") for name in load_file(path)}
    assert {"teacher.weight", "cache"} <= kept
    assert kept.isdisjoint({"backbone.weight", "untouched"})


def test_new_and_resumed_peers_join_with_the_state_of_the_donor(tmp_path: Path) -> None:
    founder = Everything(0)
    peer, optimizer = peer_of(founder, "founder")
    with peer:
        for _ in range(8):
            founder.train_step(optimizer)
            peer.step()
        donors = founder.state()
        own = {"cache": False}
        # The founder does not train meanwhile.
        with turning(lambda: peer._running().step(trained=False)):
            for resumes in (False, True):
                checkpoint = CheckpointConfig(folder=tmp_path, every="1steps")
                options = {"join": (peer.address,), "join_timeout_s": 60, "checkpoint": checkpoint}
                model = Everything(1)
                newcomer, its_optimizer = peer_of(model, "b", **options)
                assert newcomer.resume() is resumes
                mine = model.state()
                with newcomer:
                    joined = model.state()
                    apart = {n: same for n, same in equal(donors, joined).items() if not same}
                    assert apart == own
                    assert torch.equal(joined["cache"], mine["cache"])
                    assert model.seen["kinds"] == {0, 1}
                    # Steps are restored; weight comes with the copy instead.
                    assert newcomer.steps == resumes and 0 < newcomer.weight < 1
                    model.train_step(its_optimizer)
                    newcomer.step()
                    newcomer.save_checkpoint(wait=True)
                    newcomer.leave()
                # The share that the leaving peer handed on moves only averaged tensors.
                averaged = ("student.weight", "student.bias")
                donors |= {name: founder.state()[name] for name in averaged}


@pytest.mark.extended
def test_the_model_file_lists_local_tensors_and_omits_extra_state(tmp_path: Path) -> None:
    model = Everything(0)
    peer, optimizer = peer_of(model, "solo", out=tmp_path)
    with peer:
        model.train_step(optimizer)
        peer.step()
    saved = open_model(tmp_path / "model.safetensors")
    assert {"teacher.weight", "queue", "head.bias", "place"} <= saved.local
    assert saved.local.isdisjoint({"student.weight", "backbone.weight"})
    assert {name for name, _ in saved.tensors} == set(model.state_dict()) - {"_extra_state"}


@pytest.mark.extended
def test_an_undeclared_teacher_and_unsupported_extra_state_are_refused() -> None:
    model = Everything(0)
    peer, optimizer = peer_of(model, "solo", local=())
    with pytest.raises(TrainingError, match=r"teacher\.weight is frozen.*\('teacher"), peer:
        model.train_step(optimizer)
        peer.step()
    model = Everything(0)
    model.seen["sum"] = object()
    with pytest.raises(ConfigError, match=r"_extra_state\.sum is a builtins\.object"):
        peer_of(model, "solo")
