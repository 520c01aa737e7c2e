"""A peer's keys while it runs: its own, and those of the members, as the newest roster has them."""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self

from ...errors import ConfigError, TransportError
from .certificates import Certificate, MachineKey, covers
from .files import key_text
from .roster import Roster

__all__ = ["Keyring"]

_log = logging.getLogger("rumor")

_LOOK_S: Final = 0.5
"""Between two looks at the files."""

_SOON_S: Final = 86_400.0
_CANDIDATES_MAX: Final = 32


class Keyring:
    """One machine's key, and the roster that says who else is let in.

    Files are read again when they change; what members tell is written into the roster's file, so
    that a restart does not forget who was revoked.

    Args:
        own: This machine's key.
        roster: Whom the owner lets in.
        roster_path: Where it is kept.
        key_path: Where the own key is, whose certificate may be renewed while the peer runs.
        clock: Unix time, seconds.

    Raises:
        ConfigError: The own key is not let in; the message says why, and what to do.
    """

    def __init__(
        self,
        own: MachineKey,
        roster: Roster,
        roster_path: Path,
        key_path: Path,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._paths = (roster_path, key_path)
        self._clock = clock
        self._own = own
        self._roster = roster.with_machines((own.certificate,), clock())
        self._seen = self._stamps()
        self._looked_s = clock()
        self._warned_of = 0
        why = self._why_not_me()
        if not why and not own.certificate.is_genuine():
            why = "its certificate was changed: make a new key with `rumor keygen`"
        if why:
            raise ConfigError(f"key {key_path} is not let in by {roster_path}: {why}")
        self.valid: dict[bytes, Certificate] = {}
        """Machines that are let in now, by key."""
        self._text = b""
        self._told: Roster | None = None
        self._recount()

    @classmethod
    def read(cls, key: Path, roster: Path) -> Self:
        """Read both from files.

        Raises:
            ConfigError: One cannot be read, others could read the key, or it is not let in.
        """
        own = MachineKey.read(key)
        return cls(own, Roster.read(roster, time.time()), roster, key)

    @property
    def public(self) -> bytes:
        """This machine's public key, 32 bytes."""
        return self._own.certificate.key

    @property
    def secret(self) -> bytes:
        """Its secret one, 32 bytes."""
        return self._own.secret

    @property
    def names(self) -> str:
        """What peers on this machine may be called."""
        return self._own.certificate.names

    @property
    def owner(self) -> bytes:
        """Public key of whoever signs the roster, 32 bytes."""
        return self._roster.owner

    @property
    def version(self) -> int:
        """Of the roster."""
        return self._roster.version

    @property
    def text(self) -> bytes:
        """The roster with all machines, as others are told."""
        return self._text

    def why_refused(self, key: bytes) -> str:
        """Why a machine is not let in, in words for this peer's log."""
        known = self._roster.machines.get(key)
        if known is not None:
            return self._roster.why_not(known, self._clock()) or "it is let in"
        if key in self._roster.revoked:
            return "its key was revoked"
        return (
            f"its key {key_text(key)} is unknown: `rumor keygen --by PERSON.key --roster` puts it "
            "into a roster, on any machine that runs a member"
        )

    def may_speak_as(self, key: bytes, name: str) -> bool:
        """Whether the machine with a key may send in the name of a peer, at this moment."""
        known = self.valid.get(key)
        return known is not None and covers(known.names, name)

    def candidates(self) -> Sequence[bytes]:
        """Keys that whoever listens at an address without a key may have: those of other machines,
        the own one where there is none."""
        others = [key for key in self.valid if key != self.public]
        return others[:_CANDIDATES_MAX] or [self.public]

    def look(self) -> bool:
        """Read files that have changed, and see what has expired; whether anything changed.

        Raises:
            TransportError: This machine is let in no more; it says why.
        """
        now_s = self._clock()
        if abs(now_s - self._looked_s) < _LOOK_S:
            return False
        self._looked_s = now_s
        if (stamps := self._stamps()) != self._seen:
            self._seen = stamps
            self._read_again(now_s)
        return self._recount()

    def take(self, text: bytes) -> bool:
        """Take in what a member says that the roster is; whether anything changed.

        Raises:
            ValueError: This is no roster, or its owner did not sign it.
            TransportError: This machine is let in no more; it says why.
        """
        now_s = self._clock()
        told = Roster.from_text(text, now_s, self._roster.machines)
        if told.owner != self._roster.owner:
            raise ValueError(f"it has another owner, {key_text(told.owner)}")
        version = self._roster.version
        self._roster = self._roster.merged(told, now_s)
        if self._roster.version > version:
            _log.info("roster: version %d instead of %d", self._roster.version, version)
        changed = self._recount()
        if changed:
            self._keep()
        return changed

    def _read_again(self, now_s: float) -> None:
        roster_path, key_path = self._paths
        try:
            own = MachineKey.read(key_path)
            if own.certificate.key == self.public:
                self._own = own
            else:
                _log.warning("%s is another key now: restart this peer to use it", key_path)
            told = Roster.read(roster_path, now_s)
            if told.owner != self._roster.owner:
                raise ConfigError(f"{roster_path} has another owner now: restart to use it")
        except ConfigError as error:
            _log.warning("%s; going on with what was there before", error)
            return
        told = told.with_machines((self._own.certificate,), now_s)
        # In this order, so that machines which were taken out of the file stay until they expire.
        self._roster = self._roster.merged(told, now_s)

    def _recount(self) -> bool:
        """See anew who is let in, and what to tell others.

        Raises:
            TransportError: This machine is not.
        """
        now_s = self._clock()
        if why := self._why_not_me():
            raise TransportError(f"this machine is let in no more: {why}")
        self._warn_of_end(now_s)
        valid, before = self._roster.valid(now_s), self.valid
        self.valid = valid
        if self._roster is self._told and valid == before:
            return False
        self._told, self._text = self._roster, self._roster.as_text().encode()
        return True

    def _warn_of_end(self, now_s: float) -> None:
        until = self._own.certificate.until
        if until - now_s < _SOON_S and self._warned_of != until:
            self._warned_of = until
            _log.warning(
                "this machine's certificate expires in %.1f h: renew it with `rumor keygen %s "
                "--by PERSON.key --renew`",
                (until - now_s) / 3600,
                self._paths[1],
            )

    def _why_not_me(self) -> str:
        return self._roster.why_not(self._own.certificate, self._clock())

    def _keep(self) -> None:
        try:
            self._roster.write(self._paths[0])
        except OSError as error:
            _log.warning("the new roster cannot be kept: %s", error)
        self._seen = self._stamps()

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        found = []
        for path in self._paths:
            try:
                status = path.stat()
                found.append((status.st_mtime_ns, status.st_ino))
            except OSError:
                found.append((0, 0))
        return tuple(found)
