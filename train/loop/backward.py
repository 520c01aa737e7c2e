"""Optimizer steps within the backward pass: a layer's as soon as its gradients are there."""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.optim import Optimizer

from ...gossip.wire.schema import Schema
from ..model import plain_names

__all__ = ["BackwardSteps"]


class BackwardSteps:
    """Takes an optimizer's step shard by shard, while gradients of the others are computed.

    A shard is ready once all tensors in it have been stepped, each once in a backward pass: with
    an optimizer that treats each tensor by itself (SGD, Adam and their like) numbers are those of
    one step after the pass, bit for bit. One pass makes one step: gradients are not accumulated,
    and are gone after it.

    Args:
        model: Whose parameters the optimizer has. Hooks stay with them until `close`.
        optimizer: Makes the steps.
        schema: How the model is cut.
        ready: Told each shard, on whichever thread computes its gradients.

    Source: the order of work of CaffeGPI (Kuehn, Keuper and Pfreundt 2017), which sends a layer
    while those below it are computed; in PyTorch, post-accumulate-gradient hooks.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        schema: Schema,
        ready: Callable[[int], object],
    ) -> None:
        self._optimizer = optimizer
        self._ready = ready
        shards, plain = schema.shards_of, plain_names(model)
        parameters = [(plain(name), each) for name, each in model.named_parameters()]
        # Tied by their data alone, each has gradients and a step of its own.
        places = {each.data_ptr(): shards[name] for name, each in parameters if name in shards}
        # Buffers change in the forward pass.
        inside = {
            name: places[each.data_ptr()]
            for name, each in parameters
            if each.requires_grad and each.data_ptr() in places
        }
        self._tensors: list[set[str]] = [
            {name for name, within in inside.items() if shard in within}
            for shard in range(schema.shards)
        ]
        self._missing: list[set[str]] = []
        self._begin()
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(partial(self._accumulated, name))
            for name, parameter in parameters
            if name in inside
        ]

    def finish(self) -> None:
        """End a step, after its backward pass: tensors in shards of which some have no gradient."""
        self._step()
        self._begin()

    def close(self) -> None:
        """Leave backward passes alone from now on."""
        for hook in self._hooks:
            hook.remove()

    def _begin(self) -> None:
        self._missing = [set(names) for names in self._tensors]

    def _accumulated(self, name: str, parameter: Tensor) -> None:
        ready = [shard for shard, names in enumerate(self._missing) if names == {name}]
        ready.reverse()  # as in the pass, the last layers first
        for names in self._missing:
            names.discard(name)
        if ready:
            self._step()
        for shard in ready:
            self._ready(shard)

    def _step(self) -> None:
        # Tensors without a gradient are passed over: those that have been stepped, or will be.
        self._optimizer.step()
        self._optimizer.zero_grad()
