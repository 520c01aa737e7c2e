"""``rumor run``: somebody's own training script, as several processes."""

import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from ...gossip.errors import ConfigError
from ..console import print_json
from ..errors import FAILED, fail, not_written
from ..launch.command import complaint, conclude, logging_to
from ..launch.display import display_on, report
from ..launch.folder import Place
from ..launch.monitor import Monitor, State, read_report
from ..launch.processes.group import ProcessGroup
from ..launch.script import (
    ScriptConfig,
    config_from,
    find_command,
    find_folder,
    found,
    settings_of,
    variables,
)
from ..launch.supervisor import supervise
from ..options import EXCHANGE, GOSSIP, OUTPUT, Json, Source, given, options_of

__all__ = ["run"]

_TAIL_LINES: Final = 15


@options_of(
    Source("cli.launch.script:ScriptConfig", GOSSIP),
    Source("train.config:PeerConfig", GOSSIP, adds=False),
    Source("cli.exchange:RuleConfig", GOSSIP, adds=False),
    Source("cli.exchange:ExchangeConfig", EXCHANGE),
)
def run(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE.toml or -- COMMAND]...",
            help="What to start, as in `python train.py --lr 0.1`, behind `--`; a script's name "
            "alone will do. A TOML file can hold the command and all options: command = "
            '"python train.py", peers = 4, rule = "sgp".',
            show_default=False,
        ),
    ] = None,
    *,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Show all settings and what each process finds in its environment, and start "
            "nothing.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Start your own training script several times on this machine, as the peers of one swarm.

    `rumor run -n 4 -- python train.py --lr 0.1` starts train.py four times. Each process's
    `Peer(model)` finds its name, its folder, the other peers and these options in its environment;
    what the script itself gives `Peer` counts more. Nothing needs to change in a script that also
    runs alone.

    What each prints is in DIR/peers/NAME/log.txt. Ctrl-C makes all leave in order, handing their
    weight on; a second one kills them.

    Exit status: 0 if at least one peer finished, none failed, and every unit of weight is accounted
    for; 1 if not; 2 for wrong arguments.
    """
    names = given(ctx) & {*settings}
    config, words = config_from(settings | {"words": words}, names)
    command, script = find_command(words)
    out = find_folder(config, script)
    if dry_run:
        _show(config, command, out, as_json=as_json)
        return
    summary = _run(config, command, script, out)
    if as_json:
        print_json(summary)
    else:
        report(summary, Console())
    failed = [peer for peer in summary["peers_detail"] if peer["state"] == State.FAILED]
    for peer in failed:
        _show_log(out / "peers" / peer["id"], peer["id"])
    why = complaint(summary)
    if failed and not why:
        why = f"{', '.join(peer['id'] for peer in failed)} failed"
    if why:
        fail(why, FAILED)


def _run(config: ScriptConfig, command: Sequence[str], script: str, out: Path) -> dict[str, Any]:
    try:
        places = found(config, command, out)
    except OSError as error:
        raise ConfigError(not_written(out, error)) from None
    with logging_to(config.loggers, out, config.described(script, ())) as log:
        group = ProcessGroup(places)
        monitor = Monitor(group.places, group.processes, None, on_row=log.row)
        started_s = time.monotonic()
        with display_on(sys.stderr, f"{script} on {config.peers} peers, in {out}") as display:
            views = supervise(group, monitor, display)
        wall_s = time.monotonic() - started_s

        from ..launch.summary import read_outcomes

        outcomes = read_outcomes(group.places, views)
        described = config.described(script, _reports(places))
        log.summary = conclude(described, None, out, wall_s, outcomes)
    return log.summary


def _reports(places: Sequence[Place]) -> list[dict[str, Any]]:
    told = (read_report(place.folder) for place in places)
    return [each for each in told if each is not None]


def _show_log(folder: Path, id: str) -> None:
    """Show the end of a peer's log on stderr."""
    lines = (folder / "log.txt").read_text(errors="replace").splitlines()
    print(f"\n{id} failed; the end of {folder / 'log.txt'}:", file=sys.stderr)
    for line in lines[-_TAIL_LINES:] or ["(it is empty)"]:
        print(f"    {line}", file=sys.stderr)


def _show(config: ScriptConfig, command: Sequence[str], out: Path, *, as_json: bool) -> None:
    """Print what would be started."""
    settings = settings_of(config) | {"out": str(out)}
    told = {id: variables(config, out, index) for index, id in enumerate(config.ids())}
    if as_json:
        print_json({"command": list(command), "settings": settings, "environment": told})
        return
    print(f"command: {shlex.join(command)}")
    for name, value in settings.items():
        print(f"{name}: {' '.join(value) if isinstance(value, tuple) else value}")
    for id, environment in told.items():
        print(f"\n{id}:")
        for name, text in environment.items():
            print(f"  {name}={shlex.quote(text)}")
