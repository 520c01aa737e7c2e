"""``rumor storm``: what goes wrong with real fleets, drawn as a fault schedule."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from ...gossip.errors import ConfigError
from ...gossip.specs.parameter import setting
from ..errors import not_written
from ..reports.console import counted, duration, plain_table, print_json, print_path
from ..settings.options import Json, Source, options_of

if TYPE_CHECKING:
    from ...sim.kernel.faults.storms import Drawn, Storm

__all__ = ["StormConfig", "storm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StormConfig:
    """Whom a storm strikes, and for how long."""

    peers: int | None = setting(
        None,
        "How many peers there are at the start.",
        low=1,
        otherwise="as many as the storm is meant for",
        flags=("--peers", "-n"),
    )

    lasts: str = setting("1h", "How long the run lasts, in time of the run: 90s, 10min or 2h.")

    seed: int = setting(0, "Of everything random: the same seed gives the same faults.")

    scale: float = setting(
        1.0,
        "How many times as fast it goes: with 60, what strikes within an hour does so within a "
        "minute.",
    )

    out: Path | None = setting(
        None,
        "Write ``faults.json``, and ``network.json`` where the storm has a network, into this "
        "folder.",
        otherwise="nothing is written",
        metavar="DIR",
    )

    def lasts_s(self) -> float:
        """How long, seconds.

        Raises:
            ConfigError: It is no time.
        """
        from ...train.config import parse_interval

        interval = parse_interval(self.lasts)
        if interval.every_s is None or interval.every_steps is not None:
            raise ConfigError(f"--lasts is {self.lasts!r}: write 90s, 10min or 2h")
        return interval.every_s


@options_of(Source(StormConfig, "Whom it strikes"))
def storm(
    name: Annotated[
        str,
        typer.Argument(
            metavar="[STORM]",
            show_default=False,
            help="A name, or a .toml file of your own; without it, all names are listed.",
        ),
    ] = "",
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Draw a storm, what goes wrong with real fleets, as a fault schedule for a swarm of any size.

    The same file drives a simulation, a live swarm and a campaign of fuzzing:

    `rumor storm ft-diloco-125 -n 8 --lasts 10min --scale 6 --out storm`

    `rumor simulate -n 8 --faults storm/faults.json`

    `rumor launch -n 8 --faults storm/faults.json`

    `rumor fuzz --workers 8 --faults storm/faults.json`

    What each models, and whose figures these are: docs/reference/faults.md#storms.

    Exit status: 0; 2 if there is no such storm, or it cannot be drawn so.
    """
    from ...sim.kernel.faults.storms import STORMS, read_storm

    config = StormConfig(**settings)
    if not name:
        storms = [read_storm(each) for each in STORMS]
        if as_json:
            print_json([_described(each) for each in storms])
        else:
            _list(storms)
        return
    found = read_storm(name)
    peers = found.peers if config.peers is None else config.peers
    drawn = found.draw(peers, config.lasts_s(), config.seed, scale=config.scale)
    files = {} if config.out is None else _write(drawn, config.out)
    if as_json:
        print_json(_described(found) | {"peers": peers, "files": files} | _as_json(drawn))
    else:
        _print(found, drawn, peers, config.lasts_s(), files)


def _described(storm: "Storm") -> dict[str, Any]:
    about = {name: " ".join(getattr(storm, name).split()) for name in ("what", "source")}
    return {"storm": storm.name, "peers": storm.peers} | about


def _as_json(drawn: "Drawn") -> dict[str, Any]:
    from ...train.faults.schedule import faults_as_json

    return {"faults": faults_as_json(drawn.faults), "network": drawn.network}


def _write(drawn: "Drawn", folder: Path) -> dict[str, str]:
    """Write what was drawn, and say where."""
    from ...train.storage.files import write_json

    content = {name: value for name, value in _as_json(drawn).items() if value is not None}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in content.items():
            write_json(folder / f"{name}.json", value)
    except OSError as error:
        raise ConfigError(not_written(folder, error)) from error
    return {name: str(folder / f"{name}.json") for name in content}


def _list(storms: "Sequence[Storm]") -> None:
    table = plain_table("storm", ">peers", "what it models")
    for storm in storms:
        table.add_row(Text(storm.name), str(storm.peers), Text(" ".join(storm.what.split())))
    Console().print(table)


def _print(
    storm: "Storm", drawn: "Drawn", peers: int, lasts_s: float, files: Mapping[str, str]
) -> None:
    console = Console()
    about = _described(storm)
    console.print(Text(about["what"], style="bold"))
    console.print(Text(about["source"], style="dim"))
    kinds = Counter(fault.kind for fault in drawn.faults)
    told = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()) or "nothing"
    struck = f"{counted(peers, 'peer')} in {duration(lasts_s)}: {told}"
    console.print(f"\n{struck}", highlight=False, markup=False)
    for name, path in files.items():
        print_path(f"{name.capitalize()}", path, console)
    if not files:
        console.print("Give --out DIR to write it down for --faults.", style="dim")
