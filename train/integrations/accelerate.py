"""Complete checkpoints for loops with an `Accelerator` and a `Peer`."""

from collections import OrderedDict
from typing import Any

from torch import Tensor, nn

from ..peer import Peer
from .guest import refuse_deepspeed, require_whole

__all__ = ["keep_in_checkpoints"]


def keep_in_checkpoints(accelerator: Any, peer: Peer) -> None:
    """Make ``accelerator.save_state`` save the state of *peer*, whose model it has prepared, and
    the whole model.

    Call this before ``load_state``, and ``load_state`` before entering the peer's block: the peer
    continues as its next incarnation.

    Raises:
        ConfigError: The accelerator belongs to a group of processes, or trains with DeepSpeed.
    """
    require_whole(peer._vector.layout.module, accelerator.num_processes)
    refuse_deepspeed(str(accelerator.distributed_type).endswith("DEEPSPEED"))
    accelerator.register_for_checkpointing(peer)
    # Accelerate treats tensors in the same storage, like a peer's, as one: it would write only the
    # first of them, and load none.
    accelerator.register_save_state_pre_hook(_copy)
    accelerator.register_load_state_pre_hook(_stand_in)


class _Copied:
    """A model whose state dict holds copies; loading is unchanged."""

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
    """Return a state dict in which each tensor has its own memory, except for tied ones."""
    copies: dict[object, Tensor] = {}
    # Accelerate looks for tied tensors only in an OrderedDict.
    apart = OrderedDict(state)
    for name, value in state.items():
        if isinstance(value, Tensor):
            place = value.data_ptr(), value.shape, value.stride()
            apart[name] = copies.setdefault(place, value.detach().clone())
    return apart
