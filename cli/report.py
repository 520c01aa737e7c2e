"""The summary that a person reads."""

from typing import Any

from rich.console import Console
from rich.table import Table

from .table import COLORS
from .watch import State

__all__ = ["report"]


def report(summary: dict[str, Any], console: Console) -> None:
    """Print how a run went.

    Args:
        summary: As `summarize` builds it.
        console: Where to.
    """
    console.print()
    console.print(_table(summary))
    console.print()
    for sentence in (_result(summary), _weight(summary), *_deaths(summary), _files(summary)):
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)


def _table(summary: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
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


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
