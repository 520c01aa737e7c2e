"""The roster: whom an owner lets in, signed, with a version that only grows.

It names people. Beside it, in the same file and in the same messages, lie the certificates of
machines, each of which is signed by one of these people, so that it needs no further signature.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

from ...errors import ConfigError
from .certificates import Certificate, PersonKey, covers, is_signed_by
from .files import (
    TEXT_BYTES_MAX,
    canonical,
    field_of,
    is_pattern,
    key_bytes,
    key_text,
    read_json,
    replace_file,
    require_fields,
)

__all__ = ["MACHINES_PER_PERSON_MAX", "Person", "Roster"]

MACHINES_PER_PERSON_MAX: Final = 128
"""How many machines one person can bring: one whose key was stolen cannot fill the roster."""

_FORMAT: Final = "rumor roster 1"
_SIGNATURE_BYTES: Final = 64
_PEOPLE_MAX: Final = 1024
_MACHINES_MAX: Final = 1024
_REVOKED_MAX: Final = 4096
_VERSION_MAX: Final = 2**53


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody whose machines are let in."""

    name: str
    key: bytes
    """Public key, 32 bytes."""
    names: str
    """What this person's peers may be called, see `covers`."""


@dataclass(frozen=True)
class Roster:
    """Who is let in. All of it but ``machines`` is under the owner's signature."""

    owner: bytes
    """The owner's public key, 32 bytes."""
    version: int
    people: tuple[Person, ...]
    revoked: tuple[bytes, ...] = ()
    """Keys of people and machines that are let in no more."""
    signature: bytes = b""
    machines: Mapping[bytes, Certificate] = field(default_factory=dict)
    """Certificates by the machine's key."""

    @classmethod
    def found(cls, owner: PersonKey) -> Self:
        """A new roster, whose first person is its owner."""
        # Whose peers may be called anything: who signs the roster decides about names anyhow.
        first = Person(owner.name, owner.public, "*")
        return cls(owner.public, 0, (first,))._signed(owner)

    def with_person(self, owner: PersonKey, person: Person) -> Self:
        """The next version, with one person more, or with another key or names for one.

        Raises:
            ConfigError: The key is not the owner's, was revoked, or names are another's.
        """
        if not is_pattern(person.name) or "*" in person.name or not is_pattern(person.names):
            raise ConfigError(
                f"person {person.name!r} with peers {person.names!r}: use letters, digits, '.', "
                "'_' and '-', and '*' only at the end of the peers' names"
            )
        if person.key in self.revoked:
            raise ConfigError("this key was revoked, which is for ever: let them make a new one")
        others = tuple(each for each in self.people if each.name != person.name)
        for each in others:
            if each.key == person.key:
                raise ConfigError(f"this key is {each.name}'s already")
            overlap = covers(each.names, person.names) or covers(person.names, each.names)
            if each.key != self.owner and person.key != self.owner and overlap:
                raise ConfigError(
                    f"peers called {person.names} could be {each.name}'s, whose are called "
                    f"{each.names}: choose other --names"
                )
        return replace(self, people=(*others, person))._signed(owner)

    def without(self, owner: PersonKey, named: str) -> Self:
        """The next version, without a person and all of their machines, or without one machine.

        Args:
            owner: Signs.
            named: A person's name, a machine's, or the public key of either.

        Raises:
            ConfigError: There is none, it is the owner, or the key is not the owner's.
        """
        keys = {each.key for each in self.people if named in (each.name, key_text(each.key))}
        keys |= {key for key, each in self.machines.items() if named in (each.names, key_text(key))}
        if self.owner in keys:
            raise ConfigError("the owner cannot be revoked: begin a new roster instead")
        if not keys:
            try:
                # A machine that this roster has not heard of is kept out, too.
                keys = {key_bytes(named)}
            except ValueError:
                known = ", ".join(each.name for each in self.people)
                raise ConfigError(
                    f"nobody and no machine is called {named!r}: people are {known}"
                ) from None
        return replace(
            self,
            people=tuple(each for each in self.people if each.key not in keys),
            revoked=tuple(sorted({*self.revoked, *keys})),
        )._signed(owner)

    def with_machines(self, certificates: Iterable[Certificate], now_s: float) -> Self:
        """The same version with more machines: those whose person is in it, that hold still, whose
        names are that person's, and whose signature is genuine. Others are left out."""
        known = dict(self.machines)
        for each in certificates:
            before = known.get(each.key)
            if before == each or (before is not None and before.until >= each.until):
                continue
            if self.why_not(each, now_s, early=True) or not self._has_room(known, each):
                continue
            if each.is_genuine():
                known[each.key] = each
        if known == self.machines:
            return self
        return replace(self, machines=dict(sorted(known.items())))

    def merged(self, other: "Roster", now_s: float) -> "Roster":
        """This roster, or the other where that is of the same owner and a larger version, with the
        machines of both."""
        newer, older = self, other
        if other.owner == self.owner and other.version > self.version:
            newer, older = other, self
        kept = {
            key: each
            for key, each in newer.machines.items()
            if not newer.why_not(each, now_s, early=True)
        }
        if len(kept) < len(newer.machines):
            newer = replace(newer, machines=kept)
        return newer.with_machines(older.machines.values(), now_s)

    def why_not(self, certificate: Certificate, now_s: float, *, early: bool = False) -> str:
        """Why a machine is not let in; empty where it is.

        Args:
            certificate: Of the machine; that it is genuine is known.
            now_s: Unix time.
            early: Whether one that holds only later will do.
        """
        if certificate.key in self._gone:
            return "its key was revoked: make a new one with `rumor keygen --by PERSON.key`"
        if certificate.by in self._gone:
            return "the person who signed it was revoked"
        person = self.person(certificate.by)
        if person is None:
            return (
                f"it was signed by {key_text(certificate.by)}, who is not in version "
                f"{self.version} of the roster: the owner adds them with `rumor roster add`"
            )
        if not covers(person.names, certificate.names):
            return (
                f"its peers are called {certificate.names}, and those of {person.name} must be "
                f"called {person.names}"
            )
        return certificate.why_not(max(now_s, certificate.since) if early else now_s)

    def person(self, key: bytes) -> Person | None:
        """Whose public key this is."""
        return self._by_key.get(key)

    @cached_property
    def _by_key(self) -> dict[bytes, Person]:
        return {each.key: each for each in self.people}

    @cached_property
    def _gone(self) -> frozenset[bytes]:
        return frozenset(self.revoked)

    def valid(self, now_s: float) -> dict[bytes, Certificate]:
        """Machines that are let in now, by key."""
        return {key: each for key, each in self.machines.items() if not self.why_not(each, now_s)}

    def as_text(self) -> str:
        """As it stands in files and messages."""
        content = {
            "format": _FORMAT,
            "roster": self._content(),
            "signature": key_text(self.signature),
            "machines": [each.as_json() for each in self.machines.values()],
        }
        return json.dumps(content, indent=1) + "\n"

    @classmethod
    def from_text(
        cls, text: bytes, now_s: float, known: Mapping[bytes, Certificate] | None = None
    ) -> Self:
        """Read a roster, with those of its machines that are genuine.

        Args:
            text: See `as_text`.
            now_s: Unix time.
            known: Certificates by key that are known to be genuine.

        Raises:
            ValueError: This is none, or its owner did not sign it.
        """
        told = require_fields(
            read_json(text), frozenset(("format", "roster", "signature", "machines"))
        )
        if told["format"] != _FORMAT:
            raise ValueError("it is of another format")
        content = require_fields(
            told["roster"], frozenset(("owner", "version", "people", "revoked"))
        )
        version = field_of(content, "version", int)
        people = [_person(each) for each in _listed(content, "people", _PEOPLE_MAX)]
        roster = cls(
            key_bytes(content["owner"]),
            version,
            tuple(people),
            tuple(key_bytes(each) for each in _listed(content, "revoked", _REVOKED_MAX)),
            key_bytes(told["signature"], _SIGNATURE_BYTES),
        )
        if not 1 <= version <= _VERSION_MAX:
            raise ValueError("its version is out of range")
        machines = [
            Certificate.from_json(each) for each in _listed(told, "machines", _MACHINES_MAX)
        ]
        if not is_signed_by(roster.owner, roster.signature, roster._signed_bytes()):
            raise ValueError("its owner's signature does not fit: it was changed by somebody else")
        genuine = {
            each.key: each
            for each in machines
            if known is not None
            and known.get(each.key) == each
            and not roster.why_not(each, now_s, early=True)
        }
        return replace(roster, machines=genuine).with_machines(machines, now_s)

    @classmethod
    def read(cls, path: Path, now_s: float) -> Self:
        """Read the roster in a file.

        Raises:
            ConfigError: It cannot be read, or is none.
        """
        try:
            with path.open("rb") as file:
                text = file.read(TEXT_BYTES_MAX + 1)
        except OSError as error:
            raise ConfigError(f"roster {path} cannot be read: {error.strerror or error}") from None
        try:
            return cls.from_text(text, now_s)
        except ValueError as error:
            raise ConfigError(f"{path} is no roster of `rumor roster init`: {error}") from None

    def write(self, path: Path) -> None:
        """Replace the roster in a file.

        Raises:
            OSError: It cannot be written; what was there still is.
        """
        replace_file(path, self.as_text())

    def _signed(self, owner: PersonKey) -> Self:
        """The next version, under the owner's signature.

        Raises:
            ConfigError: The key is not the owner's, or there would be too many people.
        """
        if owner.public != self.owner:
            raise ConfigError(
                f"the key is {owner.name}'s, and the roster is signed by {key_text(self.owner)}: "
                "only its owner can change it"
            )
        if len(self.people) > _PEOPLE_MAX or len(self.revoked) > _REVOKED_MAX:
            raise ConfigError(
                f"a roster has at most {_PEOPLE_MAX} people and {_REVOKED_MAX} revoked keys: "
                "begin a new one"
            )
        draft = replace(self, version=self.version + 1)
        draft = replace(draft, signature=owner.sign(draft._signed_bytes()))
        kept = {
            key: each for key, each in draft.machines.items() if not draft.why_not(each, each.since)
        }
        return replace(draft, machines=kept)

    def _has_room(self, known: Mapping[bytes, Certificate], new: Certificate) -> bool:
        if new.key in known:
            return True
        of_person = sum(each.by == new.by for each in known.values())
        return of_person < MACHINES_PER_PERSON_MAX and len(known) < _MACHINES_MAX

    def _content(self) -> dict[str, Any]:
        return {
            "owner": key_text(self.owner),
            "version": self.version,
            "people": [
                {"name": each.name, "key": key_text(each.key), "names": each.names}
                for each in self.people
            ],
            "revoked": [key_text(each) for each in self.revoked],
        }

    def _signed_bytes(self) -> bytes:
        return canonical(_FORMAT, self._content())


def _person(content: object) -> Person:
    told = require_fields(content, frozenset(("name", "key", "names")))
    name, names = field_of(told, "name", str), field_of(told, "names", str)
    if not is_pattern(name) or "*" in name or not is_pattern(names):
        raise ValueError("it names somebody by what is no name")
    return Person(name, key_bytes(told["key"]), names)


def _listed(content: Mapping[str, Any], name: str, most: int) -> list[object]:
    found: list[object] = field_of(content, name, list)
    if len(found) > most:
        raise ValueError(f"it lists more than {most} {name}")
    return found
