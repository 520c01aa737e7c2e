"""Tensors are where and what they must be, whatever defaults a script has set for torch."""

import ast
from collections.abc import Iterator

import pytest

from .layout import modules

# They follow torch.set_default_device; in `empty` and its like, torch.set_default_dtype too.
PLACED = {
    "arange",
    "as_tensor",
    "asarray",
    "empty",
    "empty_strided",
    "eye",
    "full",
    "linspace",
    "logspace",
    "ones",
    "rand",
    "randint",
    "randn",
    "randperm",
    "scalar_tensor",
    "tensor",
    "sparse_coo_tensor",
    "tril_indices",
    "triu_indices",
    "zeros",
}
FLOATING = {"empty", "eye", "full", "linspace", "logspace", "ones", "rand", "randn", "zeros"}


def lacking(source: str) -> Iterator[str]:
    """Calls that leave to a default where a tensor lies or of which floats it is made."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr=name)):
                given = {keyword.arg for keyword in node.keywords}
                needed = {"device"} if name in PLACED else set()
                needed |= {"dtype"} if name in FLOATING else set()
                if needed - given:
                    yield ast.unparse(node)


@pytest.mark.parametrize("layer", ["gossip", "topology", "train", "sim"])
def test_every_tensor_that_is_made_names_its_device_and_dtype(layer: str) -> None:
    paths = [path for name, path in modules().items() if name.split(".")[1] == layer]
    assert not {f"{p.name}: {each}" for p in paths for each in lacking(p.read_text())}


def test_a_call_that_leaves_it_to_a_default_is_found() -> None:
    assert list(lacking("x = torch.zeros(2, device=d)\ntorch.tensor(1)\ny.new_zeros(2)")) == [
        "torch.zeros(2, device=d)",
        "torch.tensor(1)",
    ]
