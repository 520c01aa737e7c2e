"""Let two peers train each kind of model, and write the table of docs/reference/models.md.

``make models``, from the root of the repository; it takes a minute. Text above the marker on the
page is written by hand, and kept. Both peers are in this process, and talk over real sockets: one
founds, with a model of seed 0, the other joins, with a model of seed 1.
"""

import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from rumor.gossip import GoSGD, ProtocolConfig, RumorError
from rumor.train import Peer, PeerConfig
from rumor.train.model import named_tensors, state_dict

__all__ = ["KINDS", "MARKER", "PAGE", "Kind", "main", "outcome", "row"]

PAGE = Path("docs/reference/models.md")
MARKER = "<!-- Below, all is written by docs/scripts/models.py: run `make models`, do not edit. -->"

STEPS = 3
PATIENCE_S = 60.0

Model = nn.Module
Train = Callable[[Model, torch.optim.Optimizer, Tensor], None]


def descend(model: Model, optimizer: torch.optim.Optimizer, inputs: Tensor) -> None:
    """Take one step of the model's optimizer."""
    optimizer.zero_grad()
    model(inputs).float().square().mean().backward()
    optimizer.step()


def optimizer_of(model: Model) -> torch.optim.Optimizer:
    """Return the default optimizer."""
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)


def samples() -> Tensor:
    """Return the default batch."""
    return torch.ones(4, 6)


def as_it_is(model: Model) -> Model:
    """Return the model unchanged."""
    return model


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of model, and its treatment."""

    name: str
    make: Callable[[], Model]
    inputs: Callable[[], Tensor] = samples
    founder: Callable[[], Model] | None = None
    """Makes the founder's model, if it is of another kind."""
    optimizer: Callable[[Model], torch.optim.Optimizer] = optimizer_of
    is_optimizer_first: bool = False
    train: Train = descend
    wrapped: Callable[[Model], Model] = as_it_is
    """Wraps the newcomer's model once the peer has been made."""
    change: Callable[[Model], object] = as_it_is
    """Changes the newcomer's model once it has joined."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of both peers."""
    processes: int = 0
    """Number of processes that train the newcomer; 1 if they are a process group of one, 0 for no
    group."""


class LoRALinear(nn.Module):
    """A frozen layer, and a trained low-rank difference."""

    def __init__(self, seed: int | None = 7) -> None:
        super().__init__()
        with torch.random.fork_rng():
            if seed is not None:
                torch.manual_seed(seed)
            self.base = nn.Linear(6, 5).requires_grad_(False)
        self.down = nn.Parameter(torch.randn(2, 6) / 6)
        self.up = nn.Parameter(torch.zeros(5, 2))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the layer's outputs."""
        outputs: Tensor = self.base(inputs) + inputs @ self.down.T @ self.up.T
        return outputs


class Tied(nn.Module):
    """An encoder and a decoder with a shared weight."""

    def __init__(self, tie: Callable[["Tied"], object]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        tie(self)

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply both layers."""
        outputs: Tensor = self.second(self.first(inputs))
        return outputs


class Counting(nn.Module):
    """A layer with custom statistics, a counter and a mask."""

    def __init__(self, *, anew: bool) -> None:
        super().__init__()
        self.layer, self.anew = nn.Linear(6, 5), anew
        self.mean: Tensor
        self.register_buffer("mean", torch.zeros(6))
        self.seen: Tensor
        self.register_buffer("seen", torch.tensor(0))
        self.mask: Tensor
        self.register_buffer("mask", torch.full((3,), float("-inf")))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the layer's outputs, minus their mean so far."""
        mean = 0.9 * self.mean + 0.1 * inputs.mean(0)
        if self.anew:
            self.mean = mean
        else:
            self.mean.copy_(mean)
        self.seen += len(inputs)
        outputs: Tensor = self.layer(inputs - self.mean)
        return outputs


class Taught(nn.Module):
    """A layer, and its moving average, which is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.student = nn.Linear(6, 5)
        with torch.random.fork_rng():
            torch.manual_seed(7)
            self.teacher = nn.Linear(6, 5).requires_grad_(False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return how far the two are apart."""
        outputs: Tensor = self.student(inputs) - self.teacher(inputs)
        return outputs


class Recurrent(nn.Module):
    """The outputs of an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(6, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the last layer's outputs."""
        outputs: Tensor = self.layer(inputs)[0]
        return outputs


def layers() -> Model:
    """Make two layers."""
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def convolution() -> Model:
    """Make a convolution with batch statistics."""
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))


def _channels_last() -> Model:
    return convolution().to(memory_format=torch.channels_last)


