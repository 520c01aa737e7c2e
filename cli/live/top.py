"""``rumor top``: who is in a swarm that runs, and how each of them is doing."""

import os
import re
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ...gossip.errors import ConfigError, RumorError, did_you_mean
from ...gossip.specs.parameter import check_settings, setting
from ...train.config import TrustSettings
from ..errors import FAILED, fail, printable
from ..reports.console import plain_table, print_json
from ..settings.options import OUTPUT, Source, options_of
from .columns import COLUMNS, STYLES, columns_for, detail, event_line, ordered, span, summary

if TYPE_CHECKING:
    from ...train.observe.observer import Observer
    from ...train.observe.view import SwarmView

__all__ = ["Look", "Members", "TopConfig", "observing", "print_view", "screen_of", "top"]

WATCHING = "What is watched"


# So many polls that nobody answers end a stream of lines.
_PATIENCE: Final = 5
_EVENTS_SHOWN: Final = 10

_HEARSAY: Final = "* as other members say"
_KEYS: Final = "← → sort  r reverse  ↑ ↓ details  q quit"

# Nobody folds what goes into a file.
_PIPED_WIDTH: Final = 200
_TITLES: Final = tuple(column.title for column in COLUMNS)
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


@dataclass(frozen=True, kw_only=True)
class TopConfig(TrustSettings):
    """How a swarm is watched.

    Raises:
        ConfigError: A field is out of range.
    """

    every_s: float = setting(
        1.0, "From one question to all members to the next, seconds.", low=0.2, high=3600
    )

    sort: str = setting(
        "peer",
        "Column to sort by: peer, state, step, step/s, weight, loss, stale, out/s, in/s, lost, "
        "accuracy, 'stale max', up or address. Numbers are shown with the largest on top.",
    )

    web: bool = setting(
        False,
        "Show the swarm in the browser, with links and curves: print the address of a page and "
        "serve it until Ctrl-C.",
    )

    listen: str | None = setting(
        None,
        "Where the page of ``web`` is served; port 0 is any free one. Anyone who can connect there "
        "can watch.",
        otherwise="127.0.0.1:0",
        metavar="HOST:PORT",
    )

    def __post_init__(self) -> None:
        if self.sort not in _TITLES:
            near = did_you_mean(self.sort, _TITLES)
            raise ConfigError(f"--sort is {self.sort!r}, which is no column{near}")
        check_settings(self)
        if self.listen is not None and not self.web:
            raise ConfigError("--listen says where the page is: give --web, too")


@options_of(Source(TopConfig, WATCHING))
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
    """Show who is in a swarm, and how each of them is doing.

    It finds all members from the address of one and asks each of them, once a second, without
    being a member: it takes no weight, leaves no trace, and goes on when some of them die.

    On a terminal the table is drawn again each time until q or Ctrl-C; it shows as many columns and
    members as there is room for. Arrows to the left and right change the column that it is sorted
    by, r turns the order around, and arrows up and down choose a member, of which a line below says
    more.

    The log of each peer tells its address:

    `rumor top 127.0.0.1:7700`

    With --web, the same in a browser; `GET /status.json` there is what --once --json prints. On
    another machine, forward the port: `ssh -L 8000:127.0.0.1:8000 node-a`

    `rumor top 127.0.0.1:7700 --web --listen 127.0.0.1:8000`

    Exit status: 0 if it worked; 1 if no member answered, or with --json none did any more, and had
    not been seen to finish, or the page's port is taken; 2 for wrong arguments.
    """
    config = TopConfig(**settings)
    if config.web:
        from .web import parse_place, show_page

        if once or as_json:
            raise ConfigError("--web shows a page: leave --once and --json out")
        place = parse_place("127.0.0.1:0" if config.listen is None else config.listen)
        show_page(observing(addresses, config.key, config.roster), place, config.every_s)
        return
    is_live = not once and not as_json and _has_terminal()
    with observing(addresses, config.key, config.roster) as observer:
        view = observer.poll()
        if is_live:
            with _keyboard() as pressed:
                _redraw(observer, view, config, pressed)
        elif as_json and not once:
            _stream(observer, view, config.every_s)
        else:
            # Rates come of two answers.
            time.sleep(config.every_s)
            view = observer.poll()
            if as_json:
                print_json(view.to_json())
            else:
                print_view(
                    view, Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH), config.sort
                )


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


@dataclass(slots=True)
class Look:
    """What of a swarm is looked at, as keys change it."""

    sort: str = "peer"
    """Title of the column to sort by."""
    is_reversed: bool = False
    chosen: str | None = None
    """Id of the member of which more is said."""

    def press(self, keys: str, view: "SwarmView", width: int) -> bool:
        """Follow what was typed; whether it is time to end."""
        titles = [column.title for column in columns_for(width)]
        names = [peer.id for peer in ordered(view.peers, self.sort, is_reversed=self.is_reversed)]
        for key in re.findall(r"\x1b\[.|.", keys):
            if key in ("q", "\x04"):
                return True
            if key == "r":
                self.is_reversed = not self.is_reversed
            elif key in ("\x1b[C", "\x1b[D"):
                at = titles.index(self.sort) if self.sort in titles else 0
                self.sort = titles[(at + (1 if key == "\x1b[C" else -1)) % len(titles)]
                self.is_reversed = False
            elif key in ("\x1b[A", "\x1b[B") and names:
                step = 1 if key == "\x1b[B" else -1
                at = names.index(self.chosen) + step if self.chosen in names else 0
                self.chosen = names[max(0, min(at, len(names) - 1))]
        return False


