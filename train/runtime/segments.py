"""Segments that all peers of a swarm on one machine exchange with, each under a lock.

A segment is an anonymous file in memory, as in `tensors.shared_memory`: no folder has it, so it is
gone with the last process that holds it, however that process ends. The lock is one of the file,
which the system takes from a process that is killed. Each holder shows a *badge*, a further such
file: its name, which ``/proc`` lists, is a hash of swarm, segment, peer and incarnation, and its
content says by what the segment is opened.
"""

import fcntl
import logging
import mmap
import os
import re
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
from ..storage.journal_records import Exchanged
from ..tensors.blocks import widened
from ..tensors.vector import Flats, Vector

__all__ = ["Life", "SharedSegments"]

_log = logging.getLogger("rumor")

Life = tuple[PeerId, Incarnation]

_Key = tuple[bytes, str]
"""Swarm and name of a segment."""

# Longer than a large model takes to be mapped.
_OPENING_S: Final = 30.0
_NAP_S: Final = 0.002

_TOKEN_BYTES: Final = 16
_HEAD_BYTES: Final = mmap.PAGESIZE
_COUNTS: Final = slice(_TOKEN_BYTES // 8, _TOKEN_BYTES // 8 + 3)
_BEGUN, _DONE, _MADE_NS = range(3)
_ALIGNMENT_BYTES: Final = 64

_BADGE: Final = re.compile(r"([1-9][0-9]{0,9}):([0-9]{1,9}):([0-9a-f]{32})", re.ASCII)


class _Held(NamedTuple):
    """A segment, as one peer holds it."""

    token: bytes
    fd: int
    """Opened for this holder alone, so that the lock is its own, too."""
    badge: int
    """Shows who holds it."""
    counts: Tensor
    """Exchanges begun, exchanges done, and when it was made, ns: int64, axes ``(3,)``."""
    flats: Flats

    @property
    def age(self) -> tuple[int, bytes]:
        """Sorts the oldest first."""
        return int(self.counts[_MADE_NS]), self.token

    def let_go(self) -> None:
        """Hold it no more; what is mapped is unmapped with its last view."""
        os.close(self.badge)
        os.close(self.fd)


class SharedSegments:
    """One peer's hold on the segments of its swarm.

    Whoever is first makes a segment. Of those that exist, only those count that a peer of the same
    swarm holds, as far as the protocol knows of one: nothing is ever exchanged with the segment of
    another run, or of one that is over, whatever they have in common. Where two were made, because
    their holders had not met, the younger one is given up when they have.

    Args:
        life: Whose.
        known: The others of its swarm.
        note: Told of each exchange, under the lock and before anything changes.

    Raises:
        TrainingError: This system has no anonymous files in memory; Linux has.
    """

    def __init__(
        self,
        life: Life,
        known: Callable[[], Collection[Life]],
        note: Callable[[Exchanged], None] | None = None,
    ) -> None:
        if not hasattr(os, "memfd_create"):
            raise TrainingError(
                "this system cannot share a center between processes, Linux can: use a rule "
                "whose peers gossip, such as easgd"
            )
        self.life = life
        """Whose hold it is."""
        self._known = known
        self._note = note
        self._held: dict[_Key, _Held] = {}
        self._has_met = False

    def exchange(self, effect: Exchange, vector: Vector) -> None:
        """Exchange a register with a segment: one peer at a time.

        Where its process is killed meanwhile, some numbers are exchanged, and the others are not.

        Raises:
            TrainingError: A number is not finite, or no segment is to be had; nothing was changed.
        """
        key = effect.swarm, effect.segment
        numbers = vector.flats_of(effect.register)
        try:
            if self._has_met:
                self._has_met = False
                self._review(numbers)
            held = self._held.get(key) or self._open(key, numbers)
        except OSError as error:
            raise TrainingError(f"no memory to be shared with other peers: {error}") from error
        with _locked(held):
            number, whole = int(held.counts[_BEGUN]) + 1, _is_whole(held)
            if self._note is not None:
                self._note(Exchanged(held.token, number, whole))
            held.counts[_BEGUN] = number
            if not held.counts[_DONE]:
                for values, flat in zip(held.flats, numbers, strict=True):
                    values.copy_(flat)
            try:
                vector.exchange(effect.register, held.flats, taken=effect.taken, given=effect.given)
            finally:
                held.counts[_DONE] = number

    def met(self) -> None:
        """Look before the next exchange whether a peer that was met holds an older segment."""
        self._has_met = True

    def close(self) -> None:
        """Hold no segment any more."""
        while self._held:
            self._held.popitem()[1].let_go()

    def _open(self, key: _Key, numbers: Sequence[Tensor]) -> _Held:
        with _opening(key):
            held = self._oldest(key, numbers) or self._make(key, numbers)
            self._held[key] = held
        return held

    def _review(self, numbers: Sequence[Tensor]) -> None:
        for key, mine in list(self._held.items()):
            with _opening(key):
                other = self._oldest(key, numbers)
                if other is None:
                    continue
                if other.age >= mine.age:
                    other.let_go()
                else:
                    _log.info("of two segments called %s, going over to the older one", key[1])
                    mine.let_go()
                    self._held[key] = other

    def _oldest(self, key: _Key, numbers: Sequence[Tensor]) -> _Held | None:
        """Hold the oldest segment that others of the swarm hold; None where none does."""
        found: dict[bytes, _Held] = {}
        for path, token in _shown({_badge_name(key, life) for life in self._known()}):
            held = None if token in found else self._attach(key, path, token, numbers)
            if held is not None:
                found[token] = held
        ranked = sorted(found.values(), key=lambda held: held.age)
        for younger in ranked[1:]:
            younger.let_go()
        return ranked[0] if ranked else None

    def _make(self, key: _Key, numbers: Sequence[Tensor]) -> _Held:
        token = os.urandom(_TOKEN_BYTES)
        fd = os.memfd_create("rumor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, _size_bytes(numbers))
            os.pwrite(fd, token, 0)
            # Were it cut short under a peer, that would die of SIGBUS.
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
            held = self._hold(key, fd, token, numbers)
        except BaseException:
            os.close(fd)
            raise
        held.counts[_MADE_NS] = time.time_ns()
        return held

    def _attach(
        self, key: _Key, path: str, token: bytes, numbers: Sequence[Tensor]
    ) -> _Held | None:
        """Hold a segment that another peer holds; None where it is gone."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            sound = os.fstat(fd).st_size == _size_bytes(numbers)
            if sound and os.pread(fd, _TOKEN_BYTES, 0) == token:
                return self._hold(key, fd, token, numbers)
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        return None

    def _hold(self, key: _Key, fd: int, token: bytes, numbers: Sequence[Tensor]) -> _Held:
        mapping = mmap.mmap(fd, _size_bytes(numbers), mmap.MAP_SHARED)
        counts = torch.frombuffer(mapping, dtype=torch.int64, count=_COUNTS.stop)[_COUNTS]
        flats, start = [], _HEAD_BYTES
        for part in numbers:
            dtype = widened(part)
            flats.append(torch.frombuffer(mapping, dtype=dtype, count=part.numel(), offset=start))
            start += _room_bytes(part)
        badge = os.memfd_create(_badge_name(key, self.life), os.MFD_CLOEXEC)
        os.pwrite(badge, f"{os.getpid()}:{fd}:{token.hex()}".encode(), 0)
        return _Held(token, fd, badge, counts, tuple(flats))


def _is_whole(held: _Held) -> bool:
    """Whether the exchange before was carried out to its end."""
    whole = bool(held.counts[_BEGUN] == held.counts[_DONE])
    if not whole:
        _log.warning("a peer was killed while it exchanged its model with the others' center")
    return whole


@contextmanager
def _locked(held: _Held) -> Iterator[None]:
    fcntl.flock(held.fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(held.fd, fcntl.LOCK_UN)


@contextmanager
def _opening(key: _Key) -> Iterator[None]:
    """Let nobody else open or make a segment of this name.

    An abstract socket's name is taken once in a network namespace, by a process that lives.

    Raises:
        TrainingError: Another process has been at it for half a minute.
    """
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
                        f"another process has been opening the segment {key[1]} for "
                        f"{_OPENING_S:.0f} s, or stands still: {error}"
                    ) from error
            time.sleep(_NAP_S)
        yield


def _badge_name(key: _Key, life: Life) -> str:
    swarm, segment = key
    words = f"{segment}\n{life[0]}\n{life[1]}".encode()
    return f"rumor-{blake2b(words, key=swarm, digest_size=16).hexdigest()}"


def _shown(badges: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """Where the holders of some badges hold their segments open, and what these begin with."""
    links = {f"/memfd:{badge} (deleted)" for badge in badges}
    for process in Path("/proc").glob("[1-9]*") if links else ():
        # It may end meanwhile, or be another user's.
        with suppress(OSError):
            for number in os.listdir(process / "fd"):
                with suppress(OSError):
                    if os.readlink(process / "fd" / number) in links:
                        match = _BADGE.fullmatch((process / "fd" / number).read_text())
                        if match is not None:
                            yield f"/proc/{match[1]}/fd/{match[2]}", bytes.fromhex(match[3])


def _room_bytes(part: Tensor) -> int:
    size = part.numel() * widened(part).itemsize
    return -(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


def _size_bytes(numbers: Sequence[Tensor]) -> int:
    return _HEAD_BYTES + sum(map(_room_bytes, numbers))
