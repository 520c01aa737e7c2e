"""Centers with which all peers of a swarm on one machine exchange values, each under a lock.

A center is an anonymous file in memory, see `shared_memory`: it disappears with the last process
that holds it. Its lock is a file lock, which the system releases when a process is killed. Each
holder has a *badge*, another such file: its name, listed in ``/proc``, is a hash of swarm, center,
peer and incarnation, and its content says how to open the center.
"""

import fcntl
import logging
import mmap
import os
import socket
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

import torch
from torch import Tensor

from ...gossip.effects.effects import Exchange
from ...gossip.errors import TrainingError
from ...gossip.types import Incarnation, PeerId
from .blocks import widened
from .shared_memory import NAME, TOKEN_BYTES, sealed_file
from .vector import Flats, Vector

__all__ = ["Life", "SharedCenters"]

_log = logging.getLogger("rumor")

Life = tuple[PeerId, Incarnation]

_Key = tuple[bytes, str]
"""Swarm and name of a center."""

# Longer than it takes to map a large model.
_OPENING_S: Final = 30.0
_NAP_S: Final = 0.002

_HEAD_BYTES: Final = mmap.PAGESIZE
_BEGUN, _DONE, _MADE_NS = range(3)
_ALIGNMENT_BYTES: Final = 64


class _Held(NamedTuple):
    """A center that a peer holds; it is unmapped with the last view of it."""

    token: bytes
    fd: int
    """Opened for this holder alone, so that the lock is its own."""
    badge: int
    """File descriptor of the badge."""
    counts: Tensor
    """Exchanges begun, exchanges done, and time of creation, ns: int64, axes ``(3,)``."""
    flats: Flats

    def let_go(self) -> None:
        """Release the center."""
        os.close(self.badge)
        os.close(self.fd)


