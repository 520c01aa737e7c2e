"""The results of a simulation: figures, curves over virtual time, workers, the merged model."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...gossip import Audit
from ...gossip.errors import ConfigError
from ...gossip.types import PeerId
from ...gossip.weight import founders, in_units
from ...train.faults.schedule import Fault, faults_as_json
from ...train.storage.files import check_folder
from ...train.storage.merge import digest, save_model
from ..batched.models import Models
from ..batched.parameters import CPU
from ..batched.schedule import Ending
from ..batched.values import peak_rss_mib
from ..batched.vector_tasks import VectorRows
from ..config import SimulationConfig
from ..kernel.plan import Attack
from . import files
from .figures import describe
from .measure import Curves, participation, time_figures, token_figures
from .plots import draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Run", "digest_of", "summarize", "time_to"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Run:
    """A finished simulation.

    Raises:
        ValueError: Arrays of one kind differ in length.
    """

    summary: dict[str, Any]
    """The output of ``rumor simulate --json``; JSON values only: None for values not finite."""
    series: Mapping[str, NDArray[np.float64]]
    """Curves, float64, first axis ``n_points``, one point for each measurement. Names that do not
    apply to a run are absent, and points without a value NaN.

    - ``time_s``: virtual time, seconds; ``steps``: mean optimizer steps per worker.
    - ``loss``, ``accuracy``: of the merged model, on held-out data.
    - ``loss_quantiles``, ``accuracy_quantiles``: of single workers' models (32 of them, evenly
      spaced, where there are more), ``(n_points, 5)``: least, a quarter, median, three quarters,
      most.
    - ``consensus_distance``; ``weight_quantiles``: ``(n_points, 5)``, in founders.
    - ``messages``, ``bytes_sent``, ``pushes``, ``skipped``, ``mixed``: of all workers, since 0.0.
    - ``staleness_steps``: mean over the shares mixed since the point before.
    - ``idle``: part of the workers' time since the point before that they spent waiting.
    - ``accuracy_of_groups``, ``loss_of_groups``: of the model merged within each group of a
      partition, ``(n_points, n_groups)``; NaN without one.
    - ``members``: workers that belong to the swarm; ``membership_bytes``: sent since 0.0 about
      membership; both only with faults.
    - ``disagreement``: sum over the workers of their squared distance from the mean, per
      coordinate.
    """
    workers: Mapping[str, NDArray[Any]]
    """Each worker at the end, newcomers last, axis ``n_workers``: ``steps`` (over all
    incarnations), ``weight_units`` (int64; float64 if some are not whole), ``idle_s``, ``pushes``,
    ``mixed``."""
    model: Mapping[str, Tensor] | None = None
    """The merged model's state_dict; None if a task has no model."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "summary", files.as_json(self.summary))
        for name, arrays in (("series", self.series), ("workers", self.workers)):
            lengths = {key: len(array) for key, array in arrays.items()}
            if len(set(lengths.values())) > 1:
                raise ValueError(f"the arrays of {name} differ in length: {lengths}")

    def __repr__(self) -> str:
        known = {name: self.summary.get(name) for name in ("accuracy", "loss")}
        figures = [f"{name} {value:.4g}" for name, value in known.items() if value is not None]
        return f"<Run: {', '.join([describe(self.summary), *figures])}>"

    def plot(self, path: Path | str | None = None) -> "Figure":
        """Draw the run: quality, consensus, weights, traffic and waiting over virtual time.

        Returns:
            The figure, which belongs to no window and to no global state of matplotlib.

        Raises:
            OSError: It cannot be written.
        """
        figure = draw(self.summary, self.series)
        if path is not None:
            figure.savefig(path)
        return figure

    def save(self, folder: Path | str, *, picture: bool = True) -> None:
        """Write everything to a folder: all files appear there together, or none does.

        ``series.npz`` and ``workers.npz``, ``summary.json``, ``model.safetensors`` if there is a
        model, and ``training.png``.

        Args:
            folder: Created if missing; it may hold other files, but no run.
            picture: Draw ``training.png``.

        Raises:
            ConfigError: The folder holds another run.
            OSError: It cannot be written; nothing was left in the folder.
        """
        folder = Path(folder)
        check_folder(folder)
        with files.staged(folder) as draft:
            np.savez_compressed(draft / files.SERIES, **self.series)  # type: ignore[arg-type]
            np.savez_compressed(draft / files.WORKERS, **self.workers)  # type: ignore[arg-type]
            if self.model is not None:
                save_model(draft / files.MODEL, self.model, {"digest": digest(self.model)})
            if picture:
                self.plot(draft / files.PICTURE)
            text = json.dumps(self.summary, indent=2, allow_nan=False)
            (draft / files.SUMMARY).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """Read a saved run, every bit unchanged.

        Raises:
            ConfigError: The folder holds no run, or a file in it cannot be read; names the file.
        """
        folder = Path(folder)
        if not folder.is_dir():
            what = "is a file" if folder.exists() else "does not exist"
            raise ConfigError(f"{folder} {what}: give the folder of a run")
        return cls(
            summary=files.read_object(folder / files.SUMMARY),
            series=files.read_arrays(folder / files.SERIES),
            workers=files.read_arrays(folder / files.WORKERS),
            model=files.read_model(folder / files.MODEL),
        )


