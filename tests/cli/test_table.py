"""How a run looks while it goes."""

import io

from rich.console import Console

from rumor.cli.table import LINE_EVERY_S, Lines, LiveTable, display_on, render, summarize
from rumor.cli.watch import Sight, State


def text_of(sights: list[Sight], height: int = 1000) -> str:
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(render("digits on 2 peers", sights, 12.3, height))
    return console.export_text()


def test_a_row_says_where_its_peer_is() -> None:
    training = Sight("peer-0", 500, State.TRAINING, 120)
    training.take({"loss": 0.25, "accuracy": 0.9, "step_s": 0.02, "weight": 1.5, "live": 2})
    text = text_of([training, Sight("peer-1", 500)])
    assert "digits on 2 peers   12 s" in text
    (row,) = [line.split() for line in text.splitlines() if line.startswith("peer-0")]
    assert [cell for cell in row if "━" not in cell and "╸" not in cell and "╺" not in cell] == [
        *("peer-0", "training", "120/500", "50.0", "0.2500", "0.9000", "1.5000", "0", "2")
    ]
    assert "peer-1" in text and "starting" in text


def test_a_small_terminal_shows_some_peers_and_counts_the_rest() -> None:
    text = text_of([Sight(f"peer-{index}", 500) for index in range(40)], height=16)
    assert "peer-9" in text and "peer-10" not in text
    assert "and 30 more peers" in text


def test_after_the_last_step_it_says_what_goes_on() -> None:
    done, dead = Sight("peer-0", 5, State.FINISHED, 5), Sight("peer-1", 5, State.KILLED, 2)
    assert "agreeing" in text_of([done])
    assert "held for dead" in text_of([done, dead])
    assert "all steps" not in text_of([done, Sight("peer-1", 5, State.TRAINING, 2)])


def test_a_line_speaks_of_those_that_train() -> None:
    sights = [
        Sight("peer-0", 500, State.TRAINING, 100, loss=0.2, accuracy=0.9),
        Sight("peer-1", 500, State.TRAINING, 140, loss=0.4, accuracy=0.8),
        Sight("peer-2", 500, State.KILLED, 20, loss=9.0),
    ]
    assert summarize(sights, 10.0) == (
        "10 s: step 100 to 140 of 500, loss 0.300, accuracy 0.850, 2 training, 1 killed"
    )


def test_plain_lines_come_now_and_then_and_news_at_once() -> None:
    stream = io.StringIO()
    lines = Lines(stream, "title")
    sights = [Sight("peer-0", 500)]
    for tenth in range(int(25 * LINE_EVERY_S)):
        lines.show(sights, ["it died"] if tenth == 7 else [], tenth / 10)
    written = stream.getvalue().splitlines()
    assert written[:2] == ["title", "it died"]
    assert len(written) == 4 and all(line.startswith(("5 s", "10 s")) for line in written[2:])


def test_a_stream_that_is_no_terminal_gets_lines() -> None:
    with display_on(io.StringIO(), "title") as display:
        assert isinstance(display, Lines)


def test_a_terminal_gets_a_table_with_the_news_above_it() -> None:
    stream = Terminal()
    with display_on(stream, "title") as display:
        assert isinstance(display, LiveTable)
        display.show([Sight("peer-0", 500)], ["peer-0 left at step 3"], 1.0)
    assert "peer-0 left at step 3" in stream.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True
