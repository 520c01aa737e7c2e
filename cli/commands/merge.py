"""``rumor merge``: the models that peers left, made into one."""

from pathlib import Path
from typing import Annotated

import typer

from ...gossip.config import ProtocolConfig
from ...gossip.errors import ConfigError
from ...gossip.weight import in_units
from ..launch.monitor import State, read_report
from ..reports.console import print_json
from ..run_folder import check_output
from ..settings.options import Force, Json, options_of

__all__ = ["merge"]

MODEL = "model.safetensors"


@options_of()
def merge(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...", help="Folders of peers, or of runs for all of their peers."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="File to write the model to."),
    ],
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Average the models of several peers, by their weights.

    Each model counts by the weight that its peer ended with. Peers that hold none, because they
    left, do not count unless all hold none; peers that failed never do. Models of two swarms are
    refused.
    """
    check_output(output, force=force)
    peers = [peer for folder in folders for peer in _peer_folders(folder)]

    from ...train.storage.merge import merge_models, open_model

    opened = [open_model(peer / MODEL) for peer in peers]
    reports = [read_report(model.path.parent) or {} for model in opened]
    failed = [report.get("state") == State.FAILED for report in reports]
    merged = merge_models([model for model, bad in zip(opened, failed, strict=True) if not bad])
    merged.save(output)
    skipped = sorted({model.id for model in opened} - {*merged.weights})
    distance = merged.consensus_distance
    if as_json:
        print_json(
            {
                "weights_units": {peer: in_units(held) for peer, held in merged.weights.items()},
                "skipped": skipped,
                "digest": merged.digest,
                "consensus_distance": distance,
                "output": str(output),
            }
        )
        return
    total = sum(merged.weights.values())
    for peer, weight in merged.weights.items():
        print(f"{peer}: {weight / total:.4f} of the whole")
    for peer in skipped:
        print(f"{peer}: left out")
    print(f"{output}: digest {merged.digest}")
    if distance > (agreed := ProtocolConfig().merge_tolerance):
        print(
            f"These models differ by {distance:.2g} of their norm, more than the {agreed:g} of "
            "models that peers have agreed on: their mean may be worse than each of them."
        )


def _peer_folders(folder: Path) -> list[Path]:
    """Return the peers' folders for *folder*: itself, or those of a run that have a model."""
    # First, because a finished run has a merged model, too.
    if (folder / "peers").is_dir():
        peers = sorted(path.parent for path in folder.glob(f"peers/*/{MODEL}"))
        if peers:
            return peers
    elif (folder / MODEL).is_file():
        return [folder]
    raise ConfigError(
        f"{folder} holds no model: give the folder of a peer (with {MODEL}) or of a run"
    )
