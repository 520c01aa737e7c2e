"""A model in a few bytes: a checksum of each tensor that travels."""

from collections.abc import Iterable
from zlib import crc32

import torch
from torch import Tensor, nn

from ..gossip.schema import Schema

__all__ = ["fingerprint", "travelling_tensors"]


def fingerprint(tensors: Iterable[Tensor]) -> tuple[int, ...]:
    """CRC-32 of the bytes of each tensor, on whatever device it lies.

    >>> fingerprint([torch.zeros(2)]) == fingerprint([torch.zeros(1, 2)])
    True
    """
    return tuple(
        crc32(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        for tensor in tensors
    )


def travelling_tensors(model: nn.Module, schema: Schema) -> list[Tensor]:
    """The tensors of *model* that peers exchange, in the order of its *schema*."""
    named = dict(model.named_buffers()) | dict(model.named_parameters())
    return [named[tensor.name] for tensor in schema.tensors]
