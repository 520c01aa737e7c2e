"""The folder of a run: how it is named, taken so that no other run takes it, and trusted."""

import os
import pwd
import re
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.machinery import PathFinder
from itertools import count
from pathlib import Path
from typing import Any

import typer

from ..gossip.errors import ConfigError
from ..gossip.rules.registry import parts_of_spec

__all__ = ["new_folders", "require_trust", "taken_folder"]


def new_folders(task: str, kind: str = "") -> Iterator[Path]:
    """Names for the folder of a run that was given none, the best one first.

    Args:
        task: What is trained.
        kind: In front of it, where runs are of several kinds.
    """
    name = re.sub(r"[^\w.-]+", "-", task)
    stem = Path("runs") / f"{kind}{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    for number in count(1):
        yield stem if number == 1 else stem.with_name(f"{stem.name}-{number}")


@contextmanager
def taken_folder(folders: Iterator[Path]) -> Iterator[Path]:
    """Make the first of some folders that was not there: runs of the same second get one each.

    It is removed again where nothing was kept in it.

    Raises:
        OSError: It cannot be made.
    """
    for folder in folders:
        above_is_new = not folder.parent.exists()
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
            break
    try:
        yield folder
    finally:
        # Only empty ones can be removed.
        with suppress(OSError):
            folder.rmdir()
            if above_is_new:
                folder.parent.rmdir()


def require_trust(
    folder: Path, kept: Mapping[Path, Mapping[str, Any]], typed: Collection[str], *, trust: bool
) -> None:
    """See that no code which somebody else's folder names is imported unasked.

    What comes with rumor is never asked about, nor is what was typed. A task, rule or partition of
    somebody's own is, where the folder or its options belong to another user, or where it would be
    imported from within the folder. On a terminal that is a question.

    Args:
        folder: What is gone on with.
        kept: Options that peers kept there, by their files: task, rule and partition among them.
        typed: Names of the options that were typed.
        trust: Whether the answer was given beforehand.

    Raises:
        ConfigError: It is not trusted; nothing was imported.
    """
    if trust:
        return
    for path, options in kept.items():
        for name, code in _code_in(options).items():
            why = "" if name in typed else _why_not_trusted(folder, path, code)
            if not why:
                continue
            what = f"{path} names {name} {code}, which would be imported, and {why}"
            on_terminal = sys.stdin.isatty() and sys.stderr.isatty()
            if not (on_terminal and typer.confirm(f"{what}. Import and run it?", err=True)):
                raise ConfigError(f"{what}: look at that code, and give --set trust to run it")
            # One answer is for all peers.
            return


def _code_in(options: Mapping[str, Any]) -> dict[str, str]:
    """What they name of the user's own, as ``module:name``: a task, a rule or a partition."""
    named = {"task": str(options.get("task")), "rule": parts_of_spec(str(options.get("rule")))[0]}
    partition = options.get("partition")
    if isinstance(partition, str) and ":" in partition:
        # Here, because it takes torch along.
        from ..train.tasks.partition import partition_module

        named["partition"] = partition if partition_module(partition) is not None else ""
    return {name: code for name, code in named.items() if ":" in code}


def _why_not_trusted(folder: Path, options: Path, code: str) -> str:
    for path in (folder, options):
        owner = path.stat().st_uid
        if owner != os.getuid():
            return f"{path} belongs to {_user(owner)}"
    package = code.partition(":")[0].partition(".")[0]
    # As an import would find it, with nothing imported.
    found = PathFinder.find_spec(package, [str(Path.cwd()), *sys.path]) if package else None
    places = [] if found is None else [found.origin, *(found.submodule_search_locations or ())]
    for place in filter(None, places):
        if Path(place).resolve().is_relative_to(folder.resolve()):
            return f"that comes from the same folder ({place})"
    return ""


def _user(number: int) -> str:
    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"
