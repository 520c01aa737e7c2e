"""Keyrings of a small swarm: an owner, and machines that its roster lists."""

from pathlib import Path

from rumor.gossip.transport.keys.key import Key, key_text
from rumor.gossip.transport.keys.keyring import Keyring
from rumor.gossip.transport.keys.roster import Roster

__all__ = ["Swarm", "address_of"]


class Swarm:
    """An owner called ada, with files of keys and rosters in a folder, and listed machines."""

    def __init__(self, folder: Path, *machines: str) -> None:
        self.folder = folder
        self.owner = Key.generate("ada")
        self.roster = Roster.init(self.owner)
        for name in machines:
            self.machine(name)

    def machine(self, name: str, *, listed: bool = True) -> Path:
        """Write the key of a machine to a file and, if *listed*, add the machine to the roster."""
        path = self.folder / f"{name.replace('*', 'all')}.key"
        key = Key.generate(name)
        key.write(path)
        if listed:
            self.roster = self.roster.with_machines(self.owner, [(name, key.public)])
        return path

    def owner_key(self) -> Path:
        """Write the owner's key to a file."""
        path = self.folder / "ada.key"
        self.owner.write(path)
        return path

    def file(self, name: str = "roster") -> Path:
        """Write the current roster to a file."""
        path = self.folder / name
        self.roster.write(path)
        return path

    def keyring(self, name: str) -> Keyring:
        """Return the keyring of a machine with its own roster file; create its key if needed."""
        path = self.folder / f"{name.replace('*', 'all')}.key"
        key = path if path.exists() else self.machine(name)
        return Keyring(Key.read(key), self.roster, self.file(f"{name}.roster"))

    def revoke(self, named: str) -> None:
        """Revoke a machine in the roster; files do not change."""
        self.roster = self.roster.without(self.owner, [named])


def address_of(keyring: Keyring, address: str) -> str:
    """Return an address that includes the public key of a machine."""
    return f"tcp://{key_text(keyring.public)}@{address.removeprefix('tcp://')}"
