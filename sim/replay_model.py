"""A model that was trained again, held against the one that a live run left."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..gossip.errors import TrainingError
from ..gossip.weight import in_units

__all__ = ["first_difference"]


def first_difference(path: Path, state: Mapping[str, Tensor], weight: int) -> str | None:
    """What is first found to differ between a saved model and one made again, bit for bit.

    Args:
        path: A peer's ``model.safetensors``.
        state: The state_dict of the model made again.
        weight: What the peer ends with in the replay.

    Returns:
        In words: which tensor, where in it, and both values. None where nothing differs.

    Raises:
        TrainingError: The file cannot be read.
    """
    try:
        with safe_open(path, "pt") as file:
            names = list(file.keys())
            if missing := sorted(set(names) ^ set(state)):
                where = "replay" if missing[0] in names else "saved model"
                return f"the {where} has no tensor {missing[0]}"
            for name in state:
                if found := _difference(name, file.get_tensor(name), state[name]):
                    return f"{found} in {path.name}"
            here = str(in_units(weight))
            there = (file.metadata() or {}).get("weight_units", here)
    except (OSError, SafetensorError) as error:
        raise TrainingError(f"{path} cannot be read as a model: {error}") from error
    if here != there:
        return f"the weight at the end is {here} units here, and {there} in {path.name}"
    return None


def _difference(name: str, saved: Tensor, made: Tensor) -> str | None:
    made = made.detach().cpu().contiguous()
    if (saved.shape, saved.dtype) != (made.shape, made.dtype):
        return f"tensor {name} is {_shape(made)} here, and {_shape(saved)}"
    # As bytes, so that -0.0 is not 0.0, and a NaN equals itself.
    rows = [t.reshape(-1).view(torch.uint8).reshape(t.numel(), -1) for t in (saved, made)]
    unequal = (rows[0] != rows[1]).any(dim=1).nonzero()
    if not len(unequal):
        return None
    first = int(unequal[0])
    index = [int(i) for i in torch.unravel_index(torch.tensor(first), made.shape)]
    here, there = (t.reshape(-1)[first].item() for t in (made, saved))
    return (
        f"tensor {name}{index} is {here!r} here, and {there!r} "
        f"(the first of {len(unequal)} that differ)"
    )


def _shape(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {tensor.dtype}"
