"""The code of the page on nodes, and the script that the page names."""

import os
from collections.abc import Callable
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import TensorDataset

from .processes import nodes

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "how-to" / "node.md"
SCRIPT = ROOT / "examples" / "fsdp.py"

pytestmark = [
    pytest.mark.live,
    pytest.mark.extended,
    pytest.mark.skipif(not PAGE.exists(), reason="needs the docs"),
]

Send = Callable[[Any], None]


def run_page(rank: int, send: Send, *, kind: str, folder: Path) -> None:
    os.chdir(folder)
    code = PAGE.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    model = nn.Sequential(nn.Linear(6, 11), nn.ReLU(), nn.Linear(11, 3))
    targets = torch.arange(64) % 3
    given: dict[str, Any] = {
        "model": model,
        "dataset": TensorDataset(torch.randn(64, 6), targets),
        "loss_fn": nn.CrossEntropyLoss(),
        "device": "cpu",
    }
    # The processes of this test are a group already.
    code = code.replace("dist.init_process_group()", "").replace("dist.destroy_process_group()", "")
    exec(code, given)
    send(sorted(path.name for path in folder.iterdir()))


def test_the_code_on_the_page_runs(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    with nodes() as make:
        node = make("fsdp", run_page, tmp_path / "meet", folder=tmp_path / "own")
        assert node.receive_all()[0] == ["average.safetensors"]
        assert node.end() == [0, 0]


def run_script(rank: int, send: Send, *, kind: str) -> None:
    patch = pytest.MonkeyPatch()
    patch.setattr("sys.argv", ["fsdp.py", "--epochs", "2"])
    patch.setattr(dist, "init_process_group", lambda _: None)
    patch.setattr(dist, "destroy_process_group", lambda: None)
    found = run_path(str(SCRIPT))
    send((found["accuracy"], found["peer"].steps))


def test_the_example_runs(tmp_path: Path) -> None:
    with nodes() as make:
        node = make("fsdp", run_script, tmp_path / "meet")
        (accuracy, steps), other = node.receive_all()
        assert (accuracy, steps) == other and accuracy > 0.5 and steps == 2 * 45
        assert node.end() == [0, 0]
