"""Rivals: installed once, run apart, and one line where that fails. No network is used."""

import json
import sys
import zipfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from rumor.benchmarks.rivals import averaging
from rumor.benchmarks.rivals import gossipy as rival_gossipy
from rumor.benchmarks.rivals.gossipy import adjacency
from rumor.benchmarks.rivals.rivals import (
    DECENT,
    GOSSIPY,
    Rival,
    RivalError,
    install,
    measure,
    place,
)

__all__: list[str] = []

RIVAL = Rival(name="tortoise", version="1.2")

SCRIPT = """
import json, os, sys
import tortoise
asked = json.loads(sys.argv[1])
print("some talk")
print(json.dumps({"speed": tortoise.SPEED * asked["times"], "set": os.environ["PACE"]}))
"""


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one wheel, the only place where pip looks."""
    folder = tmp_path / "index"
    folder.mkdir()
    about = "tortoise-1.2.dist-info"
    files = {
        "tortoise.py": "SPEED = 3\n",
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: tortoise\nVersion: 1.2\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    files[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{about}/RECORD"])
    with zipfile.ZipFile(folder / "tortoise-1.2-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def script(folder: Path, text: str) -> str:
    path = folder / "measured.py"
    path.write_text(text)
    return str(path)


def ask(
    installed: Path, text: str, asked: Mapping[str, object] | None = None
) -> Mapping[str, object]:
    """Measure with a rival that is there already."""
    return measure(RIVAL, script(installed, text), asked or {}, {}, installed)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A cache with a rival in it."""
    (tmp_path / f"tortoise-1.2-{sys.implementation.cache_tag}").mkdir()
    return tmp_path


@pytest.mark.live
def test_a_rival_is_installed_once_seen_by_its_process_and_by_no_other(
    index: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    asked, environment = {"times": 2}, {"PACE": "slow"}
    path = script(tmp_path, SCRIPT)
    assert measure(RIVAL, path, asked, environment, cache) == {"speed": 6, "set": "slow"}
    (index / "tortoise-1.2-py3-none-any.whl").unlink()
    assert measure(RIVAL, path, asked, environment, cache)["speed"] == 6
    assert find_spec("tortoise") is None


@pytest.mark.live
def test_a_rival_that_cannot_be_installed_leaves_nothing_behind(
    index: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    with pytest.raises(RivalError, match=r"pip ended with status 1: .*tortoise==7") as error:
        install(Rival(name="tortoise", version="7"), cache)
    assert "\n" not in str(error.value)
    assert list(cache.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RivalError, match=r"tortoise could not be kept in .*: "):
        install(RIVAL, tmp_path / "file" / "cache")


def test_the_users_cache_is_the_place_unless_another_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "rumor" / "rivals" / f"tortoise-1.2-{sys.implementation.cache_tag}"
    folder.mkdir(parents=True)
    assert install(RIVAL) == folder


@pytest.mark.live
def test_a_rivals_script_that_fails_gives_its_last_line_as_the_reason(installed: Path) -> None:
    with pytest.raises(RivalError, match="tortoise ended with status 1: ValueError: too slow"):
        ask(installed, "raise ValueError('too slow')")
    with pytest.raises(RivalError, match="tortoise ended with status -9: no reason given"):
        ask(installed, "import os; os.kill(os.getpid(), 9)")


@pytest.mark.live
def test_a_rival_that_prints_no_figures_is_one_that_fails(installed: Path) -> None:
    for text in ("print('nothing')", "print([1])", ""):
        with pytest.raises(RivalError, match="tortoise printed no figures"):
            ask(installed, text)


@pytest.mark.live
def test_the_script_finds_our_packages_but_not_the_modules_beside_it(installed: Path) -> None:
    (installed / "beside.py").write_text("")
    text = (
        "import json, importlib.util as u\n"
        "print(json.dumps({m: u.find_spec(m) is not None for m in ('torch', 'beside')}))"
    )
    assert ask(installed, text) == {"torch": True, "beside": False}


def test_a_graph_becomes_a_symmetric_matrix() -> None:
    matrix = adjacency(4, np.array([[0, 1], [3, 1]]))
    assert matrix.tolist() == [[0, 1, 0, 0], [1, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]]


@pytest.mark.live
@pytest.mark.slow
def test_gossipy_takes_one_step_for_each_message_that_arrives(tmp_path: Path) -> None:
    """Where it is installed already: nothing is fetched for a test."""
    if not place(GOSSIPY).is_dir():
        pytest.skip("gossipy-dfl is not installed: `rumor bench sim` does that")
    rng = np.random.default_rng(0)
    n_params = 5 * 3 + 3 + 3 * 2 + 2
    np.savez(
        tmp_path / "work.npz",
        edges=np.array([[0, 1], [1, 2], [2, 3], [3, 0]]),
        start=rng.normal(size=n_params).astype(np.float32),
        train_inputs=rng.normal(size=(20, 5)).astype(np.float32),
        train_targets=np.arange(20) % 2,
        test_inputs=rng.normal(size=(6, 5)).astype(np.float32),
        test_targets=np.arange(6) % 2,
    )
    asked = {"n": 4, "hidden": 3, "lr": 0.1, "batch_size": 4, "rounds": 5, "threads": 1}
    found = measure(
        GOSSIPY,
        rival_gossipy.__file__,
        {"work": str(tmp_path / "work.npz"), **asked},
        {"OMP_NUM_THREADS": "1"},
    )
    assert json.loads(json.dumps(found)) == found
    # A message of the very last tick does not arrive.
    assert 4 * 5 - 4 <= found["steps"] <= 4 * 5
    assert found["wall_s"] > 0
    assert 0 <= found["accuracy"] <= 1
    assert 0 < found["loaded_mb"] <= found["peak_mb"]
    assert found["engine"] == f"gossipy-dfl {GOSSIPY.version}"


@pytest.mark.live
@pytest.mark.slow
def test_decent_averages_once_in_every_period() -> None:
    """Where it is installed already: nothing is fetched for a test."""
    if not place(DECENT).is_dir():
        pytest.skip("decent-dp is not installed: `rumor bench stall` does that")
    asked = {
        "rival": "decent-dp",
        "n_params": 1000,
        "periods": [1, 3],
        "step_s": 0.001,
        "rounds": 2,
    }
    found = measure(DECENT, averaging.__file__, asked, {"OMP_NUM_THREADS": "1"})
    every, third = found["stalls_s"]
    assert len(every) == 2 and len(third) == 6
    assert all(stall_s > 0 for stall_s in every)
    assert [stall_s > 0 for stall_s in third] == [False, False, True] * 2
    assert all(wall_s > 0 for wall_s in found["walls_s"])
    assert found["engine"] == f"decent-dp {DECENT.version} over gloo"
