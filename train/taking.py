"""A snapshot as it is taken: part by part into host memory, from there or from a device."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from ..gossip.errors import TrainingError
from ..gossip.wire import Form
from .crossing import Crossing, Taken
from .device import Mark
from .finite import copy_finite
from .layout import Placed
from .payload import Part

__all__ = ["Taking", "Write", "not_finite"]

Write = Callable[[Part, Tensor, Tensor], bool]
"""Fills a room with the numbers of a part that do not travel as they are."""


class Taking:
    """Fills one host buffer.

    Args:
        host: The buffer, uint8.
        crossing_of: For a device: its buffers and queues, None for host memory.
        written: Told how many bytes of the buffer are there by now, from its start.
    """

    def __init__(
        self,
        host: Tensor,
        crossing_of: Callable[[torch.device], Crossing | None],
        written: Callable[[int], None] | None = None,
    ) -> None:
        self._written = written
        self._host = host
        self._crossing_of = crossing_of
        self._finite, self._in_order = True, True
        self._marks: list[Mark] = []
        self._looks: list[Callable[[], bool]] = []

    def add(self, parts: Sequence[Part], flats: Sequence[Tensor], write: Write | None) -> None:
        """Put numbers where they belong.

        Args:
            parts: Which, and where.
            flats: Where they are taken from.
            write: For those that do not travel as they are; None where nothing changes *flats*.
        """
        for part in parts:
            room, numbers = part.room(self._host), part.of(flats)
            crossing = self._crossing_of(numbers.device)
            if crossing is None and part.wire is None:
                # Nothing is told of what follows numbers that come from a device, or are
                # converted, or are not finite.
                tell = self._written if self._in_order and self._finite else None
                copied = None if tell is None else partial(_from, part.start_bytes, tell)
                self._finite &= copy_finite(room.view(part.dtype), numbers, copied)
                continue
            self._in_order = False
            if crossing is not None:
                self._add_from_device(crossing, part, numbers, write)
            elif write is not None:
                self._finite &= write(part, room, numbers)

    def add_local(self, room_bytes: tuple[int, int], local: Sequence[Placed]) -> None:
        """Put local buffers where they belong.

        Args:
            room_bytes: Where in the host buffer.
            local: Which; the first of them lies where the room begins.
        """
        start, stop = room_bytes
        # What lies in the gaps between them is nobody's business.
        self._host[start:stop].zero_()
        for placed in local:
            offset = start + placed.offset_bytes - local[0].offset_bytes
            placed.room(self._host, offset).copy_(placed.tensor, non_blocking=True)
            crossing = self._crossing_of(placed.tensor.device)
            if crossing is not None:
                self._marks.append(crossing.note())

    def taken(self, form: Form) -> Taken:
        """What has been put there so far.

        Raises:
            TrainingError: Something is not finite, as far as is known.
        """
        if not self._finite and not self._marks and not self._looks:
            raise not_finite(form)
        return Taken(finite=self._finite, marks=self._marks, looks=self._looks)

    def _add_from_device(
        self, crossing: Crossing, part: Part, numbers: Tensor, write: Write | None
    ) -> None:
        room = part.room(self._host)
        if part.wire is not None and write is not None:
            self._looks.append(crossing.convert(room, numbers, partial(write, part)))
            return
        mark, look = crossing.depart(room.view(part.dtype), numbers, lasting=write is None)
        self._marks.append(mark)
        self._looks.append(look)


def _from(start_bytes: int, tell: Callable[[int], None], size_bytes: int) -> None:
    tell(start_bytes + size_bytes)


def not_finite(form: Form) -> TrainingError:
    """What to say of a model whose values must not reach another peer."""
    beyond = "" if form.wire == Form().wire else f", or too far from the anchor for {form.wire}"
    return TrainingError(f"a parameter is not finite{beyond}, so nothing is shared: lower the lr")
