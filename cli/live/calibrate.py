"""``rumor calibrate``: how fast real peers and their links are."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from ...gossip.errors import ConfigError, RumorError
from ...gossip.specs.parameter import setting
from ...train.config import TrustSettings
from ..errors import FAILED, fail, not_written, understanding
from ..reports.console import plain_table, print_json
from ..run_folder import check_output
from ..settings.options import Json, Panel, Source, config_of, options_of
from .top import observing

if TYPE_CHECKING:
    from ...sim.calibration import Calibration
    from ...sim.models.network import NetworkConfig
    from ...train.observe.observer import Observer
    from ...train.observe.probe import LinkProbe
    from ...train.observe.view import PeerView

__all__ = ["CalibrateConfig", "calibrate", "measure", "network_between"]

FILE = "calibration.json"


@dataclass(frozen=True, kw_only=True)
class CalibrateConfig(TrustSettings):
    """The measurements of running peers."""

    join: tuple[str, ...] = setting(
        (),
        "Address of a running peer: measure the links to all peers of its swarm, without joining "
        "it. May be given several times.",
        brief="Running peers, whose links to measure.",
        metavar="HOST:PORT",
    )

    watch_s: float = setting(
        10.0,
        "How long to watch the peers of ``join`` for their pace, without a folder, seconds.",
        brief="How long to measure their pace.",
        low=1,
        high=3600,
    )


@options_of(Source(CalibrateConfig))
def calibrate(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="LIVE_DIR",
            help="Folder of `rumor launch`, of one `rumor peer --out`, or a folder with several of "
            "these; the run need not be over.",
            show_default=False,
        ),
    ] = None,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help=f"File to write ({FILE} in LIVE_DIR).",
            show_default=False,
            rich_help_panel=Panel.OUTPUT,
        ),
    ] = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Measure real peers, for `rumor simulate --from FILE`.

    From LIVE_DIR come the pace of each peer and all settings of the run. With --join, the links are
    measured, too: running peers answer questions that any stranger may ask. They keep training; no
    models or weights are transferred. Without LIVE_DIR, paces come from watching these peers.

    Predict a run of 4 local peers with another rule:

    `rumor calibrate runs/digits -o digits.json`, then
    `rumor simulate --from digits.json --rule allreduce`

    Exit status: 0 if it worked; 1 if a peer did not answer or the file could not be written; 2 for
    wrong arguments.
    """
    config = config_of(CalibrateConfig, settings)
    path = out or (folder or Path()) / FILE
    if folder is None or folder.is_dir():
        from ...train.storage.files import check_writable

        check_output(path)
        check_writable(path.parent)
    with understanding(folder or ", ".join(config.join)):
        found, links = measure(folder, config)
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
    """Build the network that probes suggest, the same between all peers."""
    from statistics import median

    from ...sim.models.network import NetworkConfig

    # Half of the shortest round trip is the latency, and the rest of the mean one is jitter; the
    # slowest link gives the bandwidth of an uplink.
    latency_s = median(link.roundtrip_s for link in links) / 2
    mean_s = median(link.roundtrip_s_mean for link in links) / 2
    return NetworkConfig(
        latency_s=float(f"{latency_s:.4g}"),
        jitter=float(f"{max(0.0, mean_s / latency_s - 1):.3g}"),
        bandwidth_mbit=float(f"{min(link.bytes_s for link in links) * 8e-6:.4g}"),
    )


def measure(folder: Path | None, config: CalibrateConfig) -> "tuple[Calibration, list[LinkProbe]]":
    """Read the folder of a run, if any, and measure links to running peers, if any.

    Without a folder, their paces are measured, too.
    """
    from ...sim.calibration import calibrate as calibrate_run
    from ...sim.results.live_run import read_live_run

    # Before any peer is asked.
    run = None if folder is None else read_live_run(folder)
    links, network = list["LinkProbe"](), None
    if config.join:
        with observing(config.join, config.key, config.roster) as observer:
            peers = _training(observer)
            if not peers:
                raise RumorError(f"no peer that trains answers at {', '.join(config.join)}")
            for peer in peers:
                with observer.probe(peer) as probe:
                    links.append(probe.sound())
            network = network_between(links)
            if run is None:
                return _watched(observer, config, network), links
    if run is None:
        raise ConfigError("name the folder of a run, or give --join with a running peer")
    return calibrate_run(run, network=network), links


def _training(observer: "Observer") -> "list[PeerView]":
    told = [peer for peer in observer.poll().peers if peer.source == "self" and peer.address]
    return [peer for peer in told if peer.state in ("training", "waiting")]


def _watched(
    observer: "Observer", config: CalibrateConfig, network: "NetworkConfig"
) -> "Calibration":
    """Measure the paces of running peers by two looks at them."""
    from ...gossip.protocol.rule import requirements_of
    from ...gossip.rules.registry import read_rule
    from ...sim.calibration import Calibration, PeerPace

    first, source = {peer.id: peer for peer in _training(observer)}, ", ".join(config.join)
    time.sleep(config.watch_s)
    last = [peer for peer in _training(observer) if peer.id in first]
    if not last:
        raise RumorError(f"the peers at {source} ended while they were watched")
    paces = []
    for peer in last:
        before = first[peer.id]
        steps, seconds = peer.step - before.step, (peer.uptime_s or 0) - (before.uptime_s or 0)
        if steps < 1 or seconds <= 0:
            raise RumorError(f"{peer.id} took no step while it was watched: raise --watch-s")
        paces.append(PeerPace(id=peer.id, step_s=seconds / steps, steps=steps))
    said = last[0].settings
    if requirements_of(read_rule(said["rule"]).make()).waits:
        raise ConfigError(
            f"under {said['rule']} peers wait for one another, which hides their paces: name the "
            "folder of the run"
        )
    settings: dict[str, Any] = {name: said[name] for name in ("rule", "topology", "wire")}
    settings["stands_for"] = last[0].figures["model_bytes"] / 4
    note = f"the task is not known: digits stands for {settings['stands_for']:,.0f} parameters"
    return Calibration(
        source=source,
        peers=tuple(paces),
        network=network,
        settings=settings,
        notes=(f"{note}, unless you name another by --task",),
    )


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
