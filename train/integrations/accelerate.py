"""What a loop with an `Accelerator` needs beside `Peer`: checkpoints that are whole."""

from collections import OrderedDict
from typing import Any

from torch import Tensor, nn

from ..peer import Peer
from .guest import refuse_deepspeed, require_whole

__all__ = ["keep_in_checkpoints"]


def keep_in_checkpoints(accelerator: Any, peer: Peer) -> None:
    """Let ``accelerator.save_state`` keep the peer's state and all of its model.

    Accelerate takes tensors for one where they lie in the same storage, as a peer's do: it would
    write the first of them alone, and load none. It is given copies. Call this before
    ``load_state``, and that before the peer's block is entered: the peer goes on as its next
    incarnation.

    Args:
        accelerator: An `Accelerator`.
        peer: Around a model that it has prepared.

    Raises:
        ConfigError: The accelerator belongs to a group of processes, or trains with DeepSpeed.
    """
    require_whole(peer._vector.layout.module, accelerator.num_processes)
    refuse_deepspeed(str(accelerator.distributed_type).endswith("DEEPSPEED"))
    accelerator.register_for_checkpointing(peer)
    accelerator.register_save_state_pre_hook(_copy)
    accelerator.register_load_state_pre_hook(_stand_in)


class _Copied:
    """A model whose state dict has copies, and that loads as ever."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def state_dict(self) -> dict[str, Any]:
        return _apart(self._model.state_dict())

    def load_state_dict(self, state: dict[str, Any], **given: Any) -> Any:
        return self._model.load_state_dict(state, **given)


def _copy(models: list[nn.Module], weights: list[dict[str, Any]], folder: str) -> None:
    weights[:] = [_apart(state) for state in weights]


def _stand_in(models: list[Any], folder: str) -> None:
    models[:] = [_Copied(model) for model in models]


def _apart(state: dict[str, Any]) -> dict[str, Any]:
    """The same, each tensor with memory of its own, but for those that are one under two names."""
    copies: dict[object, Tensor] = {}
    # Accelerate looks for tied tensors in a dictionary of this kind alone.
    apart = OrderedDict(state)
    for name, value in state.items():
        if isinstance(value, Tensor):
            place = value.data_ptr(), value.shape, value.stride()
            apart[name] = copies.setdefault(place, value.detach().clone())
    return apart
