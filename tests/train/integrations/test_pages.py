"""The code on the pages for users of other libraries runs and does what the pages say."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to"

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not HOW_TO.exists(), reason="needs the docs"),
]


def snippets(page: str, section: str) -> list[str]:
    text = (HOW_TO / page).read_text(encoding="utf-8").split(f"\n## {section}\n")[1]
    return re.findall(r"```python\n(.*?)```", text.split("\n## ")[0], re.DOTALL)


def names() -> dict[str, Any]:
    """Names that the snippets expect."""
    torch.manual_seed(0)
    inputs = torch.randn(64, 4)
    dataset = TensorDataset(inputs, (inputs.sum(1) > 0).long())
    model = nn.Linear(4, 2)
    return {
        "torch": torch,
        "model": model,
        "dataset": dataset,
        "loader": DataLoader(dataset, batch_size=2),
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.05),
        "loss_fn": nn.CrossEntropyLoss(),
        "epochs": 2,
        "addresses": [],
    }


def run(code: str, **changes: Any) -> dict[str, Any]:
    space = names() | changes
    exec(compile(code, "snippet", "exec"), space)
    return space


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Make a lone founder start and end without waiting."""
    monkeypatch.setenv("RUMOR_SEEK_S", "0.05")
    monkeypatch.setenv("RUMOR_FOUND_ALONE_S", "0.3")
    monkeypatch.setenv("RUMOR_LINGER_S", "0.5")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """A process group of one process."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_the_ddp_snippets_save_the_same_tensors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before, after = snippets("migrate.md", "From DistributedDataParallel")
    # As under torchrun, but without a fixed port.
    init = dist.init_process_group
    where: dict[str, Any] = {"init_method": f"file://{tmp_path}/meet", "rank": 0, "world_size": 1}
    monkeypatch.setattr(dist, "init_process_group", lambda backend: init(backend, **where))
    run(before)
    old = torch.load("model.pt")
    run(after)
    new = torch.load("model.pt")
    assert old.keys() == new.keys()
    first = names()["model"].state_dict()
    assert all(not torch.equal(first[name], new[name]) for name in new)


@pytest.mark.extended
@pytest.mark.usefixtures("group")
def test_diloco_by_hand_and_by_rule_end_with_the_same_parameters() -> None:
    before, after = snippets("migrate.md", "From DiLoCo")
    old, new = run(before)["model"], run(after)["model"]
    assert not torch.allclose(old.weight, names()["model"].weight, atol=1e-3)
    torch.testing.assert_close(old.weight, new.weight)
    torch.testing.assert_close(old.bias, new.bias)


@pytest.mark.extended
def test_the_snippet_migrated_from_hivemind_runs() -> None:
    _, after = snippets("migrate.md", "From hivemind")
    assert run(after)["peer"].steps == 32


@pytest.mark.integrations
@pytest.mark.filterwarnings("ignore")
def test_the_accelerate_snippet_runs_and_resumes(tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate", reason="needs rumor[accelerate]")
    (code,) = snippets("trainers.md", "A loop with Accelerate")
    given: dict[str, Any] = {"Accelerator": lambda **more: accelerate.Accelerator(cpu=True, **more)}
    given |= {"folder": tmp_path / "kept"}
    assert run(code, **given, resume=False)["peer"].steps == 16
    assert run(code, **given, resume=True)["peer"].steps == 32


@pytest.mark.integrations
@pytest.mark.filterwarnings("ignore")
def test_the_callback_snippets_create_their_callbacks() -> None:
    pytest.importorskip("transformers", reason="needs rumor[transformers]")
    pytest.importorskip("lightning", reason="needs rumor[lightning]")
    made: list[Any] = []
    given = {"Trainer": lambda *args, **more: Fake(made, more["callbacks"])}
    code, _ = snippets("trainers.md", "The Trainer of transformers")
    run(code, **given, args=None)
    (code,) = snippets("trainers.md", "The Trainer of Lightning")
    run(code, lightning=type("Module", (), given), module=None)
    assert [callback.peer for callback in made] == [None, None]


class Fake:
    """A trainer that notes its callbacks."""

    def __init__(self, made: list[Any], callbacks: list[Any]) -> None:
        made += callbacks

    def train(self) -> None:
        """Do nothing."""

    def fit(self, *data: Any) -> None:
        """Do nothing."""