def _transposed() -> Model:
    model = nn.Linear(6, 8)
    model.weight = nn.Parameter(torch.randn(6, 8).t())
    return model


def _two_dtypes() -> Model:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3).bfloat16()

        def forward(self, inputs: Tensor) -> Tensor:
            outputs: Tensor = self.second(self.first(inputs).bfloat16())
            return outputs

    return Both()


def _float8() -> Model:
    model = layers()
    codes = torch.arange(6).to(torch.float8_e4m3fn)
    model.scale = nn.Parameter(codes, requires_grad=False)
    return model


def _complex() -> Model:
    model = layers()
    model.phase = nn.Parameter(torch.zeros(3, dtype=torch.complex64))
    return model


def _overlapping(model: Tied) -> None:
    model.second.bias.data = model.first.weight.data[0]


def _on_meta() -> Model:
    with torch.device("meta"):
        return layers()


def _half(model: Model, optimizer: torch.optim.Optimizer, inputs: Tensor) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        descend(model, optimizer, inputs)


class _Scaled:
    """Steps of automatic mixed precision in float16."""

    def __init__(self) -> None:
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    def __call__(self, model: Model, optimizer: torch.optim.Optimizer, inputs: Tensor) -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = model(inputs).float().square().mean()
        self.scaler.scale(loss).backward()
        self.scaler.step(optimizer)
        self.scaler.update()


@torch.no_grad()
def _move_teacher(model: Any) -> None:
    for own, trained in zip(model.teacher.parameters(), model.student.parameters(), strict=True):
        own.lerp_(trained, 0.1)


def _teach(model: Model, optimizer: torch.optim.Optimizer, inputs: Tensor) -> None:
    descend(model, optimizer, inputs)
    _move_teacher(model)


def _accumulated(model: Model, optimizer: torch.optim.Optimizer, inputs: Tensor) -> None:
    optimizer.zero_grad()
    for part in inputs.split(2):
        (model(part).square().mean() / 2).backward()
    optimizer.step()


class _Averaged:
    """Steps that also update an exponential moving average of the model."""

    def __init__(self) -> None:
        self.average: torch.optim.swa_utils.AveragedModel | None = None

    def __call__(self, model: Model, optimizer: torch.optim.Optimizer, inputs: Tensor) -> None:
        if self.average is None:
            ema = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
            self.average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=ema)
        descend(model, optimizer, inputs)
        self.average.update_parameters(model)


def _groups(model: Model) -> torch.optim.Optimizer:
    first, *others = model.parameters()
    groups = [{"params": [first], "lr": 0.1}, {"params": others, "weight_decay": 0.01}]
    return torch.optim.AdamW(groups, lr=0.01)


def _compiled() -> Model:
    made: Model = torch.compile(layers(), backend="eager")
    return made


def _checkpointed() -> Model:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    model = layers()
    model[0] = checkpoint_wrapper(model[0])
    return model


def _sharded() -> Model:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, mesh = layers(), init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def _parallel() -> Model:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import parallel

    plan = {"0": parallel.ColwiseParallel(), "2": parallel.RowwiseParallel()}
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    made: Model = parallel.parallelize_module(layers(), mesh, plan)
    return made


def _replaced(model: Model) -> None:
    model[2] = nn.Linear(8, 3)


def _loaded(model: Model, *, assign: bool) -> None:
    state = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
    model.load_state_dict(state, assign=assign)


IMAGES = partial(torch.ones, 2, 3, 6, 6)

