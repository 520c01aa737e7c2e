"""The screen of ``rumor top``: members, events, and one member in detail."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rich.table import Table
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import Resize
from textual.screen import ModalScreen, Screen
from textual.widgets import DataTable, Footer, Input, RichLog, Static
from textual.widgets.data_table import ColumnKey

from ...gossip.errors import RumorError
from ..errors import printable
from .board import (
    COLUMNS,
    LINK_COLUMNS,
    STYLES,
    Column,
    amount,
    ascending,
    columns_for,
    event_line,
    links_in_order,
    matching,
    ordered,
    rate,
    shown_name,
    span,
    summary,
)

if TYPE_CHECKING:
    from ...train.observe.view import PeerView, SwarmView

__all__ = ["Top"]

_KEYS: Final = (
    ("up, down", "choose a member"),
    ("Enter", "its links, settings, and why shares came to nothing"),
    ("< >", "choose the column to sort by"),
    ("1 to 9, 0", "sort by the first, second, ... tenth column"),
    ("r", "turn the order around"),
    ("/", "show only members in whose name, state, host or address some words stand; Esc ends it"),
    ("c", "copy the member's address, where the terminal allows that"),
    ("p", "pause, or go on"),
    ("q", "quit"),
)

_EVENTS_MAX: Final = 200
_NAME_MIN: Final = 10
_NAME_MAX: Final = 24
_OF_MEMBERS: Final = frozenset({"details", "filter", "help", "reverse", "sort", "sort_by"})


class Top(App[None]):
    """Shows a swarm until somebody quits.

    Args:
        poll: Asks the swarm; it is called on a thread of its own.
        view: What it answered first.
        every_s: How often to ask, seconds.
    """

    CSS = """
    #summary { height: auto; padding: 0 1; background: $panel; text-style: bold; }
    #notice { height: auto; padding: 0 1; color: $warning; display: none; }
    #filter { display: none; height: 1; border: none; padding: 0 1; }
    #members { height: 1fr; scrollbar-size: 1 1; }
    #events {
        height: 25%; min-height: 4; border-top: solid $panel; padding: 0 1; scrollbar-size: 1 1;
    }
    """
    TITLE = "rumor top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("enter", "details", "Details"),
        Binding("less_than_sign", "sort(-1)", "Sort by", key_display="< >"),
        Binding("greater_than_sign", "sort(1)", show=False),
        Binding("r", "reverse", "Reverse"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("c", "copy_address", "Copy address"),
        Binding("p", "pause", "Pause"),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("escape", "no_filter", show=False),
        *[Binding(str((n + 1) % 10), f"sort_by({n})", show=False) for n in range(10)],
    ]

    def __init__(self, poll: "Callable[[], SwarmView]", view: "SwarmView", every_s: float) -> None:
        super().__init__()
        self.theme = "textual-dark"
        self._poll, self._every_s = poll, every_s
        self.view = view
        """What is shown."""
        self._columns: tuple[Column, ...] = ()
        self._sorted_by = COLUMNS[0]
        self._is_reversed = False
        self._words = ""
        self._told: list[str] = []
        self._answered_s = time.monotonic()
        self._is_paused = threading.Event()
        self._is_over = threading.Event()

    def compose(self) -> ComposeResult:
        """Lay out the screen."""
        yield Static(id="summary")
        yield Static(id="notice")
        yield Input(placeholder="words that members must have; Enter", id="filter")
        yield DataTable(id="members", cursor_type="row", cell_padding=0, zebra_stripes=True)
        yield RichLog(id="events", wrap=True, auto_scroll=True)
        yield Footer()

    def on_mount(self) -> None:
        """Show what is known, and go on asking."""
        self._lay_out(self.size.width)
        self._base.query_one("#members").focus()
        self.run_worker(self._ask, thread=True, exit_on_error=True)

    def on_unmount(self) -> None:
        """End the asking."""
        self._is_over.set()

    def on_resize(self, event: Resize) -> None:
        """Show as many columns as there is room for."""
        self._lay_out(event.size.width)

    def _ask(self) -> None:
        while not self._is_over.wait(self._every_s):
            if self._is_paused.is_set():
                continue
            try:
                view = self._poll()
            except RumorError as error:
                self._from_thread(partial(self._notice, str(error)))
            else:
                self._from_thread(partial(self.show, view))

    def _from_thread(self, act: Callable[[], None]) -> None:
        if not self._is_over.is_set():
            self.call_later(self._unless_over, act)

    def _unless_over(self, act: Callable[[], None]) -> None:
        # What was asked for before the end may come when all widgets are gone.
        screens = self.screen_stack
        if screens and screens[0].query("#summary"):
            act()

    @property
    def _base(self) -> Screen[Any]:
        """The screen with all members, whichever is shown."""
        return self.screen_stack[0]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave out of the footer what concerns the members, while something else is shown."""
        return action not in _OF_MEMBERS or len(self.screen_stack) == 1

    def show(self, view: "SwarmView") -> None:
        """Show the swarm as it is now."""
        self.view = view
        if view.answered:
            self._answered_s = time.monotonic()
        self._refresh()
        for screen in self.screen_stack:
            if isinstance(screen, _Details):
                screen.show(view)

    def _lay_out(self, width: int) -> None:
        table = self._table
        columns = columns_for(width)
        # Names get what is left, but for the scroll bar.
        rest = width - 1 - sum(column.width + 1 for column in columns[1:])
        columns = (
            replace(columns[0], width=min(_NAME_MAX, max(_NAME_MIN, rest - 1))),
            *columns[1:],
        )
        if columns != self._columns:
            self._columns = columns
            same = (column for column in columns if column.title == self._sorted_by.title)
            self._sorted_by = next(same, columns[0])
            table.clear(columns=True)
        self._refresh()

    @property
    def _table(self) -> "DataTable[Text]":
        return self._base.query_one("#members", DataTable)

    def _refresh(self) -> None:
        self._base.query_one("#summary", Static).update(Text(summary(self.view)))
        self._say_what_is_odd()
        self._fill()
        self._tell()

    def _tell(self) -> None:
        """Write what has happened; whoever reads what is above is not disturbed."""
        events = self._base.query_one("#events", RichLog)
        lines = [event_line(event) for event in self.view.events[-_EVENTS_MAX:]]
        if lines != self._told and (events.is_vertical_scroll_end or not self._told):
            # More may have noticed by now what was told before.
            events.clear()
            for line in lines:
                events.write(Text(line))
            self._told = lines

    def _say_what_is_odd(self) -> None:
        notices = []
        if self._is_paused.is_set():
            notices.append("paused: p goes on")
        elif not self.view.answered:
            silent = span(time.monotonic() - self._answered_s)
            notices.append(f"nobody answers any more, for {silent}; still asking")
        if self._words:
            notices.append(f"only members with {self._words!r}: Esc shows all")
        self._notice("; ".join(notices))

    def _notice(self, text: str) -> None:
        notice = self._base.query_one("#notice", Static)
        notice.update(Text(printable(text)))
        notice.display = bool(text)

    def _fill(self) -> None:
        """Put the members into the table, and keep the one that is chosen."""
        table = self._table
        if not table.columns:
            for column in self._columns:
                table.add_column(Text(""), width=column.width + 1, key=column.title)
        for column in self._columns:
            title = column.title
            if column is self._sorted_by:
                title += "▲" if ascending(column) is not self._is_reversed else "▼"
            title = title if ascending(column) else title.rjust(column.width)
            table.columns[ColumnKey(column.title)].label = Text(title)
        peers = matching(self.view.peers, self._words)
        is_up = ascending(self._sorted_by)
        peers = ordered(peers, self._sorted_by, reverse=is_up is self._is_reversed)
        rows = [str(key.value) for key in table.rows]
        if rows == [peer.id for peer in peers]:
            for row, peer in enumerate(peers):
                for index, cell in enumerate(self._cells(peer)):
                    table.update_cell_at((row, index), cell)  # type: ignore[arg-type]
            table.refresh()
            return
        chosen, offset = self._chosen(), table.scroll_offset
        table.clear()
        for peer in peers:
            table.add_row(*self._cells(peer), key=peer.id)
        names = [peer.id for peer in peers]
        if chosen in names:
            table.move_cursor(row=names.index(chosen), animate=False, scroll=False)
            table.scroll_to(offset.x, offset.y, animate=False)

    def _cells(self, peer: "PeerView") -> list[Text]:
        cells = []
        for column in self._columns:
            is_name = ascending(column)
            cell = Text(column.text(peer), no_wrap=True)
            cell.truncate(column.width, overflow="ellipsis")
            if not is_name:
                cell.pad_left(column.width - cell.cell_len)
            cells.append(cell)
        cells[1].stylize(STYLES.get(peer.state, ""))
        return cells

    def _chosen(self) -> str:
        """Name of the member that is chosen; empty where there is none."""
        table = self._table
        rows = list(table.rows)
        return str(rows[table.cursor_row].value) if 0 <= table.cursor_row < len(rows) else ""

    def action_details(self) -> None:
        """Show the chosen member in detail."""
        if chosen := self._chosen():
            self.push_screen(_Details(chosen, self.view))

    def on_data_table_row_selected(self) -> None:
        """Enter, where the table has taken it."""
        self.action_details()

    def on_data_table_header_selected(self, event: "DataTable.HeaderSelected") -> None:
        """Sort by a column that was clicked."""
        self.action_sort_by(event.column_index)

    def action_sort(self, by: int) -> None:
        """Sort by the next column, or the one before."""
        at = self._columns.index(self._sorted_by)
        self.action_sort_by((at + by) % len(self._columns))

    def action_sort_by(self, index: int) -> None:
        """Sort by a column; by the same again, the other way round."""
        if index >= len(self._columns):
            return
        column = self._columns[index]
        self._is_reversed = column is self._sorted_by and not self._is_reversed
        self._sorted_by = column
        self._fill()

    def action_reverse(self) -> None:
        """Turn the order around."""
        self._is_reversed = not self._is_reversed
        self._fill()

    def action_filter(self) -> None:
        """Ask for words."""
        box = self._base.query_one("#filter", Input)
        box.display = True
        box.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while it is typed."""
        self._words = event.value.strip()
        self._refresh()

    def on_input_submitted(self) -> None:
        """Back to the table, with what was typed."""
        self._base.query_one("#filter").display = False
        self._table.focus()

    def action_no_filter(self) -> None:
        """Show all members."""
        box = self._base.query_one("#filter", Input)
        box.value = ""
        box.display = False
        self._words = ""
        self._table.focus()
        self._refresh()

    def action_copy_address(self) -> None:
        """Copy the address of the chosen member."""
        peer = self.view.peer(self._chosen())
        if peer is None or not peer.address:
            self.notify("it has no address: it only dials out")
            return
        self.copy_to_clipboard(peer.address)
        self.notify(f"copied {printable(peer.address)}", markup=False)

    def action_pause(self) -> None:
        """Ask no more, or go on."""
        if self._is_paused.is_set():
            self._is_paused.clear()
        else:
            self._is_paused.set()
        self._say_what_is_odd()

    def action_help(self) -> None:
        """Say what keys and columns mean."""
        self.push_screen(_Help())


class _Details(Screen[None]):
    """One member: what it says of itself, and its links."""

    CSS = """
    #about { height: auto; max-height: 60%; padding: 0 1; }
    #links { height: 1fr; border-top: solid $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "app.pop_screen", "Back"),
        Binding("c", "app.copy_address", "Copy address"),
        Binding("p", "app.pause", "Pause"),
    ]

    def __init__(self, id: str, view: "SwarmView") -> None:
        super().__init__()
        self._peer, self._view = id, view

    def compose(self) -> ComposeResult:
        """Lay out the screen."""
        with VerticalScroll(id="about"):
            yield Static(id="figures")
        yield DataTable(id="links", cursor_type="row", cell_padding=1)
        yield Footer()

    def on_mount(self) -> None:
        """Show what is known."""
        links = self.query_one("#links", DataTable)
        for column in LINK_COLUMNS:
            links.add_column(column.title)
        self.show(self._view)
        links.focus()

    def show(self, view: "SwarmView") -> None:
        """Show the member as it is now, or as it was last known."""
        self._view = view
        peer = view.peer(self._peer)
        if peer is not None:
            self.query_one("#figures", Static).update(_about(peer))
        links: DataTable[Any] = self.query_one("#links", DataTable)
        row, offset = links.cursor_row, links.scroll_offset
        links.clear()
        for link in links_in_order(view.links_of(self._peer)):
            links.add_row(*(Text(column.text(link)) for column in LINK_COLUMNS))
        links.move_cursor(row=row, animate=False, scroll=False)
        links.scroll_to(offset.x, offset.y, animate=False)


