"""Made-up runs: curves of the right form, to test how runs are shown and saved."""

from typing import Any

import numpy as np
import torch

from rumor.sim.results.run import Run, time_to

__all__ = ["made_up"]


def made_up(*, workers: int = 64, points: int = 41, task: str = "digits", **changes: Any) -> Run:
    """A run as `simulate` returns it; *changes* are keys of the summary."""
    rng = np.random.default_rng(0)
    time_s = np.linspace(0.0, 20.0, points) if points > 1 else np.array([20.0])
    has_model = task not in ("consensus", "noise")
    series = _exchange(time_s, workers, rng)
    if has_model:
        loss = 0.1 + 2.2 * np.exp(-time_s / 2)
        accuracy = 0.97 - 0.87 * np.exp(-time_s / 1.5) + 0.002 * rng.standard_normal(points)
        below = np.array([0.05, 0.02, 0.01, 0.006, -0.003])
        series |= {"loss": loss, "loss_quantiles": np.outer(loss, [0.8, 0.95, 1.05, 1.15, 1.6])}
        series |= {"accuracy": accuracy, "accuracy_quantiles": accuracy[:, None] - below}
    else:
        series["disagreement"] = 100 * np.exp(-time_s) + 3
    model = {"weight": torch.arange(6.0).reshape(2, 3)} if has_model else None
    counts = rng.integers(150, 250, workers)
    ends = {
        "steps": counts,
        "weight_units": np.full(workers, 2**40),
        "idle_s": np.zeros(workers),
        "pushes": counts // 10,
        "mixed": counts // 10,
    }
    summary = _summary(task, workers, series, int(counts.sum())) | changes
    return Run(summary=summary, series=series, workers=ends, model=model)


def _exchange(time_s: np.ndarray, workers: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    pushes = np.floor(time_s * workers)
    spread = np.array([-0.9, -0.4, -0.05, 0.35, 2.5])
    noise = 1 + 0.1 * rng.standard_normal(len(time_s))
    return {
        "time_s": time_s,
        "steps": 10 * time_s,
        "messages": 2 * pushes,
        "pushes": pushes,
        "bytes_sent": 20_000 * pushes,
        "skipped": np.zeros(len(time_s)),
        "mixed": pushes,
        "consensus_distance": 0.2 * (1 - np.exp(-time_s)) * np.exp(-time_s / 15),
        "weight_quantiles": 1 + np.outer(1 - np.exp(-time_s / 3), spread),
        "staleness_steps": np.where(time_s > 0, 1.5 * noise, np.nan),
        "idle": np.where(time_s > 0, 0.02 * noise, np.nan),
    }


def _summary(task: str, workers: int, series: dict[str, np.ndarray], steps: int) -> dict[str, Any]:
    accuracy, loss = series.get("accuracy"), series.get("loss")
    units = workers * 2**40
    return {
        "task": task,
        "workers": workers,
        "topology": "exponential",
        "rule": "gosgd",
        "p": 0.1,
        "emission": "per-step",
        "seed": 0,
        "partition": "shared",
        "network": "lan",
        "pace": "constant",
        "step_s": 0.1,
        "engine": "dense",
        "engine_why": "a multilayer perceptron",
        "accuracy": None if accuracy is None else float(accuracy[-1]),
        "loss": None if loss is None else float(loss[-1]),
        "consensus_distance": float(series["consensus_distance"][-1]),
        "disagreement": 3.0 if "disagreement" in series else None,
        "disagreement_stationary": 3.1 if task == "noise" else None,
        "weight_total": float(workers),
        "weight_expected": float(workers),
        "weight_units_total": units,
        "weight_units_expected": units,
        "skipped": 0,
        "messages": int(series["messages"][-1]),
        "bytes_sent": int(series["bytes_sent"][-1]),
        "pushes": int(series["pushes"][-1]),
        "mixed": int(series["mixed"][-1]),
        "staleness_steps": 1.5,
        "idle": 0.02,
        "sync_points": 41,
        "steps": steps,
        "steps_per_s": 28_000.0,
        "wall_s": 0.5,
        "virtual_time_s": 20.0,
        "peak_rss_mib": 512.3,
        "n_params": 6,
        "time_to": {f"{level:g}": time_to(series, level) for level in (0.5, 0.9, 0.95, 0.99)},
        "digest": "d" * 32,
        "model_digest": "m" * 32 if "loss" in series else None,
    }
