"""A run of several peers on a terminal: a live table during the run, a summary at the end."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from ...gossip.config import ProtocolConfig
from ..errors import FAILED, fail
from ..reports.console import plain_table, print_json, progress_on
from .monitor import PeerView, State, read_log

__all__ = [
    *("Display", "complaint", "display_on", "end", "failures", "is_exact", "render", "report"),
    "summarize",
]

Display = Callable[[Sequence[PeerView], Sequence[str], float], None]
"""Shows the state of the peers, recent events, and the duration of the run."""

COLORS = {
    State.STARTING: "dim",
    State.TRAINING: "cyan",
    State.FINISHED: "green",
    State.LEFT: "yellow",
    State.KILLED: "red",
    State.FAILED: "bold red",
}

# Lines of the table besides one for each peer.
FRAME_LINES = 6
# Lines of a failed peer's log.
_TAIL_LINES: Final = 15


@contextmanager
def display_on(stream: TextIO, title: str) -> Iterator[Display]:
    """Show a run on *stream*, usually stderr, in the way that it supports."""
    console = Console(file=stream)
    if not console.is_terminal:
        with progress_on(stream, title) as lines:

            def write(views: Sequence[PeerView], news: Sequence[str], elapsed_s: float) -> None:
                lines(elapsed_s, None, summarize(views), *news)

            yield write
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def draw(views: Sequence[PeerView], news: Sequence[str], elapsed_s: float) -> None:
            for sentence in news:
                console.print(Text(sentence, style="yellow"))
            table = render(title, views, elapsed_s, console.height)
            live.update(table, refresh=True)

        yield draw


def render(
    title: str, views: Sequence[PeerView], elapsed_s: float, height: int = 1000
) -> RenderableType:
    """Build the table: a row for each peer, as many as *height* lines hold."""
    widths = {"state": 8, "": 16, ">step": 9, ">steps/s": 7, ">loss": 7, ">accuracy": 8}
    widths |= {">weight": 7, ">pushes": 6, ">live": 4}
    table = plain_table("peer", *widths)
    for column, width in zip(table.columns[1:], widths.values(), strict=True):
        column.min_width = width
    shown = views[: max(1, height - FRAME_LINES)]
    for view in shown:
        table.add_row(*_cells(view))
    hidden = len(views) - len(shown)
    notes = [f"and {hidden} more peers" if hidden else "", _waiting(views)]
    return Group(
        Text.assemble((title, "bold"), (f"   {elapsed_s:.0f} s", "dim")),
        table,
        *(Text(note, style="dim") for note in notes if note),
    )


def summarize(views: Sequence[PeerView]) -> str:
    """One line about all peers.

    >>> summarize([PeerView("peer-0", 500, State.TRAINING, 120, loss=0.25)])
    'step 120 of 500, loss 0.250, 1 training'
    """
    running = [view for view in views if view.state is State.TRAINING]
    among = running or [view for view in views if view.state is State.FINISHED] or views
    steps, first = sorted({view.step for view in among}), views[0]
    counts = {state: sum(view.state is state for view in views) for state in State}
    span = f"{steps[0]} to {steps[-1]}" if len(steps) > 1 else f"{steps[0]}"
    parts = [f"step {span}" + (f" of {first.steps}" if first.steps else "")]
    if first.steps_total:
        parts.append(f"{first.swarm_steps} of {first.steps_total} in all")
    if losses := [view.loss for view in among if view.loss is not None]:
        parts.append(f"loss {sum(losses) / len(losses):.3f}")
    if accuracies := [view.accuracy for view in among if view.accuracy is not None]:
        parts.append(f"accuracy {sum(accuracies) / len(accuracies):.3f}")
    parts += [f"{n} {state}" for state, n in counts.items() if n]
    return ", ".join(filter(None, [*parts, _waiting(views)]))


def _waiting(views: Sequence[PeerView]) -> str:
    """Describe the phase after the last step, when nothing in the table changes any more."""
    states = {view.state for view in views}
    if State.FINISHED not in states or states & {State.STARTING, State.TRAINING}:
        return ""
    return "all steps are taken; peers agree on the average, or wait for silent ones"


def _cells(view: PeerView) -> list[RenderableType]:
    color, speed = COLORS[view.state], 1 / view.step_s if view.step_s else None
    styles: Any = {"complete_style": color, "finished_style": color}
    return [
        view.id,
        Text(view.state, style=color),
        ProgressBar(total=1.0, completed=view.progress, width=16, **styles),
        f"{view.step}/{view.steps}" if view.steps else str(view.step),
        _number(speed, ".0f" if speed and speed >= 100 else ".1f"),
        *(_number(value, ".4f") for value in (view.loss, view.accuracy, view.weight)),
        str(view.pushes),
        _number(view.live, "d"),
    ]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def failures(summary: Mapping[str, Any]) -> list[str]:
    """Return which peers failed, and why; each cause once."""
    failed = [peer for peer in summary["peers_detail"] if peer["state"] == State.FAILED]
    return _by_cause("failed", [(peer["id"], peer["why"]) for peer in failed])


def _by_cause(what: str, told: Sequence[tuple[str, str | None]]) -> list[str]:
    ids: dict[str, list[str]] = {}
    for id, why in told:
        ids.setdefault(why or "", []).append(id)
    return [f"{', '.join(each)} {what}{why and f': {why}'}" for why, each in ids.items()]


def report(summary: dict[str, Any], console: Console) -> None:
    """Print how a run went."""
    console.print()
    measured = ("last\nreported\naccuracy", "last\nreported\ntest loss")
    columns = ("steps", "steps/s", *measured, "weight", "pushes", "skipped")
    table = plain_table("peer", "state", *(f">{name}" for name in columns))
    for peer in summary["peers_detail"]:
        table.add_row(
            peer["id"],
            f"[{COLORS[State(peer['state'])]}]{peer['state']}[/]",
            str(peer["steps"]),
            _number(peer["steps_per_s"], ".1f"),
            *(_number(peer[name], ".4f") for name in ("accuracy", "loss", "weight")),
            *(str(peer[name]) for name in ("pushes", "skipped")),
        )
    console.print(table)
    console.print()
    for sentence in (
        *(f"{failure}." for failure in failures(summary)),
        _result(summary),
        _weight(summary),
        *_deaths(summary),
        *_unmerged(summary),
        _files(summary),
    ):
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)


def _result(summary: dict[str, Any]) -> str:
    if len(summary.get("swarms") or ()) > 1:
        return "The peers trained in several swarms, so they have no merged model."
    if summary["digest"] is None:
        return "No peer ended in order with a model, so nothing was merged."
    figures = []
    if summary["accuracy"] is not None:
        figures.append(f"accuracy {summary['accuracy']:.4f}")
    # Only the script itself can evaluate its model.
    if figures or summary["loss"] is not None:
        figures.append(f"loss {_number(summary['loss'], '.4g')}")
    distance = summary["consensus_distance"]
    apart = f"differ by {distance:.2g} of their norm" if distance else "are identical"
    if distance and distance > (agreed := ProtocolConfig().merge_tolerance):
        apart += f", more than the {agreed:g} of models that peers have agreed on"
    has = f"The merged model has {' and '.join(figures)} on held-out data; " if figures else ""
    models = "the models it was merged from" if figures else "The models that were merged"
    return f"{has}{models} {apart}."


def _weight(summary: dict[str, Any]) -> str:
    total, expected = summary["weight_units_total"], summary["weight_units_expected"]
    ledger = summary["ledger"]
    if summary.get("unreached"):
        whose = ", ".join(summary["unreached"])
        return f"Weight cannot be counted: the ledgers of {whose} are out of reach."
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
        f"{verdict}: {total} units are held, and {expected} should be "
        f"({ledger['founded']} founded{rest})."
    )


def _deaths(summary: dict[str, Any]) -> list[str]:
    sentences = []
    for dead in summary["dead"]:
        end = f"was started again after incarnation {dead['life']}"
        if dead["state"] is not None:
            why = f" ({dead['why']})" if dead["why"] else ""
            end = f"{dead['state']} at step {dead['step']}{why}"
        loss = f"a weight of {dead['weight']:.4f} died with it ({dead['weight_units']} units)"
        sentences.append(f"{dead['id']} {end}; {loss}.")
    return sentences


def _unmerged(summary: dict[str, Any]) -> list[str]:
    sentences = []
    for peer in summary["peers_detail"]:
        merge = peer.get("merge")
        if merge is None or merge["complete"] or peer["state"] != State.FINISHED:
            continue
        late = ", ".join(merge["unfinished"])
        without = f", without {late}" if late else ""
        sentences.append(f"{peer['id']} ended before its model was the average{without}.")
    return sentences


def _files(summary: dict[str, Any]) -> str:
    out, missing = summary["out"], " ".join(summary["unwritten"])
    if summary["digest"] is None:
        return f"Logs: {out}/peers/*/log.txt"
    files = {"Picture: ": "training.png", "Model:   ": "model.safetensors"}
    lines = [f"{what}{out}/{name}" for what, name in files.items() if name not in missing]
    return "\n".join(lines)


def is_exact(summary: Mapping[str, Any]) -> bool:
    """True if every unit of weight that a run was founded with is accounted for."""
    return bool(summary["weight_units_total"] == summary["weight_units_expected"])


def complaint(summary: dict[str, Any]) -> str:
    """Return why a run failed, in one line; empty if a peer finished, and all else is well."""
    out, peers = summary["out"], summary["peers_detail"]
    late = [(peer["id"], why) for peer in peers if (why := peer.get("script_error"))]
    said = [*failures(summary), *_by_cause("trained, and then the script failed", late)]
    if summary.get("unreached"):
        whose = ", ".join(summary["unreached"])
        said.append(f"the ledgers of {whose} are out of reach, so that no weight can be counted")
    elif not is_exact(summary):
        said.append("the ledgers do not balance: weight was lost or created, which is a bug")
    elif all(peer["state"] == "left" for peer in peers):
        said.append("stopped before the end")
    elif not any(peer["state"] == "finished" for peer in peers):
        said.append(f"no peer finished (logs: {out}/peers/*/log.txt)")
    if len(swarms := summary.get("swarms", ())) > 1:
        named = "; ".join(", ".join(swarm) for swarm in swarms)
        said.append(
            f"these peers trained in {len(swarms)} swarms; `rumor merge` averages each: {named}"
        )
    if summary["unwritten"]:
        said.append(f"not written to {out}: {', '.join(summary['unwritten'])}")
    return "; ".join(said)


def end(summary: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the results of a run; exit with status 1 if anything failed, after saying what."""
    swarms = {summary.get("swarm", ""): summary, **summary["further"]}
    if as_json:
        print_json(summary)
    else:
        for name, each in swarms.items():
            if name or summary["further"]:
                print(f"\nSwarm {name}:" if name else "\nFirst swarm:")
            report(dict(each), Console())
        if left := summary.get("leftovers"):
            print(f"Still running, started by scripts: {', '.join(left)}.")
    whys: list[str] = []
    shown: set[str] = set()
    for name, each in swarms.items():
        failed = {
            peer["id"]
            for peer in each["peers_detail"]
            if peer["state"] == State.FAILED or peer["script_error"]
        }
        for id in sorted(failed - shown):
            _show_log(Path(summary["run"]) / "peers" / id, id)
        shown |= failed
        if why := complaint(dict(each)):
            whys.append(f"swarm {name}: {why}" if name else why)
    if whys:
        fail("; ".join(whys), FAILED)


def _show_log(folder: Path, id: str) -> None:
    try:
        lines = read_log(folder)
    except OSError as error:
        lines = [f"(it cannot be read: {error.strerror})"]
    print(f"\n{id} failed; the end of {folder / 'log.txt'}:", file=sys.stderr)
    for line in lines[-_TAIL_LINES:] or ["(it is empty)"]:
        print(f"    {line}", file=sys.stderr)
