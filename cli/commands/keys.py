"""``rumor keys``: machines' keys, and the roster of those that may take part in a swarm."""

from pathlib import Path
from typing import Annotated

import typer

from ...gossip.errors import ConfigError
from ...gossip.transport.keys.key import Key, key_bytes, key_text
from ...gossip.transport.keys.roster import Roster
from ..errors import not_written
from ..reports.console import print_json
from ..settings.options import Json, options_of

__all__ = ["add", "init", "keys", "make", "revoke", "show"]

keys = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", add_completion=False)


@keys.callback()
def _keys() -> None:
    """Create keys of machines, and rosters of known machines.

    A roster is a file signed by its owner: the machine whose key created it. Peers read it again
    when it changes, and notify all other members: `rumor keys revoke` on one machine excludes
    another everywhere. `rumor peer --key FILE --roster ROSTER` takes both.

    A swarm of several machines, step by step: docs/how-to/keys.md.

    Exit status: 0 if it worked; 1 if the roster could not be written; 2 for wrong arguments.
    """


_RosterFile = Annotated[Path, typer.Argument(metavar="ROSTER", help="The file of the roster.")]
_Owner = Annotated[
    Path,
    typer.Option(
        "--key", metavar="OWNER.key", help="The key of the roster's owner; it signs the roster."
    ),
]


@keys.command()
@options_of()
def make(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="Files to write, one key each.")
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="Name of the machine's peers: NAME or NAME.ANYTHING; 'peer-*' allows all names "
            "that begin with 'peer-'.",
            show_default="FILE without its suffix",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Create a machine's key, and print its line for `rumor keys add`.

    The line is a name and the public key, which is not secret. The file stays on the machine.
    """
    if name is not None and len(files) > 1:
        raise ConfigError("--name is for one FILE: make the others in a call of their own")
    made = [(path, Key.generate(path.stem if name is None else name)) for path in files]
    for path, key in made:
        key.write(path)
    if as_json:
        rows = [{"file": str(p), "name": key.name, "key": key_text(key.public)} for p, key in made]
        print_json({"keys": rows})
    else:
        print("\n".join(key.line for _, key in made))


@keys.command()
@options_of()
def init(roster: _RosterFile, key: _Owner, as_json: Json = False) -> None:
    """Create a roster that lists its owner."""
    owner = Key.read(key)
    if roster.exists():
        raise ConfigError(f"{roster} is there already: name another file")
    _write(roster, Roster.init(owner), as_json=as_json)


@keys.command()
@options_of()
def add(
    roster: _RosterFile,
    words: Annotated[
        list[str],
        typer.Argument(metavar="NAME KEY", help="Lines of `rumor keys make`."),
    ],
    key: _Owner,
    as_json: Json = False,
) -> None:
    """Add machines to a roster, or rename those that it lists."""
    if len(words) % 2:
        raise ConfigError(
            f"`rumor keys add {roster}` needs NAME KEY, as `rumor keys make` printed it"
        )
    machines = zip(words[::2], map(_public, words[1::2]), strict=True)
    _write(roster, Roster.read(roster).with_machines(Key.read(key), machines), as_json=as_json)


@keys.command()
@options_of()
def revoke(
    roster: _RosterFile,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME", help="Names, or public keys if several machines have one name."
        ),
    ],
    key: _Owner,
    as_json: Json = False,
) -> None:
    """Exclude machines."""
    _write(roster, Roster.read(roster).without(Key.read(key), names), as_json=as_json)


@keys.command()
@options_of()
def show(roster: _RosterFile, as_json: Json = False) -> None:
    """List the machines of a roster."""
    _print(Roster.read(roster), as_json=as_json)


def _public(text: str) -> bytes:
    try:
        return key_bytes(text)
    except ValueError:
        raise ConfigError(
            f"{text!r} is not a public key: copy the 43 letters that `rumor keys make` printed"
        ) from None


def _write(path: Path, roster: Roster, *, as_json: bool) -> None:
    try:
        roster.write(path)
    except OSError as error:
        raise OSError(not_written(path, error)) from None
    _print(roster, as_json=as_json)


def _print(roster: Roster, *, as_json: bool) -> None:
    machines = [(name, key_text(key)) for key, name in roster.machines.items()]
    if as_json:
        rows = [{"name": name, "key": key} for name, key in machines]
        owner = key_text(roster.owner)
        print_json({"owner": owner, "version": roster.version, "machines": rows})
    else:
        owner = roster.machines.get(roster.owner, key_text(roster.owner))
        print(f"version {roster.version}, signed by {owner}", *map(" ".join, machines), sep="\n")
