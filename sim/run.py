"""What a simulation came to: figures, curves over virtual time, every worker, the merged model."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..train.merged import digest, save_model
from .array_files import check_format, read_arrays, write_arrays
from .results.plots import draw
from .results.title import describe
from .run_files import (
    MODEL,
    PICTURE,
    SERIES,
    WORKERS,
    as_json,
    check_folder,
    read_model,
    read_summary,
    staged,
    write_summary,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Run", "time_to"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Run:
    """A simulation that has run.

    Raises:
        ValueError: Arrays of one kind differ in length.
    """

    summary: dict[str, Any]
    """What ``rumor simulate --json`` prints; JSON values only: what is not finite is None."""

    series: Mapping[str, NDArray[np.float64]]
    """Curves, float64, first axis ``n_points``, one point for each measurement. Names that a run
    has nothing to say on are absent, and points without a value NaN.

    - ``time_s``: virtual time, seconds; ``steps``: mean optimizer steps per worker.
    - ``loss``, ``accuracy``: of the merged model, on held-out data.
    - ``loss_quantiles``, ``accuracy_quantiles``: of single workers' models (32 of them, evenly
      spaced, where there are more), ``(n_points, 5)``: least, a quarter, median, three quarters,
      most.
    - ``consensus_distance``; ``weight_quantiles``: ``(n_points, 5)``, in founders.
    - ``messages``, ``bytes_sent``, ``pushes``, ``skipped``, ``mixed``: of all workers, since 0.0.
    - ``staleness_steps``: mean over the shares mixed since the point before.
    - ``idle``: part of the workers' time since the point before that they spent waiting.
    - ``accuracy_of_groups``, ``loss_of_groups``: of what the members of each group of a partition
      have merged, ``(n_points, n_groups)``; NaN while there is none.
    - ``members``: workers that belong to the swarm; ``membership_bytes``: sent since 0.0 about who
      lives; both where there are faults.
    - ``disagreement``: sum over the workers of their squared distance from the mean, per
      coordinate.
    """

    workers: Mapping[str, NDArray[Any]]
    """Each worker at the end, newcomers last, axis ``n_workers``: ``steps`` (of all its lives),
    ``weight_units`` (int64; float64 where one is not whole), ``idle_s``, ``pushes``, ``mixed``."""

    model: Mapping[str, Tensor] | None = None
    """The merged model's state_dict; None where a task has no model."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "summary", as_json(self.summary))
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

        Args:
            path: Where the picture goes, if anywhere; its suffix says in which format.

        Returns:
            The figure, which belongs to no window and to no global state of matplotlib.

        Raises:
            OSError: It cannot be written.
        """
        figure = draw(self.summary, self.series)
        if path is not None:
            figure.savefig(path)
        return figure

    def save(self, folder: Path | str, *, format: str = "npz", picture: bool = True) -> None:
        """Write everything to a folder: all files appear there together, or none does.

        ``series`` and ``workers`` (``.npz`` or ``.parquet``), ``summary.json``,
        ``model.safetensors`` where there is a model, and ``training.png``.

        Args:
            folder: Made where it does not exist; it may hold other files, but no run.
            format: Of the arrays: ``npz``, or ``parquet`` where pyarrow is installed.
            picture: Whether to draw one.

        Raises:
            ConfigError: The folder holds another run, or the format is not to be had.
            OSError: It cannot be written; nothing was left in the folder.
        """
        folder = Path(folder)
        check_format(format)
        check_folder(folder)
        with staged(folder) as draft:
            write_arrays(draft / SERIES, self.series, format)
            write_arrays(draft / WORKERS, self.workers, format)
            if self.model is not None:
                save_model(draft / MODEL, self.model, {"digest": digest(self.model)})
            if picture:
                self.plot(draft / PICTURE)
            write_summary(draft, self.summary)

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """Read a run that was saved, every bit as it was.

        Args:
            folder: Where it was saved.

        Raises:
            ConfigError: That is no folder of a run, or a file in it cannot be read; says which.
        """
        folder = Path(folder)
        return cls(
            summary=read_summary(folder),
            series=read_arrays(folder / SERIES),
            workers=read_arrays(folder / WORKERS),
            model=read_model(folder),
        )


def time_to(series: Mapping[str, NDArray[np.float64]], accuracy: float) -> float | None:
    """Find when the merged model was first measured to be this good.

    Args:
        series: Of a run.
        accuracy: What to reach.

    Returns:
        Virtual time, seconds; None where that was never measured.
    """
    if "accuracy" not in series:
        return None
    reached = np.flatnonzero(series["accuracy"] >= accuracy)
    return float(series["time_s"][reached[0]]) if len(reached) else None
