"""Plots of simulated runs of every kind, without panels that carry no information."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib import get_backend, rcParams
from matplotlib.figure import Figure

from rumor.sim.results.plots import draw, set_scale
from rumor.sim.results.run import Run

from ..made_up import made_up


def without(run: Run, *names: str) -> Run:
    return replace(run, series={k: v for k, v in run.series.items() if k not in names})


def with_values(run: Run, name: str, change: Callable[[np.ndarray], object]) -> Run:
    values = run.series[name].copy()
    change(values)
    return replace(run, series={**run.series, name: values})


def titles(figure: Figure) -> list[str]:
    return [axes.get_title(loc="left") for axes in figure.axes]


def words(figure: Figure) -> str:
    return " ".join(text.get_text() for axes in figure.axes for text in axes.texts)


def ended_at_once() -> dict[str, np.ndarray]:
    """Curves whose last point comes a rounding error after the one before."""
    series = made_up(points=5).series
    return {
        name: np.concatenate([values, values[-1:] * (1 + 1e-15)]) for name, values in series.items()
    }


RUNS = {
    "one point": made_up(points=1),
    "one worker": made_up(workers=1),
    "a hundred thousand": made_up(task="noise", workers=100_000),
    "no accuracy": without(made_up(accuracy=None), "accuracy", "accuracy_quantiles"),
    "no quantiles": without(made_up(), "accuracy_quantiles", "loss_quantiles"),
    "gaps": with_values(made_up(), "loss", lambda v: v.__setitem__(slice(9, 12), np.nan)),
    "never finite": with_values(made_up(), "loss", lambda v: v.fill(np.nan)),
    "infinite": with_values(made_up(), "loss", lambda v: v.__setitem__(-1, np.inf)),
    "a last point at once": replace(made_up(points=5), series=ended_at_once()),
    "negative": with_values(made_up(), "loss", lambda v: v.__isub__(3.0)),
    "identical": with_values(made_up(), "consensus_distance", lambda v: v.fill(0.0)),
    "in agreement": with_values(made_up(task="consensus"), "disagreement", lambda v: v.fill(0.0)),
    "no time": replace(
        made_up(points=1), series={**made_up(points=1).series, "time_s": np.zeros(1)}
    ),
    "no points": replace(
        made_up(), series={name: values[:0] for name, values in made_up().series.items()}
    ),
    "a long name": made_up(task="my_module:a_$task^" + 200 * "x", speeds="1x:50%,2x:50%"),
}


EXTENDED = ("one worker", "a hundred thousand", "infinite", "a long name", "never finite")


def marks(name: str) -> tuple[pytest.MarkDecorator, ...]:
    later = pytest.mark.extended if name in EXTENDED else pytest.mark.slow
    return () if name == "no points" else (later,)


@pytest.mark.parametrize(
    "run", [pytest.param(run, id=name, marks=marks(name)) for name, run in RUNS.items()]
)
def test_any_run_has_a_picture(tmp_path: Path, run: Run) -> None:
    # A low resolution saves time; the layout is the same.
    run.plot().savefig(tmp_path / "training.png", dpi=30)
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")


def test_curves_without_information_have_no_panel() -> None:
    assert len(titles(made_up().plot())) == 7
    learnt = ("time_s", "steps", "accuracy", "accuracy_quantiles", "loss", "loss_quantiles")
    alone = {name: v if name in learnt else np.ones_like(v) for name, v in made_up().series.items()}
    assert len(titles(replace(made_up(), series=alone).plot())) == 2
    noise = titles(made_up(task="noise").plot())
    assert "Disagreement" in noise[0] and not any("Held-out" in title for title in noise)
    assert len(noise) == 5
    free = with_values(made_up(), "idle", lambda v: v.fill(0.0))
    assert not any("waiting" in title for title in titles(free.plot()))
    assert words(RUNS["no points"].plot()) == "nothing was measured"


@pytest.mark.extended
def test_final_values_are_written_next_to_the_curves() -> None:
    figure = made_up().plot()
    assert f"{made_up().summary['accuracy']:.4g}" in words(figure)
    legend = figure.axes[0].get_legend()
    assert legend is not None
    # Each panel ends with the run; the final value is next to it, inside the picture.
    figure.canvas.draw()
    for axes in figure.axes:
        assert axes.get_xlim()[1] == made_up().series["time_s"][-1]
        for text in (*axes.texts, axes.title, legend):
            box = text.get_window_extent()
            assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1


def test_a_rate_over_next_to_no_time_is_not_drawn() -> None:
    series = ended_at_once()
    series["bytes_sent"][-1] += 1000
    drawn = replace(made_up(points=5), series=series).plot().axes
    (axes,) = [each for each in drawn if each.get_title(loc="left").startswith("Traffic")]
    assert axes.get_ylabel() == "MB/s"


def test_drawing_does_not_change_the_state_of_matplotlib() -> None:
    before, backend = dict(rcParams), get_backend()
    run = made_up()
    assert isinstance(draw(run.summary, run.series), Figure)
    assert (dict(rcParams), get_backend()) == (before, backend)


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([1.0, 100.0], "log"),
        ([1.0, 1e9], "log"),
        ([1.0, np.nan, np.inf, 100.0], "log"),
        ([1.0, 2.0], "linear"),
        ([0.0, 100.0], "linear"),
        ([-1.0, 100.0], "linear"),
        ([np.nan], "linear"),
    ],
)
def test_a_scale_is_logarithmic_if_positive_values_are_far_apart(
    values: list[float], scale: str
) -> None:
    axes = Figure().add_subplot()
    set_scale(axes, np.array(values))
    assert axes.get_yscale() == scale