def time_to(series: Mapping[str, NDArray[np.float64]], accuracy: float) -> float | None:
    """Return the virtual time of the first measurement at this accuracy, seconds; None if never."""
    if "accuracy" not in series:
        return None
    reached = np.flatnonzero(series["accuracy"] >= accuracy)
    return float(series["time_s"][reached[0]]) if len(reached) else None


# Measured figures are summed with as many threads as torch likes; they identify no run.
_EXACT = ("time_s", "steps", "messages", "bytes_sent", "pushes", "skipped", "mixed")


def digest_of(
    values: Models | VectorRows,
    series: Mapping[str, NDArray[np.float64]],
    workers: Mapping[str, NDArray[Any]],
) -> str:
    """Hash every parameter of every worker, its state and work, and all messages with their times:
    32 hexadecimal digits."""
    hash = blake2b(digest_size=16)
    device = CPU
    if isinstance(values, Models):
        device = values.rows.device
        for part in values.rows.x:
            hash.update(part.cpu().contiguous().view(torch.uint8).numpy().data)
    else:
        hash.update(np.ascontiguousarray(values.x).data)
    for name in _EXACT:
        hash.update(np.ascontiguousarray(series[name]).data)
    for name in sorted(workers):
        hash.update(np.ascontiguousarray(workers[name]).data)
    # Another kind of device computes other bits.
    return hash.hexdigest() if device == CPU else f"{device.type}:{hash.hexdigest()}"


# Settings that a summary has only if they were given.
_NETWORK = ("latency_s", "bandwidth_mbit", "loss", "duplicates")
_EXCHANGE = ("shards_per_push",)

# Accuracies whose first virtual time of the merged model is reported.
_ACCURACIES = (0.5, 0.8, 0.9, 0.95, 0.99)


