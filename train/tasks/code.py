"""The task ``code``: the next byte of Python source, for transformers of four sizes.

The text is available on every machine: the standard library of the running Python, without tests.
"""

import os
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from torch.optim import AdamW

from ...gossip.errors import ConfigError
from .gpt import GPT, SIZES
from .task import Task, fraction_right

__all__ = ["Corpus", "code", "read_packages", "standard_library"]

# Folders that hold tests or are not part of the standard library.
_NOT_TAKEN: Final = {"test", "tests", "idle_test", "site-packages", "dist-packages", "lib-dynload"}

# One in this many packages is held out.
_ONE_IN: Final = 10

# Held-out samples per evaluation: all of them would take longer than a hundred steps.
_TESTED_MAX: Final = 512

_LRS: Final[Mapping[str, float]] = {"120k": 4e-3, "800k": 2e-3, "3.3m": 1e-3, "30m": 6e-4}
_STEPS: Final[Mapping[str, int]] = {"120k": 2000, "800k": 4000, "3.3m": 8000, "30m": 20_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Text divided into packages, some of which are held out."""

    train: Mapping[str, bytes]
    """Text of each training package, by name."""
    test: Mapping[str, bytes]
    """Text of each held-out package, by name."""

    @property
    def hash(self) -> Tensor:
        """Hash of the text and its division, 16 bytes, uint8."""
        found = blake2b(digest_size=16)
        for part in (self.train, self.test):
            for name, text in sorted(part.items()):
                found.update(f"{name} {len(text)}\n".encode())
                found.update(text)
        return torch.tensor(list(found.digest()), dtype=torch.uint8, device="cpu")


def read_packages(folder: Path) -> Corpus:
    """Read the Python files below a folder, without tests; each entry of the folder is a package.

    Raises:
        ConfigError: There are too few packages to hold some out.
    """
    found: dict[str, list[bytes]] = {}
    for path in _sources(folder):
        package = path.relative_to(folder).parts[0].removesuffix(".py")
        found.setdefault(package, []).append(path.read_bytes())
    texts = {name: b"\n".join(files) for name, files in found.items()}
    # Files are chosen by name, so that every machine and version holds out the same ones.
    test = {
        name: text
        for name, text in texts.items()
        if blake2b(name.encode(), digest_size=1).digest()[0] % _ONE_IN == 0
    }
    train = {name: text for name, text in texts.items() if name not in test}
    if not (train and test):
        raise ConfigError(
            f"{folder} has too few Python packages to train on some and hold some out"
        )
    return Corpus(train=train, test=test)


@cache
def standard_library() -> Corpus:
    """Return the standard library of the running Python."""
    return read_packages(Path(sysconfig.get_path("stdlib")))


def code(size: str = "120k") -> Task:
    """Build the task: source of the standard library, and a decoder-only transformer.

    It has about *size* parameters: ``120k``, ``800k``, ``3.3m`` or ``30m``.

    A sample has as many bytes as the model's context (128, or 256 and 512 for the two larger
    models); its targets are the bytes that follow each. Both are uint8, axes ``(n_samples,
    n_places)``; outputs are float32, ``(n_samples, n_places, 256)``. The loss is in nats per byte.
    One in ten packages is held out, by name. ``targets`` are the numbers of the packages.

    The optimizer is AdamW (betas 0.9 and 0.95, weight decay 0.1); the learning rate rises over a
    twentieth of the steps and falls along a cosine to a tenth.
    """
    corpus, config = standard_library(), SIZES[size]
    train, packages = _samples(corpus.train, config.context)
    test, _ = _samples(corpus.test, config.context)
    chosen = np.linspace(0, len(test[0]) - 1, min(_TESTED_MAX, len(test[0]))).astype(np.int64)
    return Task(
        name="code" if size == "120k" else f"code-{size}",
        model=partial(GPT, config, corpus.hash),
        train=train,
        test=(test[0][chosen], test[1][chosen]),
        targets=packages,
        loss=_loss,
        accuracy=fraction_right,
        precision="auto",
        optimizer=partial(AdamW, betas=(0.9, 0.95), weight_decay=0.1),
        lr=_LRS[size],
        lr_schedule="cosine:warmup=0.05,floor=0.1",
        batch_size=16,
        steps=_STEPS[size],
    )


def _sources(folder: Path) -> list[Path]:
    found: list[Path] = []
    for where, folders, files in os.walk(folder):
        # Do not descend into these: they hold most files, and every starting peer waits for this.
        folders[:] = [name for name in folders if name not in _NOT_TAKEN]
        found += [Path(where, name) for name in files if name.endswith(".py")]
    return sorted(found)


def _samples(
    texts: Mapping[str, bytes], n_places: int
) -> tuple[tuple[Tensor, Tensor], NDArray[np.int64]]:
    """Return pieces of text, and the number of the package of each."""
    pieces, packages = [], []
    for number, (_, text) in enumerate(sorted(texts.items())):
        n = len(text) // (n_places + 1)
        whole = np.frombuffer(text, np.uint8)[: n * (n_places + 1)]
        pieces.append(whole.reshape(n, n_places + 1))
        packages.append(np.full(n, number, np.int64))
    cut = torch.from_numpy(np.concatenate(pieces))
    return (cut[:, :-1].contiguous(), cut[:, 1:].contiguous()), np.concatenate(packages)


def _loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten().long())
