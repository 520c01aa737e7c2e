"""``rumor merge``: the average of the models in peers' folders."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from rumor.train.storage.merge import save_model

from ..called import called


def peer(folder: Path, value: float, units: int, state: str = "finished", n: int = 3) -> Path:
    folder.mkdir(parents=True)
    metadata = {"peer": f"id-{folder.name}", "weight_units": str(units)}
    save_model(folder / "model.safetensors", {"x": torch.full((n,), value)}, metadata)
    (folder / "peer.json").write_text(json.dumps({"state": state}))
    return folder


def merge(*arguments: Path | str) -> tuple[int, str, str]:
    result = called("merge", *arguments)
    return result.exit_code, result.stdout, result.stderr


def test_peers_are_merged_by_weight(tmp_path: Path) -> None:
    one, two = peer(tmp_path / "a", 1.0, 3), peer(tmp_path / "b", 5.0, 1)
    out = tmp_path / "m.safetensors"
    status, stdout, _ = merge(one, two, "-o", out)
    assert status == 0
    assert torch.equal(load_file(out)["x"], torch.full((3,), 2.0))
    assert "id-a: 0.7500 of the whole" in stdout and "digest" in stdout
    assert "left out" not in stdout


def test_a_run_folder_merges_only_sound_peers_with_weight(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    peer(run / "peers" / "a", 1.0, 1)
    peer(run / "peers" / "b", 3.0, 1)
    peer(run / "peers" / "c", 9.0, 1, state="failed")
    peer(run / "peers" / "d", 9.0, 0, state="left")
    (run / "model.safetensors").write_bytes(b"an older merged model")
    (run / "peers" / "killed").mkdir()
    status, stdout, _ = merge(run, "-o", tmp_path / "m.safetensors", "--json")
    assert status == 0
    result = json.loads(stdout)
    assert result["weights_units"] == {"id-a": 1, "id-b": 1} and len(result["digest"]) == 32
    assert result["skipped"] == ["id-c", "id-d"]
    assert load_file(tmp_path / "m.safetensors")["x"][0] == 2


def test_models_of_two_swarms_are_refused_with_the_peers_of_each(tmp_path: Path) -> None:
    for name, swarm in (("a", "aa"), ("b", "bb")):
        metadata = {"peer": name, "weight_units": "1", "swarm": swarm}
        (tmp_path / name).mkdir()
        save_model(tmp_path / name / "model.safetensors", {"x": torch.ones(3)}, metadata)
    out = tmp_path / "m.safetensors"
    status, stdout, stderr = merge(tmp_path / "a", tmp_path / "b", "-o", out)
    assert (status, stdout, out.exists()) == (1, "", False)
    assert "2 swarms" in stderr and "a; b" in stderr and f"rumor merge {tmp_path}/a -o" in stderr


def test_a_large_difference_between_models_is_reported(tmp_path: Path) -> None:
    near, far = peer(tmp_path / "near", 1.0005, 1), peer(tmp_path / "far", 1.1, 1)
    one, out = peer(tmp_path / "a", 1.0, 1), tmp_path / "m.safetensors"
    assert "of their norm" not in merge(one, near, "-o", out)[1]
    assert "differ by 0.048 of their norm" in merge(one, far, "-o", out, "--force")[1]


def test_nothing_is_overwritten_without_force(tmp_path: Path) -> None:
    one, out = peer(tmp_path / "a", 1.0, 1), tmp_path / "m.safetensors"
    out.write_text("precious")
    status, _, stderr = merge(one, "-o", out)
    assert status == 2 and "--force" in stderr
    assert out.read_text() == "precious"
    assert merge(one, "-o", out, "--force")[0] == 0
    assert load_file(out)["x"][0] == 1


def test_folders_without_a_model_and_unwritable_outputs_are_refused(
    tmp_path: Path,
) -> None:
    one = peer(tmp_path / "a", 1.0, 1)
    for where in ("nowhere/m.safetensors", "."):
        assert merge(one, "-o", tmp_path / where, "--force")[0] == 2
    (tmp_path / "run" / "peers" / "a").mkdir(parents=True)
    for folder in (tmp_path / "run", tmp_path, tmp_path / "nowhere"):
        status, _, stderr = merge(folder, "-o", tmp_path / "m.safetensors")
        assert status == 2 and "holds no model" in stderr
