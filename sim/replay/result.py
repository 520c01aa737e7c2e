"""Result of a replay, for people and for programs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ...gossip.errors import TrainingError
from ...gossip.weight import in_units

__all__ = ["Difference", "Differs", "PeerVerdict", "Replay", "first_difference"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """First difference between a replay and the live run."""

    peer: str
    record: int
    """Number of the record of its journal after which it differs, from 1; 0 is the head."""
    step: int
    """Optimizer steps taken by then."""
    what: str

    def __str__(self) -> str:
        return f"{self.peer}, record {self.record}, step {self.step}: {self.what}"


class Differs(Exception):
    """A replay is not what the journal says; carries what differs, in words."""


@dataclass(slots=True, kw_only=True)
class PeerVerdict:
    """How one incarnation of a peer was replayed."""

    id: str
    incarnation: int
    folder: Path
    records: int = 0
    """Records of its journal that were replayed, without the head."""
    steps: int = 0
    """Optimizer steps taken."""
    mixed: int = 0
    """Shares mixed."""
    is_done: bool = False
    """True if nothing differs, as far as its journal goes."""
    closed: bool = False
    """True if its journal has an end; False for a peer that was killed."""
    compared: bool = False
    """True if its model was found equal to the model that the live run saved."""
    difference: Difference | None = None
    why: str = ""
    """Why it could not continue, in words: its journal is damaged, or a share that it needs is not
    available."""

    @property
    def verdict(self) -> str:
        """One word: ``identical``, ``differs`` or ``stopped``."""
        if self.is_done:
            return "identical"
        return "stopped" if self.difference is None else "differs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Result of a replay."""

    peers: tuple[PeerVerdict, ...]
    """Results by id and incarnation."""
    difference: Difference | None
    """First difference found, over all peers."""
    warnings: tuple[str, ...]
    """Why bits may differ though nothing is wrong."""

    @property
    def identical(self) -> bool:
        """True if nothing differs, and every journal could be replayed as far as it goes."""
        return all(peer.is_done for peer in self.peers)


def first_difference(path: Path, state: Mapping[str, Tensor], weight: int) -> str | None:
    """Say what differs first between a saved model and one made again; None if no bit does.

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
    index = [int(i) for i in torch.unravel_index(torch.tensor(first, device="cpu"), made.shape)]
    here, there = (t.reshape(-1)[first].item() for t in (made, saved))
    return (
        f"tensor {name}{index} is {here!r} here, and {there!r} "
        f"(the first of {len(unequal)} that differ)"
    )


def _shape(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {tensor.dtype}"
