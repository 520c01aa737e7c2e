"""``rumor calibrate`` measures how fast real peers and their links are; ``rumor advise`` simulates
which rule, topology and wire suit them."""

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from ...gossip.errors import ConfigError, RumorError
from ...gossip.specs.parameter import check_settings, setting
from ...train.config import TrustSettings
from ..errors import FAILED, fail, not_written, understanding
from ..reports.console import counted, plain_table, print_json, progress_on
from ..settings.exchange import parse_rate
from ..settings.options import OUTPUT, Json, Source, options_of

if TYPE_CHECKING:
    from ...sim.calibration import Advice, Calibration
    from ...sim.models.network import NetworkConfig
    from ...sim.results.live_run import LiveRun
    from ...train.observe.probe import LinkProbe

__all__ = ["AdviseConfig", "CalibrateConfig", "advise", "calibrate", "network_between"]

FILE = "calibration.json"

_SHOWN = 3
"""Number of candidates with their commands."""

_SIGNIFICANT = 0.05
"""A difference with a larger p may be noise."""


@dataclass(frozen=True, kw_only=True)
class CalibrateConfig(TrustSettings):
    """The measurements of running peers."""

    join: tuple[str, ...] = setting(
        (),
        "A running peer: measure the links to all that train with it, without being one of them. "
        "May be given several times.",
        brief="Running peers: measure links to them.",
        metavar="HOST:PORT",
    )

    probe_mb: float = setting(
        16.0,
        "Most that is sent to each peer to measure its link, in millions of bytes.",
        brief="Most that is sent to measure a link.",
        low=0.1,
        high=1000,
    )

    def __post_init__(self) -> None:
        check_settings(self)


