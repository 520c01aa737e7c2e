"""A decoder-only transformer over bytes."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["GPT", "SIZES", "GPTConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GPTConfig:
    """Size of a model."""

    width: int
    """Embedding size, a multiple of ``heads``."""
    layers: int
    heads: int
    """Number of attention heads; the size of a head must be even."""
    context: int = 128
    """Length of a training sample, in bytes."""


SIZES: Final[Mapping[str, GPTConfig]] = MappingProxyType(
    {
        "120k": GPTConfig(width=64, layers=2, heads=4),
        "800k": GPTConfig(width=128, layers=4, heads=4),
        "3.3m": GPTConfig(width=256, layers=4, heads=4, context=256),
        "30m": GPTConfig(width=512, layers=9, heads=8, context=512),
    }
)
"""Sizes by name, which is the approximate number of parameters."""

# Positions over which the slowest pair of numbers rotates by about one radian.
_ROTATIONS: Final = 10_000.0


class GPT(nn.Module):
    """Predicts the next byte at every position from those up to it; runs under `torch.func.vmap`.

    Matrices have no biases, and the output head shares the embedding.

    Args:
        config: The model's size.
        text: Hash of the training text, which peers compare when one joins.

    Source: Radford et al. 2019, section 2.3 (initial values); Su et al., arXiv:2104.09864, equation
    34 (rotary positions); Zhang and Sennrich, NeurIPS 2019, equation 4 (RMSNorm); Press and Wolf,
    EACL 2017 (the head).
    """

    def __init__(self, config: GPTConfig, text: Tensor | None = None) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(256, config.width)
        self.layers = nn.Sequential(*(_Layer(config) for _ in range(config.layers)))
        self.norm = nn.RMSNorm(config.width)
        self.text = None if text is None else nn.Parameter(text, requires_grad=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        for layer in self.layers:
            # Sums over residual branches must not grow with their number.
            assert isinstance(layer, _Layer)
            for last in (layer.attention_out, layer.hidden[-1]):
                assert isinstance(last, nn.Linear)
                nn.init.normal_(last.weight, std=0.02 / (2 * config.layers) ** 0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits, axes ``(sample, place, 256)``, from bytes, axes ``(sample, place)``."""
        hidden = self.norm(self.layers(self.tokens(tokens.long())))
        return functional.linear(hidden, self.tokens.weight)


class _Layer(nn.Module):
    """Causal attention, then a hidden layer, each with a residual connection."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        width = config.width
        self.heads = config.heads
        self.attention_norm = nn.RMSNorm(width)
        self.attention_in = nn.Linear(width, 3 * width, bias=False)
        self.attention_out = nn.Linear(width, width, bias=False)
        self.hidden = nn.Sequential(
            nn.RMSNorm(width),
            nn.Linear(width, 4 * width, bias=False),
            nn.GELU(),
            nn.Linear(4 * width, width, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self._attention(x)
        added: Tensor = self.hidden(x)
        return x + added

    def _attention(self, x: Tensor) -> Tensor:
        inputs = self.attention_in(self.attention_norm(x))
        heads = inputs.unflatten(-1, (3, self.heads, -1)).movedim(-3, 0).transpose(-3, -2)
        query, key, value = heads.unbind(0)
        query, key = _rotated(query), _rotated(key)
        attended = _attend(query, key, value).transpose(-3, -2).flatten(-2)
        found: Tensor = self.attention_out(attended)
        return found


def _rotated(x: Tensor) -> Tensor:
    """Rotate pairs of numbers by angles that grow with the position, axes ``(.., place, i)``."""
    places, width = x.shape[-2:]
    speeds = _ROTATIONS ** -(torch.arange(0, width, 2, device=x.device) / width)
    angles = torch.arange(places, device=x.device)[:, None] * speeds
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


def _attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Compute causal attention, axes ``(..., head, place, number)``."""
    if query.is_cuda:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    # Written out, because torch.func.vmap has no batched form of the fused operation on a CPU.
    places = query.shape[-2]
    scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    is_later = torch.ones(places, places, dtype=torch.bool, device=query.device).triu(1)
    weights: Tensor = scores.masked_fill(is_later, -torch.inf).softmax(dim=-1)
    return weights @ value