def summarize(
    config: SimulationConfig,
    *,
    values: Models | VectorRows,
    topology: str,
    curves: Curves,
    ending: Ending,
    faults: Sequence[Fault],
    attacks: Sequence[Attack],
    ids: Sequence[PeerId],
    wall_s: float,
    means_s: Sequence[float],
    samples: Sequence[int],
    more: Mapping[str, Any],
) -> Run:
    """Build the `Run` of a simulation that has ended; *more* is added to its summary."""
    series, workers = curves.series(), ending.workers
    last = {name: float(curve[-1]) for name, curve in series.items() if curve.ndim == 1}
    steps = int(workers["steps"].sum())
    model = None
    if isinstance(values, Models):
        merged = values.merged(ending.weight_units)
        model = {name: tensor.cpu() for name, tensor in merged.items()}
    times_to = {str(goal): time_to(series, goal) for goal in _ACCURACIES}
    summary: dict[str, Any] = {
        **_settings(config, values, topology),
        **more,
        "steps": steps,
        "accuracy": last.get("accuracy"),
        "loss": last.get("loss"),
        "consensus_distance": last.get("consensus_distance"),
        **_weights(ending.audit, config.shards),
        **_of_faults(config, faults, ids, ending, series),
        **_of_attacks(attacks, faults, ids),
        **_traffic(series),
        **token_figures(values.task, workers["steps"], samples),
        **time_figures(ending, end_s=last["time_s"], founders=config.workers, means_s=means_s),
        **participation(curves.readings),
        "virtual_time_s": last["time_s"],
        "time_to": times_to if "accuracy" in series else None,
        "wall_s": wall_s,
        "steps_per_s": steps / wall_s if wall_s else 0.0,
        "decided": ending.decided,
        "device": str(values.rows.device if isinstance(values, Models) else CPU),
        "sync_points": len(series["time_s"]),
        "n_params": values.rows.n_params if isinstance(values, Models) else values.n_params,
        "peak_rss_mib": peak_rss_mib(),
        "digest": digest_of(values, series, workers),
        "model_digest": None if model is None else digest(model),
    }
    if isinstance(values, VectorRows):
        found = series["disagreement"]
        # If noise keeps the disagreement up, report its mean over the later half.
        settled = found[len(found) // 2 :].mean()
        summary["disagreement"] = last["disagreement"]
        summary["disagreement_stationary"] = float(settled) if values.task.noise else None
    return Run(summary=summary, series=series, workers=workers, model=model)


def _settings(
    config: SimulationConfig, values: Models | VectorRows, topology: str
) -> dict[str, Any]:
    """Return the settings of the simulation that are of interest, or not the default."""
    usual = SimulationConfig()

    def given(names: Sequence[str], prefix: str = "") -> dict[str, Any]:
        found = {name: getattr(config, name) for name in names}
        return {f"{prefix}{k}": v for k, v in found.items() if v != getattr(usual, k)}

    network, rule = config.network, config.rule_spec.make()
    return {
        "task": config.task_name,
        "rule": rule.name,
        "rule_spec": str(config.rule_spec),
        "topology": topology,
        "peers": config.workers,
        "workers": config.workers,
        "seed": config.seed,
        "partition": config.partition if isinstance(values, Models) else None,
        "network": network if isinstance(network, str) and "{" not in network else "its own",
        **given(_NETWORK, "network_"),
        "pace": config.pace,
        "speeds": config.speeds,
        "slow": list(config.slow),
        "step_s": config.step_s,
        "p": getattr(rule, "p", None),
        "emission": getattr(rule, "emission", None),
        "wire": config.wire,
        "shards": config.shards,
        **given(_EXCHANGE),
    }


def _of_faults(
    config: SimulationConfig,
    faults: Sequence[Fault],
    ids: Sequence[PeerId],
    ending: Ending,
    series: Mapping[str, NDArray[np.float64]],
) -> dict[str, Any]:
    """Return the faults and their consequences, if there were any."""
    found: dict[str, Any] = {}
    if config.total_steps is not None:
        found["total_steps"] = config.total_steps
    after = ending.fault_report
    if after is None:
        return found
    end_s, groups = float(series["time_s"][-1]), series.get("accuracy_of_groups")
    if groups is not None:
        # The last measurement while a worker was cut off.
        measured = groups[np.isfinite(groups).any(axis=1)]
        groups = measured[-1].tolist() if len(measured) else None
    return found | {
        "timing": config.timing,
        "faults": faults_as_json(faults),
        "accuracy_of_groups": groups,
        "faults_after_end": sum(fault.at_s > end_s for fault in faults),
        **after.figures(),
        "stranded": [ids[worker] for worker in after.stranded],
        "members": int(series["members"][-1]),
        "weight_units_stranded": in_units(ending.audit.stranded),
        "weight_units_died": in_units(ending.audit.died),
    }


def _of_attacks(
    attacks: Sequence[Attack], faults: Sequence[Fault], ids: Sequence[PeerId]
) -> dict[str, Any]:
    """Return the Byzantine workers, if any: measurements count only the others."""
    liars = sorted(frozenset().union(*[attack.liars for attack in attacks]))
    if not liars:
        return {}
    return {"faults": faults_as_json(faults), "liars": [ids[row] for row in liars]}


def _weights(audit: Audit, shards: int) -> dict[str, Any]:
    total = audit.held + audit.in_flight + audit.stranded + audit.burned + audit.died
    return {
        # A founder brings one unit of weight for each shard.
        "weight_total": founders(total) / shards,
        "weight_expected": founders(audit.founded) / shards,
        "weight_units_total": in_units(total),
        "weight_units_expected": in_units(audit.founded),
        "weight_units_in_flight": in_units(audit.in_flight),
        "weight_units_burned": in_units(audit.burned),
    }


def _traffic(series: Mapping[str, NDArray[np.float64]]) -> dict[str, Any]:
    counts = ("messages", "bytes_sent", "pushes", "skipped", "mixed")
    found: dict[str, Any] = {name: int(series[name][-1]) for name in counts}
    behind = np.nansum(series["staleness_steps"] * np.diff(series["mixed"], prepend=0.0))
    lasted_s = np.diff(series["time_s"], prepend=0.0)
    total_s = float(lasted_s.sum())
    return found | {
        "staleness_steps": behind / found["mixed"] if found["mixed"] else None,
        # Part of all workers' time spent waiting.
        "idle": float((series["idle"] * lasted_s).sum()) / total_s if total_s else 0.0,
    }
