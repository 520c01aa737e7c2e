"""The incarnation number, peer table and lock in a peer's folder.

Incarnation numbers must never repeat, or messages of two incarnations could not be distinguished;
and they must not run far ahead of the calendar, or no peer would believe them.
"""

import fcntl
import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import IO, Final

from ...gossip import ConfigError
from ...gossip.transport.addresses import parse_address
from ...gossip.types import Incarnation, PeerId
from ...gossip.wire.messages import Member
from .files import forget_in_children, read_json, write_json

__all__ = [
    "INCARNATION_FILE",
    "PeerTable",
    "is_held_by",
    "is_locked",
    "last_id",
    "lock_folder",
    "next_incarnation",
    "note_incarnation",
]

INCARNATION_FILE: Final = "life.json"
"""Says in a peer's folder whose it is, and which incarnation of it was the last."""

_DAY_MS: Final = 86_400_000

PEERS: Final = "peers.json"

ROWS_MAX: Final = 64
"""Peers that are noted: any of them that still lives knows all others."""

LOCK: Final = "life.lock"
"""Held by the process whose peer it is: two would write over one another's checkpoints."""


def next_incarnation(
    folder: Path | None, id: PeerId, unix_s: float, ahead_ms_max: int
) -> Incarnation:
    """The next incarnation's number: above the last one, also where the clock went back.

    Args:
        folder: Where the last one was noted; None where nothing is kept.
        unix_s: Seconds by the calendar.
        ahead_ms_max: How far ahead of the calendar others believe an incarnation, milliseconds.

    Raises:
        ConfigError: The folder is another peer's, or its number cannot be read, or would not be
            believed.
    """
    now_ms = max(1, int(unix_s * 1000))
    last = None if folder is None else _last(folder)
    if folder is None or last is None:
        return now_ms
    if last[0] != id:
        raise ConfigError(
            f"{folder} is of peer {last[0]}, and this is {id}: name a new folder, or continue as "
            "that peer, with its id and peer.resume()"
        )
    if last[1] >= now_ms + ahead_ms_max:
        days = (last[1] - now_ms) / _DAY_MS
        raise ConfigError(
            f"{folder / INCARNATION_FILE} counts incarnations by a clock that was {days:.0f} days "
            "ahead of this one, and nobody would believe them: set the clock right, or remove that "
            "file"
        )
    return max(now_ms, last[1] + 1)


def lock_folder(folder: Path) -> IO[bytes]:
    """Keep other processes out of a peer's folder, as long as what is returned is open.

    Raises:
        ConfigError: One is in it, or it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / LOCK, "ab")
        forget_in_children(lock)
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise ConfigError(
            f"{folder} is in use by a peer that still runs, or stands still: stop that one before "
            "it is resumed, and give each peer of one process a folder of its own"
        ) from None
    except OSError:
        pass  # a file system that has no locks
    return lock


def is_locked(folder: Path) -> bool:
    """Whether a process is in a peer's folder; nothing is changed by looking."""
    try:
        with open(folder / LOCK, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass  # nobody has been there, or it is on a file system that has no locks
    return False


def is_held_by(folder: Path, pid: int) -> bool:
    """Whether the process of number *pid*, which may be another one's by now, has a locked folder
    to itself, as far as this system tells."""
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            # It goes on opening and closing files meanwhile.
            with suppress(OSError):
                if os.path.samefile(f"/proc/{pid}/fd/{name}", folder / LOCK):
                    return True
    return False


def last_id(folder: Path) -> PeerId | None:
    """Id of the folder's peer; None where no incarnation has begun in it.

    Raises:
        ConfigError: What it says cannot be read.
    """
    last = _last(folder)
    return None if last is None else last[0]


def note_incarnation(folder: Path, id: PeerId, incarnation: Incarnation) -> None:
    """Bring to the disk that this incarnation has begun, before any peer hears of it.

    Raises:
        OSError: It cannot be written.
    """
    write_json(folder / INCARNATION_FILE, {"id": id, "incarnation": incarnation})


def _last(folder: Path) -> tuple[PeerId, Incarnation] | None:
    path = folder / INCARNATION_FILE
    if not path.exists():
        return None
    try:
        noted = read_json(path)
        return str(noted["id"]), int(noted["incarnation"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(
            f"{path} does not say which incarnation of its peer was the last ({error}): remove it "
            "only if the clock of this machine never went back"
        ) from None


class PeerTable:
    """The other peers that one knows, on disk: whom its next incarnation can ask for the swarm.

    A row stays until its peer is known again or has left, or as many others were heard later: an
    incarnation that meets nobody, because the network was down, must leave the next one peers
    to ask.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / PEERS
        self._rows: dict[PeerId, tuple[str, ...]] | None = None

    def update(self, members: Iterable[Member], departed: Collection[PeerId] = ()) -> bool:
        """Take over which peers the protocol knows; returns whether that has changed.

        Args:
            members: Peers that may come back; those heard last come first.
            departed: Peers that have left for good.
        """
        former = self._former() if self._rows is None else self._rows
        rows = {member.id: tuple(member.addresses) for member in members}
        rows |= {id: each for id, each in former.items() if id not in {*rows, *departed}}
        rows = dict(islice(((id, each) for id, each in rows.items() if each), ROWS_MAX))
        # Their order tells, too: the first are asked first, and kept longest.
        changed = self._rows is None or list(rows.items()) != list(former.items())
        self._rows = rows
        return changed

    def write(self) -> None:
        """Write what was last taken over.

        Raises:
            OSError: It cannot be written; the file is as it was.
        """
        rows = (self._rows or {}).items()
        write_json(self._path, [{"id": id, "addresses": list(each)} for id, each in rows])

    def addresses(self) -> tuple[str, ...]:
        """Addresses that an earlier incarnation noted; without those that are malformed, because a
        seed more or less is nothing to fail for."""
        found: dict[str, None] = {}
        for text in (each for several in self._former().values() for each in several):
            with suppress(ConfigError):
                found[parse_address(text)] = None
        return tuple(found)

    def _former(self) -> dict[PeerId, tuple[str, ...]]:
        """The rows on disk; none if they are missing or damaged."""
        try:
            rows = read_json(self._path)
            return {str(row["id"]): tuple(map(str, row["addresses"])) for row in rows}
        except (OSError, ValueError, LookupError, TypeError):
            return {}
