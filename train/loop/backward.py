"""Optimizer steps within the backward pass, of each layer once its gradients are ready."""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.optim import Optimizer

from ...gossip.wire.schema import Schema
from ..model import plain_names

__all__ = ["BackwardSteps"]


class BackwardSteps:
    """Takes an optimizer step shard by shard, while the other shards' gradients are computed.

    A shard is ready once all its tensors have been stepped, each once per backward pass. With an
    optimizer that treats each tensor separately (such as SGD or Adam), numbers equal those of one
    step after the pass, bit for bit. One pass is one step: gradients are not accumulated, and are
    cleared after it.

    Args:
        model: The model whose parameters the optimizer has. Their hooks stay until `close`.
        schema: How the model is cut.
        ready: Called with each ready shard, on the thread that computes its gradients.

    Source: the order of operations of CaffeGPI (Kuehn, Keuper and Pfreundt 2017), which sends a
    layer while those below it are computed; in PyTorch, post-accumulate-gradient hooks.
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
        # Parameters tied only by their data each have their own gradients and step.
        places = {each.data_ptr(): shards[name] for name, each in parameters if name in shards}
        # Buffers change in the forward pass, so only parameters delay a shard.
        inside = {
            name: places[each.data_ptr()]
            for name, each in parameters
            if each.requires_grad and each.data_ptr() in places
        }
        self._tensors: list[set[str]] = [
            {name for name, within in inside.items() if shard in within}
            for shard in range(schema.shards)
        ]
        self._missing = [set(names) for names in self._tensors]
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(partial(self._accumulated, name))
            for name, parameter in parameters
            if name in inside
        ]

    def finish(self) -> None:
        """End a step after its backward pass."""
        # In some shards, not all tensors have a gradient.
        self._step()
        self._missing = [set(names) for names in self._tensors]

    def close(self) -> None:
        """Remove the hooks from backward passes."""
        for hook in self._hooks:
            hook.remove()

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
        # The optimizer skips tensors without a gradient, which have been stepped or will be.
        self._optimizer.step()
        self._optimizer.zero_grad()
