"""A machine's key: a secret for ZeroMQ's encryption, and for signatures of a roster's owner."""

import base64
import binascii
import os
import re
import stat
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Self

import zmq
from zmq.utils import z85

from ...errors import ConfigError, how_to_install
from ...wire.messages import Stop

__all__ = [
    "Key",
    "covers",
    "is_pattern",
    "is_signed_by",
    "is_stop_signed",
    "key_bytes",
    "key_text",
    "signed_stop",
]

_FORMAT: Final = "rumor key 1"
_FILE_BYTES_MAX: Final = 1024
_PATTERN: Final = re.compile(r"\*|[A-Za-z0-9._-]{1,40}\*?", re.ASCII)


def key_text(key: bytes) -> str:
    """Encode a key as it is shown, and written in addresses: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(key).rstrip(b"=").decode("ascii")


def key_bytes(text: str, size: int = 32) -> bytes:
    """Decode the text of `key_text`; raise ValueError for any other text."""
    try:
        found = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{text!r} is not a key") from None
    if len(found) != size or key_text(found) != text:
        raise ValueError(f"{text!r} is not a key")
    return found


def is_pattern(text: str) -> bool:
    """True for a valid pattern of peer names: a name, a prefix (``gpu-*``), or ``*`` for all."""
    return _PATTERN.fullmatch(text) is not None


def covers(pattern: str, name: str) -> bool:
    """True if a machine's pattern allows the name of a peer.

    >>> [covers("m1", name) for name in ("m1", "m1.a", "m12")]
    [True, True, False]
    >>> covers("gpu-*", "gpu-1"), covers("gpu-*", "gpu"), covers("*", "m1")
    (True, False, True)
    """
    if pattern.endswith("*"):
        return name.startswith(pattern[:-1])
    return name == pattern or name.startswith(f"{pattern}.")


@dataclass(frozen=True, slots=True)
class Key:
    """A machine's secret."""

    name: str
    """Pattern of the names of the machine's peers, see `covers`; a roster may override it."""
    secret: bytes
    """Secret key of CURVE, 32 bytes."""

    @classmethod
    def generate(cls, name: str) -> Self:
        """Generate a random key; raise ConfigError if *name* is not a valid pattern."""
        if not is_pattern(name):
            raise ConfigError(
                f"no peer can be called {name!r}: use letters, digits, '.', '_' and '-', with '*' "
                "at the end for all that begin so"
            )
        while True:
            made = cls(name, z85.decode(zmq.curve_keypair()[1]))
            # On the command line, a leading "-" would make it an option.
            if not key_text(made.public).startswith("-"):
                return made

    @property
    def public(self) -> bytes:
        """The public key of CURVE, 32 bytes."""
        return z85.decode(zmq.curve_public(z85.encode(self.secret)))

    @property
    def line(self) -> str:
        return f"{self.name} {key_text(self.public)}"

    @property
    def signs(self) -> bytes:
        """The public key (Ed25519) of its signatures, 32 bytes."""
        return bytes(self._private().public_key().public_bytes_raw())

    def sign(self, signed: bytes) -> bytes:
        """Return a signature, 64 bytes; raise ConfigError if the library is not installed."""
        return bytes(self._private().sign(signed))

    def write(self, path: Path) -> None:
        """Write the key to a new file that only its owner can read."""
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w", encoding="ascii") as file:
                file.write(self._text)
        except FileExistsError:
            raise ConfigError(
                f"{path} is there already, and a key is never overwritten: name another file"
            ) from None
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from None

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a key from a file, which other users must not be able to read."""
        try:
            with path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                text = file.read(_FILE_BYTES_MAX)
        except OSError as error:
            raise ConfigError(f"key {path} cannot be read: {error.strerror or error}") from None
        if not stat.S_ISREG(mode) or mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigError(f"key {path} can be read by others: run chmod 600 {path}")
        try:
            name, secret = text.decode("ascii").split("\n")[1].split(" ")
            made = cls(name, key_bytes(secret))
        except (LookupError, ValueError):
            made = None
        if made is None or not is_pattern(made.name) or made._text.encode() != text:
            raise ConfigError(f"{path} is not a key of `rumor keys make`")
        return made

    @property
    def _text(self) -> str:
        return f"{_FORMAT}\n{self.name} {key_text(self.secret)}\n"

    def _private(self) -> Any:
        # A CURVE key cannot sign, and a second secret would be one more to keep safe.
        seed = blake2b(b"rumor signature 1", key=self.secret, digest_size=32).digest()
        return _ed25519().Ed25519PrivateKey.from_private_bytes(seed)


def is_signed_by(signs: bytes, signature: bytes, signed: bytes) -> bool:
    """True if *signature* of *signed* is valid for a public key."""
    ed25519 = _ed25519()
    from cryptography.exceptions import InvalidSignature

    try:
        ed25519.Ed25519PublicKey.from_public_bytes(signs).verify(signature, signed)
    except InvalidSignature:
        return False
    return True


def signed_stop(owner: Key, swarm: bytes, stop: Stop) -> Stop:
    """Return a STOP signed by the roster's owner, valid only for the swarm of this anchor hash."""
    return Stop(stop.lives, owner.sign(_stop_text(swarm, stop)))


def is_stop_signed(signs: bytes, swarm: bytes, stop: Stop) -> bool:
    """True if the roster's owner signed this STOP for this swarm; see `is_signed_by`."""
    return bool(stop.signature) and is_signed_by(signs, stop.signature, _stop_text(swarm, stop))


def _stop_text(swarm: bytes, stop: Stop) -> bytes:
    # Names are printable, so they cannot contain a line break.
    lives = [f"{incarnation} {peer}" for peer, incarnation in stop.lives]
    return "\n".join(["rumor stop 1", swarm.hex(), *lives]).encode()


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise ConfigError(f"keys need a library: {how_to_install('keys')}") from None
    return ed25519
