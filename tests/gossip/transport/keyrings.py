"""Keyrings of a small swarm: an owner, and machines that the owner signed."""

import time
from pathlib import Path

from rumor.gossip.transport.keys.certificates import MachineKey, PersonKey
from rumor.gossip.transport.keys.files import key_text
from rumor.gossip.transport.keys.keyring import Keyring
from rumor.gossip.transport.keys.roster import Roster

__all__ = ["Swarm", "address_of"]


class Swarm:
    """An owner called ada, and files of keys and rosters in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.owner = PersonKey.generate("ada")
        self.roster = Roster.found(self.owner)

    def machine(self, name: str, *, listed: bool = True, days: float = 1.0) -> Path:
        """A file with the key of a machine, which the roster lists or not."""
        path = self.folder / f"{name.replace('*', 'all')}.key"
        key = MachineKey.generate(self.owner, name, days)
        key.write(path)
        if listed:
            self.roster = self.roster.with_machines([key.certificate], time.time())
        return path

    def file(self, name: str = "roster.json") -> Path:
        """A file with the roster as it is now."""
        path = self.folder / name
        self.roster.write(path)
        return path

    def keyring(self, name: str) -> Keyring:
        """The keyring of a machine, made unless there is its key, with a roster file of its own."""
        path = self.folder / f"{name.replace('*', 'all')}.key"
        return Keyring.read(
            path if path.exists() else self.machine(name), self.file(f"{name}.json")
        )

    def revoke(self, named: str) -> None:
        """Shut somebody out in the roster; files stay as they are."""
        self.roster = self.roster.without(self.owner, named)


def address_of(keyring: Keyring, address: str) -> str:
    """An address with a machine's key."""
    return f"tcp://{key_text(keyring.public)}@{address.removeprefix('tcp://')}"
