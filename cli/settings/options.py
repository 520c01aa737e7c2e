"""Options of the command line, made from the fields of config dataclasses.

A field's name, type and default are the option's, and the docstring under it is its help: a new
field of `RunConfig` is an option of ``rumor peer`` without a change here. The sources are read,
not imported, because some of the packages that they lie in import torch.

In such a docstring, a field's ``name`` becomes ``--name``, and "; the task's unless given" becomes
the default that help shows.
"""

import ast
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import wraps
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any, Final, TypeVar, cast

import typer

from ...gossip.errors import ConfigError
from ...gossip.rules.registry import parameter_default, parameter_help, rules_help
from ...gossip.specs.spec import described
from ...gossip.wire.formats import WIRES
from ...train.tasks.lr_schedule import LR_SCHEDULES
from ..errors import reporting_errors

__all__ = [
    "COMPUTING",
    "EXCHANGE",
    "FAULTS",
    "GOSSIP",
    "MACHINES",
    "NETWORK",
    "OUTPUT",
    "SPEED",
    "TRAINING",
    "Json",
    "Setting",
    "Source",
    "check_kept",
    "config_of",
    "given",
    "option",
    "options_of",
    "read_settings",
]

TRAINING: Final = "What is trained"
MACHINES: Final = "On which machines"
GOSSIP: Final = "How peers exchange"
EXCHANGE: Final = "What an exchange costs"
SPEED: Final = "How fast workers are"
NETWORK: Final = "What lies between them"
FAULTS: Final = "What goes wrong"
COMPUTING: Final = "How it is computed"
OUTPUT: Final = "Output"

_ORDER: Final = (TRAINING, MACHINES, GOSSIP, EXCHANGE, SPEED, NETWORK, FAULTS, COMPUTING, OUTPUT)

Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print one JSON object as the last line of stdout, and nothing else there.",
        rich_help_panel=OUTPUT,
    ),
]
_DEBUG: Final = inspect.Parameter(
    "debug",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool, typer.Option("--debug", help="Show tracebacks.", rich_help_panel=OUTPUT)
    ],
)

_PANELS: Final[Mapping[str, tuple[str, ...]]] = {
    TRAINING: (
        *("task", "steps", "total_steps", "time_s"),
        *("lr", "optimizer", "momentum", "lr_schedule", "batch_size", "batch_sizes", "precision"),
        *("partition", "index", "count", "seed", "device", "step_s_min", "prefetch"),
    ),
    EXCHANGE: ("wire", "shards", "shards_per_push", "shard_order", "exact", "push_mbit"),
    SPEED: ("step_s", "exchange_s", "pace", "speeds", "slow"),
    NETWORK: (
        *("network", "latency_s", "bandwidth_mbit", "downlink_mbit", "loss", "duplicates"),
        "stands_for",
    ),
    FAULTS: ("faults", "storm", "storm_scale", "checkpoint_every_s"),
    COMPUTING: (
        *("engine", "decide", "threads", "window", "memory_gib"),
        *("processes", "shrink", "failures_max", "backend", "jobs"),
    ),
    OUTPUT: (
        *("out", "resume", "trust", "log_every", "eval_every", "eval_average_every"),
        *("tested", "workers_tested"),
        *("checkpoint_every", "journal", "loggers", "metrics_host", "metrics_port"),
        *("no_plot", "no_report", "draw"),
    ),
}
"""Options that are not shown in the panel of their source."""

_FLAGS: Final[Mapping[str, tuple[str, ...]]] = {
    "from_file": ("--from",),
    "jobs": ("--jobs", "-j"),
    "list_all": ("--list",),
    "loggers": ("--logger",),
    "nodes": ("--nodes", "-n"),
    "peers": ("--peers", "-n"),
    "workers": ("--workers", "-n"),
}
"""Options that are not just ``--`` and the field's name."""