def print_view(view: "SwarmView", console: Console, sort: str = "peer") -> None:
    """Print one table of all members, and the latest events.

    Args:
        view: The swarm.
        console: Where to print; its width decides which columns are shown.
        sort: Title of the column to sort by.
    """
    console.print(Text(summary(view), style="bold"), soft_wrap=True)
    console.print()
    console.print(_table(view, console.width, Look(sort)))
    if any(peer.source == "others" for peer in view.peers):
        console.print(Text(_HEARSAY, style="dim"))
    console.print()
    for event in view.events[-_EVENTS_SHOWN:]:
        console.print(Text(event_line(event)), soft_wrap=True)


def _table(view: "SwarmView", width: int, look: Look, rows_max: int | None = None) -> Table:
    columns = columns_for(width)
    table = plain_table(*(c.title if c.ascends else f">{c.title}" for c in columns))
    for column, drawn in zip(columns, table.columns, strict=True):
        if column.title == look.sort:
            drawn.header_style = "bold reverse"
    peers = ordered(view.peers, look.sort, is_reversed=look.is_reversed)
    if rows_max is not None:
        # The one that was chosen is in sight.
        at = next((n for n, peer in enumerate(peers) if peer.id == look.chosen), 0)
        first = max(0, min(at - rows_max // 2, len(peers) - rows_max))
        peers = peers[first : first + rows_max]
    for peer in peers:
        cells = [Text(column.text(peer)) for column in columns]
        cells[1].stylize(STYLES.get(peer.state, ""))
        table.add_row(*cells, style="reverse" if peer.id == look.chosen else None)
    return table


def _redraw(
    observer: "Observer", view: "SwarmView", config: TopConfig, pressed: Callable[[float], str]
) -> None:
    """Draw the swarm anew each time it has been asked and each time a key is pressed."""
    console, look = Console(), Look(config.sort)
    answered_s = time.monotonic()
    notice = ""
    with (
        Live(console=console, screen=True, auto_refresh=False) as live,
        suppress(KeyboardInterrupt),
    ):
        while True:
            if view.answered:
                answered_s = time.monotonic()
            elif not notice:
                silent = span(time.monotonic() - answered_s)
                notice = f"nobody has answered for {silent}; still asking"
            due_s, keys = time.monotonic() + config.every_s, " "
            while keys:
                live.update(screen_of(view, console.width, console.height, look, notice))
                live.refresh()
                keys = pressed(max(0.0, due_s - time.monotonic()))
                if look.press(keys, view, console.width):
                    return
            notice = ""
            try:
                view = observer.poll()
            except RumorError as error:
                notice = str(error)


def screen_of(
    view: "SwarmView", width: int, height: int, look: Look, notice: str = ""
) -> RenderableType:
    """A swarm as a whole terminal shows it: members first, events in the room below."""
    head = [Text(summary(view), style="bold"), Text("")]
    if notice:
        head.insert(1, Text(printable(notice), style="yellow"))
    chosen = view.peer(look.chosen or "")
    # Besides members and events: titles, a line about keys and one about the chosen member.
    room = height - len(head) - 2 - (chosen is not None)
    count = max(0, min(_EVENTS_SHOWN, height // 4, room - 1))
    events = view.events[max(0, len(view.events) - count) :]
    rows = min(len(view.peers), max(1, room - len(events)))
    left_out = len(view.peers) - rows
    told = [f"{left_out} more members"] if left_out else []
    told += [_HEARSAY] if any(peer.source == "others" for peer in view.peers) else []
    told += [_KEYS]
    foot = [Text("  ".join(told), style="dim"), *(Text(event_line(event)) for event in events)]
    if chosen is not None:
        foot.insert(0, Text(detail(chosen), style="cyan"))
    for line in (*head, *foot):
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(*head, _table(view, width, look, rows), *foot)


def _stream(observer: "Observer", view: "SwarmView", every_s: float) -> None:
    """Print a line each time, until nobody answers any more or nobody reads."""
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


@contextmanager
def _keyboard() -> Iterator[Callable[[float], str]]:
    """Gives what waits, so many seconds at most, for what is typed; empty where nothing is."""
    import termios
    import tty

    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)

    def pressed(timeout_s: float) -> str:
        if not select.select([stdin], [], [], timeout_s)[0]:
            return ""
        # At its end, a terminal that was closed would be read again and again.
        return os.read(stdin, 64).decode("utf-8", "replace") or "q"

    try:
        tty.setcbreak(stdin)
        yield pressed
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)