KINDS = (
    Kind(name="float32", make=layers),
    Kind(
        name="bfloat16",
        make=lambda: layers().bfloat16(),
        inputs=lambda: torch.ones(4, 6).bfloat16(),
    ),
    Kind(name="float16", make=lambda: layers().half(), inputs=lambda: torch.ones(4, 6).half()),
    Kind(name="bfloat16 and float32 in one model", make=_two_dtypes),
    Kind(name="`torch.autocast` in bfloat16", make=layers, train=_half),
    Kind(name="`torch.autocast` in float16, `GradScaler`", make=layers, train=_Scaled()),
    Kind(
        name="gradient accumulation: `peer.step()` after each `optimizer.step()`",
        make=layers,
        train=_accumulated,
    ),
    Kind(name="parameter groups, AdamW", make=layers, optimizer=_groups),
    Kind(name="optimizer made before `Peer(model)`", make=layers, is_optimizer_first=True),
    Kind(name="moving average (`AveragedModel`) beside the model", make=layers, train=_Averaged()),
    Kind(
        name="sparse gradients",
        make=lambda: nn.Embedding(9, 4, sparse=True),
        inputs=lambda: torch.arange(4),
        optimizer=lambda model: torch.optim.SparseAdam(list(model.parameters())),
    ),
    Kind(name="batch normalization", make=convolution, inputs=IMAGES),
    Kind(name="`weight_norm`", make=lambda: nn.Sequential(weight_norm(nn.Linear(6, 8)))),
    Kind(name="LSTM", make=Recurrent),
    Kind(name="counters and masks of -inf in buffers", make=lambda: Counting(anew=False)),
    Kind(name="`torch.compile` before `Peer(model)`", make=_compiled),
    Kind(
        name="`torch.compile` after `Peer(model)`",
        make=layers,
        wrapped=lambda model: torch.compile(model, backend="eager"),
    ),
    Kind(name="compiled, where the founder is not", make=_compiled, founder=layers),
    Kind(
        name="`DistributedDataParallel`, where the founder is plain",
        make=lambda: nn.parallel.DistributedDataParallel(layers()),
        founder=layers,
        processes=1,
    ),
    Kind(
        name="activation checkpointing, where the founder has none",
        make=_checkpointed,
        founder=layers,
    ),
    *(
        Kind(name=f"{name} over two processes", make=make, founder=layers, processes=2)
        for name, make in (
            ("`DistributedDataParallel`", lambda: nn.parallel.DistributedDataParallel(layers())),
            ("`fully_shard` (FSDP2)", _sharded),
            ("tensor parallel", _parallel),
        )
    ),
    Kind(
        name="tied weights",
        make=lambda: Tied(lambda m: setattr(m.second, "weight", m.first.weight)),
    ),
    Kind(
        name="tied by `.data`",
        make=lambda: Tied(lambda m: setattr(m.second.weight, "data", m.first.weight.data)),
    ),
    Kind(name="a parameter in a part of another's memory", make=lambda: Tied(_overlapping)),
    Kind(name="channels last", make=_channels_last, inputs=IMAGES),
    Kind(
        name="channels last, where the founder is not",
        make=_channels_last,
        founder=convolution,
        inputs=IMAGES,
    ),
    Kind(name="transposed weight", make=_transposed),
    Kind(name="frozen float8 parameter", make=_float8),
    Kind(name="LoRA on one backbone", make=LoRALinear),
    Kind(name="LoRA on two backbones", make=partial(LoRALinear, None)),
    Kind(
        name="the same with `frozen_may_differ`",
        make=partial(LoRALinear, None),
        settings={"frozen_may_differ": True},
    ),
    Kind(name="a teacher that the loop moves", make=Taught, train=_teach),
    Kind(
        name='the same with `local=("teacher",)`',
        make=Taught,
        train=_teach,
        settings={"local": ("teacher",)},
    ),
    Kind(
        name="unfrozen after `Peer(model)`",
        make=LoRALinear,
        change=lambda model: model.requires_grad_(),
    ),
    Kind(
        name="frozen after `Peer(model)`",
        make=layers,
        change=lambda model: model[0].requires_grad_(False),
    ),
    Kind(
        name="`load_state_dict` after `Peer(model)`",
        make=layers,
        change=partial(_loaded, assign=False),
    ),
    Kind(name="the same with `assign=True`", make=layers, change=partial(_loaded, assign=True)),
    Kind(name="a layer replaced after `Peer(model)`", make=layers, change=_replaced),
    Kind(name="a buffer assigned anew", make=lambda: Counting(anew=True)),
    Kind(
        name="`model.double()` after `Peer(model)`",
        make=layers,
        change=lambda model: model.double(),
        inputs=lambda: torch.ones(4, 6).double(),
    ),
    Kind(name="lazy modules that have seen no batch", make=lambda: nn.Sequential(nn.LazyLinear(3))),
    Kind(name="meta device", make=_on_meta),
    Kind(name="complex parameter", make=_complex),
)
"""The rows of the table."""


def main() -> None:
    """Write the page's table."""
    logging.disable(logging.WARNING)
    text = PAGE.read_text(encoding="utf-8")
    head = text.partition(MARKER)[0]
    rows = [row(kind) for kind in KINDS]
    PAGE.write_text("\n".join([f"{head}{MARKER}", "", *TITLE, *rows, ""]), encoding="utf-8")


TITLE = ("| kind | what happens |", "|---|---|")


def row(kind: Kind) -> str:
    """Return a kind's line of the table, from a run just now."""
    return f"| {kind.name} | {outcome(kind)} |"


