"""The initial model of all founders: that of the first one, bit for bit.

Scripts that `rumor run` starts need not seed their random streams for it: the first process saves
its model in the rendezvous folder, and the others load it.
"""

import logging
import threading
import time
from pathlib import Path
from typing import Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from ....gossip import ConfigError, TransportError
from ....gossip.wire.schema import Schema
from ...model import travelling_tensors
from ...storage.merge import save_model

__all__ = ["adopt", "leave"]

_log = logging.getLogger("rumor")

_FILE: Final = "model.safetensors"
_POLL_S: Final = 0.02
_SAY_S: Final = 5.0


def leave(model: nn.Module, schema: Schema, folder: Path) -> None:
    """Save the model atomically for the other founders."""
    tensors = travelling_tensors(model, schema)
    state = {name: each.detach().cpu().clone().contiguous() for name, each in tensors.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_model(folder / _FILE, state, {})
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror or error}") from None


def adopt(
    model: nn.Module,
    schema: Schema,
    folder: Path,
    stop: threading.Event,
    timeout_s: float | None,
) -> None:
    """Wait until the first founder has saved its model, and load it.

    Raises:
        TransportError: It was not saved in time, or before *stop* was set.
        ConfigError: The models differ in schema; nothing has changed.
    """
    path = folder / _FILE
    started_s = spoke_s = time.monotonic()
    while not path.exists():
        now = time.monotonic()
        if stop.wait(_POLL_S) or now - started_s > (timeout_s or float("inf")):
            raise TransportError(f"the first peer has left no model at {path}")
        if now - spoke_s > _SAY_S:
            spoke_s = now
            _log.warning("waiting for the first peer's model")
    try:
        state = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{path} cannot be read as a model: {error}") from None
    tensors = travelling_tensors(model, schema)
    here, there = (
        {n: f"{tuple(t.shape)} {t.dtype}" for n, t in m.items()} for m in (tensors, state)
    )
    for name in {**here, **there}:
        if here.get(name) != there.get(name):
            raise ConfigError(
                f"this script's model is not that of the first peer: {name} is "
                f"{here.get(name, 'absent')} here and {there.get(name, 'absent')} there"
            )
    with torch.no_grad():
        for name, mine in tensors.items():
            mine.copy_(state[name])