_METAVARS: Final[Mapping[str, str]] = {
    "advertise": "HOST:PORT",
    "bandwidth": "RATE",
    "batch_sizes": "PEER:N",
    "bind": "ADDRESS",
    "checkpoint_every": "INTERVAL",
    "copy": "FILE.toml",
    "degree": "D",
    "duplicates": "PART",
    "faults": "FILE.json",
    "join": "HOST:PORT",
    "loggers": "SPEC",
    "loss": "PART",
    "lr_schedule": "SPEC",
    "metrics_host": "HOST",
    "metrics_port": "PORT",
    "mixing": "step|sliced",
    "network": "NAME|FILE.json",
    "optimizer": "NAME",
    "out": "DIR",
    "pace": "SPEC",
    "port": "PORT",
    "partition": "SPEC|FILE.json",
    "precision": "float32|bfloat16|float16",
    "rendezvous": "DIR",
    "resume": "DIR",
    "rule": "SPEC",
    "seeds": "RANGE",
    "shard_order": "round-robin|random",
    "shards": "K",
    "slow": "PEER:FACTOR",
    "speeds": "CLASSES",
    "ssh": "COMMAND",
    "target": "ACCURACY",
    "timing": "local|lan|wan",
    "tolerance": "PART",
    "topology": "SPEC",
    "window": "STEPS",
    "wire": "FORMAT",
    "without": "NAME,...",
}
"""What help shows in place of a value, where the type alone or the unit says too little."""


def _paces() -> str:
    from ...sim.models.step_time import PACES

    return described(PACES)


_OF_SPECS: Final[Mapping[str, Callable[[], tuple[str, str | None]]]] = {
    "rule": lambda: (f"When to push and how to mix. {rules_help()}", "gosgd"),
    "p": lambda: (f"The rule's parameter p. {parameter_help('p')}", parameter_default("p")),
    "robust": lambda: (f"The rule's parameter robust. {parameter_help('robust')}", None),
    "emission": lambda: (f"The rule's parameter emission. {parameter_help('emission')}", None),
    "wire": lambda: (f"How numbers travel, the same at all peers: {described(WIRES)}.", None),
    "lr_schedule": lambda: (
        f"How the learning rate falls: {described(LR_SCHEDULES)}. Over ``total_steps`` by the "
        "swarm's clock, else over a peer's own steps.",
        "the task's",
    ),
    "pace": lambda: (f"How steps of one worker vary: {_paces()}.", None),
}
"""Help and default of what registries of rules, formats, schedules and paces declare."""

_PLAIN: Final[Mapping[Any, str]] = {int: "N", str: "NAME", Path: "FILE"}
"""What it shows where nothing else is known."""

_UNITS: Final = {"_s": "S", "_s_min": "S", "_ms": "MS", "_mbit": "MBIT", "_mb": "MB", "_gib": "GIB"}

_ROOT: Final = Path(__file__).parents[2]
"""Where the layers lie side by side, in a checkout and in an installed package alike."""

_KINDS: Final[Mapping[str, Any]] = {
    "bool": bool,
    "int": int,
    "float": float,
    "Path": Path,
    "str": str,
}

_T = TypeVar("_T")

