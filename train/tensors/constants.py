"""What of a module neither shares nor copies carry, and whether it still is what it was."""

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..model import local_tensor, parts_of, plain_names
from .blocks import blocks, scratch
from .layout import Layout

__all__ = ["Constants"]

_WORD_BYTES = 8

_Bits = tuple[object, ...]


class Constants:
    """Frozen parameters, and buffers that the module does not save.

    Args:
        layout: Of the module; what lies in it is not looked at.
    """

    def __init__(self, layout: Layout) -> None:
        self._module = layout.module
        self._travelling = {id(tensor) for tensor in layout.travelling}
        self._first: dict[str, _Bits] = {}

    def frozen(self) -> dict[str, Tensor]:
        """The parameters among them, by plain name; those that have values."""
        return self._named(parameters=True)

    def buffers(self) -> dict[str, Tensor]:
        """The buffers among them, likewise."""
        return self._named(parameters=False)

    def changed(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Those whose bits, shape or dtype are others than when they were first looked at here, at
        the price of reading them."""
        found = {}
        for name, tensor in tensors.items():
            bits = _bits(local_tensor(name, tensor))
            if self._first.setdefault(name, bits) != bits:
                found[name] = tensor
        return found

    def replace(self, name: str, value: Tensor) -> bool:
        """Give one the values that it had in a checkpoint; False where there is none any more."""
        here = {**self.frozen(), **self.buffers()}.get(name)
        if here is None:
            return False
        if here.shape == value.shape and here.dtype == value.dtype:
            local_tensor(name, here).copy_(value)
        else:
            here.data = value.to(here.device)
        return True

    def _named(self, *, parameters: bool) -> dict[str, Tensor]:
        plain = plain_names(self._module)
        named = self._module.named_parameters if parameters else self._module.named_buffers
        return {
            plain(name): tensor
            for name, tensor in named()
            if id(local_tensor(name, tensor)) not in self._travelling and _is_readable(tensor)
        }


def _is_readable(tensor: Tensor) -> bool:
    if isinstance(tensor, nn.Parameter) and tensor.requires_grad:
        return False  # unfrozen, which is an error of its own
    return not (is_lazy(tensor) or tensor.is_meta or tensor.is_quantized or tensor.is_nested)


def _bits(tensor: Tensor) -> _Bits:
    """A hash of a tensor at the speed at which its device reads it."""
    sums, tail = [], []
    for part in parts_of(tensor):
        raw = part.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
        n_words = raw.numel() // _WORD_BYTES
        tail += raw[n_words * _WORD_BYTES :].tolist()
        if raw.storage_offset() % _WORD_BYTES:
            raw = raw.clone()
        words = raw[: n_words * _WORD_BYTES].view(torch.int64)
        for block in words.split(blocks(n_words, words.device)):
            products = torch.mul(block, _factors(block), out=scratch(block, torch.int64))
            sums.append(products.sum())
    whole = torch.stack(sums).tolist() if sums else []
    return tuple(tensor.shape), tensor.dtype, *tail, *whole


def _factors(like: Tensor) -> Tensor:
    """Odd numbers, each another, so that words in another order have another sum."""
    numbers = torch.arange(like.numel(), dtype=torch.int64, device=like.device)
    return numbers.mul_(2).add_(1).mul_(0x5851F42D4C957F2D)
