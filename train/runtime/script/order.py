"""The order in which processes of one run start their peers, where each makes several."""

import atexit
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from ....gossip import ConfigError

__all__ = ["SwarmOrder"]

_SUFFIX: Final = ".swarms"
_OVER: Final = "."


class SwarmOrder:
    """Sees that all processes start peers of the same swarms in the same order: a peer that starts
    waits for those of the other processes, for ever where these start another one.

    Args:
        folder: That all processes see.
        id: What this process's peers are called.
        names: Swarms of its peers in order; the last one starts now.
    """

    def __init__(self, folder: Path, id: str, names: Sequence[str]) -> None:
        self._folder, self._path, self._names = folder, folder / f"{id}{_SUFFIX}", tuple(names)

    def note(self) -> None:
        """Let the others know.

        Raises:
            ConfigError: The folder cannot be written.
        """
        lines = [name or "first" for name in self._names]
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._write(lines)
        except OSError as error:
            raise ConfigError(f"cannot write to {self._folder}: {error.strerror}") from None
        if len(lines) == 1:
            atexit.register(self._end, os.getpid())

    def require_alike(self) -> None:
        """Make sure that each process that is known has started the same, or may still do so.

        Raises:
            ConfigError: One has started another swarm in its place, or has ended without it.
        """
        number = len(self._names)
        name = self._names[-1] or "first"
        for path in self._folder.glob(f"*{_SUFFIX}"):
            try:
                lines = path.read_text().splitlines()
            except OSError:
                continue
            other = lines[number - 1] if len(lines) >= number else name
            if other != name:
                does = "has ended without one" if other == _OVER else f"starts {other!r}"
                raise ConfigError(
                    f"this process starts a peer of swarm {name!r} as number {number}, and that of "
                    f"{path.stem} {does}: all processes must start peers of the same names in the "
                    "same order"
                )

    def _write(self, lines: Sequence[str]) -> None:
        draft = self._path.with_suffix(".draft")
        draft.write_text("".join(f"{line}\n" for line in lines))
        draft.replace(self._path)

    def _end(self, pid: int) -> None:
        if os.getpid() == pid:
            with suppress(OSError):
                self._write([*self._path.read_text().splitlines(), _OVER])
