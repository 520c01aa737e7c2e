"""Extra state of modules, which travels to a newcomer as part of a copy."""

from typing import Final

import torch
from torch import nn

from ...gossip.errors import ConfigError, TrainingError
from ..model import with_extra_state
from ..state import flatten_state, pack_state, unpack_state

__all__ = ["ExtraState"]

_ROOM_BYTES_MIN: Final = 1 << 16
_LENGTH_BYTES: Final = 8


class ExtraState:
    """The extra state of a module and its submodules, see `nn.Module.get_extra_state`.

    All copies of a swarm have one size, so the state travels in a room of at least twice the
    bytes that it has at first.

    Args:
        module: Whose.

    Raises:
        ConfigError: A state has a value that neither a copy nor a checkpoint can hold.
    """

    def __init__(self, module: nn.Module) -> None:
        self._parts = with_extra_state(module)
        for name, part in self._parts.items():
            try:
                flatten_state(part.get_extra_state(), f"{name}._extra_state".lstrip("."))
            except ConfigError as error:
                raise ConfigError(f"{error}: let get_extra_state return such values") from None
        size_bytes = _ROOM_BYTES_MIN
        while self._parts and size_bytes < 2 * len(pack_state(self.state())):
            size_bytes *= 2
        self.room = torch.zeros(size_bytes, dtype=torch.uint8, device="cpu")
        """What travels: a length in bytes, 0 for nothing, and the state."""

    def __bool__(self) -> bool:
        return bool(self._parts)

    def state(self) -> dict[str, object]:
        """The state of each module, by its name."""
        return {name: part.get_extra_state() for name, part in self._parts.items()}

    def restore(self, state: dict[str, object]) -> None:
        """Give modules the state that `state` told."""
        for name, part in self._parts.items():
            if name in state:
                part.set_extra_state(state[name])

    def pack(self) -> None:
        """Put the state as it is now into the room; of one that is too long, its length."""
        packed = pack_state(self.state())
        raw = bytearray(len(packed).to_bytes(_LENGTH_BYTES, "little"))
        if len(raw) + len(packed) <= self.room.numel():
            raw += packed
        self.room[: len(raw)] = torch.frombuffer(raw, dtype=torch.uint8)

    def unpack(self) -> None:
        """Give the modules what a copy has put into the room, if one did.

        Raises:
            TrainingError: It was too long to travel, or is no such state.
        """
        raw = self.room.numpy().tobytes()
        length, size = int.from_bytes(raw[:_LENGTH_BYTES], "little"), len(raw) - _LENGTH_BYTES
        self.room.zero_()
        if length > size:
            raise TrainingError(
                f"the donor's extra state has {length} bytes, and a copy has room for {size}: let "
                "get_extra_state return values whose size does not grow"
            )
        if length:
            self.restore(unpack_state(raw[_LENGTH_BYTES : _LENGTH_BYTES + length]))
