"""A study that ends when its time is over."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from rumor.sim.study import Axis, Point, Trial, run_study

from ..small import small_study


@pytest.mark.extended
def test_when_time_is_over_seeds_are_missing_then_places_never_a_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = small_study(seeds=2)
    places = Axis("steps", (Point("few", {"steps": 4}), Point("many", {"steps": 20})))
    settings = {name: value for name, value in study.settings.items() if name != "steps"}
    study = replace(study, axes=(study.axes[0], places), settings=settings)
    done: list[Trial] = []
    # A clock that moves by a second with each trial: five of eight fit.
    monkeypatch.setattr(time, "monotonic", lambda: float(len(done)))

    def note(progress: object) -> None:
        trial = progress.trial  # type: ignore[attr-defined]
        if trial is not None:
            done.append(trial)

    results = run_study(study, tmp_path, jobs=1, progress=note, stop_s=5.0)
    assert [(t.seed, t.labels["steps"], t.labels["topology"]) for t in done] == [
        (0, "few", "ring"),
        (0, "few", "complete"),
        (0, "many", "ring"),
        (0, "many", "complete"),
        (1, "few", "ring"),
    ]
    assert len(results.results) == 5 and not results.failures
    again = run_study(study, tmp_path, jobs=1, resume=True)
    assert len(again.results) == 8


def test_nothing_is_begun_when_time_was_over_before(tmp_path: Path) -> None:
    results = run_study(small_study(), tmp_path, jobs=1, stop_s=time.monotonic() - 1)
    assert not results.results and not results.failures