class SharedCenters:
    """One peer's hold on the centers of its swarm.

    The first peer makes a center. Only centers held by known peers of the same swarm count, never
    those of another run. If two were made because their holders did not know each other, the
    younger one is abandoned once they do.

    Args:
        known: Returns the other peers of its swarm.

    Raises:
        TrainingError: This system lacks anonymous files in memory, which Linux has.
    """

    def __init__(self, life: Life, known: Callable[[], Collection[Life]]) -> None:
        if not hasattr(os, "memfd_create"):
            raise TrainingError(
                "this system cannot share a center between processes, Linux can: use a rule "
                "whose peers gossip, such as easgd"
            )
        self.life = life
        self._known = known
        self._held: dict[_Key, _Held] = {}
        self._looked_among: dict[_Key, frozenset[Life]] = {}

    def exchange(self, effect: Exchange, vector: Vector) -> None:
        """Exchange a register with a center, one peer at a time.

        Raises:
            TrainingError: A number is not finite, or no center is available; nothing was changed.
        """
        key, numbers = (effect.swarm, effect.segment), vector.flats_of(effect.register)
        known = frozenset(self._known())
        try:
            # A new peer may hold an older center.
            if self._looked_among.get(key) != known:
                self._find(key, numbers, known)
            held = self._held[key]
            fcntl.flock(held.fd, fcntl.LOCK_EX)
        except OSError as error:
            raise TrainingError(f"no memory to be shared with other peers: {error}") from error
        try:
            begun, done = held.counts[:2].tolist()
            if begun != done:
                _log.warning("a peer was killed while it exchanged its model with the center")
            held.counts[_BEGUN] = begun + 1
            if not done:
                for values, flat in zip(held.flats, numbers, strict=True):
                    values.copy_(flat)
            try:
                vector.exchange(effect.register, held.flats, taken=effect.taken, given=effect.given)
            finally:
                held.counts[_DONE] = begun + 1
        finally:
            fcntl.flock(held.fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Release all centers."""
        while self._held:
            self._held.popitem()[1].let_go()

    def _find(self, key: _Key, numbers: Sequence[Tensor], known: frozenset[Life]) -> None:
        """Hold the oldest center of this peer and the others in its swarm, or make one."""
        with _opening(key):
            mine = self._held.get(key)
            found = {} if mine is None else {mine.token: mine}
            for path, token in _shown({_badge_name(key, life) for life in known}):
                held = None if token in found else self._attach(key, path, token, numbers)
                if held is not None:
                    found[token] = held
            if not found:
                token = os.urandom(TOKEN_BYTES)
                made = self._hold(key, sealed_file(_size_bytes(numbers), token), token, numbers)
                made.counts[_MADE_NS] = time.time_ns()
                found[token] = made
            oldest, *younger = sorted(
                found.values(), key=lambda held: (int(held.counts[_MADE_NS]), held.token)
            )
            for held in younger:
                if held is mine:
                    _log.info("of two centers called %s, going over to the older one", key[1])
                held.let_go()
            self._held[key] = oldest
        self._looked_among[key] = known

    def _attach(
        self, key: _Key, path: str, token: bytes, numbers: Sequence[Tensor]
    ) -> _Held | None:
        """Open a center that another peer holds; None if it is gone."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
        except OSError:
            return None
        sound = os.fstat(fd).st_size == _size_bytes(numbers)
        if sound and os.pread(fd, TOKEN_BYTES, 0) == token:
            return self._hold(key, fd, token, numbers)
        os.close(fd)
        return None

    def _hold(self, key: _Key, fd: int, token: bytes, numbers: Sequence[Tensor]) -> _Held:
        try:
            mapping = mmap.mmap(fd, _size_bytes(numbers), mmap.MAP_SHARED)
            badge = os.memfd_create(_badge_name(key, self.life), os.MFD_CLOEXEC)
        except BaseException:
            os.close(fd)
            raise
        os.pwrite(badge, f"{os.getpid()}:{fd}:{token.hex()}".encode(), 0)
        counts = torch.frombuffer(mapping, dtype=torch.int64, count=3, offset=TOKEN_BYTES)
        flats, start = [], _HEAD_BYTES
        for part in numbers:
            dtype = widened(part)
            flats.append(torch.frombuffer(mapping, dtype=dtype, count=part.numel(), offset=start))
            start += _room_bytes(part)
        return _Held(token, fd, badge, counts, tuple(flats))


@contextmanager
def _opening(key: _Key) -> Iterator[None]:
    """Prevent other peers from opening or making a center of this name; raise `TrainingError` once
    another process has done so for half a minute."""
    # The lock is the name of an abstract socket: unique in a network namespace, and released when
    # its process ends.
    name = blake2b(key[1].encode(), key=key[0], digest_size=16).hexdigest()
    give_up_s = time.monotonic() + _OPENING_S
    with socket.socket(socket.AF_UNIX) as taken:
        while True:
            try:
                taken.bind(f"\0rumor-{os.geteuid()}-{name}")
                break
            except OSError as error:
                if time.monotonic() > give_up_s:
                    raise TrainingError(
                        f"another process has been opening the center {key[1]} for "
                        f"{_OPENING_S:.0f} s, or stands still: {error}"
                    ) from error
            time.sleep(_NAP_S)
        yield


def _badge_name(key: _Key, life: Life) -> str:
    swarm, center = key
    words = f"{center}\n{life[0]}\n{life[1]}".encode()
    return f"rumor-{blake2b(words, key=swarm, digest_size=16).hexdigest()}"


def _shown(badges: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """Iterate over the paths of the centers that belong to some badges, with their tokens."""
    links = {f"/memfd:{badge} (deleted)" for badge in badges}
    for process in Path("/proc").glob("[1-9]*") if links else ():
        # The process may end meanwhile, or be another user's.
        with suppress(OSError):
            for number in os.listdir(process / "fd"):
                with suppress(OSError):
                    if os.readlink(process / "fd" / number) in links:
                        match = NAME.fullmatch((process / "fd" / number).read_text())
                        if match is not None:
                            yield f"/proc/{match[1]}/fd/{match[2]}", bytes.fromhex(match[3])


def _room_bytes(part: Tensor) -> int:
    size = part.numel() * widened(part).itemsize
    return -(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


def _size_bytes(numbers: Sequence[Tensor]) -> int:
    return _HEAD_BYTES + sum(map(_room_bytes, numbers))
