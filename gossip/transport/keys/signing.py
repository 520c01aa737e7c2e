"""Signatures under receipts: Ed25519, by the machines of a roster."""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from ...errors import LocalProtocolError
from ...types import PeerId
from ...weight import ONE
from .certificates import covers

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

__all__ = ["Signer"]


class Signer:
    """Signs for the peers of one machine, and checks what those of all have signed.

    Args:
        seed: Of the machine's key; None for one that only checks.
        signers: By public key, what the peers are called that sign with it; it may grow.
        founders: Who may found, as the newest roster says.
        check: When receipts are looked at, as `rumor.gossip.protocol.receipting.Roll` has it.
    """

    def __init__(
        self,
        seed: bytes | None,
        signers: Mapping[bytes, str],
        founders: Callable[[], Collection[str]],
        check: str = "share",
    ) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._private = None if seed is None else Ed25519PrivateKey.from_private_bytes(seed)
        self._signers = signers
        self._founders = founders
        self.check = check
        self._keys: dict[PeerId, list[Ed25519PublicKey]] = {}
        self._counted = 0

    def sign(self, signed: bytes) -> bytes:
        """This machine's signature, 64 bytes.

        Raises:
            LocalProtocolError: This one only checks.
        """
        if self._private is None:
            raise LocalProtocolError("there is no key to sign with")
        return bytes(self._private.sign(signed))

    def verify(self, peer: PeerId, signed: bytes, signature: bytes) -> bool:
        """Whether a machine with peers of that name signed some bytes."""
        from cryptography.exceptions import InvalidSignature

        for key in self._keys_of(peer):
            try:
                key.verify(signature, signed)
            except InvalidSignature:
                continue
            return True
        return False

    def grant(self, peer: PeerId) -> int:
        """What a peer may found of each shard, in grains."""
        return ONE if peer in self._founders() else 0

    def _keys_of(self, peer: PeerId) -> "list[Ed25519PublicKey]":
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        if self._counted != len(self._signers):
            self._counted, self._keys = len(self._signers), {}
        found = self._keys.get(peer)
        if found is None:
            signers = [key for key, names in self._signers.items() if covers(names, peer)]
            found = [Ed25519PublicKey.from_public_bytes(key) for key in signers]
            self._keys[peer] = found
        return found