def outcome(kind: Kind) -> str:
    """Let two peers train a kind of model; return the outcome in words."""
    with warnings.catch_warnings(), _group_of_one(kind.processes == 1):
        warnings.simplefilter("ignore")
        try:
            return _train_group(kind) if kind.processes > 1 else _train(kind)
        except RumorError as error:
            name, _, text = f"{type(error).__name__}: {error}".partition("cannot join")
            return f"`{name}{text.partition(': ')[2] if text else ''}`".replace("|", "\\|")


def _config(kind: Kind, id: str, **changes: Any) -> PeerConfig:
    protocol = ProtocolConfig(gossip_s=0.1, seek_s=0.05, found_s=0.05)
    given = {"id": id, "rule": GoSGD(p=1.0), "linger_s": 0.0, "leave_s": 0.5, "protocol": protocol}
    return PeerConfig(**{**given, **kind.settings, **changes})


def _train(kind: Kind) -> str:
    torch.manual_seed(0)
    ours = (kind.founder or kind.make)()
    torch.manual_seed(1)
    theirs = kind.make()
    with Peer(ours, _config(kind, "founder")) as founder, _stepping(founder):
        optimizer = kind.optimizer(theirs) if kind.is_optimizer_first else None
        joins = {"join": (founder.address,), "join_timeout_s": PATIENCE_S}
        with Peer(theirs, _config(kind, "newcomer", **joins)) as newcomer:
            for name in _shared(founder):
                assert torch.equal(_shared(founder)[name], _shared(newcomer)[name]), name
            model = kind.wrapped(theirs)
            optimizer = optimizer or kind.optimizer(model)
            kind.change(theirs)
            give_up_s = time.monotonic() + PATIENCE_S
            while not (newcomer.steps >= STEPS and _exchanged(founder, newcomer)):
                assert time.monotonic() < give_up_s
                kind.train(model, optimizer, kind.inputs())
                newcomer.step()
                time.sleep(0.002)
            state = state_dict(model)
            for name, tensor in newcomer._vector.layout.tensors(newcomer._vector.flats).items():
                assert torch.equal(state[name], tensor), f"{name} is not what peers average"
    return "trains with others"


def _train_group(kind: Kind) -> str:
    """Train with a newcomer of several processes, each of which runs this script."""
    torch.manual_seed(0)
    founder = Peer((kind.founder or kind.make)(), _config(kind, "founder"))
    with tempfile.TemporaryDirectory() as folder, founder, _stepping(founder):
        command = [sys.executable, __file__, kind.name, f"{folder}/meet", str(founder.address)]
        ranks = [
            subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, text=True)
            for rank in range(kind.processes)
        ]
        said = {each.communicate(timeout=10 * PATIENCE_S)[0].strip() for each in ranks}
        assert _exchanged(founder)
    (outcome,) = said
    return outcome


def _be_rank(name: str, meet: str, address: str, rank: str) -> None:
    """Be one process of a newcomer; print the outcome."""
    kind = next(each for each in KINDS if each.name == name)
    dist.init_process_group(
        "gloo", init_method=f"file://{meet}", rank=int(rank), world_size=kind.processes
    )
    torch.manual_seed(1)
    model = kind.make()
    optimizer = kind.optimizer(model)
    with Peer(model, _config(kind, "newcomer", join=(address,))) as newcomer:
        going = torch.tensor(1)
        while going:
            kind.train(model, optimizer, kind.inputs())
            newcomer.step()
            going.fill_(newcomer.steps < STEPS or not _exchanged(newcomer))
            dist.broadcast(going, 0)
    dist.destroy_process_group()
    print("trains with others")


def _shared(peer: Peer) -> dict[str, Tensor]:
    names = {tensor.name for tensor in peer._vector.schema.tensors if tensor.shared}
    return {
        name: t.detach()
        for name, t in named_tensors(peer._vector.layout.module).items()
        if name in names
    }


def _exchanged(*peers: Peer) -> bool:
    return all(peer.stats().counters.mixed > 0 for peer in peers)


@contextmanager
def _stepping(peer: Peer) -> Iterator[None]:
    """Let a peer take turns on a thread of its own; it trains nothing."""
    over = threading.Event()

    def step() -> None:
        while not over.wait(0.002):
            peer.step()

    thread = threading.Thread(target=step)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def _group_of_one(is_made: bool) -> Iterator[None]:
    """Make a process group of this process alone."""
    if not is_made:
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        store = dist.FileStore(os.path.join(folder, "store"), 1)
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        try:
            yield
        finally:
            dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1:]:
        _be_rank(*sys.argv[1:])
    else:
        main()
