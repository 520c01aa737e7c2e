"""The roster: the machines that are let in, signed by its owner, with a version that only grows.

It is a text of one line a machine, as `rumor keys make` prints it, below the owner's and above the
signature, which is of all that stands before it.
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
"""Longest text that is read: what fits into one message."""

_FORMAT: Final = "rumor roster 1"
_VERSION_MAX: Final = 2**53


@dataclass(frozen=True, slots=True)
class Roster:
    """Who is let in."""

    owner: bytes
    """Public key of CURVE of the owner, 32 bytes."""
    signs: bytes
    """Public key of the owner's signatures, 32 bytes: two rosters have the same owner if they have
    the same."""
    version: int
    machines: Mapping[bytes, str]
    """By public key of CURVE, what the peers of each machine are called, see `covers`."""
    signature: bytes = b""

    @classmethod
    def init(cls, owner: Key) -> Self:
        """A new roster, which lists its owner's machine."""
        return cls(owner.public, owner.signs, 0, {owner.public: owner.name})._signed(owner)

    def with_machines(self, owner: Key, machines: Iterable[tuple[str, bytes]]) -> Self:
        """The next version, with more machines (names and public keys), or other names for some.

        Raises:
            ConfigError: The key is not the owner's, no peer can be called so, or there would be too
                many.
        """
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
        """The next version, without machines of some names or public keys.

        Raises:
            ConfigError: The key is not the owner's, or a machine is not listed.
        """
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
        """This roster, or the other where that is of the same owner and a larger version."""
        # The owner may have changed two copies: all must take the same one.
        mine, theirs = (self.version, self.signature), (other.version, other.signature)
        return other if other.signs == self.signs and theirs > mine else self

    def why_not(self, own: Key) -> str:
        """Why a machine is not let in, and what its owner does; empty where it is."""
        if own.public in self.machines:
            return ""
        line = f"{shlex.quote(own.name)} {key_text(own.public)}"
        return (
            f"version {self.version} of the roster does not list it: `rumor keys add ROSTER "
            f"{line} --key OWNER.key` lets it in"
        )

    @property
    def text(self) -> str:
        """As it stands in files and messages."""
        return f"{self._unsigned}signature {key_text(self.signature)}\n"

    @classmethod
    def from_text(cls, text: bytes) -> Self:
        """Read a roster.

        Raises:
            ValueError: This is none, or its owner did not sign it.
        """
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
        # What it says has one form: of all others, this is none.
        if roster.text.encode() != text or not 1 <= roster.version <= _VERSION_MAX:
            raise ValueError("it is of another format")
        if len(roster.machines) > MACHINES_MAX or not all(
            map(is_pattern, roster.machines.values())
        ):
            raise ValueError("it lists too many machines, or names that no peer can have")
        if not is_signed_by(roster.signs, roster.signature, roster._unsigned.encode()):
            raise ValueError("its owner's signature does not fit: it was changed by somebody else")
        return roster

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the roster in a file.

        Raises:
            ConfigError: It cannot be read, or is none.
        """
        try:
            with path.open("rb") as file:
                text = file.read(ROSTER_BYTES_MAX + 1)
        except OSError as error:
            raise ConfigError(f"roster {path} cannot be read: {error.strerror or error}") from None
        try:
            return cls.from_text(text)
        except ValueError as error:
            raise ConfigError(f"{path} is no roster of `rumor keys init`: {error}") from None

    def write(self, path: Path) -> None:
        """Replace the roster in a file, so that others see all of it or what was there before.

        Raises:
            OSError: It cannot be written; what was there still is.
        """
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
        """The next version, under the owner's signature.

        Raises:
            ConfigError: The key is not the owner's.
        """
        if owner.signs != self.signs:
            name = self.machines.get(self.owner, key_text(self.owner))
            raise ConfigError(
                f"this key is {owner.name}'s, and the roster's owner is {name}, who alone can "
                "change it"
            )
        draft = replace(self, version=self.version + 1)
        return replace(draft, signature=owner.sign(draft._unsigned.encode()))
