"""The task ``code``: whole packages are held out, the model is causal, and all share one text."""

from pathlib import Path

import pytest
import torch
from torch.func import functional_call, grad, stack_module_state, vmap

from rumor.gossip.errors import ConfigError
from rumor.train.model import frozen_tensors
from rumor.train.tasks.code import read_packages, standard_library
from rumor.train.tasks.gpt import GPT, SIZES, GPTConfig, _rotated
from rumor.train.tasks.registry import load_task
from rumor.train.tasks.task import Task

SMALL = GPTConfig(width=16, layers=2, heads=2, context=12)


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task("code", seed=0)


def make_model(seed: int = 0, text: torch.Tensor | None = None) -> GPT:
    torch.manual_seed(seed)
    return GPT(SMALL, text)


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_a_package_is_held_out_whole_or_not_at_all(tmp_path: Path) -> None:
    names = [f"package{n}" for n in range(100)]
    written = {f"{name}/{part}.py": f"# {name} {part}\n" for name in names for part in "ab"}
    corpus = read_packages(write(tmp_path, {**written, "alone.py": "pass\n"}))
    assert {*corpus.train, *corpus.test} == {*names, "alone"}
    assert not set(corpus.train) & set(corpus.test) and 3 <= len(corpus.test) <= 25
    both = {**corpus.train, **corpus.test}
    assert both["package7"] == b"# package7 a\n\n# package7 b\n"


def test_tests_and_installed_packages_are_skipped(tmp_path: Path) -> None:
    taken = {f"p{n}.py": "x = 1\n" for n in range(30)}
    others = dict.fromkeys(("test/a.py", "p1/tests/b.py", "site-packages/c.py", "d.txt"), "y")
    with pytest.raises(ConfigError, match="too few Python packages"):
        read_packages(write(tmp_path, {"p1.py": "pass", **others}))
    corpus = read_packages(write(tmp_path, {**taken, **others}))
    assert len(corpus.train) + len(corpus.test) == 30


def test_targets_are_the_next_bytes(task: Task) -> None:
    assert task.targets is not None and len(task.targets) == len(task.train[0]) > 50_000
    for inputs, targets in (task.train, task.test):
        assert inputs.dtype == targets.dtype == torch.uint8
        assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert len(task.test[0]) == 512
    first = sorted(standard_library().train)[0]
    assert bytes(task.train[0][0].tolist()) == standard_library().train[first][:128]


@pytest.mark.parametrize(
    ("size", "about"), [("120k", 120e3), ("800k", 800e3), ("3.3m", 3.3e6), ("30m", 30e6)]
)
def test_models_have_about_as_many_parameters_as_their_name_says(size: str, about: float) -> None:
    with torch.device("meta"):
        model = GPT(SIZES[size])
    assert sum(each.numel() for each in model.parameters()) == pytest.approx(about, rel=0.06)


def test_attention_is_causal_and_depends_on_positions() -> None:
    model, tokens = make_model(), torch.randint(256, (1, 12))
    changed = tokens.clone()
    changed[0, 7] = (tokens[0, 7] + 1) % 256
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :7], after[:, :7])
    assert not torch.allclose(before[:, 7:], after[:, 7:])
    swapped = tokens[:, [1, 0, *range(2, 12)]]
    assert not torch.allclose(model(swapped)[0, -1], before[0, -1])


def test_attention_depends_on_relative_positions() -> None:
    # Rotations cancel except for their difference, so a shift of all positions changes no score.
    model = make_model().double()
    tokens = torch.randint(256, (1, 6))
    queries = model.tokens(tokens)[..., :8].unflatten(-1, (1, 8))
    turned = _rotated(torch.cat([queries, queries], dim=1).transpose(-3, -2))[0, 0]
    scores = turned @ turned.T
    torch.testing.assert_close(scores[:6, :6], scores[6:, 6:])


def test_gradients_under_vmap_equal_those_of_single_models(task: Task) -> None:
    models = [make_model(seed) for seed in range(2)]
    tokens = torch.randint(256, (2, 3, 12), dtype=torch.uint8)
    assert task.loss is not None
    loss = task.loss

    def of(parameters: dict[str, torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
        return loss(functional_call(models[0], parameters, (tokens,)), tokens)

    stacked, _ = stack_module_state(models)
    found = vmap(grad(of))(stacked, tokens)
    for index, model in enumerate(models):
        expected = grad(of)(dict(model.named_parameters()), tokens[index])
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name][index], gradient, rtol=1e-4, atol=1e-6)


def test_the_frozen_checksum_depends_on_the_text() -> None:
    hashes = []
    for text in (b"a = 1\n", b"a = 2\n"):
        name = torch.tensor(list(text * 3)[:16], dtype=torch.uint8)
        (frozen,) = frozen_tensors(make_model(text=name), frozenset())
        hashes.append(frozen.checksum)
    assert hashes[0] != hashes[1]
