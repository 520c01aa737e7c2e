"""People and machines: keys that sign, keys that encrypt, and who vouches for whom.

A *person* has a signing key (Ed25519). A *machine* has a key of CURVE, with which ZeroMQ encrypts,
and a certificate: a person's signed word on which peers run there, and until when.
"""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import zmq
from zmq.utils import z85

from ...errors import ConfigError
from .files import (
    canonical,
    field_of,
    is_pattern,
    key_bytes,
    key_text,
    read_secret,
    require_fields,
    write_secret,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = [
    "CLOCK_ERROR_S",
    "Certificate",
    "MachineKey",
    "PersonKey",
    "covers",
    "is_signed_by",
]

CLOCK_ERROR_S: Final = 300
"""By how much clocks of two machines may differ before a certificate is not valid *yet*, s."""

_KEY_FORMAT: Final = "rumor key 1"
_CERTIFICATE_FORMAT: Final = "rumor machine 1"
_SIGNATURE_BYTES: Final = 64
_SIGNED: Final = frozenset(("key", "names", "by", "since", "until"))
_CERTIFICATE: Final = _SIGNED | {"signature"}
_TIME_MAX: Final = 2**40


def covers(pattern: str, name: str) -> bool:
    """Whether a pattern covers a peer's name, or a narrower pattern.

    ``ada`` covers ada and whatever begins with ``ada.``; ``gpu-*`` what begins with ``gpu-``;
    ``*`` everything.

    >>> [covers("ada", name) for name in ("ada", "ada.m1", "adam", "ada*")]
    [True, True, False, False]
    """
    if pattern.endswith("*"):
        return name.startswith(pattern[:-1])
    return name == pattern or name.startswith(f"{pattern}.")


def _ed25519() -> Any:
    """The library that signs.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise ConfigError("keys need a library: pip install 'rumor[keys]'") from None
    return ed25519


def is_signed_by(key: bytes, signature: bytes, signed: bytes) -> bool:
    """Whether a person's public key signed some bytes.

    Raises:
        ConfigError: The library is not installed.
    """
    ed25519 = _ed25519()
    from cryptography.exceptions import InvalidSignature

    try:
        ed25519.Ed25519PublicKey.from_public_bytes(key).verify(signature, signed)
    except InvalidSignature:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a person says of a machine."""

    key: bytes
    """Public key of CURVE, 32 bytes."""
    names: str
    """Which peers run there, see `covers`."""
    by: bytes
    """The person's public key, 32 bytes."""
    since: int
    """From when it holds, seconds of Unix time."""
    until: int
    """And until when."""
    signature: bytes = b""

    @property
    def signed(self) -> bytes:
        """The bytes under the signature."""
        content = self.as_json()
        del content["signature"]
        return canonical(_CERTIFICATE_FORMAT, content)

    def is_genuine(self) -> bool:
        """Whether the person signed it."""
        return is_signed_by(self.by, self.signature, self.signed)

    def why_not(self, now_s: float) -> str:
        """Why it does not hold now, by this machine's clock; empty where it does."""
        if now_s < self.since - CLOCK_ERROR_S:
            return (
                f"its certificate holds from {_date(self.since)}, and this machine's clock says "
                f"{_date(now_s)}: set the clock"
            )
        if now_s > self.until:
            return (
                f"its certificate expired on {_date(self.until)} (this machine's clock says "
                f"{_date(now_s)}): renew it with `rumor keygen --by PERSON.key --renew`"
            )
        return ""

    def as_json(self) -> dict[str, Any]:
        """As it stands in files and messages."""
        return {
            "key": key_text(self.key),
            "names": self.names,
            "by": key_text(self.by),
            "since": self.since,
            "until": self.until,
            "signature": key_text(self.signature),
        }

    @classmethod
    def from_json(cls, content: object) -> Self:
        """Read one; whether the signature fits is not looked at.

        Raises:
            ValueError: This is none.
        """
        told = require_fields(content, _CERTIFICATE)
        since, until = field_of(told, "since", int), field_of(told, "until", int)
        if not 0 <= since <= until <= _TIME_MAX or not is_pattern(told["names"]):
            raise ValueError("a certificate has a name or a time that is none")
        return cls(
            key_bytes(told["key"]),
            told["names"],
            key_bytes(told["by"]),
            since,
            until,
            key_bytes(told["signature"], _SIGNATURE_BYTES),
        )


@dataclass(frozen=True, slots=True)
class PersonKey:
    """A person's secret."""

    name: str
    secret: bytes
    """Seed of Ed25519, 32 bytes."""

    @classmethod
    def generate(cls, name: str) -> Self:
        """Draw one.

        Raises:
            ConfigError: The library is not installed, or this can be no name.
        """
        if not is_pattern(name) or "*" in name:
            raise ConfigError(
                f"a person cannot be called {name!r}: use letters, digits, '.', '_' and '-'"
            )
        while True:
            made = cls(name, _ed25519().Ed25519PrivateKey.generate().private_bytes_raw())
            if _is_typed_easily(made.public):
                return made

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return bytes(self._private().public_key().public_bytes_raw())

    def sign(self, signed: bytes) -> bytes:
        """A signature, 64 bytes."""
        return bytes(self._private().sign(signed))

    def certify(self, key: bytes, names: str, days: float) -> Certificate:
        """Vouch for a machine from now on.

        Args:
            key: Its public key of CURVE.
            names: Which peers run there.
            days: For how long.

        Raises:
            ConfigError: These can be no names, or no time.
        """
        if not is_pattern(names):
            raise ConfigError(
                f"--name {names!r} can be no peer's: use letters, digits, '.', '_' and '-', with "
                "'*' at the end for all that begin so"
            )
        if not 0 < days <= 3650:
            raise ConfigError(f"--days is {days:g}: it must be above 0 and at most 3650")
        now_s = int(time.time())
        until = now_s + int(days * 86_400)
        draft = Certificate(key, names, self.public, now_s, until)
        return replace(draft, signature=self.sign(draft.signed))

    def write(self, path: Path) -> None:
        """Write it to a new file.

        Raises:
            ConfigError: It cannot be written.
        """
        secret = key_text(self.secret)
        write_secret(
            path, {"format": _KEY_FORMAT, "kind": "person", "name": self.name, "secret": secret}
        )

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the key in a file.

        Raises:
            ConfigError: It cannot be read, others could read it, or it is none of a person.
        """
        content = read_secret(path)
        try:
            told = require_fields(content, frozenset(("format", "kind", "name", "secret")))
            if told["format"] != _KEY_FORMAT or not is_pattern(told["name"]):
                raise ValueError
            return cls(told["name"], key_bytes(told["secret"]))
        except ValueError:
            hint = "a person's key, as `rumor keygen FILE` makes it"
            raise ConfigError(f"{path} is not {hint}: name the key of who signs") from None

    def _private(self) -> "Ed25519PrivateKey":
        private: Ed25519PrivateKey = _ed25519().Ed25519PrivateKey.from_private_bytes(self.secret)
        return private


@dataclass(frozen=True, slots=True)
class MachineKey:
    """A machine's secret, and what a person says of it."""

    secret: bytes
    """Secret key of CURVE, 32 bytes."""
    certificate: Certificate

    @classmethod
    def generate(cls, person: PersonKey, names: str, days: float) -> Self:
        """Draw one, and let a person vouch for it.

        Raises:
            ConfigError: As `PersonKey.certify` does.
        """
        public, secret = map(z85.decode, zmq.curve_keypair())
        while not _is_typed_easily(public):
            public, secret = map(z85.decode, zmq.curve_keypair())
        return cls(secret, person.certify(public, names, days))

    def renewed(self, person: PersonKey, days: float) -> Self:
        """The same key with a new certificate.

        Raises:
            ConfigError: As `PersonKey.certify` does.
        """
        before = self.certificate
        return type(self)(self.secret, person.certify(before.key, before.names, days))

    def write(self, path: Path, *, replaces: bool = False) -> None:
        """Write it to a new file, or over the one that it renews.

        Raises:
            ConfigError: It cannot be written.
        """
        content = {
            "format": _KEY_FORMAT,
            "kind": "machine",
            "secret": key_text(self.secret),
            "certificate": self.certificate.as_json(),
        }
        write_secret(path, content, replaces=replaces)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the key in a file.

        Raises:
            ConfigError: It cannot be read, others could read it, or it is none of a machine.
        """
        content = read_secret(path)
        if content.get("kind") == "person":
            raise ConfigError(
                f"{path} is a person's key: make one for this machine with "
                f"`rumor keygen MACHINE.key --by {path}`"
            )
        try:
            told = require_fields(content, frozenset(("format", "kind", "secret", "certificate")))
            certificate = Certificate.from_json(told["certificate"])
            secret = key_bytes(told["secret"])
            public = z85.decode(zmq.curve_public(z85.encode(secret)))
            if told["format"] != _KEY_FORMAT or certificate.key != public:
                raise ValueError("its parts do not belong together")
        except ValueError as error:
            raise ConfigError(f"{path} is no key of `rumor keygen`: {error}") from None
        return cls(secret, certificate)


def _is_typed_easily(key: bytes) -> bool:
    """Whether a key's text does not begin as options of a command do."""
    return not key_text(key).startswith("-")


def _date(time_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(min(time_s, _TIME_MAX)))
