"""``rumor top``: who is in a swarm that runs, and how each of them is doing."""

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from ...gossip.errors import ConfigError
from ..errors import FAILED, fail
from ..reports.console import plain_table, print_json
from ..settings.options import OUTPUT, Source, options_of
from .board import STYLES, ascending, columns_for, event_line, ordered, summary

if TYPE_CHECKING:
    from ...train.observe.observer import Observer
    from ...train.observe.view import SwarmView

__all__ = ["Members", "TopConfig", "observing", "print_view", "top"]

WATCHING = "What is watched"

_TIME: Final = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|min|h|)")
_UNITS: Final = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "": 1.0}
_EVERY_MIN_S: Final = 0.2
_EVERY_MAX_S: Final = 3600.0

# So many polls that nobody answers end a stream of lines.
_PATIENCE: Final = 5
_EVENTS_SHOWN: Final = 10

# Nobody folds what goes into a file.
_PIPED_WIDTH: Final = 200
_OVER: Final = frozenset({"finished", "quiet", "leaving", "left", "dead"})


Members = Annotated[
    list[str],
    typer.Argument(
        metavar="HOST:PORT",
        help="A member of the swarm, any one; the others are found through it. Several, in "
        "case that the first does not answer.",
        show_default=False,
    ),
]
"""What a command that watches a swarm is told of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopConfig:
    """How a swarm is watched.

    Raises:
        ConfigError: A field is out of range.
    """

    every: str = "1s"
    """How often everybody is asked, such as 500ms, 2s or 1min; at least 200ms."""

    key: Path | None = None
    """This machine's key, where the swarm has keys; with ``roster``."""

    roster: Path | None = None
    """The swarm's roster."""

    def __post_init__(self) -> None:
        if not _EVERY_MIN_S <= self.every_s <= _EVERY_MAX_S:
            raise ConfigError(f"--every is {self.every}: it must be from 200ms to 1h")

    @property
    def every_s(self) -> float:
        """The same, in seconds."""
        found = _TIME.fullmatch(self.every.strip())
        if found is None:
            raise ConfigError(f"--every is {self.every!r}: write a time, such as 500ms, 2s or 1min")
        return float(found[1]) * _UNITS[found[2]]


@options_of(Source(TopConfig, WATCHING, metavars={"every": "TIME"}))
def top(
    addresses: Members,
    *,
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="Print one table and exit, as without a terminal.", show_default=False
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print one line of JSON each time, and with --once only one; nothing else goes "
            "to stdout.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    **settings: Any,
) -> None:
    """See who is in a swarm, and how each of them is doing.

    It finds all members from the address of one and asks each of them, once a second, without
    being a member: it takes no weight, leaves no trace, and goes on when some of them die.

    Keys: the arrows choose a member, Enter shows its links and settings, < and > choose the column
    to sort by, r turns the order around, / filters, c copies an address, p pauses, q quits, and ?
    shows what the columns mean.

    The log of each peer tells its address: `rumor top 127.0.0.1:7700`

    Exit status: 0 if it worked; 1 if nobody answered, or with --json nobody did any more, and had
    not been seen to finish; 2 for wrong arguments.
    """
    config = TopConfig(**settings)
    is_live = not once and not as_json and _has_terminal()
    if is_live:
        _require_textual()
    with observing(addresses, config.key, config.roster) as observer:
        view = observer.poll()
        if is_live:
            from .screen import Top

            Top(observer.poll, view, config.every_s).run()
        elif as_json and not once:
            _stream(observer, view, config.every_s)
        else:
            # Rates come of two answers.
            time.sleep(config.every_s)
            view = observer.poll()
            if as_json:
                print_json(view.to_json())
            else:
                print_view(view, Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH))


@contextmanager
def observing(addresses: list[str], key: Path | None, roster: Path | None) -> "Iterator[Observer]":
    """Watch a swarm inside.

    Args:
        addresses: Of members.
        key: This machine's, of a swarm that has keys; None without.
        roster: That swarm's.

    Raises:
        ConfigError: One is no address, or there can be no keys.
    """
    from ...gossip.transport.keys.keyring import read_keyring
    from ...train.observe.observer import Observer

    with Observer(addresses, keyring=read_keyring(key, roster)) as observer:
        yield observer


def print_view(view: "SwarmView", console: Console) -> None:
    """Print one table of all members, and what has happened last."""
    console.print(Text(summary(view), style="bold"), soft_wrap=True)
    console.print()
    columns = columns_for(console.width)
    table = plain_table(*(c.title if ascending(c) else f">{c.title}" for c in columns))
    for peer in ordered(view.peers, columns[0]):
        cells = [Text(column.text(peer)) for column in columns]
        cells[1].stylize(STYLES.get(peer.state, ""))
        table.add_row(*cells)
    console.print(table)
    if any(peer.source == "others" for peer in view.peers):
        console.print(Text("* as other members say", style="dim"))
    console.print()
    for event in view.events[-_EVENTS_SHOWN:]:
        console.print(Text(event_line(event)), soft_wrap=True)


def _stream(observer: "Observer", view: "SwarmView", every_s: float) -> None:
    """Print a line each time, until nobody answers any more or whoever reads has had enough."""
    silent, due_s = 0, time.monotonic()
    with suppress(BrokenPipeError):
        while silent < _PATIENCE:
            print_json(view.to_json())
            sys.stdout.flush()
            due_s = max(due_s + every_s, time.monotonic())
            time.sleep(max(0.0, due_s - time.monotonic()))
            last, view = view, observer.poll()
            silent = 0 if view.answered else silent + 1
            if silent and {peer.state for peer in last.peers} <= _OVER:
                return
        fail("nobody answers any more: the training is over, or all have died", FAILED)


def _has_terminal() -> bool:
    return sys.stdout.isatty() and sys.stdin.isatty()


def _require_textual() -> None:
    try:
        import textual  # noqa: F401
    except ImportError:
        raise ConfigError(
            "the screen needs textual: pip install 'rumor[top]', or use --once"
        ) from None
