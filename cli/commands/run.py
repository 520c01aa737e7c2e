"""``rumor run``: somebody's own training script, as several processes."""

import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console

from ...gossip.errors import ConfigError
from ...gossip.transport.addresses import require_files
from ..errors import FAILED, fail, not_written
from ..launch.command import complaint, conclude, logging_to
from ..launch.display import Display, display_on, report
from ..launch.folder import Place
from ..launch.monitor import LifeEnd, Monitor, PeerView, State, ended_view, read_report
from ..launch.processes.group import ProcessGroup, watchdog
from ..launch.resume import lives_before
from ..launch.script.config import MachinesConfig, ScriptConfig, config_from, settings_of
from ..launch.script.folder import (
    ScriptFolder,
    find_command,
    find_folder,
    require_no_stdin,
    variables,
)
from ..launch.supervisor import supervise
from ..reports.console import print_json
from ..settings.options import EXCHANGE, GOSSIP, MACHINES, OUTPUT, Json, Source, given, options_of

if TYPE_CHECKING:
    from ...train.faults.schedule import Fault
    from ..cluster.fleet import Fleet

__all__ = ["run"]

_TAIL_LINES: Final = 15


@options_of(
    Source("cli.launch.script.config:ScriptConfig", GOSSIP),
    Source("cli.launch.script.config:MachinesConfig", MACHINES, metavars={"hosts": "FILE"}),
    Source("train.config:PeerConfig", GOSSIP, adds=False),
    Source("cli.settings.exchange:RuleConfig", GOSSIP, adds=False),
    Source("cli.settings.exchange:ExchangeConfig", EXCHANGE),
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
    """Start your own training script several times, as the peers of one swarm.

    `rumor run -n 4 -- python train.py --lr 0.1` starts train.py four times on this machine. Each
    process's `Peer(model)` finds its name, its folder, the other peers and these options in its
    environment; what the script itself gives `Peer` counts more. Nothing needs to change in a
    script that also runs alone.

    `rumor run --hosts hosts.txt -- python train.py` starts it on the machines that the file names,
    by ssh, after it has seen that each of them has what is needed. What peers print comes back with
    their machine's and their own name in front.

    `srun rumor run -- python train.py`, in a job of Slurm, makes each task a peer; a job that is
    requeued goes on in its folder, runs/slurm-JOB. `torchrun --no-python ... rumor run` does the
    same for torchrun's workers. docs/how-to/clusters.md has more, Kubernetes among it.

    With --faults, things go wrong as a file says: processes are killed, paused, slowed and started
    again, newcomers join. One that is started again goes on from its last checkpoint, if there is
    one.

    What each prints is in DIR/peers/NAME/log.txt. Ctrl-C reaches scripts as Ctrl-C: their peers
    leave in order, handing their weight on, and then KeyboardInterrupt is raised; a second one
    kills them. What they left is merged.

    Exit status: 0 if at least one peer finished, none failed, no script failed after its training,
    and every unit of weight is accounted for; 1 if not; 2 for wrong arguments. A task of a
    scheduler has that of the script.
    """
    config, machines, words, names = config_from(
        settings | {"words": words}, given(ctx) & {*settings}
    )
    if _becomes_task(config, machines, words, names, dry_run=dry_run, as_json=as_json):
        return
    if machines.hosts is not None:
        summary = _on_hosts(config, machines, words, names, dry_run=dry_run, as_json=as_json)
    else:
        summary = _on_this_machine(config, words, dry_run=dry_run, as_json=as_json)
    if summary is None:
        return
    if as_json:
        print_json(summary)
    else:
        for name, each in _swarms(summary):
            if name or summary["further"]:
                print(f"\nSwarm {name}:" if name else "\nFirst swarm:")
            report(dict(each), Console())
    _end(summary)


def _on_this_machine(
    config: ScriptConfig, words: Sequence[str], *, dry_run: bool, as_json: bool
) -> dict[str, Any] | None:
    """Start the peers here and see them through; None where it was only to be shown."""
    command, script = find_command(words)
    require_no_stdin(command)
    require_files()
    faults = _faults(config)
    out = find_folder(config, script)
    if dry_run:
        told = {id: variables(config, out, index) for index, id in enumerate(config.ids())}
        _show(command, settings_of(config) | {"out": str(out)}, told, as_json=as_json)
        return None
    folder = ScriptFolder(config, command, out)
    try:
        places = folder.found()
        before = lives_before(out, places)
    except OSError as error:
        raise ConfigError(not_written(out, error)) from None
    pauses = any(fault.kind in ("pause", "slow") for fault in faults)
    with watchdog() if pauses else nullcontext() as awake:
        return _run(config, ProcessGroup(places, awake), script, out, before, faults, folder)


def _faults(config: ScriptConfig) -> "tuple[Fault, ...]":
    """What is to be done to the processes; nothing is read where nothing is."""
    if config.faults is None:
        return ()
    from ..launch.faults import read_live_faults

    return read_live_faults(config.faults, config.ids(), script=True)


def _swarms(summary: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The summary of each swarm of a run, by its name, the first one first."""
    return [(summary.get("swarm", ""), summary), *summary["further"].items()]


def _end(summary: Mapping[str, Any]) -> None:
    """Say what went wrong, if anything did."""
    whys: list[str] = []
    shown: set[str] = set()
    for name, each in _swarms(summary):
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


def _run(
    config: ScriptConfig,
    group: "ProcessGroup | Fleet",
    script: str,
    out: Path,
    before: Mapping[int, Sequence[LifeEnd]] = MappingProxyType({}),
    faults: "Sequence[Fault]" = (),
    folder: ScriptFolder | None = None,
) -> dict[str, Any]:
    fleet = None if isinstance(group, ProcessGroup) else group
    with logging_to(config.loggers, out, config.described(script, ())) as log:
        monitor = Monitor(group.places, group.processes, None, on_row=log.row)
        for index, ends in before.items():
            for end in ends:
                monitor.recall(index, end)
        injector = None
        if isinstance(group, ProcessGroup) and folder is not None and faults:
            from ..launch.faults import FaultInjector

            injector = FaultInjector(faults, group, monitor, folder, seed=config.seed)
        started_s = time.monotonic()
        with display_on(sys.stderr, f"{script} on {config.peers} peers, in {out}") as display:
            shown = display if fleet is None else _with_lines(fleet, display)
            views = supervise(group, monitor, shown, injector)
            if fleet is not None:
                fleet.close()
                shown(views, (), time.monotonic() - started_s)
        wall_s = time.monotonic() - started_s

        from ..launch.summary import read_outcomes

        described = config.described(script, _reports(group.places))
        if fleet is not None:
            described["unreached"] = sorted({*fleet.unreached})
        done = [] if injector is None else injector.records
        from ..launch.script.swarms import conclude_further, is_further_alone, names_of

        further: dict[str, Any] = {}
        if names_of(group.places):
            # Their rows are in the views, too.
            views = [
                ended_view(place, process.poll(), view.earlier)
                for place, process, view in zip(group.places, group.processes, views, strict=True)
            ]
            further = conclude_further(described, out, wall_s, group.places, group.processes)
        if is_further_alone(group.places):
            name = next(iter(further))
            log.summary = further.pop(name) | {"swarm": name}
        else:
            outcomes = read_outcomes(group.places, views)
            log.summary = conclude(described, None, out, wall_s, outcomes, done)
        log.summary |= {"run": str(out), "further": further}
        if isinstance(group, ProcessGroup):
            log.summary["leftovers"] = [each._asdict() for each in group.leftovers()]
    return log.summary


def _with_lines(fleet: "Fleet", display: Display) -> Display:
    """Show what peers of other machines print, too."""

    def show(views: Sequence[PeerView], news: Sequence[str], elapsed_s: float) -> None:
        display(views, [*fleet.lines(), *news], elapsed_s)

    return show


def _on_hosts(
    config: ScriptConfig,
    machines: MachinesConfig,
    words: Sequence[str],
    names: set[str],
    *,
    dry_run: bool,
    as_json: bool,
) -> dict[str, Any] | None:
    from ..cluster.launch import Remote

    _require_no_faults(config, "on other machines")
    remote = Remote.read(config, machines, words, names)
    if dry_run:
        settings = settings_of(remote.config) | remote.settings() | {"out": str(remote.out)}
        _show(remote.command, settings, remote.environment(), as_json=as_json)
        return None
    with remote.connected() as fleet:
        return _run(remote.config, fleet, remote.script, remote.out)


def _require_no_faults(config: ScriptConfig, where: str) -> None:
    if config.faults is not None:
        raise ConfigError(f"--faults are done to processes of this machine, and not {where}")


def _becomes_task(
    config: ScriptConfig,
    machines: MachinesConfig,
    words: Sequence[str],
    names: set[str],
    *,
    dry_run: bool,
    as_json: bool,
) -> bool:
    """Become the one peer that this process is to be, if a scheduler has started it as a task."""
    launches = not {"peers", "hosts"}.isdisjoint(names)
    if launches and machines.scheduler == "auto":
        return False
    command, _ = find_command(words, here=machines.hosts is None)
    from ..cluster.task import execute, find_task, task_folder, task_variables

    task = find_task(machines, launches=launches)
    if task is None:
        return False
    _require_no_faults(config, f"in a job of {task.scheduler}")
    out = task_folder(config, task)
    told = task_variables(config, machines, task, out)
    if not dry_run:
        execute(command, told)
    _show(command, settings_of(config) | {"out": str(out)}, {task.id: told}, as_json=as_json)
    return True


def _reports(places: Sequence[Place]) -> list[dict[str, Any]]:
    told = (read_report(place.folder) for place in places)
    return [each for each in told if each is not None]


def _show_log(folder: Path, id: str) -> None:
    """Show the end of a peer's log on stderr."""
    try:
        lines = (folder / "log.txt").read_text(errors="replace").splitlines()
    except OSError as error:
        lines = [f"(it cannot be read: {error.strerror})"]
    print(f"\n{id} failed; the end of {folder / 'log.txt'}:", file=sys.stderr)
    for line in lines[-_TAIL_LINES:] or ["(it is empty)"]:
        print(f"    {line}", file=sys.stderr)


def _show(
    command: Sequence[str],
    settings: Mapping[str, Any],
    told: Mapping[str, Mapping[str, str]],
    *,
    as_json: bool,
) -> None:
    """Print what would be started."""
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