@options_of(Source(CalibrateConfig, "What is measured"))
def calibrate(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="LIVE_DIR",
            help="The folder of `rumor launch`, of one `rumor peer --out`, or one that holds "
            "several of these; the run may still go on.",
        ),
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help=f"Where to ({FILE} in LIVE_DIR).",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Measure real peers, for `rumor simulate --from FILE`.

    From LIVE_DIR come the pace of each peer and all settings of the run. With --join, the links are
    measured, too: running peers answer questions that any stranger may ask. They keep training; no
    models or weights are transferred.

    Predict a run of 4 local peers with another rule:

    `rumor calibrate runs/digits -o digits.json`, then
    `rumor simulate --from digits.json --rule allreduce`

    Exit status: 0 if it worked; 1 if a peer did not answer or the file could not be written; 2 for
    wrong arguments.
    """
    config = CalibrateConfig(**settings)
    path = out or folder / FILE
    if folder.is_dir():
        from ...train.storage.files import check_writable

        if path.is_dir() or not path.parent.is_dir():
            raise ConfigError(f"{path} cannot be written: name a file in a folder that exists")
        check_writable(path.parent)
    with understanding(folder):
        found, links = _measure(folder, config)
    if as_json:
        told = {"links": [asdict(link) for link in links], "out": str(path)}
        print_json({**found.as_json(), **told})
    else:
        _print(found, links, Console())
    # Last, since the figures are worth showing also where they cannot be written.
    try:
        found.write(path)
    except OSError as error:
        fail(not_written(path, error), FAILED)
    if not as_json:
        print(f"\nrumor simulate --from {path}")


def network_between(links: "Sequence[LinkProbe]") -> "NetworkConfig":
    """Build the network that probes suggest, the same between all peers.

    Half of the shortest round trip is the latency, and the rest of the mean one is jitter; the
    slowest link gives the bandwidth of an uplink. Medians over the links.
    """
    from statistics import median

    from ...sim.models.network import NetworkConfig

    latency_s = median(link.roundtrip_s for link in links) / 2
    mean_s = median(link.roundtrip_s_mean for link in links) / 2
    return NetworkConfig(
        latency_s=float(f"{latency_s:.4g}"),
        jitter=float(f"{max(0.0, mean_s / latency_s - 1):.3g}"),
        bandwidth_mbit=float(f"{min(link.bytes_s for link in links) * 8e-6:.4g}"),
    )


def _measure(folder: Path, config: CalibrateConfig) -> "tuple[Calibration, list[LinkProbe]]":
    from ...sim.results.live_run import read_live_run

    # Before any peer is asked.
    run = read_live_run(folder)
    if not config.join:
        return _of_run(run, None), []
    from ...gossip.transport.keys.keyring import read_keyring
    from ...train.observe.observer import Observer
    from ...train.observe.probe import Probe

    keyring, bytes_max = read_keyring(config.key, config.roster), round(config.probe_mb * 1e6)
    with Observer(config.join, keyring=keyring) as observer:
        states = ("training", "waiting")
        told = [peer for peer in observer.poll().peers if peer.source == "self" and peer.address]
        peers = [peer for peer in told if peer.state in states]
        if not peers:
            raise RumorError(f"nobody trains at {', '.join(config.join)} that could be asked")
        links = []
        for peer in peers:
            with Probe(peer.address, keyring=keyring) as probe:
                links.append(probe.sound(bytes_max=bytes_max))
        return _of_run(run, network_between(links)), links


def _of_run(run: "LiveRun", network: "NetworkConfig | None") -> "Calibration":
    from ...sim.calibration import calibrate as calibrate_run

    rate = run.peers[0].options.get("bandwidth")
    push_mbit = None if rate is None else parse_rate(rate) * 8e-6
    return calibrate_run(run, network=network, push_mbit=push_mbit)


def _print(found: "Calibration", links: "Sequence[LinkProbe]", console: Console) -> None:
    table = plain_table("peer", ">step", ">varies by", ">an exchange adds", ">steps seen")
    for peer in found.peers:
        varies = f"{100 * peer.step_s_cv:.2g} %" if peer.step_s_cv else "-"
        adds = f"{1000 * peer.exchange_s:.3g} ms" if peer.exchange_s else "-"
        step = f"{1000 * peer.step_s:.4g} ms"
        table.add_row(Text(peer.id), step, varies, adds, f"{peer.steps:,}")
    console.print(table)
    if links:
        table = plain_table("link to", ">round trip, least", ">mean", ">carries")
        for link in links:
            table.add_row(
                Text(link.address.removeprefix("tcp://")),
                f"{1000 * link.roundtrip_s:.3g} ms",
                f"{1000 * link.roundtrip_s_mean:.3g} ms",
                f"{link.bytes_s * 8e-6:,.3g} Mbit/s",
            )
        console.print(table)
    else:
        console.print("The network was not measured: give --join to do so.")
    for note in found.notes:
        console.print(Text(f"note: {note}"), style="dim", soft_wrap=True)


@dataclass(frozen=True, kw_only=True)
class AdviseConfig:
    """How candidates are compared."""

    steps: int | None = setting(
        None, "Optimizer steps of each peer.", low=1, otherwise="those of the measured run"
    )

    seeds: int = setting(
        2,
        "Runs of each candidate; with more of them, smaller differences are significant.",
        brief="Runs of each candidate.",
        low=1,
        metavar="N",
    )

    until_loss: float | None = setting(
        None,
        "The loss to rank by.",
        otherwise="95 % of the way to the best one that any candidate ends with",
        metavar="LOSS",
    )

    def __post_init__(self) -> None:
        check_settings(self)


@options_of(Source(AdviseConfig, "Options"))
def advise(
    measured: Annotated[
        Path,
        typer.Argument(
            metavar="MEASURED",
            help="The folder of a run of real peers, or what `rumor calibrate -o FILE` measured.",
        ),
    ],
    *,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Rank rules, topologies and wires for your machines.

    Candidates are simulated on the paces, the network and the task of real peers, and ranked by the
    time until the median peer's own model has a loss. p says how often noise alone puts a candidate
    as far behind the best one: above 0.05, the order of the two is not significant.

    `rumor advise runs/digits`

    With links that were measured, too:

    `rumor calibrate runs/digits --join node-a:7700 -o measured.json`, then
    `rumor advise measured.json`

    Exit status: 0; 1 if no candidate gets to the loss; 2 for wrong arguments.
    """
    # Here, since torch takes a second to import.
    from ...sim.calibration import advise as advise_on
    from ...sim.calibration import read_calibration
    from ...sim.results.live_run import read_live_run

    config = AdviseConfig(**settings)
    if measured.is_dir():
        with understanding(measured):
            calibration = _of_run(read_live_run(measured), None)
    else:
        calibration = read_calibration(measured)
    for note in calibration.notes:
        print(f"note: {note}", file=sys.stderr)
    began_s = time.monotonic()
    with progress_on(sys.stderr) as display:

        def tell(done: int, total: int, words: str) -> None:
            line = f"{done} of {counted(total, 'run')}" + (f", next {words}" if words else "")
            display(time.monotonic() - began_s, done / total, line)

        target, found = advise_on(
            calibration, steps=config.steps, seeds=config.seeds, target=config.until_loss, tell=tell
        )
    if as_json:
        advice = [asdict(each) | {"time_s": each.time_s} for each in found]
        print_json({"target": target, "seeds": config.seeds, "advice": advice})
    else:
        _print_advice(calibration, target, found, Console())
    if found[0].time_s is None:
        fail(f"no candidate came to a loss of {target:.4g}: raise --until-loss or --steps", FAILED)


def _print_advice(
    calibration: "Calibration", target: float, found: "Sequence[Advice]", console: Console
) -> None:
    task = calibration.settings.get("task", "digits")
    title = f"{task} on {counted(len(calibration.peers), 'peer')}, until a loss of {target:.4g}"
    console.print(Text(title, style="bold"))
    table = plain_table("candidate", ">time", ">p", ">loss", ">MB", "")
    for advice in found:
        words = [advice.candidate.name]
        if advice.why:
            table.add_row(*map(Text, words), *[Text("-")] * 4, Text(advice.why))
            continue
        assert advice.loss is not None and advice.bytes_sent is not None
        words += ["never" if advice.time_s is None else f"{advice.time_s:.3g} s"]
        words += ["" if advice.p is None else f"{advice.p:.2g}"]
        words += [f"{advice.loss:.4g}", f"{advice.bytes_sent / 1e6:,.3g}", ""]
        table.add_row(*map(Text, words))
    console.print(table)
    start = f"rumor launch -n {len(calibration.peers)} --task {task}"
    for advice in [advice for advice in found if advice.time_s is not None][:_SHOWN]:
        line = f"{start} {advice.candidate.options}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if all(advice.p is None for advice in found[1:]):
        console.print("One seed says nothing about noise: raise --seeds to see how sure this is.")
    elif alike := [a.candidate.name for a in found if a.p is not None and a.p > _SIGNIFICANT]:
        line = f"No significant difference from the best: {'; '.join(alike)}. Raise --seeds."
        console.print(line, highlight=False, markup=False, soft_wrap=True)
