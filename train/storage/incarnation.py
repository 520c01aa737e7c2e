"""The incarnation number, peer table and lock in a peer's folder.

Incarnation numbers must never repeat, or messages of two incarnations could not be distinguished;
and they must not run far ahead of the wall clock, or no peer would accept them.
"""

import fcntl
import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from itertools import chain, islice
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
"""File in a peer's folder with the peer's id and its last incarnation."""

_DAY_MS: Final = 86_400_000

PEERS: Final = "peers.json"

# Any of them that is still alive knows all others.
ROWS_MAX: Final = 64

# Two processes in one folder would overwrite each other's checkpoints.
LOCK: Final = "life.lock"


def next_incarnation(
    folder: Path | None, id: PeerId, unix_s: float, ahead_ms_max: int
) -> Incarnation:
    """Return the next incarnation's number, above the last one even if the clock went back.

    Raises:
        ConfigError: The folder is another peer's, its number cannot be read, or the next one would
            be over *ahead_ms_max* ahead of *unix_s*, which other peers do not accept.
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
            "ahead of this one, and peers would refuse them: set the clock right, or remove that "
            "file"
        )
    return max(now_ms, last[1] + 1)


def lock_folder(folder: Path) -> IO[bytes]:
    """Lock a peer's folder while the returned file is open, or raise ConfigError."""
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
        pass  # the file system has no locks
    return lock


def is_locked(folder: Path) -> bool:
    """Return True if a process holds the lock of a peer's folder, without changing anything."""
    try:
        with open(folder / LOCK, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass  # never locked, or on a file system without locks
    return False


def is_held_by(folder: Path, pid: int) -> bool:
    """Return True if process *pid* appears to hold a folder's lock."""
    # The number alone would not do: another process may have it now.
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            # The process may close files while they are listed.
            with suppress(OSError):
                if os.path.samefile(f"/proc/{pid}/fd/{name}", folder / LOCK):
                    return True
    return False


def last_id(folder: Path) -> PeerId | None:
    """Return the id of the folder's peer; None if no incarnation has begun in it."""
    last = _last(folder)
    return None if last is None else last[0]


def note_incarnation(folder: Path, id: PeerId, incarnation: Incarnation) -> None:
    """Record on disk that this incarnation has begun, before it contacts any peer."""
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
    """A peer's table on disk of other peers, through which its next incarnation finds the swarm."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / PEERS
        self._rows: dict[PeerId, tuple[str, ...]] | None = None

    def update(self, members: Iterable[Member], departed: Collection[PeerId] = ()) -> bool:
        """Update the table, most recently heard members first; return True if that changes it."""
        # Unknown peers stay: an incarnation that met no peer, because the network was down, must
        # leave the next one peers to ask.
        former = self._former() if self._rows is None else self._rows
        rows = {member.id: tuple(member.addresses) for member in members}
        rows |= {id: each for id, each in former.items() if id not in {*rows, *departed}}
        rows = dict(islice(((id, each) for id, each in rows.items() if each), ROWS_MAX))
        # The order matters as well: the first rows are asked first, and kept longest.
        changed = self._rows is None or list(rows.items()) != list(former.items())
        self._rows = rows
        return changed

    def write(self) -> None:
        """Write the table as last updated."""
        rows = (self._rows or {}).items()
        write_json(self._path, [{"id": id, "addresses": list(each)} for id, each in rows])

    def addresses(self) -> tuple[str, ...]:
        """Return the addresses that an earlier incarnation recorded."""
        found: dict[str, None] = {}
        for text in chain.from_iterable(self._former().values()):
            # A malformed one must not prevent a start.
            with suppress(ConfigError):
                found[parse_address(text)] = None
        return tuple(found)

    def _former(self) -> dict[PeerId, tuple[str, ...]]:
        """Return the rows on disk; an empty table if they are missing or damaged."""
        try:
            rows = read_json(self._path)
            return {str(row["id"]): tuple(map(str, row["addresses"])) for row in rows}
        except (OSError, ValueError, LookupError, TypeError):
            return {}
