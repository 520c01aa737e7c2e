"""Options made from the fields of config dataclasses."""

from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from rumor.cli.app import COMMANDS as ALL
from rumor.cli.app import load
from rumor.cli.launch.config import LaunchConfig
from rumor.cli.settings.exchange import ExchangeConfig, RuleConfig
from rumor.cli.settings.options import OUTPUT, Source, given, options_of, read_settings
from rumor.sim import SimulationConfig
from rumor.train import PeerConfig
from rumor.train.config import RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Kiln:
    """A config of which nothing else knows."""

    heat_s: float = 2.5
    """How long it heats; with ``glaze``, twice."""

    glaze: bool = False
    """Glaze what is in it."""

    pots: tuple[str, ...] = ()
    """A pot; may be given several times."""

    depth: int | None = None
    """How deep it is; as deep as the pots unless given. Raise it for vases."""

    out: Path | None = None
    """Where pots go."""

    inner: dict[str, int] | None = None
    """What no option could say."""


def kiln(*arguments: str) -> tuple[dict[str, Any], str]:
    """What a command with these options gets, and what it prints."""
    got: dict[str, Any] = {}

    @options_of(Source(Kiln, "How hot"))
    def fire(ctx: typer.Context, *, loud: bool = False, **settings: Any) -> None:
        got.update(settings, loud=loud, given=given(ctx))

    app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    app.command()(fire)
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return got, " ".join(done.output.replace("│", " ").split())


def test_each_field_is_an_option_with_its_type_and_default() -> None:
    got, _ = kiln()
    plain = {"heat_s": 2.5, "glaze": False, "pots": (), "depth": None, "out": None}
    assert got == {**plain, "loud": False, "given": set()}
    typed = ["--heat-s=7", "--glaze", "--pots=a", "--pots=b", "--depth=3", "--out=x", "--loud"]
    got, _ = kiln(*typed)
    assert (got["heat_s"], got["glaze"], got["pots"], got["depth"]) == (7.0, True, ("a", "b"), 3)
    assert (got["out"], got["loud"]) == (Path("x"), True)
    assert got["given"] == {"heat_s", "glaze", "pots", "depth", "out", "loud"}


def test_the_docstring_of_a_field_is_its_help() -> None:
    _, shown = kiln("--help")
    assert "--heat-s S How long it heats; with --glaze, twice. [default: 2.5]" in shown
    assert "How deep it is. Raise it for vases. [default: (as deep as the pots)]" in shown
    assert f"How hot {'─' * 5}" in shown and f"{OUTPUT} {'─' * 5}" in shown
    assert "inner" not in shown


def test_a_field_that_two_configs_have_has_the_first_ones_default_and_words() -> None:
    @options_of(Source("cli.launch.config:LaunchConfig", "A"), Source(RunConfig, "B", adds=False))
    def command(**settings: Any) -> None: ...

    parameters = command.__signature__.parameters  # type: ignore[attr-defined]
    assert "index" not in parameters
    (option,) = parameters["linger_s"].annotation.__metadata__
    assert parameters["linger_s"].default == 3600.0 and "slower ones" in option.help
    (option,) = parameters["out"].annotation.__metadata__
    assert option.help == "The run's folder."


@pytest.mark.parametrize(
    "config",
    [
        RunConfig,
        PeerConfig,
        SimulationConfig,
        LaunchConfig,
        ExchangeConfig,
        RuleConfig,
    ],
)
def test_what_the_source_says_is_what_the_class_has(config: type[Any]) -> None:
    known = {entry.name: entry.default for entry in fields(config)}
    read = read_settings(config)
    assert read and all(known[name] == setting.default for name, setting in read.items())


COMMANDS = {
    "peer": (RunConfig, PeerConfig, ExchangeConfig, RuleConfig),
    "launch": (LaunchConfig, ExchangeConfig),
    "run": (LaunchConfig, ExchangeConfig),
    "simulate": (SimulationConfig, RuleConfig),
}

# They are said by other options, or by none.
NO_OPTIONS = {
    "checkpoint",
    "exchange",
    "mix_budget_s",
    "options",
    "protocol",
    "signals",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_field_has_an_option_with_help_and_the_same_default(command: str) -> None:
    options = {option.name: option for option in load(command).params}
    assert all(option.help for option in options.values())
    for config in COMMANDS[command]:
        for field in fields(config):
            if field.name not in NO_OPTIONS and field.default not in (MISSING, ()):
                default = options[field.name].default
                assert default == field.default or field.name in ("bind", "resume")


@pytest.mark.parametrize("name", ALL)
def test_every_option_that_is_on_by_default_can_be_switched_off(name: str) -> None:
    flags = [each for each in load(name).params if getattr(each, "is_flag", False)]
    assert flags
    for flag in flags:
        assert flag.default is not True or f"--no-{flag.opts[0][2:]}" in flag.secondary_opts


def test_no_save_frozen_reaches_the_settings_of_a_peer() -> None:
    context = load("peer").make_context("peer", ["--no-save-frozen"])
    assert context.params["save_frozen"] is False