class _Help(ModalScreen[None]):
    """What keys and columns mean."""

    CSS = """
    _Help { align: center middle; }
    #help { width: 76; max-width: 100%; max-height: 90%; padding: 1 2; background: $surface; }
    #help Static { height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,question_mark", "app.pop_screen", "Back")
    ]

    def compose(self) -> ComposeResult:
        """Lay out the screen."""
        with VerticalScroll(id="help"):
            yield Static(_pairs([*_KEYS, ("", ""), *((c.title, c.about) for c in COLUMNS)]))


def _pairs(pairs: "list[tuple[str, str]]") -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in pairs:
        table.add_row(Text(name), Text(text))
    return table


def _about(peer: "PeerView") -> Table:
    """What a member says of itself."""
    facts = [
        ("peer", f"{shown_name(peer.id, 64)}, incarnation {peer.incarnation or '?'}"),
        ("state", _state(peer)),
        ("at", f"{printable(peer.address) or 'no address'} on {shown_name(peer.host, 64) or '?'}"),
        ("steps", f"{peer.step:,}, {amount(peer.steps_s)} per second"),
        ("weight", f"{amount(peer.weight, 4)} held, {amount(peer.escrow, 4)} under way"),
        (
            "loss",
            f"{amount(peer.loss, 4)} on the last batch; held out: loss {amount(peer.test_loss, 4)}"
            f", accuracy {amount(peer.accuracy, 4)}",
        ),
        (
            "shares",
            f"{amount(peer.pushes, 5)} pushed, {amount(peer.refusals)} came back; "
            f"{amount(peer.mixed, 5)} mixed, {amount(peer.refused)} sent back, "
            f"{amount(peer.queued)} waiting",
        ),
        (
            "staleness",
            f"{amount(peer.staleness_mean)} steps lately, {amount(peer.staleness_max)} at most",
        ),
        ("network", f"{rate(peer.bytes_out_s)} B/s out, {rate(peer.bytes_in_s)} B/s in"),
        (
            "memory",
            f"{amount(peer.memory_bytes)}B for shares on their way, the model "
            f"{amount(peer.model_bytes)}B",
        ),
    ]
    if peer.reasons:
        why = "; ".join(
            f"{what} {count:,}: {printable(because)}" for what, because, count in peer.reasons
        )
        facts.append(("why not", why))
    settings = ", ".join(f"{printable(k)} {printable(v)}" for k, v in peer.settings.items())
    return _pairs([*facts, ("settings", settings or "not known")])


def _state(peer: "PeerView") -> str:
    told = [peer.state + (", as others say" if peer.source == "others" else "")]
    if peer.uptime_s is not None:
        told.append(f"up {span(peer.uptime_s)}")
    if peer.silent_s is not None and peer.source == "others":
        told.append(f"answered last {span(peer.silent_s)} ago")
    if peer.awaits:
        told.append(f"waits for {', '.join(map(shown_name, peer.awaits[:8]))}")
    if peer.suspected_by or peer.dead_by:
        told.append(f"{peer.suspected_by} suspect it, {peer.dead_by} consider it dead")
    return "; ".join(told)