_UNLESS_GIVEN: Final = re.compile(r"; (?P<words>[^;]+?),? unless given\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One field of a config dataclass, as its source has it."""

    name: str
    kind: Any
    """Of a value, or of each of several."""
    several: bool
    """Whether it is a tuple, so that the option may be given several times."""
    default: Any
    help: str
    """Its docstring; empty where it has none."""


@dataclass(frozen=True, slots=True)
class Source:
    """Fields of a dataclass that are options of a command."""

    owner: str | type[Any]
    """A class, or where one is: ``train.config:RunConfig``."""
    panel: str
    """Of help, for all fields of which nothing else is known."""
    without: Collection[str] = ()
    """Names of fields that are no options."""
    metavars: Mapping[str, str] = field(default_factory=dict)
    """What this command has in place of what is usual."""
    own: Collection[str] = ()
    """Names of fields that stay in its panel, though they are usually shown in another."""
    adds: bool = True
    """Whether its fields are options; if not, it only documents those of the sources before."""

    def settings(self) -> dict[str, Setting]:
        """The fields by name, in their order."""
        found = read_settings(self.owner)
        return {name: found[name] for name in found if name not in self.without}


def options_of(*sources: Source) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the fields of dataclasses as options, and ``--debug``.

    They stand where the function has ``**settings``, by which it gets them. Where two sources have
    a field of the same name, the first one's default counts, and the first docstring that there
    is. A parameter that the function itself has stays as it is. What the command raises becomes a
    message and an exit status.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        found, helps = _collected(sources, {parameter.name for parameter in own})
        names = {*(parameter.name for parameter in own), *found}
        made = [_parameter(*pair, helps[name], names) for name, pair in found.items()]
        # Help shows panels in the order in which they come first.
        made.sort(key=_place)
        first = [p for p in own if p.kind is not p.KEYWORD_ONLY]
        last = [p for p in own if p.kind is p.KEYWORD_ONLY]
        parameters = [*first, *made, *last, _DEBUG]

        @wraps(function)
        def command(*, debug: bool = False, **arguments: Any) -> None:
            for name, (setting, _) in found.items():
                if setting.default == ():
                    value = arguments[name] or ()
                    arguments[name] = tuple(value) if setting.several else value
            with reporting_errors(debug=debug):
                function(**arguments)

        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
        return command

    return decorate


def _collected(
    sources: Collection[Source], taken: Collection[str]
) -> tuple[dict[str, tuple[Setting, Source]], dict[str, str]]:
    """The fields that are options, by name, and the help of all fields."""
    found: dict[str, tuple[Setting, Source]] = {}
    helps: dict[str, str] = {}
    for source in sources:
        for name, setting in source.settings().items():
            if source.adds and name not in taken:
                found.setdefault(name, (setting, source))
            helps[name] = helps.get(name) or setting.help
    return found, helps


def config_of(owner: type[_T], settings: Mapping[str, Any]) -> _T:
    """Make a config of those *settings* that are its fields."""
    names = {entry.name for entry in fields(cast(Any, owner))}
    return owner(**{name: value for name, value in settings.items() if name in names})


def check_kept(kept: Mapping[str, Any], owners: Iterable[str | type[Any]], where: object) -> None:
    """See that options which a folder has kept are of the types that options have.

    Args:
        kept: By name; those that are no fields of *owners* are not looked at.
        owners: As `read_settings` takes them.
        where: The file they are from, for the message.

    Raises:
        ConfigError: One is of another type; it is named.
    """
    for name, setting in (item for owner in owners for item in read_settings(owner).items()):
        value = kept.get(name)
        if value is None:
            continue
        kind = str if setting.kind is Path else setting.kind
        kinds = (int, float) if kind is float else (kind,)
        values = value if setting.several and isinstance(value, list | tuple) else [value]
        if not all(type(each) in kinds for each in values):
            raise ConfigError(
                f"{where}: {name} is {shorten(repr(value), 80)}, which is no {kind.__name__}: it "
                "is damaged, or somebody has changed it"
            )


def given(context: typer.Context) -> set[str]:
    """Names of the parameters that were typed, whatever their values."""
    return {
        name
        for name in context.params
        if (source := context.get_parameter_source(name)) is not None and source.name != "DEFAULT"
    }


def _parameter(
    setting: Setting, source: Source, help: str, names: Collection[str]
) -> inspect.Parameter:
    """Make the parameter from which typer makes an option."""
    name, kind, default, shown = setting.name, setting.kind, setting.default, None
    if name in _OF_SPECS:
        help, shown = _OF_SPECS[name]()
    help = re.sub(r"``(\w+)``", lambda m: option(m[1]) if m[1] in names else m[0], help)
    if setting.several:
        kind, default, shown = cast(Any, list)[kind], None, default or None
    elif default == ():
        # A file, say, in place of what only Python can give.
        default = None
    words = _UNLESS_GIVEN.search(help)
    if words is not None and default is None:
        shown, help = words["words"], help.replace(words[0], "")
    # Without it, an option that is on by default could not be switched off.
    usual = f"{option(name)}/--no-{option(name)[2:]}" if default is True else option(name)
    declared = typer.Option(
        *_FLAGS.get(name, (usual,)),
        metavar=None if kind is bool else _metavar(setting, source),
        help=help,
        show_default=shown or True,
        rich_help_panel=_panel(name, source),
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        # The type is a value here, which type checkers take for a mistake.
        annotation=cast(Any, Annotated)[kind | None if default is None else kind, declared],
    )


def _panel(name: str, source: Source) -> str:
    usual = (panel for panel, names in _PANELS.items() if name in names)
    return source.panel if name in source.own else next(usual, source.panel)


def _place(parameter: inspect.Parameter) -> int:
    panel = parameter.annotation.__metadata__[0].rich_help_panel
    return _ORDER.index(panel) if panel in _ORDER else -1


def _metavar(setting: Setting, source: Source) -> str | None:
    name = setting.name
    unit = next((unit for end, unit in _UNITS.items() if name.endswith(end)), None)
    return {**_METAVARS, **source.metavars}.get(name) or unit or _PLAIN.get(setting.kind)


def option(name: str) -> str:
    """How a field is typed."""
    return "--" + name.replace("_", "-")


def read_settings(owner: str | type[Any]) -> dict[str, Setting]:
    """Read the fields of a dataclass from its source.

    Args:
        owner: The class, or where it is: ``train.config:RunConfig``.

    Returns:
        By name, in their order, without those of a type that no option has, as other configs.
    """
    if isinstance(owner, str):
        module, _, name = owner.partition(":")
        path = _ROOT.joinpath(*module.split(".")).with_suffix(".py")
    else:
        path, name = Path(inspect.getfile(owner)), owner.__name__
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (body,) = (n.body for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == name)
    found = {}
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            kinds = ast.unparse(node.annotation).split(" | ")
            kind, several = _kind(kinds)
            if kind is not None:
                found[node.target.id] = Setting(
                    name=node.target.id,
                    kind=kind,
                    several=several,
                    default=_value(node.value, tree, path),
                    help=_docstring(after),
                )
    return found


def _kind(kinds: Collection[str]) -> tuple[Any, bool]:
    """What an option takes for a field, and whether several times; None for no option at all."""
    several = any(kind.startswith("tuple[") for kind in kinds)
    bare = [re.sub(r"^tuple\[(\w+), \.\.\.\]$", r"\1", kind) for kind in kinds]
    # The choices of a Literal are checked by the dataclass, as all other ranges are.
    known = [_KINDS.get(kind, str if kind in _TEXTS else None) for kind in bare]
    return next((kind for kind in known if kind is not None), None), several


_TEXTS: Final = ("Emission", "LoggerSpec", "Mixing", "ShardOrder")


def _value(node: ast.expr | None, tree: ast.Module, path: Path) -> Any:
    """The value of a default: a literal, or a name for one here or where it is imported from."""
    if not isinstance(node, ast.Name):
        return None if node is None else ast.literal_eval(node)
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=node.id)], value=value):
                return _value(value, tree, path)
            case ast.AnnAssign(target=ast.Name(id=node.id), value=value):
                return _value(value, tree, path)
            case ast.ImportFrom(module=str(module), level=level, names=names):
                if level and node.id in {alias.name for alias in names}:
                    there = path.parents[level - 1].joinpath(*module.split("."))
                    file = there / "__init__.py" if there.is_dir() else there.with_suffix(".py")
                    return _value(node, ast.parse(file.read_text(encoding="utf-8")), file)
    raise LookupError(f"{path}: the default {node.id} is no literal")


def _docstring(node: ast.stmt | None) -> str:
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return " ".join(text.split())
    return ""
