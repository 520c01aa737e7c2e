"""``rumor run``: a user's own training script, as several processes."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ...gossip.errors import ConfigError
from ..launch.checks import find_command, script_job
from ..launch.config import LaunchConfig, MachinesConfig
from ..launch.display import end
from ..launch.folder import variables
from ..launch.swarm import run_swarm
from ..reports.console import print_json
from ..run_folder import new_folders
from ..settings.exchange import ExchangeConfig
from ..settings.options import Json, Panel, Source, config_of, given, options_of

__all__ = ["run"]


@options_of(
    Source(LaunchConfig),
    Source(MachinesConfig),
    Source(ExchangeConfig),
    everyday={
        Panel.MACHINES: ("peers", "hosts", "port", "device", "key", "roster"),
        Panel.GOSSIP: ("rule", "topology", "wire", "timing"),
        Panel.FAULTS: ("slow", "faults"),
        Panel.OUTPUT: ("out", "resume", "dry_run"),
    },
)
def run(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND]...",
            help="Command to start, as in `python train.py --lr 0.1` or `train.py`, behind `--`; a "
            'file of settings may name it instead: `command = "python train.py"`.',
            show_default=False,
        ),
    ] = None,
    *,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Start your own training script as the peers of one swarm.

    `rumor run -n 4 -- python train.py --lr 0.1` starts train.py four times on this machine. Each
    process's `Peer(model)` finds its name, its folder, the other peers and these options in its
    environment; arguments that the script itself passes to `Peer` take precedence. A script that
    also runs alone needs no change.

    `RUMOR_JOIN=node-a,node-b,node-c rumor run -- python train.py`, the same line on each machine,
    makes it one peer there: they found a swarm with those that they meet, and take the rest in.

    `rumor run --hosts hosts.txt -- python train.py` starts it on the machines that the file names,
    by ssh, after checking that each of them meets the requirements. Output of peers is shown with
    their machine's and their own name in front.

    `srun rumor run -- python train.py`, in a job of Slurm, makes each task a peer; a job that is
    requeued continues in its folder, runs/slurm-JOB. `torchrun --no-python ... rumor run` does the
    same for torchrun's workers. docs/how-to/clusters.md has more, Kubernetes among it.

    --faults injects the faults of a file: it kills, pauses, slows and restarts processes, and
    starts newcomers. A restarted process continues from its last checkpoint, if any.

    The output of each is in DIR/peers/NAME/log.txt. Scripts get Ctrl-C, too: their peers hand
    their weight on and leave, and then KeyboardInterrupt is raised; a second one kills them. The
    models that they leave are merged.

    Exit status: 0 if at least one peer finished, none failed, no script failed after its training,
    and every unit of weight is accounted for; 1 if not; 2 for wrong arguments. A task of a
    scheduler has that of the script.
    """
    names = given(ctx) & {*settings}
    words = words or shlex.split(settings["command"] or "")
    exchange = config_of(ExchangeConfig, settings)
    config = config_of(LaunchConfig, settings | {"exchange": exchange})
    machines = config_of(MachinesConfig, settings)
    if _becomes_task(config, machines, words, names, as_json=as_json):
        return
    if machines.hosts is not None:
        from ..cluster.fleet import Fleet

        _require_no_faults(config, "on other machines")
        fleet = Fleet.read(config, machines, words, names)
        job = fleet.job
        commands = fleet.commands()
        told = {place.id: place.variables for place in fleet.places}
    else:
        job = script_job(config, words)
        commands = {}
        told = {id: variables(config, job.out, i) for i, id in enumerate(config.ids())}
    if machines.dry_run:
        _show(job.command, commands, told, as_json=as_json)
        return
    if machines.hosts is None:
        summary = run_swarm(job)
    else:
        with fleet.connected():
            summary = run_swarm(job, fleet)
    end(summary, as_json=as_json)


def _require_no_faults(config: LaunchConfig, where: str) -> None:
    if config.faults is not None:
        raise ConfigError(f"--faults are done to processes of this machine, and not {where}")


def _becomes_task(
    config: LaunchConfig,
    machines: MachinesConfig,
    words: Sequence[str],
    names: set[str],
    *,
    as_json: bool,
) -> bool:
    """Become the one peer of this process, if it is a scheduler's task or has addresses to join."""
    launches = not {"peers", "hosts"}.isdisjoint(names)
    is_listed = bool(os.environ.get("RUMOR_JOIN"))
    if launches and is_listed:
        raise ConfigError(
            "RUMOR_JOIN makes this process one peer, and --peers and --hosts start several: leave "
            "them out, and give the command once for each peer"
        )
    if launches:
        return False
    command, name = find_command(words)
    from ...train.runtime.script.cluster import cluster_task
    from ..cluster.task import listed_variables, task_variables

    task, _ = cluster_task(os.environ)
    if task is not None:
        _require_no_faults(config, f"in a job of {task.scheduler}")
        # All tasks share this folder, also when the job restarts.
        out = config.out or Path("runs") / f"{task.scheduler}-{task.job}"
        told = task_variables(config, machines, task, out)
    elif is_listed:
        _require_no_faults(config, "with RUMOR_JOIN")
        # Peers of one machine that start together share the folder.
        out = config.out or next(new_folders(Path(name).stem))
        told = listed_variables(config, out)
    else:
        return False
    id = told["RUMOR_ID"]
    if not machines.dry_run:
        print(f"{name} as {id}, in {out}: loading torch", file=sys.stderr, flush=True)
        # Signals and exit status are then those of the script.
        os.execvpe(command[0], command, {"OMP_NUM_THREADS": "1", **os.environ, **told})
    _show(command, {}, {id: told}, as_json=as_json)
    return True


def _show(
    command: Sequence[str],
    machines: Mapping[str, str],
    told: Mapping[str, Mapping[str, str]],
    *,
    as_json: bool,
) -> None:
    if as_json:
        print_json({"command": list(command), "machines": machines, "environment": told})
        return
    print(f"command: {shlex.join(command)}")
    for name, text in machines.items():
        print(f"{name}: {text}")
    for id, environment in told.items():
        print(f"\n{id}:")
        for name, text in environment.items():
            print(f"  {name}={shlex.quote(text)}")
