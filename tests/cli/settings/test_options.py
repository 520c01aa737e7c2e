"""Options made from the settings that dataclasses declare, ``--set``, and files of settings."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from rumor.cli.app import COMMANDS as ALL
from rumor.cli.app import app, load
from rumor.cli.commands.config import COMMANDS, declared_settings
from rumor.cli.settings.options import Panel, Source, given, options_of, settings_of_command
from rumor.gossip.specs.parameter import setting

from ..called import called


@dataclass(frozen=True, kw_only=True)
class Kiln:
    """A config that exists only in this test."""

    heat_s: float = setting(2.5, "How long it heats; with ``glaze``, twice.", above=0)
    glaze: bool = setting(False, "Glaze what is in it.")
    pots: tuple[str, ...] = setting((), "A pot; may be given several times.")
    depth: int | None = setting(None, "How deep it is.", otherwise="as deep as the pots")
    out: Path | None = setting(None, "Folder of the pots.")
    inner: dict[str, int] | None = None
    """A field that no option can express."""


HOT = Source(Kiln)


def kiln(*arguments: str, source: Source = HOT, **how: Any) -> tuple[dict[str, Any], str]:
    """The config that a command with these options gets, and its output."""
    got: dict[str, Any] = {}

    @options_of(source, **how)
    def fire(ctx: typer.Context, *, loud: bool = False, **settings: Any) -> None:
        got.update(settings, loud=loud, given=given(ctx))

    command = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    command.command()(fire)
    done = CliRunner().invoke(command, arguments, env={"COLUMNS": "200"})
    got["status"] = done.exit_code
    return got, " ".join(done.output.replace("│", " ").split())


PLAIN = {"heat_s": 2.5, "glaze": False, "pots": (), "depth": None, "out": None}


def test_each_setting_is_an_option_with_its_type_and_default() -> None:
    got, _ = kiln()
    assert got == {**PLAIN, "loud": False, "given": set(), "status": 0}
    typed = ["--heat-s=7", "--glaze", "--pots=a", "--pots=b", "--depth=3", "--out=x", "--loud"]
    got, _ = kiln(*typed)
    assert (got["heat_s"], got["glaze"], got["pots"], got["depth"]) == (7.0, True, ("a", "b"), 3)
    assert (got["out"], got["loud"]) == (Path("x"), True)
    assert got["given"] == {"heat_s", "glaze", "pots", "depth", "out", "loud"}


def test_help_comes_from_the_setting() -> None:
    _, shown = kiln("--help")
    assert "--heat-s S How long it heats; with --glaze, twice. " in shown
    assert "How deep it is (as deep as the pots)." in shown
    assert f"{Panel.OPTIONS} {'─' * 5}" in shown and f"{Panel.OUTPUT} {'─' * 5}" in shown
    assert "inner" not in shown


def test_a_command_can_offer_some_settings_and_leave_them_unset() -> None:
    source = Source(Kiln, only=("heat_s", "glaze"), unset={"heat_s": "as hot as it is"})
    got, _ = kiln(source=source)
    assert got == {"heat_s": None, "glaze": False, "loud": False, "given": set(), "status": 0}
    assert kiln("--heat-s=7", source=source)[0]["heat_s"] == 7.0
    assert "--heat-s S" in kiln("--help", source=source)[1]


EVERYDAY: dict[str, Any] = {"everyday": {"How hot": ("depth",)}}


def test_settings_without_an_option_are_set_by_name() -> None:
    words = ["--depth=3", "--set=heat_s=7", "--set", "glaze", "--set=pots=a", "--set=pots=b"]
    got, _ = kiln(*words, "--set=out=x", **EVERYDAY)
    assert {name: got[name] for name in PLAIN} == {
        "heat_s": 7.0, "glaze": True, "pots": ("a", "b"), "depth": 3, "out": Path("x")
    }  # fmt: skip
    assert got["given"] == {"heat_s", "glaze", "pots", "depth", "out", "set_"}
    _, shown = kiln("--help", **EVERYDAY)
    assert "--depth" in shown and "--set" in shown and "--heat-s" not in shown


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("heats=1", "there is no setting 'heats', did you mean 'heat_s'?"),
        ("heat_s", "write heat_s=VALUE"),
        ("heat_s=0", "it must be above 0"),
        ("glaze=perhaps", "it must be true or false"),
        ("depth=deep", "it must be an integer"),
    ],
)
def test_an_invalid_setting_is_named(word: str, message: str) -> None:
    got, shown = kiln("--set", word, **EVERYDAY)
    assert got["status"] == 2 and message in shown


def test_options_override_the_settings_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "kiln.toml"
    path.write_text('heat-s = 3\ndepth = 4\npots = ["a", "b"]\nout = "there"\n')
    got, _ = kiln(f"--config={path}", "--depth=5", "--set=heat_s=6", **EVERYDAY)
    assert {name: got[name] for name in PLAIN} == {
        "heat_s": 6.0, "glaze": False, "pots": ("a", "b"), "depth": 5, "out": Path("there")
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("depht = 3", "unknown key 'depht', did you mean 'depth'?"),
        ("depth = 3.5", "depth=3.5: it must be an integer"),
        ("depth = [1]", "depth is [1]: it must be an integer"),
        ("glaze = 1", "glaze=1: it must be true or false"),
        ("depth = ", "Invalid value"),
    ],
)
def test_an_invalid_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "kiln.toml").write_text(text)
    got, shown = kiln(f"--config={tmp_path / 'kiln.toml'}", **EVERYDAY)
    assert got["status"] == 2 and message in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_at_most_twenty_options_in_a_line_each(name: str) -> None:
    options = [each for each in load(name).params if each.param_type_name == "option"]
    assert len(options) <= 20
    shown = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "80"}).output
    rows = re.findall(r"^│ (?:\*  |   )?--", shown, re.MULTILINE)
    # Continuation lines begin with spaces; arguments may have several.
    after = shown[shown.index("╭─ Options") :]
    assert not re.search(r"^│ {6}(?! *\[required\])", after, re.MULTILINE)
    assert len(rows) == len(options) + 1


@pytest.mark.parametrize("name", COMMANDS)
def test_every_setting_is_explained_and_keeps_its_default(name: str) -> None:
    settings, sources = settings_of_command(load(name))
    assert settings and all(each.help for each in settings.values())
    known = declared_settings()
    for source in sources:
        made = source.owner()
        for field, declared in settings.items():
            if hasattr(made, field) and field not in ("resume", "shards", "loggers"):
                assert name in known[field] and declared.name == field


def test_the_config_command_lists_and_explains_settings() -> None:
    def config_output(*words: str) -> str:
        return called("config", *words, status=0, columns=80).output

    everything = config_output()
    assert {line.split(" ")[0] for line in everything.splitlines()} >= {*declared_settings()}
    assert max(map(len, everything.splitlines())) <= 80
    explained = config_output("dead_s")
    assert "Values: above 0. Default: 30.0." in explained and "peer, launch, run" in explained
    assert "linger_s" in config_output("linger") and "launch, run: 3600.0" in config_output(
        "linger_s"
    )


@pytest.mark.parametrize("name", ALL)
def test_every_option_that_is_on_by_default_can_be_switched_off(name: str) -> None:
    several = getattr(load(name), "commands", {name: load(name)}).values()
    flags = [each for one in several for each in one.params if getattr(each, "is_flag", False)]
    assert flags
    for flag in flags:
        assert flag.default is not True or f"--no-{flag.opts[0][2:]}" in flag.secondary_opts
