"""The task ``chars``: the next character of English text, for a small transformer."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ..task import Task, fraction_right

__all__ = ["chars"]

# A line break and what ASCII can print.
ALPHABET = "\n" + "".join(map(chr, range(32, 127)))
N_CONTEXT = 32
N_FEATURES = 32
N_HEADS = 4
N_LAYERS = 2
# Samples in a block, and how many blocks there are to one that is held out.
BLOCK = 128
ONE_IN = 10


def chars() -> Task:
    """Build the task: text of Python's own reference, and a transformer of two layers.

    A sample is 32 characters; its targets are the 32 that follow each. Both are int64, places in
    an alphabet of 96, axes ``(n_samples, 32)``; outputs are float32, ``(n_samples, 32, 96)``.
    Accuracy is the fraction of characters that are right, at all 32 places: with one target per
    place, ``dirichlet`` and ``shards`` cannot split this task. The network has 32,736 parameters,
    no dropout, and runs under ``torch.func.vmap``.

    The text is that of ``pydoc_data.topics``, each paragraph once: 373,422 characters in
    Python 3.11.7. *It differs between versions of Python*, and so do accuracies: peers of one swarm
    should run the same. A tenth is held out, in blocks of 4,224 characters from all over the
    text; 4 % of the samples in them, rulers and repeated lines, also stand in the rest.

    Returns:
        The task. Blanks alone are 0.17 of the held-out text; the accuracy is 0.29 after 200 steps
        and 0.48 to 0.49 after the default ones, which take 9 s on one core (seeds 0 to 2).

    Source: Vaswani et al., NeurIPS 2017; layers as in Xiong et al., ICML 2020, normalized first.
    """
    train, test = _split(_encoded(_text()))
    return Task(
        name="chars",
        model=_Transformer,
        train=train,
        test=test,
        loss=_loss,
        accuracy=fraction_right,
        lr=0.4,
        batch_size=16,
        steps=2000,
    )


def _text() -> str:
    from pydoc_data.topics import topics

    whole = "\n\n".join(topics[name] for name in sorted(topics))
    # Whole chapters stand there under several names: what is held out would be trained on.
    return "\n\n".join(dict.fromkeys(whole.split("\n\n")))


def _encoded(text: str) -> Tensor:
    """Places in the alphabet, int64: question marks for other letters, blanks for other space."""
    codes = np.frombuffer(text.encode("ascii", "replace"), np.uint8)
    place = np.full(256, ALPHABET.index(" "), np.int64)
    place[[ord(letter) for letter in ALPHABET]] = np.arange(len(ALPHABET))
    return torch.from_numpy(place[codes])


def _split(text: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    n_samples = len(text) // (N_CONTEXT + 1)
    samples = text[: n_samples * (N_CONTEXT + 1)].reshape(n_samples, N_CONTEXT + 1)
    is_held_out = torch.arange(n_samples, device="cpu") // BLOCK % ONE_IN == ONE_IN - 1
    train, test = samples[~is_held_out], samples[is_held_out]
    return _pairs(train), _pairs(test)


def _pairs(samples: Tensor) -> tuple[Tensor, Tensor]:
    return samples[:, :-1].contiguous(), samples[:, 1:].contiguous()


class _Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(ALPHABET), N_FEATURES)
        self.places = nn.Embedding(N_CONTEXT, N_FEATURES)
        self.layers = nn.Sequential(*(_Layer() for _ in range(N_LAYERS)))
        self.norm = nn.LayerNorm(N_FEATURES)
        self.out = nn.Linear(N_FEATURES, len(ALPHABET))

    def forward(self, letters: Tensor) -> Tensor:
        hidden = self.letters(letters) + self.places.weight
        logits: Tensor = self.out(self.norm(self.layers(hidden)))
        return logits


class _Layer(nn.Module):
    """Attention to what came before, then a hidden layer, each added to what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(N_FEATURES)
        self.attention_in = nn.Linear(N_FEATURES, 3 * N_FEATURES)
        self.attention_out = nn.Linear(N_FEATURES, N_FEATURES)
        self.hidden = nn.Sequential(
            nn.LayerNorm(N_FEATURES),
            nn.Linear(N_FEATURES, 4 * N_FEATURES),
            nn.ReLU(),
            nn.Linear(4 * N_FEATURES, N_FEATURES),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self._attention(x)
        added: Tensor = self.hidden(x)
        return x + added

    # Written out, for torch.func.vmap has no batched form of the fused one on a CPU.
    def _attention(self, x: Tensor) -> Tensor:
        inputs = self.attention_in(self.attention_norm(x))
        heads = inputs.unflatten(-1, (3, N_HEADS, -1)).movedim(-3, 0).transpose(-3, -2)
        query, key, value = heads.unbind(0)
        scores = query @ key.transpose(-2, -1) / (N_FEATURES // N_HEADS) ** 0.5
        is_later = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(is_later, -torch.inf).softmax(dim=-1)
        attended: Tensor = self.attention_out((weights @ value).transpose(-3, -2).flatten(-2))
        return attended


def _loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())
