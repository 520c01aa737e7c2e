"""``rumor keygen`` and ``rumor roster``: who may take part in a swarm."""

import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ...gossip.errors import ConfigError
from ...gossip.transport.keys.certificates import Certificate, MachineKey, PersonKey
from ...gossip.transport.keys.files import key_bytes, key_text
from ...gossip.transport.keys.roster import Person, Roster
from ..errors import not_written
from ..reports.console import print_json
from ..settings.options import Json, options_of

__all__ = ["Action", "keygen", "roster"]


@options_of()
def keygen(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Where the new keys go, one each.")
    ],
    by: Annotated[
        Path | None,
        typer.Option(
            "--by",
            metavar="PERSON.key",
            help="Make keys of machines, which this person signs; without it, keys of people.",
        ),
    ] = None,
    roster: Annotated[
        Path | None,
        typer.Option(
            "--roster",
            metavar="FILE",
            help="Also put the machines into this roster. Where a member runs with it, all members "
            "know them within seconds.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="What the peers on the machine are called: NAME, or all that begin with NAME. or "
            "(as in 'peer-*') with what stands before the star; PERSON.FILE unless given. Of a "
            "person: their name, else FILE.",
        ),
    ] = None,
    days: Annotated[
        float, typer.Option("--days", metavar="DAYS", help="How long a machine is let in.")
    ] = 90.0,
    renew: Annotated[
        bool,
        typer.Option(
            "--renew",
            help="Keep the keys in the files, and sign them anew. Peers that run with them go on.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Make a key: of a person, who signs, or of a machine, whose peers take part.

    `rumor keygen ada.key` makes a person's key and prints its public part, which the owner of a
    swarm adds to the roster. `rumor keygen m1.key --by ada.key` makes a key for `rumor peer --key`.

    Exit status: 0 if the keys were made; 2 for wrong arguments, a file that is there already among
    them.
    """
    if name is not None and len(files) > 1:
        raise ConfigError("--name is for one FILE: make the others in a call of their own")
    if by is None:
        if renew or roster is not None:
            raise ConfigError("--renew and --roster are for machines: give --by PERSON.key, too")
        told, lines = _people(files, name)
    else:
        certificates = _made_machines(files, PersonKey.read(by), roster, name, days, renew=renew)
        told, lines = _machines(files, certificates)
    if as_json:
        print_json({"keys": told})
    else:
        print("\n".join(lines))


Told = tuple[list[dict[str, Any]], list[str]]
"""What was made, for programs and for people."""


def _people(files: list[Path], name: str | None) -> Told:
    told: list[dict[str, Any]] = []
    for path in files:
        person = _made_person(path, name)
        told.append({"file": str(path), "name": person.name, "key": key_text(person.public)})
    return told, [
        f"{each['file']}: {each['name']}, public key {each['key']}; keep the file secret"
        for each in told
    ]


def _machines(files: list[Path], certificates: list[Certificate]) -> Told:
    made = list(zip(files, certificates, strict=True))
    return [{"file": str(path), **each.as_json()} for path, each in made], [
        f"{path}: for peers called {each.names}, until {_day(each.until)}" for path, each in made
    ]


def _made_person(path: Path, name: str | None) -> PersonKey:
    person = PersonKey.generate(name or path.stem)
    person.write(path)
    return person


def _made_machines(
    files: list[Path],
    person: PersonKey,
    roster: Path | None,
    name: str | None,
    days: float,
    *,
    renew: bool,
) -> list[Certificate]:
    """Make keys of machines, or sign them anew, and put them into a roster."""
    known = None if roster is None else Roster.read(roster, time.time())
    keys = []
    for path in files:
        if renew:
            before = MachineKey.read(path)
            key = before.renewed(person, days)
        else:
            key = MachineKey.generate(person, name or f"{person.name}.{path.stem}", days)
        # Before anything is written: a key that nobody lets in is of no use.
        if known is not None and (why := known.why_not(key.certificate, time.time())):
            raise ConfigError(f"{roster} would not let {path} in: {why}")
        keys.append(key)
    for path, key in zip(files, keys, strict=True):
        key.write(path, replaces=renew)
    certificates = [key.certificate for key in keys]
    if known is not None and roster is not None:
        whole = known.with_machines(certificates, time.time())
        if any(whole.machines.get(each.key) != each for each in certificates):
            raise ConfigError(f"{roster} has no room for more machines of {person.name}")
        _write(whole, roster)
    return certificates


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
            help="Begin a roster; add a person; shut a person or a machine out for ever; show who "
            "is let in.",
        ),
    ],
    file: Annotated[Path, typer.Argument(metavar="ROSTER", help="The file of the roster.")],
    who: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Whom to add or revoke; for `revoke` also a machine or a key.",
        ),
    ] = None,
    public: Annotated[
        str | None,
        typer.Argument(metavar="[PUBLIC_KEY]", help="For `add`: what `rumor keygen` printed."),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            metavar="OWNER.key",
            help="The owner's key, which signs; `init` makes it where there is none.",
        ),
    ] = None,
    names: Annotated[
        str | None,
        typer.Option(
            "--names",
            metavar="NAMES",
            help="For `add`: what the person's peers may be called, such as 'gpu-*'; NAME and all "
            "that begins with NAME. unless given.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say who may take part in a swarm: `init`, `add`, `revoke` and `show`.

    A roster is a file that its owner signs. Peers read it again when it changes, and tell all
    other members: `rumor roster revoke` on one machine shuts somebody out everywhere.

    Exit status: 0 if it worked; 1 if the file could not be written; 2 for wrong arguments.
    """
    if action is Action.SHOW:
        now = Roster.read(file, time.time())
    else:
        now = _changed(action, file, who, public, key, names)
        _write(now, file)
    if as_json:
        print_json(_as_json(now))
    else:
        print("\n".join(_in_words(now)))


def _changed(
    action: Action,
    file: Path,
    who: str | None,
    public: str | None,
    key: Path | None,
    names: str | None,
) -> Roster:
    if key is None:
        raise ConfigError(f"`rumor roster {action}` needs --key OWNER.key: the owner signs")
    if action is Action.INIT:
        if who is not None or public is not None or names is not None:
            raise ConfigError("`rumor roster init` takes no names: add people afterwards")
        if file.exists():
            raise ConfigError(f"{file} is there already: name another file")
        owner = PersonKey.read(key) if key.exists() else _made_person(key, None)
        return Roster.found(owner)
    before, owner = Roster.read(file, time.time()), PersonKey.read(key)
    if who is None:
        raise ConfigError(f"`rumor roster {action} {file}` needs a NAME")
    if action is Action.REVOKE:
        if public is not None or names is not None:
            raise ConfigError("`rumor roster revoke` takes one name, and nothing behind it")
        return before.without(owner, who)
    if public is None:
        raise ConfigError(f"`rumor roster add {file} {who}` needs the key that keygen printed")
    try:
        theirs = key_bytes(public)
    except ValueError:
        raise ConfigError(
            f"{public!r} is no public key: copy the 43 letters that `rumor keygen` printed"
        ) from None
    return before.with_person(owner, Person(who, theirs, names or who))


def _write(roster: Roster, file: Path) -> None:
    try:
        roster.write(file)
    except OSError as error:
        raise OSError(not_written(file, error)) from None


def _as_json(roster: Roster) -> dict[str, Any]:
    now_s = time.time()
    return {
        "owner": key_text(roster.owner),
        "version": roster.version,
        "people": [
            {"name": each.name, "key": key_text(each.key), "names": each.names}
            for each in roster.people
        ],
        "revoked": [key_text(each) for each in roster.revoked],
        "machines": [
            {**each.as_json(), "let_in": not roster.why_not(each, now_s)}
            for each in roster.machines.values()
        ],
    }


def _in_words(roster: Roster) -> list[str]:
    now_s = time.time()
    lines = [f"version {roster.version}, signed by {key_text(roster.owner)}"]
    for person in roster.people:
        owns = " (owner)" if person.key == roster.owner else ""
        lines.append(f"{person.name}{owns}: peers called {person.names}, {key_text(person.key)}")
        for each in sorted(roster.machines.values(), key=lambda one: (one.names, one.key)):
            if each.by == person.key:
                state = roster.why_not(each, now_s) or f"until {_day(each.until)}"
                lines.append(f"  {each.names}: {state}, {key_text(each.key)}")
    lines.extend(f"revoked: {key_text(each)}" for each in roster.revoked)
    return lines


def _day(time_s: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(time_s))
