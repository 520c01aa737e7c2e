"""The screen of ``rumor top``, driven as a terminal would drive it."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, RichLog, Static

from rumor.cli.live.screen import Top
from rumor.gossip import TransportError
from rumor.train.observe.view import EventView, PeerView, SwarmView

from .made_up import a_peer, a_view

Act = Callable[[Top, "Pilot[None]"], Awaitable[None]]

# Nothing is asked but where a test waits for it.
NEVER_S = 3600.0


def on_screen(
    act: Act,
    view: SwarmView,
    *,
    size: tuple[int, int] = (80, 24),
    poll: Callable[[], SwarmView] | None = None,
    every_s: float = NEVER_S,
) -> None:
    """Start it, and do something with it."""

    async def run() -> None:
        top = Top(poll or (lambda: view), view, every_s)
        async with top.run_test(size=size) as pilot:
            await pilot.pause()
            await act(top, pilot)

    asyncio.run(run())


def table(top: Top) -> "DataTable[Any]":
    return top.screen_stack[0].query_one("#members", DataTable)


def names(top: Top) -> list[str]:
    return [str(key.value) for key in table(top).rows]


def text_of(top: Top, selector: str) -> str:
    return str(top.screen.query_one(selector, Static).render())


def titles(top: Top) -> list[str]:
    return [str(column.label).strip() for column in table(top).columns.values()]


@pytest.mark.extended
@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
@pytest.mark.parametrize("count", [4, 64])
def test_all_members_are_there_at_any_size(count: int, size: tuple[int, int]) -> None:
    async def act(top: Top, pilot: "Pilot[None]") -> None:
        assert names(top) == [f"p{number:02}" for number in range(count)]
        assert ("address" in titles(top)) is (size[0] == 200)
        assert "3d42e0d4" in text_of(top, "#summary")
        log = top.screen.query_one("#events", RichLog)
        assert len(log.lines) == min(count, 6)
        await pilot.press("ctrl+end")
        assert table(top).cursor_row == count - 1
        await pilot.pause()
        assert (table(top).scroll_offset.y > 0) is (count == 64)
        assert table(top).max_scroll_x == 0

    on_screen(act, a_view(count), size=size)


def test_a_wider_terminal_shows_more_columns() -> None:
    async def act(top: Top, pilot: "Pilot[None]") -> None:
        assert "accuracy" not in titles(top)
        await pilot.resize_terminal(150, 40)
        await pilot.pause()
        assert titles(top)[-1] == "address" and names(top) == ["p00", "p01", "p02", "p03"]

    on_screen(act, a_view(4))


@pytest.mark.extended
def test_keys_sort_by_each_column_and_turn_the_order_around() -> None:
    async def act(top: Top, pilot: "Pilot[None]") -> None:
        for key in ("2", "3", "4", "5", "6", "7", "8", "9", "0"):
            await pilot.press(key)
            assert titles(top)[int(key) - 1 if key != "0" else 9][-1] in "▲▼"
        await pilot.press("6")
        by_loss = sorted(top.view.peers, key=lambda peer: -(peer.loss or 0))
        assert names(top) == [peer.id for peer in by_loss]
        await pilot.press("r")
        assert names(top) == [peer.id for peer in reversed(by_loss)]
        await pilot.press("greater_than_sign")
        assert titles(top)[6] == "stale▼"
        for _ in range(6):
            await pilot.press("less_than_sign")
        assert titles(top)[0] == "peer▲" and names(top)[0] == "p00"
        await pilot.press("1")
        assert titles(top)[0] == "peer▼" and names(top)[0] == "p63"
        # There is no such column in a narrow terminal.
        top.action_sort_by(12)
        assert names(top)[0] == "p63"
        await pilot.click(DataTable, offset=(15, 0))
        assert titles(top)[1] == "state▲"

    on_screen(act, a_view(64))


def test_a_narrower_terminal_forgets_the_column_it_was_sorted_by() -> None:
    async def act(top: Top, pilot: "Pilot[None]") -> None:
        top.action_sort_by(len(titles(top)) - 1)
        assert titles(top)[-1] == "address▲"
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert titles(top)[0] == "peer▲"
        await pilot.press("greater_than_sign")
        assert titles(top)[1] == "state▲"

    on_screen(act, a_view(4), size=(200, 40))


def test_the_chosen_member_stays_chosen_when_the_order_changes() -> None:
    async def act(top: Top, pilot: "Pilot[None]") -> None:
        await pilot.press("down", "down", "5")
        assert names(top)[table(top).cursor_row] == "p02"
        top.show(replace(top.view, peers=top.view.peers[1:]))
        assert names(top)[table(top).cursor_row] == "p02"
        top.show(replace(top.view, peers=()))
        await pilot.press("enter", "c")
        top.action_details()
        assert len(top.screen_stack) == 1

    on_screen(act, a_view(64))


def test_a_filter_is_typed_and_taken_back() -> None:
    async def act(top: Top, pilot: "Pilot[None]") -> None:
        await pilot.press("slash", *"dead")
        assert names(top) == ["p07"]
        await pilot.press("enter")
        assert "only members with 'dead'" in text_of(top, "#notice")
        # Letters are keys again.
        await pilot.press("r", "escape")
        assert len(names(top)) == 64
        assert not top.screen.query_one("#notice").display

    on_screen(act, a_view(64))


def test_enter_shows_a_member_which_goes_on_being_told() -> None:
    async def act(top: Top, pilot: "Pilot[None]") -> None:
        await pilot.press("down", "enter")
        await pilot.pause()
        assert "p01, incarnation" in text_of_figures(top) and "gosgd" in text_of_figures(top)
        links = top.screen.query_one("#links", DataTable)
        assert links.row_count == 3
        peers = tuple(replace(p, state="waiting", awaits=("p00",)) for p in top.view.peers)
        peers = tuple(replace(p, reasons=(("skipped", "no credit", 3),)) for p in peers)
        top.show(replace(top.view, peers=peers))
        assert "waits for p00" in text_of_figures(top)
        assert "skipped 3: no credit" in text_of_figures(top)
        silent = replace(peers[1], source="others", state="dead", dead_by=2, awaits=())
        top.show(replace(top.view, peers=(peers[0], silent)))
        assert "dead, as others say" in text_of_figures(top)
        assert "2 consider it dead" in text_of_figures(top)
        # What is not there any more stays as it was last known.
        top.show(replace(top.view, peers=peers[:1], links=()))
        assert "dead, as others say" in text_of_figures(top) and links.row_count == 0
        await pilot.press("r")
        assert titles(top)[0] == "peer▲"
        await pilot.press("escape")
        assert len(top.screen_stack) == 1

    on_screen(act, a_view(4))


def text_of_figures(top: Top) -> str:
    from rich.console import Console

    console = Console(width=400)
    with console.capture() as capture:
        console.print(top.screen.query_one("#figures", Static).content)
    return capture.get()


def test_one_of_which_hardly_anything_is_known_has_details_too() -> None:
    peer = PeerView(id="nat", state="training", source="others")

    async def act(top: Top, pilot: "Pilot[None]") -> None:
        await pilot.press("enter")
        await pilot.pause()
        assert "no address on ?" in text_of_figures(top)
        assert "not known" in text_of_figures(top)

    on_screen(act, a_view(1, peers=(peer,), links=()))


def test_an_address_is_copied_where_there_is_one() -> None:
    async def act(top: Top, pilot: "Pilot[None]") -> None:
        await pilot.press("c")
        assert top.clipboard == "10.0.0.5:7700"
        top.show(replace(top.view, peers=(a_peer("p0", address=""),)))
        await pilot.press("c")
        assert top.clipboard == "10.0.0.5:7700"

    on_screen(act, a_view(1, peers=(a_peer("p0"),)))


@pytest.mark.extended
def test_help_says_what_keys_and_columns_mean() -> None:
    async def act(top: Top, pilot: "Pilot[None]") -> None:
        await pilot.press("question_mark")
        await pilot.pause()
        assert len(top.screen_stack) == 2
        await pilot.press("escape")
        assert len(top.screen_stack) == 1

    on_screen(act, a_view(4))


@pytest.mark.extended
def test_it_asks_until_it_is_paused_and_goes_on_after() -> None:
    asked, views = threading.Event(), [a_view(4), a_view(5)]
    answers: Iterator[SwarmView | TransportError] = iter(
        [TransportError("the roster lets this machine in no more"), *views]
    )

    def poll() -> SwarmView:
        asked.set()
        answer = next(answers, views[-1])
        if isinstance(answer, TransportError):
            raise answer
        return answer

    async def act(top: Top, pilot: "Pilot[None]") -> None:
        for _ in range(1000):
            await pilot.pause(0.01)
            if len(names(top)) == 5:
                break
        assert len(names(top)) == 5
        await pilot.press("p")
        assert "paused" in text_of(top, "#notice")
        await pilot.pause(0.1)
        asked.clear()
        await pilot.pause(0.1)
        assert not asked.is_set()
        await pilot.press("p")
        for _ in range(1000):
            if asked.is_set():
                break
            await pilot.pause(0.01)
        assert asked.is_set()

    on_screen(act, a_view(3), poll=poll, every_s=0.02)


def test_what_went_wrong_is_said_without_markup() -> None:
    async def act(top: Top, pilot: "Pilot[None]") -> None:
        top._notice("[bold]no[/bold] \x1b[2J")
        assert "[bold]no[/bold] \\x1b[2J" in text_of(top, "#notice")

    on_screen(act, a_view(4))


def test_when_nobody_answers_any_more_it_says_for_how_long() -> None:
    async def act(top: Top, pilot: "Pilot[None]") -> None:
        top.show(replace(top.view, answered=0))
        assert "nobody answers any more" in text_of(top, "#notice")
        top.show(replace(top.view, answered=4))
        assert not top.screen.query_one("#notice").display

    on_screen(act, a_view(4))


def test_more_who_noticed_an_event_are_added_unless_somebody_reads_above() -> None:
    def died(*told_by: str) -> EventView:
        return EventView(number=99, time_s=1.0, event="died", peer="p03", told_by=told_by)

    async def act(top: Top, pilot: "Pilot[None]") -> None:
        log = top.screen.query_one("#events", RichLog)
        events = top.view.events
        top.show(replace(top.view, events=(*events, died("p00"))))
        await pilot.pause()
        top.show(replace(top.view, events=(*events, died("p00", "p01"))))
        await pilot.pause()
        assert "p03 is considered dead (say p00, p01)" in log.lines[-1].text
        assert len(log.lines) == len(events) + 1
        log.scroll_home(animate=False)
        await pilot.pause()
        top.show(replace(top.view, events=events))
        assert "p03" in log.lines[-1].text

    on_screen(act, a_view(30))


def test_it_quits() -> None:
    async def act(top: Top, pilot: "Pilot[None]") -> None:
        await pilot.press("q")
        assert top._is_over.is_set() or not top.is_running
        # What comes late is not shown.
        top._is_over.set()
        top._from_thread(lambda: pytest.fail("it is over"))

    on_screen(act, a_view(4))


def test_an_answer_that_comes_when_the_widgets_are_gone_is_passed_over() -> None:
    async def act(top: Top, pilot: "Pilot[None]") -> None:
        await top.screen.remove_children()
        top._from_thread(lambda: pytest.fail("nothing can be shown"))
        await pilot.pause()

    on_screen(act, a_view(4))
