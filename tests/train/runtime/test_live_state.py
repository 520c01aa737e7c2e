"""What is neither averaged nor constant: a newcomer has its donor's, a resumed peer its own."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from rumor.gossip import ConfigError, GoSGD, ProtocolConfig, TrainingError
from rumor.train import CheckpointConfig, Peer, PeerConfig

from ...waiting import turning

LOCAL = ("teacher", "queue", "head")


class Everything(nn.Module):
    """A student, its teacher, a queue with its place, a head of one's own, extra state."""

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
        """All of it, as tensors."""
        found = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        state = {name: tensor.detach().clone() for name, tensor in found.items()}
        return state | {"seen": self.seen["sum"].clone()}


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> dict[str, bool]:
    return {name: torch.equal(tensor, other[name]) for name, tensor in one.items()}


def config(id: str, **more: Any) -> PeerConfig:
    protocol = ProtocolConfig(gossip_s=0.1, seek_s=0.05, found_s=0.05)
    given: dict[str, Any] = {
        "id": id,
        "rule": GoSGD(p=0.5),
        "linger_s": 0.0,
        "local": LOCAL,
        "protocol": protocol,
    }
    return PeerConfig(**(given | more))


def peer_of(model: Everything, settings: PeerConfig) -> tuple[Peer, torch.optim.Optimizer]:
    peer = Peer(model, settings)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=0.01)
    if settings.checkpoint is not None:
        peer.register(optimizer=optimizer)
    return peer, optimizer


@pytest.mark.live
def test_a_lone_peer_that_resumes_ends_with_the_bits_of_one_that_never_stopped(
    tmp_path: Path,
) -> None:
    def run(name: str, stop: int, *, resumes: bool) -> dict[str, Tensor]:
        model = Everything(0)
        checkpoint = CheckpointConfig(folder=tmp_path / name, every="5steps")
        peer, optimizer = peer_of(model, config("solo", checkpoint=checkpoint))
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


@pytest.mark.live
def test_a_newcomer_and_one_that_was_killed_begin_with_what_the_donor_has(tmp_path: Path) -> None:
    founder = Everything(0)
    peer, optimizer = peer_of(founder, config("founder"))
    with peer:
        for _ in range(8):
            founder.train_step(optimizer)
            peer.step()
        donors = founder.state()
        own = {"cache": False}
        # It trains nothing meanwhile.
        with turning(lambda: peer._running().step(trained=False)):
            for resumes in (False, True):
                checkpoint = CheckpointConfig(folder=tmp_path, every="1steps")
                settings = config(
                    "b", join=(peer.address,), join_timeout_s=60, checkpoint=checkpoint
                )
                model = Everything(1)
                newcomer, its_optimizer = peer_of(model, settings)
                assert newcomer.resume() is resumes
                mine = model.state()
                with newcomer:
                    joined = model.state()
                    apart = {n: same for n, same in equal(donors, joined).items() if not same}
                    assert apart == own
                    assert torch.equal(joined["cache"], mine["cache"])
                    assert model.seen["kinds"] == {0, 1}
                    model.train_step(its_optimizer)
                    newcomer.save_checkpoint(wait=True)
                    newcomer.leave()
                # What the leaver handed on is a share, and moves what is averaged alone.
                donors |= {name: founder.state()[name] for name in ("student.weight",)}
                donors |= {name: founder.state()[name] for name in ("student.bias",)}


@pytest.mark.live
def test_a_teacher_that_is_not_named_ends_the_first_step_and_odd_state_the_start() -> None:
    model = Everything(0)
    peer, optimizer = peer_of(model, config("solo", local=()))
    with pytest.raises(TrainingError, match=r"teacher\.weight is frozen.*\('teacher"), peer:
        model.train_step(optimizer)
        peer.step()
    model = Everything(0)
    model.seen["sum"] = object()
    with pytest.raises(ConfigError, match=r"_extra_state\.sum is a builtins\.object"):
        Peer(model, config("solo"))


@pytest.mark.live
def test_the_model_file_names_what_is_local_and_leaves_out_what_is_no_tensor(
    tmp_path: Path,
) -> None:
    from rumor.train.storage.merge import open_model

    model = Everything(0)
    peer, optimizer = peer_of(model, config("solo", out=tmp_path))
    peer.register(optimizer=optimizer)
    with peer:
        model.train_step(optimizer)
        peer.step()
    saved = open_model(tmp_path / "model.safetensors")
    assert {"teacher.weight", "queue", "head.bias", "place"} <= saved.local
    assert saved.local.isdisjoint({"student.weight", "backbone.weight"})
    assert {name for name, _ in saved.tensors} == set(model.state_dict()) - {"_extra_state"}
