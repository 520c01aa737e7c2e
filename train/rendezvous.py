"""Addresses exchanged through a folder that all peers can see."""

import os
from pathlib import Path

__all__ = ["Rendezvous"]


class Rendezvous:
    """One peer's use of the folder: it leaves its own address there and reads the others'.

    Args:
        folder: On one machine any folder, on several one that they share; made if absent.
        id: The peer's own name.
    """

    def __init__(self, folder: Path, id: str) -> None:
        self._folder = folder
        self._mine = f"{id}.addr"
        folder.mkdir(parents=True, exist_ok=True)

    def announce(self, address: str) -> None:
        """Leave the peer's own address; others see all of it or nothing."""
        draft = self._folder / f".{self._mine}.{os.getpid()}"
        draft.write_text(address + "\n")
        draft.replace(self._folder / self._mine)

    def others(self) -> tuple[str, ...]:
        """Addresses that others have left so far, sorted by their ids."""
        files = sorted(path for path in self._folder.glob("*.addr") if path.name != self._mine)
        return tuple(path.read_text().strip() for path in files)
