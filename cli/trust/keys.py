"""``rumor keygen`` and ``rumor roster``: which machines may take part in a swarm."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ...gossip.errors import ConfigError
from ...gossip.transport.keys.key import Key, key_bytes, key_text
from ...gossip.transport.keys.roster import Roster
from ..errors import not_written
from ..reports.console import print_json
from ..settings.options import Json, options_of

__all__ = ["Action", "keygen", "roster"]


@options_of()
def keygen(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Where the new keys go, one each.")
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="What peers on the machine are called: NAME, or all that begin with NAME. or (as "
            "in 'peer-*') with what stands before the star; FILE without its ending unless given.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a machine's key, and print the line by which a roster lets it in.

    The line is a name and the public key, which is no secret. `rumor roster add ROSTER LINE` takes
    it; the file stays on the machine, for `rumor peer --key FILE`.

    Exit status: 0 if the keys were made; 2 for wrong arguments, a file that is there already among
    them.
    """
    if name is not None and len(files) > 1:
        raise ConfigError("--name is for one FILE: make the others in a call of their own")
    made = [Key.generate(path.stem if name is None else name) for path in files]
    for path, key in zip(files, made, strict=True):
        key.write(path)
    if as_json:
        told = [
            {"file": str(path), "name": key.name, "key": key_text(key.public)}
            for path, key in zip(files, made, strict=True)
        ]
        print_json({"keys": told})
    else:
        print("\n".join(key.line for key in made))


class Action(StrEnum):
    """What is done to a roster."""

    INIT = "init"
    ADD = "add"
    REVOKE = "revoke"
    SHOW = "show"


@options_of()
def roster(
    action: Annotated[
        Action,
        typer.Argument(
            metavar="init|add|revoke|show",
            help="Begin a roster; add machines; shut machines out; show who is let in.",
        ),
    ],
    file: Annotated[Path, typer.Argument(metavar="ROSTER", help="The file of the roster.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME KEY|NAME...]",
            help="For `add`: lines that `rumor keygen` printed. For `revoke`: names, or keys where "
            "several have a name.",
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            metavar="OWNER.key",
            help="The owner's key, which signs the roster: the one with which it was begun.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say which machines may take part in a swarm: `init`, `add`, `revoke` and `show`.

    A roster is a file that its owner signs. Peers read it again when it changes, and tell all
    other members: `rumor roster revoke` on one machine shuts somebody out everywhere.

    Exit status: 0 if it worked; 1 if the file could not be written; 2 for wrong arguments.
    """
    if action is Action.SHOW:
        now = Roster.read(file)
    else:
        now = _changed(action, file, words or [], key)
        try:
            now.write(file)
        except OSError as error:
            raise OSError(not_written(file, error)) from None
    if as_json:
        print_json(_as_json(now))
    else:
        print("\n".join(_in_words(now)))


def _changed(action: Action, file: Path, words: Sequence[str], key: Path | None) -> Roster:
    if key is None:
        raise ConfigError(f"`rumor roster {action}` needs --key OWNER.key: the owner signs")
    owner = Key.read(key)
    if action is Action.INIT:
        if words:
            raise ConfigError("`rumor roster init` takes no names: add machines afterwards")
        if file.exists():
            raise ConfigError(f"{file} is there already: name another file")
        return Roster.init(owner)
    before = Roster.read(file)
    if action is Action.REVOKE:
        if not words:
            raise ConfigError(f"`rumor roster revoke {file}` needs a NAME")
        return before.without(owner, words)
    if not words or len(words) % 2:
        raise ConfigError(f"`rumor roster add {file}` needs NAME KEY, as `rumor keygen` printed it")
    return before.with_machines(owner, zip(words[::2], map(_public, words[1::2]), strict=True))


def _public(text: str) -> bytes:
    try:
        return key_bytes(text)
    except ValueError:
        raise ConfigError(
            f"{text!r} is no public key: copy the 43 letters that `rumor keygen` printed"
        ) from None


def _as_json(roster: Roster) -> dict[str, Any]:
    return {
        "owner": key_text(roster.owner),
        "version": roster.version,
        "machines": [{"name": name, "key": key_text(key)} for key, name in roster.machines.items()],
    }


def _in_words(roster: Roster) -> list[str]:
    owner = roster.machines.get(roster.owner, key_text(roster.owner))
    machines = [f"{name} {key_text(key)}" for key, name in roster.machines.items()]
    return [f"version {roster.version}, signed by {owner}", *machines]
