"""``rumor top``: who is in a swarm that runs, and how each of them is doing."""

import re
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ...gossip.errors import ConfigError, RumorError
from ...gossip.specs.parameter import setting
from ...train.config import TrustSettings
from ..errors import printable
from ..reports.console import plain_table, print_json
from ..settings.options import Json, Members, Source, config_of, options_of
from .columns import COLUMNS, STYLES, event_line, ordered, summary

if TYPE_CHECKING:
    from ...train.observe.observer import Observer
    from ...train.observe.view import SwarmView

__all__ = ["TopConfig", "observing", "print_view", "screen_of", "top"]

_EVENTS_SHOWN: Final = 10

_HEARSAY: Final = "* as other members report"

# Lines in a file are not folded.
_PIPED_WIDTH: Final = 200


@dataclass(frozen=True, kw_only=True)
class TopConfig(TrustSettings):
    """How a swarm is watched."""

    every_s: float = setting(
        1.0,
        "Time between two requests to all members, seconds.",
        brief="Time between two requests.",
        low=0.2,
        high=3600,
    )

    sort: str = setting(
        "peer",
        "Column to sort by. Numbers are shown with the largest on top.",
        brief="Column to sort by.",
        choices=tuple(column.title for column in COLUMNS),
        metavar="NAME",
    )

    once: bool = setting(False, "Print one table and exit.")

    web: bool = setting(
        False,
        "Show the swarm in the browser, with links and curves: print the address of a page and "
        "serve it until Ctrl-C.",
        brief="Show it in the browser.",
    )

    listen: str | None = setting(
        None,
        "Address to serve the page of ``web`` at; port 0 is any free one. Anyone who can connect "
        "can watch.",
        brief="Address to serve the page at.",
        otherwise="127.0.0.1:0",
        metavar="HOST:PORT",
    )

    def __post_init__(self) -> None:
        if self.listen is not None and not self.web:
            raise ConfigError("--listen says where the page is: give --web, too")


@options_of(Source(TopConfig))
def top(addresses: Members, *, as_json: Json = False, **settings: Any) -> None:
    """Show the members of a swarm, and how each is doing.

    It finds all members from the address of one, and asks each of them once a second. It is not
    a member: it holds no weight, leaves no trace, and continues when members die.

    On a terminal the table is redrawn until Ctrl-C, with as many columns and members as fit.
    Without one, and with --once, it is printed once.

    A peer's log names its address:

    `rumor top 127.0.0.1:7700`

    --web serves a page with all members, links and curves; `GET /status.json` there returns what
    --json prints. To see it from another machine, forward the port:
    `ssh -L 8000:127.0.0.1:8000 node-a`

    `rumor top 127.0.0.1:7700 --web --listen 127.0.0.1:8000`

    Exit status: 0 if it worked; 1 if no member answered, or the page's port is taken; 2 for wrong
    arguments.
    """
    config = config_of(TopConfig, settings)
    if config.web:
        from .web import parse_place, show_page

        if config.once or as_json:
            raise ConfigError("--web shows a page: leave --once and --json out")
        place = parse_place("127.0.0.1:0" if config.listen is None else config.listen)
        show_page(observing(addresses, config.key, config.roster), place, config.every_s)
        return
    is_terminal = sys.stdout.isatty()
    with observing(addresses, config.key, config.roster) as observer:
        view = observer.poll()
        if is_terminal and not config.once and not as_json:
            _redraw(observer, view, config)
            return
        # A rate needs two answers.
        time.sleep(config.every_s)
        view = observer.poll()
        if as_json:
            print_json(view.to_json())
        else:
            print_view(view, Console(width=None if is_terminal else _PIPED_WIDTH), config.sort)


def observing(addresses: Sequence[str], key: Path | None, roster: Path | None) -> "Observer":
    """Return an observer of a swarm, for a ``with`` block."""
    from ...gossip.transport.keys.keyring import read_keyring
    from ...train.observe.observer import Observer

    return Observer(addresses, keyring=read_keyring(key, roster))


def print_view(view: "SwarmView", console: Console, sort: str = "peer") -> None:
    """Print a table of all members, and the latest events; the console's width limits columns."""
    rows = len(view.peers) + _EVENTS_SHOWN + 4
    console.print(screen_of(view, console.width, 4 * rows, sort))


def _table(view: "SwarmView", width: int, sort: str, rows_max: int | None = None) -> Table:
    columns = [column for column in COLUMNS if column.room <= width]
    table = plain_table(*(c.title if c.ascends else f">{c.title}" for c in columns))
    for column, drawn in zip(columns, table.columns, strict=True):
        if column.title == sort:
            drawn.header_style = "bold reverse"
    for peer in ordered(view.peers, sort)[:rows_max]:
        cells = [Text(column.text(peer)) for column in columns]
        cells[1].stylize(STYLES.get(peer.state, ""))
        table.add_row(*cells)
    return table


def _redraw(observer: "Observer", view: "SwarmView", config: TopConfig) -> None:
    """Draw the swarm again after every poll."""
    console, notice = Console(), ""
    with (
        Live(console=console, screen=True, auto_refresh=False) as live,
        suppress(KeyboardInterrupt),
    ):
        while True:
            if not view.answered and not notice:
                notice = "no member answers; still asking"
            screen = screen_of(view, console.width, console.height, config.sort, notice)
            live.update(screen, refresh=True)
            time.sleep(config.every_s)
            notice = ""
            try:
                view = observer.poll()
            except RumorError as error:
                notice = str(error)


def screen_of(
    view: "SwarmView", width: int, height: int, sort: str = "peer", notice: str = ""
) -> RenderableType:
    """Return a swarm as a whole terminal shows it: members first, events in the room below."""
    # Folded between figures only.
    folded = wrap(re.sub(r"(?<!·) (?!·)", "\xa0", summary(view)), width)
    head = [*(Text(line.replace("\xa0", " "), style="bold") for line in folded), Text("")]
    if notice:
        head.insert(-1, Text(printable(notice), style="yellow"))
    # Besides members and events: titles and a line of notes.
    room = height - len(head) - 2
    count = max(0, min(_EVENTS_SHOWN, height // 4, room - 1))
    # Members noticing one another adds nothing to their joining.
    reported = [event for event in view.events if event.event != "met"]
    events = reported[max(0, len(reported) - count) :]
    rows = min(len(view.peers), max(1, room - len(events)))
    left_out = len(view.peers) - rows
    told = [f"{left_out} more members"] if left_out else []
    told += [_HEARSAY] if any(peer.source == "others" for peer in view.peers) else []
    foot = [Text("  ".join(told), style="dim"), *(Text(event_line(event)) for event in events)]
    for line in (*head, *foot):
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(*head, _table(view, width, sort, rows), *foot)
