"""A running peer's keys: its own, and those of the members on the newest roster."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from ...errors import ConfigError, TransportError
from .key import Key, key_text
from .roster import Roster

__all__ = ["Keyring", "read_keyring"]

_log = logging.getLogger("rumor")

_LOOK_S: Final = 0.5
"""Interval between checks of the file."""

_CANDIDATES_MAX: Final = 32


class Keyring:
    """One machine's key, and the roster of admitted machines.

    The roster's file is read again when it changes, and newer rosters from members are written to
    it, so that a restart does not forget revocations.

    Args:
        clock: Monotonic time, seconds.

    Raises:
        ConfigError: This machine's key is not admitted; the message says why, and what to do.
    """

    def __init__(
        self, own: Key, roster: Roster, path: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if why := roster.why_not(own):
            raise ConfigError(f"this machine's key is not let in by {path}: {why}")
        self.own = own
        self.public = own.public
        self._path = path
        self._clock = clock
        self._seen = self._stamp()
        self._looked_s = clock()
        self._take(roster)

    @property
    def machines(self) -> Mapping[bytes, str]:
        """Machines admitted now: the name pattern of their peers, by public key."""
        return self.roster.machines

    @property
    def names(self) -> str:
        """Name pattern of the peers on this machine."""
        return self.machines[self.public]

    def why_refused(self, key: bytes) -> str:
        if key in self.machines:
            return "it is let in"
        return (
            f"its key {key_text(key)} is not in version {self.roster.version} of the roster: its "
            "owner has revoked it, or has not added it yet"
        )

    def candidates(self) -> Sequence[bytes]:
        """Keys of other machines, or without any, this one's own: for an address without a key."""
        others = [key for key in self.machines if key != self.public]
        return others[:_CANDIDATES_MAX] or [self.public]

    def look(self) -> bool:
        """Read the file if it has changed; True if the roster has.

        Raises:
            TransportError: This machine is no longer admitted; the message says why.
        """
        now_s = self._clock()
        if now_s - self._looked_s < _LOOK_S:
            return False
        self._looked_s = now_s
        if (stamp := self._stamp()) == self._seen:
            return False
        self._seen = stamp
        try:
            told = Roster.read(self._path)
            if told.signs != self.roster.signs:
                raise ConfigError(f"{self._path} has another owner now: restart to use it")
        except ConfigError as error:
            _log.warning("%s; going on with what was there before", error)
            return False
        return self._follow(told)

    def take(self, text: bytes) -> bool:
        """Use a member's roster if it is newer; True if the roster changed.

        Raises:
            ValueError: The roster is malformed, or its owner did not sign it.
            TransportError: This machine is no longer admitted; the message says why.
        """
        if text == self.text:
            return False
        told = Roster.from_text(text)
        if told.signs != self.roster.signs:
            raise ValueError(f"it has another owner, {key_text(told.owner)}")
        if self.roster.newest(told) is told:
            try:
                told.write(self._path)
            except OSError as error:
                _log.warning("the new roster cannot be kept: %s", error)
            self._seen = self._stamp()
        return self._follow(told)

    def _follow(self, told: Roster) -> bool:
        """Use a roster if it is newer; raise TransportError if it does not list this machine."""
        before = self.roster
        if before.newest(told) is before:
            return False
        _log.info("roster: version %d instead of %d", told.version, before.version)
        self._take(told)
        if self.public not in told.machines:
            raise TransportError(
                f"this machine is no longer admitted: version {told.version} of the roster does "
                "not list its key, which was revoked"
            )
        return True

    def _take(self, roster: Roster) -> None:
        # The newest roster, and its text as it is sent to others.
        self.roster = roster
        self.text = roster.text.encode()

    def _stamp(self) -> tuple[int, int]:
        try:
            status = self._path.stat()
        except OSError:
            return 0, 0
        return status.st_mtime_ns, status.st_ino


def read_keyring(key: Path | None, roster: Path | None) -> Keyring | None:
    """Read a key and a roster from files; None without keys."""
    if key is None and roster is None:
        return None
    if key is None or roster is None:
        raise ConfigError("key and roster belong together: give both or neither")
    return Keyring(Key.read(key), Roster.read(roster), roster)
