"""``rumor merge``: the models that peers left, made into one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ...gossip.errors import ConfigError
from ...gossip.weight import from_units, in_units
from ..console import print_json
from ..launch.monitor import State, read_report
from ..options import Json, options_of

__all__ = ["merge"]

MODEL = "model.safetensors"


@options_of()
def merge(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...", help="Folders of peers, or of runs, which stand for all their peers."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="Where the merged model goes."),
    ],
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE.")] = False,
    as_json: Json = False,
) -> None:
    """Average the models of several peers, each weighted by the weight that it ended with.

    Peers that hold no weight, because they left, do not count unless nobody holds any;
    peers that failed never do.
    """
    if output.exists() and not force:
        raise ConfigError(f"{output} is there already: give --force to overwrite it")
    if output.is_dir() or not output.absolute().parent.is_dir():
        raise ConfigError(f"{output} cannot be written: name a file in a folder that exists")
    result = _merge(folders, output)
    if as_json:
        print_json(result)
        return
    weights = {peer: from_units(told) for peer, told in result["weights_units"].items()}
    total = sum(weights.values())
    for peer, weight in weights.items():
        print(f"{peer}: {weight / total:.4f} of the whole")
    for peer in result["skipped"]:
        print(f"{peer}: left out")
    print(f"{output}: digest {result['digest']}")


def _merge(folders: Sequence[Path], output: Path) -> dict[str, Any]:
    """Merge what lies in *folders*, write it, and say what ``--json`` prints."""
    peers = [peer for folder in folders for peer in _peer_folders(folder)]

    from ...train.storage import merge as merged

    opened = [merged.open_model(peer / MODEL) for peer in peers]
    models = [model for model in opened if not _failed(model.path.parent)]
    weights = merged.merging_weights(models)
    state = merged.merge(models)
    digest = merged.digest(state)
    told = {peer: in_units(weight) for peer, weight in weights.items()}
    listed = ",".join(f"{peer}:{units}" for peer, units in told.items())
    merged.save_model(output, state, {"merged_from": listed, "digest": digest})
    return {
        "weights_units": told,
        "skipped": sorted({model.id for model in opened} - set(weights)),
        "digest": digest,
        "output": str(output),
    }


def _peer_folders(folder: Path) -> list[Path]:
    """The peers' folders that *folder* stands for: itself, or those of a run that have a model."""
    # First, because a finished run has a merged model too.
    if (folder / "peers").is_dir():
        peers = sorted(path.parent for path in folder.glob(f"peers/*/{MODEL}"))
        if peers:
            return peers
    elif (folder / MODEL).is_file():
        return [folder]
    raise ConfigError(
        f"{folder} holds no model: give the folder of a peer (with {MODEL}) or of a run"
    )


def _failed(folder: Path) -> bool:
    report = read_report(folder)
    return report is not None and report.get("state") == State.FAILED
