"""A run as a film: who is up at which moment, and pictures that differ."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rumor.gossip.errors import ConfigError
from rumor.sim import Run, simulate
from rumor.sim.results.film import states_at

NAMES = ("a", "b", "c", "join-1")

FAULTS = [
    {"at_s": 1.0, "kind": "crash", "peer": "a"},
    {"at_s": 2.0, "kind": "pause", "peer": "b", "for_s": 3.0},
    {"at_s": 3.0, "kind": "restart", "peer": "a", "state": "kept"},
    {"at_s": 4.0, "kind": "partition", "groups": [["a"], ["b"]], "for_s": 4.0},
    {"at_s": 4.5, "kind": "slow", "peer": "c", "factor": 3.0, "for_s": 1.0},
    {"at_s": 6.0, "kind": "join", "count": 1},
    {"at_s": 7.0, "kind": "cut", "peer": "c", "for_s": 0.5},
    {"at_s": 9.0, "kind": "leave", "peer": "b"},
    {"at_s": 10.0, "kind": "mass-restart", "peers": ["a", "c"], "for_s": 1.0},
    {"at_s": 12.0, "kind": "partition", "groups": [["a", "c"]]},
    {"at_s": 13.0, "kind": "heal"},
    {"at_s": 14.0, "kind": "loss", "rate": 0.5},
    {"at_s": 15.0, "kind": "mass-restart", "for_s": 1.0},
]


@pytest.mark.parametrize(
    ("time_s", "expected"),
    [
        (0.5, {"a": "up", "b": "up", "c": "up"}),
        (1.5, {"a": "down", "b": "up", "c": "up"}),
        (2.5, {"a": "down", "b": "paused", "c": "up"}),
        (5.5, {"a": "up", "b": "up", "c": "up"}),
        (6.5, {"a": "up", "b": "up", "c": "up", "join-1": "up"}),
        (10.5, {"a": "down", "b": "down", "c": "down", "join-1": "up"}),
        (11.5, {"a": "up", "b": "down", "c": "up", "join-1": "up"}),
        (15.5, dict.fromkeys(NAMES, "down")),
    ],
)
def test_who_is_up_follows_from_what_was_done(time_s: float, expected: dict[str, str]) -> None:
    assert states_at(FAULTS, NAMES, time_s).state == expected


def test_who_is_cut_off_and_who_is_slow_lasts_as_long_as_the_fault() -> None:
    assert states_at(FAULTS, NAMES, 4.2).group == {"a": ("a",), "b": ("b",)}
    assert states_at(FAULTS, NAMES, 5.0).slow == {"c"} and not states_at(FAULTS, NAMES, 5.6).slow
    assert set(states_at(FAULTS, NAMES, 7.2).group) == {"a", "b", "c"}
    assert set(states_at(FAULTS, NAMES, 7.6).group) == {"a", "b"}
    assert not states_at(FAULTS, NAMES, 8.5).group
    assert set(states_at(FAULTS, NAMES, 12.5).group) == {"a", "c"}
    assert not states_at(FAULTS, NAMES, 13.5).group


def test_events_are_put_in_words() -> None:
    events = states_at(FAULTS, NAMES, 20.0).events
    assert events[:2] == ["a is killed", "b stands still"]
    assert {"2 are cut off from the others", "all cuts heal", "join-1 joins", "loss"} <= set(events)
    assert "2 are killed at once" in events


@pytest.fixture(scope="module")
def run() -> Run:
    faults = [
        {"at_s": 0.5, "kind": "crash", "peer": 1},
        {"at_s": 1.0, "kind": "pause", "peer": 2, "for_s": 0.5},
        {"at_s": 1.0, "kind": "cut", "peer": 3, "for_s": 0.5},
        {"at_s": 1.2, "kind": "join"},
    ]
    return simulate(workers=6, steps=25, faults=faults, eval_every=5)


@pytest.mark.extended
@pytest.mark.parametrize("suffix", ["gif", "webp"])
def test_a_film_has_pictures_of_all_moments(run: Run, suffix: str, tmp_path: Path) -> None:
    run.animate(tmp_path / f"film.{suffix}", seconds=2, fps=4)
    with Image.open(tmp_path / f"film.{suffix}") as film:
        assert film.n_frames == 8  # type: ignore[attr-defined]
        pictures = []
        for place in (0, 7):
            film.seek(place)
            pictures.append(np.asarray(film.convert("RGB")).astype(int))
    assert pictures[0].shape == (420, 800, 3)
    assert (np.abs(pictures[0] - pictures[1]).max(axis=2) > 60).sum() > 200


def test_runs_without_accuracy_or_faults_have_one_too(tmp_path: Path) -> None:
    for task in ("quadratic", "noise"):
        run = simulate(task=task, workers=3, steps=6)
        run.animate(tmp_path / f"{task}.gif", seconds=0.5, fps=4)
        assert (tmp_path / f"{task}.gif").stat().st_size > 1000


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("film.mp4", {}, "must end in .gif or .webp"),
        ("none/film.gif", {}, "a folder that exists"),
        ("film.gif", {"fps": 0.0}, "fps is 0.0"),
        ("film.gif", {"seconds": float("inf")}, "seconds is inf"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    run: Run, tmp_path: Path, name: str, settings: dict[str, float], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        run.animate(tmp_path / name, **settings)
