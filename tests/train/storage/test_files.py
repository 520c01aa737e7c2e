"""A draft replaces its file once it is complete, or not at all."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rumor.train.storage.files import DRAFT, drafted


def test_only_a_complete_draft_replaces_the_file(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    with pytest.raises(OSError, match="full"), drafted(path) as draft:
        draft.write_text("ne")
        raise OSError("full")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    with drafted(path) as draft:
        draft.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


WRITES = """
import os, sys
umask, os.umask = os.umask, None  # reading it would change it for all threads
from pathlib import Path
import torch
from rumor.sim import simulate
from rumor.train.storage.files import write_json
from rumor.train.storage.merge import save_model
run = simulate(task="quadratic", workers=2, steps=2)
for text in ("077", "002"):
    umask(int(text, 8))
    folder = Path(sys.argv[1], text)
    folder.mkdir()
    write_json(folder / "value.json", 1)
    for _ in range(2):  # the second takes the place of the first
        save_model(folder / "model.safetensors", {"x": torch.zeros(3)}, {})
    run.save(folder / "run")
"""


@pytest.mark.extended
def test_file_permissions_follow_the_umask(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", WRITES, str(tmp_path)], check=True)
    for umask, mode in (("077", "0o600"), ("002", "0o664")):
        files = (path for path in (tmp_path / umask).rglob("*") if path.is_file())
        found = {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in files}
        assert {"value.json", "model.safetensors", "summary.json", "series.npz"} <= found.keys()
        assert set(found.values()) == {mode}


def test_a_leftover_draft_does_not_affect_the_next_draft(tmp_path: Path) -> None:
    left = tmp_path / f"page.html{DRAFT}"
    left.write_text("half of it")
    left.chmod(0o600)
    with drafted(tmp_path / "page.html") as draft:
        assert draft.read_bytes() == b""
        draft.write_text("new")
    (tmp_path / "other").touch()
    assert (tmp_path / "page.html").stat().st_mode == (tmp_path / "other").stat().st_mode
