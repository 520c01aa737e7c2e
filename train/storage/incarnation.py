"""The incarnation number, the known addresses and the lock in a peer's folder.

Incarnation numbers must never repeat, or messages of two incarnations could not be distinguished;
and they must not run far ahead of the wall clock, or no peer would accept them.
"""

import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, NamedTuple

from ...gossip import ConfigError
from ...gossip.types import INCARNATION_AHEAD_MS_MAX, Incarnation, PeerId
from .files import forget_in_children, read_json, write_json

__all__ = [
    "ADDRESSES_MAX",
    "INCARNATION_FILE",
    "LastIncarnation",
    "is_held_by",
    "is_locked",
    "last_incarnation",
    "lock_folder",
    "next_incarnation",
    "note_incarnation",
]

INCARNATION_FILE: Final = "life.json"
"""File in a peer's folder with the peer's id, its last incarnation, and addresses of others."""

_DAY_MS: Final = 86_400_000

ADDRESSES_MAX: Final = 64
"""Number of addresses to keep: a peer at any one of them knows all others."""

# Two processes in one folder would overwrite each other's checkpoints.
LOCK: Final = "life.lock"


def next_incarnation(folder: Path | None, id: PeerId, unix_s: float) -> Incarnation:
    """Return the next incarnation's number, above the last one even if the clock went back.

    Raises:
        ConfigError: The folder is another peer's, its number cannot be read, or the next one would
            be so far ahead of *unix_s* that other peers do not accept it.
    """
    now_ms = max(1, int(unix_s * 1000))
    last = last_incarnation(folder)
    if folder is None or last is None:
        return now_ms
    if last.id != id:
        raise ConfigError(
            f"{folder} is of peer {last.id}, and this is {id}: name a new folder, or continue as "
            "that peer, with its id and peer.resume()"
        )
    if last.number >= now_ms + INCARNATION_AHEAD_MS_MAX:
        days = (last.number - now_ms) / _DAY_MS
        raise ConfigError(
            f"{folder / INCARNATION_FILE} counts incarnations by a clock that was {days:.0f} days "
            "ahead of this one, and peers would refuse them: set the clock right, or remove that "
            "file"
        )
    return max(now_ms, last.number + 1)


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


class LastIncarnation(NamedTuple):
    """The last incarnation that has begun in a folder."""

    id: PeerId
    number: Incarnation
    addresses: tuple[str, ...]
    """Addresses of the peers that it knew, the last heard first."""


def last_incarnation(folder: Path | None) -> LastIncarnation | None:
    """Return the last incarnation of the folder's peer; None if none has begun in it."""
    path = None if folder is None else folder / INCARNATION_FILE
    if path is None or not path.exists():
        return None
    try:
        noted = read_json(path)
        addresses = tuple(map(str, noted.get("addresses", ())))
        return LastIncarnation(str(noted["id"]), int(noted["incarnation"]), addresses)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path} does not say which incarnation of its peer was the last ({error}): remove it "
            "only if the clock of this machine never went back"
        ) from None


def note_incarnation(
    folder: Path, id: PeerId, incarnation: Incarnation, addresses: Sequence[str] = ()
) -> None:
    """Record an incarnation on disk, before it contacts any peer, and the addresses it knows."""
    noted = {"id": id, "incarnation": incarnation, "addresses": addresses}
    write_json(folder / INCARNATION_FILE, noted)
