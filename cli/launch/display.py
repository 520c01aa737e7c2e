"""A run of several peers on a terminal: a live table while it goes, a summary when it is over."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..console import plain_table
from .monitor import PeerView, State
from .processes import Display

__all__ = [
    "Lines",
    "LiveTable",
    "display_on",
    "render",
    "report",
    "summarize",
]

LINE_EVERY_S = 5.0

COLORS = {
    State.STARTING: "dim",
    State.TRAINING: "cyan",
    State.FINISHED: "green",
    State.LEFT: "yellow",
    State.KILLED: "red",
    State.FAILED: "bold red",
}

# Lines that the table needs beside one for each peer.
FRAME_LINES = 6


@contextmanager
def display_on(stream: TextIO, title: str) -> Iterator[Display]:
    """Show a run on *stream*, in the way that it can.

    Args:
        stream: Usually stderr.
        title: One line about the run.
    """
    console = Console(file=stream)
    if not console.is_terminal:
        yield Lines(stream, title)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield LiveTable(live, title)


class LiveTable:
    """A table that is drawn anew in place, with the news above it."""

    def __init__(self, live: Live, title: str) -> None:
        self._live = live
        self._title = title

    def show(self, views: Sequence[PeerView], news: Sequence[str], elapsed_s: float) -> None:
        """Draw it."""
        for sentence in news:
            self._live.console.print(Text(sentence, style="yellow"))
        height = self._live.console.height
        self._live.update(render(self._title, views, elapsed_s, height), refresh=True)


class Lines:
    """Plain lines: one at the start, one every few seconds, one for each piece of news."""

    def __init__(self, stream: TextIO, title: str) -> None:
        self._stream = stream
        self._next_s = LINE_EVERY_S
        self._write(title)

    def show(self, views: Sequence[PeerView], news: Sequence[str], elapsed_s: float) -> None:
        """Write what is due."""
        for sentence in news:
            self._write(sentence)
        if elapsed_s >= self._next_s:
            self._next_s = elapsed_s + LINE_EVERY_S
            self._write(summarize(views, elapsed_s))

    def _write(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


def render(
    title: str, views: Sequence[PeerView], elapsed_s: float, height: int = 1000
) -> RenderableType:
    """Build the table: a row for each peer, as many as *height* lines hold."""
    table = plain_table()
    table.add_column("peer")
    table.add_column("state", min_width=8)
    table.add_column("", width=16)
    for name, width in (("step", 9), ("steps/s", 7), ("loss", 7), ("accuracy", 8), ("weight", 7)):
        table.add_column(name, justify="right", min_width=width, no_wrap=True)
    table.add_column("pushes", justify="right")
    table.add_column("live", justify="right")
    shown = views[: max(1, height - FRAME_LINES)]
    for view in shown:
        table.add_row(*_cells(view))
    hidden = len(views) - len(shown)
    parts: list[RenderableType] = [
        Text.assemble((title, "bold"), (f"   {elapsed_s:.0f} s", "dim")),
        table,
    ]
    if hidden:
        parts.append(Text(f"and {hidden} more peers", style="dim"))
    if note := _waiting(views):
        parts.append(Text(note, style="dim"))
    return Group(*parts)


def summarize(views: Sequence[PeerView], elapsed_s: float) -> str:
    """One line about all peers.

    >>> summarize([PeerView("peer-0", 500, State.TRAINING, 120, loss=0.25)], 7.0)
    '7 s: step 120 of 500, loss 0.250, 1 training'
    """
    running = [view for view in views if view.state is State.TRAINING]
    among = running or [view for view in views if view.state is State.FINISHED] or views
    steps = sorted({view.step for view in among})
    counts = {state: sum(view.state is state for view in views) for state in State}
    parts = [f"step {_span(steps)}{_of(views[0])}"]
    if losses := [view.loss for view in among if view.loss is not None]:
        parts.append(f"loss {sum(losses) / len(losses):.3f}")
    if accuracies := [view.accuracy for view in among if view.accuracy is not None]:
        parts.append(f"accuracy {sum(accuracies) / len(accuracies):.3f}")
    parts.append(", ".join(f"{n} {state}" for state, n in counts.items() if n))
    parts.extend(filter(None, [_waiting(views)]))
    return f"{elapsed_s:.0f} s: " + ", ".join(parts)


def _waiting(views: Sequence[PeerView]) -> str:
    """What goes on after the last step, when nothing in the table moves any more."""
    states = {view.state for view in views}
    if State.FINISHED not in states or states & {State.STARTING, State.TRAINING}:
        return ""
    if State.KILLED in states:
        return "all steps are taken; waiting until the silent peers are considered dead"
    return "all steps are taken; agreeing on the average"


def _cells(view: PeerView) -> list[RenderableType]:
    color = COLORS[view.state]
    speed = None if not view.step_s else 1 / view.step_s
    return [
        view.id,
        Text(view.state, style=color),
        ProgressBar(
            total=1.0,
            completed=view.progress,
            width=16,
            complete_style=color,
            finished_style=color,
        ),
        f"{view.step}/{view.steps}" if view.steps else str(view.step),
        _number(speed, ".0f" if speed and speed >= 100 else ".1f"),
        _number(view.loss, ".4f"),
        _number(view.accuracy, ".4f"),
        _number(view.weight, ".4f"),
        str(view.pushes),
        _number(view.live, "d"),
    ]


def _of(view: PeerView) -> str:
    own = f" of {view.steps}" if view.steps else ""
    common = f", {view.swarm_steps} of {view.steps_total} in all" if view.steps_total else ""
    return own + common


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _span(sorted_values: Sequence[int]) -> str:
    first, last = sorted_values[0], sorted_values[-1]
    return str(first) if first == last else f"{first} to {last}"


def report(summary: dict[str, Any], console: Console) -> None:
    """Print how a run went.

    Args:
        summary: As `summarize` builds it.
        console: Where to.
    """
    console.print()
    console.print(_final_table(summary))
    console.print()
    for sentence in (_result(summary), _weight(summary), *_deaths(summary), _files(summary)):
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)


def _final_table(summary: dict[str, Any]) -> Table:
    table = plain_table()
    table.add_column("peer", no_wrap=True)
    table.add_column("state")
    for name in ("steps", "steps/s", "accuracy", "test loss", "weight", "pushes", "skipped"):
        table.add_column(name, justify="right", no_wrap=True)
    for peer in summary["peers_detail"]:
        table.add_row(
            peer["id"],
            f"[{COLORS[State(peer['state'])]}]{peer['state']}[/]",
            str(peer["steps"]),
            _number(peer["steps_per_s"], ".1f"),
            _number(peer["accuracy"], ".4f"),
            _number(peer["loss"], ".4f"),
            _number(peer["weight"], ".4f"),
            str(peer["pushes"]),
            str(peer["skipped"]),
        )
    return table


def _result(summary: dict[str, Any]) -> str:
    if summary["digest"] is None:
        return "No peer ended in order with a model, so there is no merged one."
    figures = []
    if summary["accuracy"] is not None:
        figures.append(f"accuracy {summary['accuracy']:.4f}")
    figures.append(f"loss {_number(summary['loss'], '.4g')}")
    distance = summary["consensus_distance"]
    apart = f"differ by {distance:.2g} of their norm" if distance else "are identical"
    equally = "" if summary["merged_by"] == "weight" else " (nobody holds weight: all count alike)"
    return (
        f"The merged model has {' and '.join(figures)} on held-out data; "
        f"the models it was merged from {apart}{equally}."
    )


def _weight(summary: dict[str, Any]) -> str:
    total, expected = summary["weight_units_total"], summary["weight_units_expected"]
    ledger = summary["ledger"]
    if not ledger["founded"]:
        return "No weight was ever founded."
    lost = [
        f"{ledger[name]} {words}"
        for name, words in (("died", "died with peers"), ("burned", "were burned"))
        if ledger[name]
    ]
    rest = f", of which {' and '.join(lost)}" if lost else ""
    verdict = "Weight is exact" if total == expected else "WEIGHT IS NOT EXACT"
    return (
        f"{verdict}: {total} units are there and {expected} should be "
        f"({ledger['founded']} founded{rest})."
    )


def _deaths(summary: dict[str, Any]) -> list[str]:
    sentences = []
    for dead in summary["dead"]:
        how = dead["state"]
        if how == "killed":
            # What a signal was that nobody saw, nobody knows.
            how = f"was killed by {dead['why']}" if dead["why"] else "ended without a word"
        why = f" ({dead['why']})" if dead["state"] == "failed" and dead["why"] else ""
        loss = "no weight died with it"
        if dead["weight_units"]:
            loss = f"a weight of {dead['weight']:.4f} died with it ({dead['weight_units']} units)"
        sentences.append(f"{dead['id']} {how} at step {dead['step']}{why}; {loss}.")
    return sentences


def _files(summary: dict[str, Any]) -> str:
    out, missing = summary["out"], " ".join(summary["unwritten"])
    if summary["digest"] is None:
        return f"Logs: {out}/peers/*/log.txt"
    files = {"Picture: ": "training.png", "Model:   ": "model.safetensors"}
    lines = [f"{what}{out}/{name}" for what, name in files.items() if name not in missing]
    return "\n".join(lines)
