"""Write docs/reference/{commands,config,metrics}.md from the code: ``make reference``.

Commands come from the table of commands that ``rumor`` runs, configuration from the settings that
dataclasses declare, metrics from the study's own declarations. Paths are
relative to the root of the repository.
"""

import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from rumor.cli.app import COMMANDS, load
from rumor.cli.settings.options import Json
from rumor.gossip import ProtocolConfig
from rumor.gossip.specs.parameter import Parameter, settings_of
from rumor.sim import SimulationConfig
from rumor.sim.study.metrics import FACTS, METRICS
from rumor.train import CheckpointConfig, PeerConfig
from rumor.train.runtime.telling.stats import METRICS as PEER_METRICS

__all__ = ["CONFIGS", "FOLDER", "commands", "config", "main", "metrics", "pages"]

FOLDER = Path("docs/reference")

CONFIGS = (PeerConfig, CheckpointConfig, ProtocolConfig, SimulationConfig)
"""The public configuration classes, in the order of the page."""

JSON_HELP = Json.__metadata__[0].help  # type: ignore[attr-defined]
"""The help of ``--json`` at most commands."""

MARKER = "<!-- Written by docs/scripts/reference.py: run `make reference` instead of editing. -->"


def main() -> None:
    """Write the pages."""
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Return the text of each generated page, by file name."""
    return {"commands.md": commands(), "config.md": config(), "metrics.md": metrics()}


# Commands.


def commands() -> str:
    """Return every command, with its options by panel."""
    silent = [
        f"`{name}`"
        for name, command in ((name, load(name)) for name in sorted(COMMANDS))
        for each in getattr(command, "commands", {"": command}).values()
        if all(parameter.name != "as_json" for parameter in each.params)
    ]
    lines = [
        "# Commands",
        "",
        MARKER,
        "",
        "`--help` prints the same. Every command takes `--debug`, which shows the traceback of an "
        "error. All but",
        f"{' and '.join(silent)} take `--json`, which prints one JSON object as the last line.",
        "",
    ]
    for name in sorted(COMMANDS):
        command = load(name)
        several = getattr(command, "commands", {})
        lines += [f"## rumor {name}", ""]
        lines += [_paragraphs(command.help), ""] if several else _command(f"rumor {name}", command)
        for second, each in several.items():
            lines += [f"### rumor {name} {second}", "", *_command(f"rumor {name} {second}", each)]
    return _text(lines)


def _command(called: str, command: Any) -> list[str]:
    usage = " ".join([called, *_arguments(command.params)])
    head = ["```", f"{usage} [OPTIONS]", "```", "", _paragraphs(command.help or ""), ""]
    return head + _parameter_lists(command.params)


def _arguments(parameters: Iterable[Any]) -> Iterator[str]:
    for parameter in parameters:
        if parameter.param_type_name == "argument":
            dots = "..." if parameter.nargs == -1 else ""
            shown = f"{_argument_name(parameter)}{dots}"
            yield shown if parameter.required else f"[{shown}]"


def _argument_name(parameter: Any) -> str:
    # Some placeholders contain brackets and dots of their own.
    name = _kind(parameter) if parameter.metavar else parameter.name.upper()
    return str(name).rstrip(".").strip("[]")


def _parameter_lists(parameters: Iterable[Any]) -> list[str]:
    panels: dict[str, list[Any]] = {}
    for parameter in parameters:
        is_hidden = parameter.name == "debug" or getattr(parameter, "hidden", False)
        # The head of the page describes what nearly all commands share.
        if not is_hidden and parameter.help != JSON_HELP:
            is_argument = parameter.param_type_name == "argument"
            panel = "Arguments" if is_argument else parameter.rich_help_panel or "Options"
            panels.setdefault(panel, []).append(parameter)
    lines = []
    for panel, members in panels.items():
        lines += [f"**{panel}**", "", *map(_item, members), ""]
    return lines


def _item(parameter: Any) -> str:
    default = _shown_default(parameter)
    text = _line(parameter.help)
    # Short texts end with the default, and what is off or left out is plain.
    is_plain = default in ("", "off", "`0`") or f"({default.strip('`')})" in text
    return f"- {_names(parameter)}{'' if is_plain else f' ({default})'}: {text}"


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_argument_name(parameter)}`"
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    kind = "" if getattr(parameter, "is_flag", False) else _kind(parameter)
    return f"`{names} {kind}`".replace(" `", "`")


def _kind(parameter: Any) -> str:
    """Return the form of a value: the declared placeholder, else its type."""
    if parameter.metavar:
        return str(parameter.metavar)
    described = getattr(parameter, "type_descriptor", None)
    kind = getattr(described, "annotation", None) or getattr(parameter, "type", None)
    return str(getattr(kind, "__name__", None) or getattr(kind, "name", "")).upper()


def _shown_default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    shown = getattr(parameter, "show_default", None)
    if isinstance(shown, str):
        return _line(shown)
    value = parameter.default
    if value is None or value in ((), [], "") or callable(value):
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"`{value}`"


# Configuration.


def config() -> str:
    """Return every public configuration class, and the classes that declare its settings."""
    lines = ["# Configuration", "", MARKER, ""]
    lines += [
        "All classes are frozen and take keyword arguments only. A setting is declared once; a "
        "config has",
        "those of all its bases. `rumor config NAME` explains one in the terminal.",
        "",
    ]
    for cls in CONFIGS:
        lines += [f"## {cls.__module__.rsplit('.', 1)[0]}.{cls.__name__}", ""]
        bases = [f"[{each.__name__}](#{each.__name__.lower()})" for each in _subjects(cls)]
        also = f" It also has the settings of {', '.join(bases)}." if bases else ""
        lines += [_first_paragraph(cls.__doc__ or "") + also, ""]
        lines += [*_field_items(cls), ""]
    for cls in dict.fromkeys(each for config in CONFIGS for each in _subjects(config)):
        lines += [f"## {cls.__name__}", "", _first_paragraph(cls.__doc__ or ""), ""]
        lines += [*_field_items(cls), ""]
    return _text(lines)


def _subjects(cls: type) -> list[type]:
    """Return the bases of a config that declare settings, and are not configs themselves."""
    return [each for each in cls.__mro__[1:] if each.__name__.endswith("Settings")]


def _field_items(cls: type) -> Iterator[str]:
    for field in fields(cls):  # type: ignore[arg-type]
        if field.name not in vars(cls).get("__annotations__", ()) or not field.metadata:
            continue
        told = field.metadata["parameter"]
        setting = settings_of(cls).get(field.name)
        values = setting.allowed if setting is not None and _is_bounded(setting) else ""
        kind = field.type if isinstance(field.type, str) else _annotation(field.type)
        # The type says already that a value is an integer.
        allowed = f" Values: {values.removeprefix('an integer of ')}." if values else ""
        yield f"- `{field.name}: {kind}` ({_default_text(field)}): {_line(told.help)}{allowed}"


def _is_bounded(setting: Parameter) -> bool:
    bounds = (setting.low, setting.above, setting.high, setting.below)
    return bool(setting.choices) or any(bound is not None for bound in bounds)


def _annotation(annotation: Any) -> str:
    text = inspect.formatannotation(annotation)
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", text)


def _default_text(field: Any) -> str:
    otherwise = field.metadata["parameter"].otherwise
    if otherwise:
        return _line(otherwise)
    if field.default is not MISSING:
        return f"`{field.default!r}`"
    if field.default_factory is not MISSING:
        made = field.default_factory()
        # The fields of a nested configuration have a section of their own.
        return f"`{type(made).__name__}()`" if type(made) in CONFIGS else f"`{made!r}`"
    return "required"


# Metrics.


def metrics() -> str:
    """Return all figures of a live peer, metrics of a trial, and facts about its graph."""
    lines = ["# Metrics", "", MARKER, "", "## Of a live peer", ""]
    lines += [
        "`metrics.jsonl`, loggers, `rumor top` and `Peer.stats()` call them by these names;",
        "Prometheus by `rumor_NAME`, and counters by `rumor_NAME_total`. Counters begin at 0 with "
        "each process.",
        "",
    ]
    figures = [
        (f"`{each.name}`", each.help, each.unit, "counter" if each.is_counter else "")
        for each in PEER_METRICS.values()
    ]
    lines += [*_table(("metric", "what", "unit", ""), figures), "", "## Of a study", ""]
    lines += [
        "What `rumor study` has for each trial: columns of `summary.csv`, tables and charts of "
        "the report. *Ratio*",
        "metrics differ by a factor, the others by a difference. Points are ranked by the first "
        "metric, in the order",
        "of the last column, that the study has.",
        "",
    ]
    rows = [
        (
            f"`{each.name}`",
            each.words,
            each.unit,
            "lower" if each.lower_is_better else "higher",
            "ratio" if each.is_ratio else "difference",
            "at the target" if each.to_target else "at the end",
            "" if each.preference is None else str(each.preference + 1),
        )
        for each in METRICS.values()
    ]
    names = ("metric", "what", "unit", "better", "compared by", "taken", "ranks by")
    lines += [*_table(names, rows), "", "## Facts about graphs", ""]
    lines += [
        "Known before anything is trained; the report asks which of them predict a metric.",
        "",
    ]
    facts = [(f"`{name}`", words) for name, words in FACTS.items()]
    return _text([*lines, *_table(("fact", "what"), facts)])


# Markdown.


def _table(names: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    head = list(names)
    body = [_row(row) for row in rows]
    return [_row(head), _row("---" for _ in head), *body]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _line(text: str | None) -> str:
    return " ".join((text or "").split()).replace("``", "`")


def _paragraphs(text: str) -> str:
    blocks = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(textwrap.fill(_line(block), 100) for block in blocks)


def _first_paragraph(text: str) -> str:
    return _line(inspect.cleandoc(text).split("\n\n")[0])


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    main()
