"""The roster: the admitted machines, signed by its owner, with a version that only grows.

Its text has one line per machine, as `rumor keys make` prints it, after the owner's line and before
the signature, which covers everything above it.
"""

import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from ...errors import ConfigError
from .key import Key, is_pattern, is_signed_by, key_bytes, key_text

__all__ = ["MACHINES_MAX", "ROSTER_BYTES_MAX", "Roster"]

MACHINES_MAX: Final = 4096

ROSTER_BYTES_MAX: Final = 1 << 20
"""Longest text that is read: as much as fits into one message."""

_FORMAT: Final = "rumor roster 1"
_VERSION_MAX: Final = 2**53


@dataclass(frozen=True, slots=True)
class Roster:
    """The admitted machines."""

    owner: bytes
    """Public key of CURVE of the owner, 32 bytes."""
    signs: bytes
    """Public key of the owner's signatures, 32 bytes; it identifies the owner."""
    version: int
    machines: Mapping[bytes, str]
    """Name pattern of each machine's peers, see `covers`, by public key of CURVE."""
    signature: bytes = b""

    @classmethod
    def init(cls, owner: Key) -> Self:
        return cls(owner.public, owner.signs, 0, {owner.public: owner.name})._signed(owner)

    def with_machines(self, owner: Key, machines: Iterable[tuple[str, bytes]]) -> Self:
        """Return the next version, with machines (names and public keys) added or renamed."""
        listed = dict(self.machines)
        for name, key in machines:
            if not is_pattern(name):
                raise ConfigError(
                    f"no peer can be called {name!r}: give the line of `rumor keys make` as it is"
                )
            listed[key] = name
        if len(listed) > MACHINES_MAX:
            raise ConfigError(f"a roster lists at most {MACHINES_MAX} machines")
        return replace(self, machines=listed)._signed(owner)

    def without(self, owner: Key, named: Iterable[str]) -> Self:
        """Return the next version, without the machines of some names or public keys."""
        listed = dict(self.machines)
        for each in named:
            keys = [key for key, name in self.machines.items() if each in (name, key_text(key))]
            if not keys:
                known = ", ".join(sorted({*self.machines.values()}))
                raise ConfigError(f"no machine is called {each!r}: those listed are {known}")
            for key in keys:
                listed.pop(key, None)
        return replace(self, machines=listed)._signed(owner)

    def newest(self, other: "Roster") -> "Roster":
        """Return the other roster if it has the same owner and a larger version, else this one."""
        # The owner may have changed two copies: all peers must choose the same one.
        mine, theirs = (self.version, self.signature), (other.version, other.signature)
        return other if other.signs == self.signs and theirs > mine else self

    def why_not(self, own: Key) -> str:
        """Return why a machine is not admitted, and what to do; empty if it is."""
        if own.public in self.machines:
            return ""
        line = f"{shlex.quote(own.name)} {key_text(own.public)}"
        return (
            f"version {self.version} of the roster does not list it: `rumor keys add ROSTER "
            f"{line} --key OWNER.key` lets it in"
        )

    @property
    def text(self) -> str:
        return f"{self._unsigned}signature {key_text(self.signature)}\n"

    @classmethod
    def from_text(cls, text: bytes) -> Self:
        """Parse a roster; raise ValueError if it is malformed, or its owner did not sign it."""
        if len(text) > ROSTER_BYTES_MAX:
            raise ValueError(f"it is longer than {ROSTER_BYTES_MAX} bytes")
        lines = [line.split(" ") for line in text.decode("ascii").split("\n")]
        if len(lines) < 5 or any(len(words) != 2 for words in lines[1:-1]):
            raise ValueError("it has lines that are not two words")
        (_, version), (_, owner), (_, signs) = lines[1:4]
        roster = cls(
            key_bytes(owner),
            key_bytes(signs),
            int(version[:20]),
            {key_bytes(key): name for name, key in lines[4:-2]},
            key_bytes(lines[-2][1], 64),
        )
        # A roster has one canonical text; any other is refused.
        if roster.text.encode() != text or not 1 <= roster.version <= _VERSION_MAX:
            raise ValueError("it is of another format")
        are_names = all(map(is_pattern, roster.machines.values()))
        if len(roster.machines) > MACHINES_MAX or not are_names:
            raise ValueError("it lists too many machines, or names that no peer can have")
        if not is_signed_by(roster.signs, roster.signature, roster._unsigned.encode()):
            raise ValueError("its owner's signature does not match: another party changed it")
        return roster

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a roster from a file; raise ConfigError if it is not a valid one."""
        try:
            with path.open("rb") as file:
                text = file.read(ROSTER_BYTES_MAX + 1)
        except OSError as error:
            raise ConfigError(f"roster {path} cannot be read: {error.strerror or error}") from None
        try:
            return cls.from_text(text)
        except ValueError as error:
            raise ConfigError(f"{path} is not a roster of `rumor keys init`: {error}") from None

    def write(self, path: Path) -> None:
        """Replace the roster in a file atomically; the file is unchanged if that fails."""
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            draft.write_text(self.text, encoding="ascii")
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise

    @property
    def _unsigned(self) -> str:
        head = f"{_FORMAT}\nversion {self.version}\nowner {key_text(self.owner)}\n"
        machines = "".join(f"{name} {key_text(key)}\n" for key, name in self.machines.items())
        return f"{head}signs {key_text(self.signs)}\n{machines}"

    def _signed(self, owner: Key) -> Self:
        """Return the next version, signed by the owner; raise ConfigError if the key is another."""
        if owner.signs != self.signs:
            name = self.machines.get(self.owner, key_text(self.owner))
            raise ConfigError(
                f"this key is {owner.name}'s, and the roster's owner is {name}, who alone can "
                "change it"
            )
        draft = replace(self, version=self.version + 1)
        return replace(draft, signature=owner.sign(draft._unsigned.encode()))
