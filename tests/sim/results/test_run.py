"""Runs are saved and loaded bit for bit, completely or not at all."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rumor.gossip.errors import ConfigError
from rumor.sim.results.files import read_arrays, staged
from rumor.sim.results.run import Run, time_to

from ..made_up import made_up

# Two NaNs with different bits, minus infinity, and a negative zero.
ODD = np.array([0x7FF8000000000000, 0x7FF8000000000ABC, 0xFFF0000000000000, 1 << 63], np.uint64)


def bits(arrays: Mapping[str, NDArray[Any]]) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}


def saved(folder: Path, **settings: Any) -> Run:
    run = made_up(points=5)
    run.save(folder, **settings)
    return run


def test_a_run_is_loaded_bit_for_bit(tmp_path: Path) -> None:
    run = made_up(points=4)
    odd = ODD.view(np.float64)
    quantiles = np.array([[*odd.tolist(), 0.5]] * 4)
    run = replace(run, series={**run.series, "idle": odd, "loss_quantiles": quantiles})
    run.save(tmp_path / "run", picture=False)
    again = Run.load(tmp_path / "run")
    assert again.summary == run.summary
    assert bits(again.series) == bits(run.series)
    assert bits(again.workers) == bits(run.workers)
    assert again.model is not None and run.model is not None
    assert list(again.model) == list(run.model)
    assert all(torch.equal(again.model[name], run.model[name]) for name in run.model)


@pytest.mark.extended
def test_a_folder_has_exactly_the_files_of_its_run(tmp_path: Path) -> None:
    saved(tmp_path / "a" / "run")
    made_up(task="noise", points=3).save(tmp_path / "noise", picture=False)
    few = {"series.npz", "workers.npz", "summary.json"}
    files = [{path.name for path in (tmp_path / name).iterdir()} for name in ("a/run", "noise")]
    assert files == [few | {"model.safetensors", "training.png"}, few]
    assert Run.load(tmp_path / "noise").model is None


def test_the_same_run_is_written_as_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        saved(tmp_path / name, picture=False)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name


def test_the_summary_is_strict_json_for_any_values(tmp_path: Path) -> None:
    time_to = {0.9: np.float64(1.5), 0.95: None}
    run = made_up(points=2, loss=float("nan"), idle=np.float32(0.5), time_to=time_to)
    assert run.summary["loss"] is None and run.summary["idle"] == 0.5
    assert run.summary["time_to"] == {"0.9": 1.5, "0.95": None}
    run.save(tmp_path / "run", picture=False)
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == run.summary


def test_arrays_of_different_lengths_are_refused() -> None:
    run = made_up(points=3)
    with pytest.raises(ValueError, match="series differ in length"):
        replace(run, series={**run.series, "loss": np.zeros(2)})


def test_the_repr_of_a_run_is_one_line() -> None:
    shown = repr(made_up())
    assert shown.startswith("<Run: digits on 64 workers, exponential, gosgd:p=0.1")
    assert "accuracy 0.9" in shown and "\n" not in shown
    assert "1 worker," in repr(made_up(workers=1, p=None))


def test_time_to_is_the_time_of_the_first_sufficient_measurement() -> None:
    series = {"time_s": np.arange(4.0), "accuracy": np.array([0.1, np.nan, 0.9, 0.8])}
    assert (time_to(series, 0.8), time_to(series, 0.95)) == (2.0, None)
    assert time_to({"time_s": np.arange(4.0)}, 0.1) is None


@pytest.mark.parametrize(
    "trace", ["summary.json", "series.npz", "workers.npz", "model.safetensors", "peers"]
)
def test_the_folder_of_another_run_is_refused_and_other_files_stay(
    tmp_path: Path, trace: str
) -> None:
    (tmp_path / trace).touch()
    with pytest.raises(ConfigError, match=f"holds another run \\({trace}\\)"):
        made_up().save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [trace]
    (tmp_path / trace).rename(tmp_path / "notes.txt")
    saved(tmp_path, picture=False)
    assert (tmp_path / "notes.txt").exists()


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_an_interrupted_save_leaves_no_files(tmp_path: Path, error: BaseException) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "notes.txt").touch()
    for folder, left in ((tmp_path / "new", None), (tmp_path / "old", ["notes.txt"])):
        with pytest.raises(type(error)), staged(folder) as draft:
            (draft / "series.npz").touch()
            raise error
        if left is None:
            assert not folder.exists()
        else:
            assert [path.name for path in folder.iterdir()] == left


def test_no_file_moves_unless_all_can(tmp_path: Path) -> None:
    # A folder stands where the summary, which moves last, should go.
    folder = tmp_path / "run"
    (folder / "summary.json" / "inside").mkdir(parents=True)
    with pytest.raises(OSError), staged(folder) as draft:
        (draft / "series.npz").touch()
        (draft / "summary.json").touch()
    assert [path.name for path in folder.iterdir()] == ["summary.json"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("summary.json", None, "summary.json cannot be read: No such file"),
        ("summary.json", b"{", "summary.json is not JSON"),
        ("summary.json", b"\xff", "summary.json is not JSON"),
        ("summary.json", b"[]", "is not a JSON object"),
        ("series.npz", None, "has no series.npz"),
        ("workers.npz", None, "has no workers.npz"),
        ("series.npz", b"", "series.npz cannot be read"),
        ("series.npz", b"PK\x03\x04 and no more", "series.npz cannot be read"),
        ("series.npz", b"something else", "series.npz cannot be read"),
        ("model.safetensors", b"nothing", "model.safetensors cannot be read as a model"),
        (".", b"", "is a file: give the folder of a run"),
        (".", None, "does not exist"),
    ],
)
def test_an_invalid_folder_is_refused_with_the_reason(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if name != ".":
        saved(tmp_path / "run", picture=False)
    path = tmp_path / "run" / name
    path.unlink(missing_ok=True) if content is None else path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        Run.load(tmp_path / "run")
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_damaged_bytes_in_an_archive_are_detected(tmp_path: Path) -> None:
    path = tmp_path / "series.npz"
    np.savez_compressed(path, a=np.random.default_rng(0).random(1000))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be read as arrays"):
        read_arrays(path)
