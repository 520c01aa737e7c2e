"""The values of all workers: one row each in a tensor per dtype."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...gossip.effects.effects import X
from ...gossip.effects.registers import is_pattern
from ...gossip.types import PeerId
from ...gossip.wire.schema import Schema
from ...train.model import plain_names, tie_again
from ...train.tensors.layout import Layout, Placed, Span, spans_of
from ...train.tensors.vector import Vector
from .cores import ONE_CORE, Threads
from .shares import Parts, Shares, rows_of
from .steppers.stepper import Memory, WorkerCheckpoints

__all__ = ["CPU", "ParameterMatrix", "tensors_of"]

CPU = torch.device("cpu")


class ParameterMatrix:
    """The vectors of n workers, all equal at the start.

    Args:
        module: The model at its start; it is flattened, and holds no values of its own afterwards.
        registers: Vectors that the rule keeps in addition to ``x``; they start as zeros.
        scattered: True if each shard has lines from all over the vector.
        seed: The run's seed: with the ids, it makes stochastic rounding equal to that of live
            peers.
        threads: Threads that share steps, copies and mixes; their number changes no bit.
    """

    def __init__(
        self,
        module: nn.Module,
        n: int,
        registers: Sequence[str] = (),
        *,
        shards: int = 1,
        scattered: bool = False,
        ids: Sequence[PeerId] = (),
        seed: int = 0,
        device: torch.device = CPU,
        threads: Threads = ONE_CORE,
    ) -> None:
        vector = Vector(module, shards=shards, scattered=scattered)
        module.to(device)
        tie_again(
            module, {placed.spec.name: list(placed.aliases) for placed in vector.layout.placed}
        )
        layout = Layout(module)
        self.n = n
        self.module = module
        self.schema: Schema = vector.schema
        self.anchor = vector.anchor()
        self.n_params = vector.n_params
        self.groups = layout.groups
        self.local = layout.local
        plain = plain_names(module)
        own = {plain(n): n for n, _ in (*module.named_parameters(), *module.named_buffers())}
        self.names = {
            placed.spec.name: tuple(own[name] for name in (placed.spec.name, *placed.aliases))
            for placed in (*vector.layout.placed, *layout.local)
        }
        """Names in the module of a tensor and of those tied to it, by its name in the schema."""
        self.device = device
        self.threads = threads
        start = tuple(flat.to(device) for flat in vector.flats)
        self.x: Parts = tuple(flat.repeat(n, 1) for flat in start)
        """float, axes ``(worker, number)``, one per dtype; padded as a live vector is."""
        self.locals: Parts = tuple(
            placed.tensor.detach().expand(n, *placed.tensor.shape).clone() for placed in self.local
        )
        """Values that are not shared, such as counters: axes ``(worker, *shape)``."""
        zeros = {
            name: tuple(torch.zeros_like(part) for part in self.x)
            for name in registers
            if not is_pattern(name)
        }
        self._rows = rows_of(zeros | {X: self.x}, registers)
        self.shares = Shares(self.schema, self._rows, start, ids, seed, self.locals, threads)

    def row(self, worker: int) -> Parts:
        """Return one worker's vector, as views."""
        return self._rows[X][worker]

    def tensors(self, worker: int) -> list[tuple[Placed, Tensor]]:
        """Return one worker's tensors in their own shapes, shared and local, as views."""
        found = [
            (placed, placed.view(flat))
            for group, flat in zip(self.groups, self.row(worker), strict=True)
            for placed in group
        ]
        found += [(p, part[worker]) for p, part in zip(self.local, self.locals, strict=True)]
        return found

    def state(self, tensors: Sequence[tuple[Placed, Tensor]]) -> dict[str, Tensor]:
        """Return the model's whole state_dict, with *tensors* in place of those that are sent."""
        whole = tensors_of(self.module)
        values = {
            id(whole[name]): tensor
            for placed, tensor in tensors
            for name in self.names[placed.spec.name]
            if name in whole
        }
        # Tied parameters have several names, and the module holds any worker's values.
        return {name: values.get(id(own), own).detach().clone() for name, own in whole.items()}

    def live_again(self, memory: Memory | None, *, alike: bool = True) -> None:
        """Prepare for workers that crash and return; called before any training."""
        checkpoints = WorkerCheckpoints(self._rows, self.locals, memory, alike=alike)
        self.shares.begin_again = checkpoints.carry_out

    def spans(self, shard: int) -> tuple[Span, ...]:
        """Return where a shard is in the parts of `x`."""
        return spans_of(self.schema, shard, self.device)


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a module's state_dict themselves, without its other entries."""
    state = module.state_dict(keep_vars=True)
    return {name: value for name, value in state.items() if isinstance(value, Tensor)}
