"""New tensors have an explicit device and dtype, whatever defaults a script has set in torch."""

import ast
from collections.abc import Iterator

import pytest

from .layout import modules

# These follow torch.set_default_device; those in `FLOATING`, torch.set_default_dtype as well.
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


def vague_calls(source: str) -> Iterator[str]:
    """Yield calls that leave a tensor's device or dtype to a default."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr=name)):
                given = {keyword.arg for keyword in node.keywords}
                needed = {"device"} if name in PLACED else set()
                needed |= {"dtype"} if name in FLOATING else set()
                if needed - given:
                    yield ast.unparse(node)


@pytest.mark.parametrize("layer", ["gossip", "topology", "train", "sim"])
def test_every_new_tensor_names_its_device_and_dtype(layer: str) -> None:
    paths = [path for name, path in modules().items() if name.split(".")[1] == layer]
    assert not {f"{p.name}: {each}" for p in paths for each in vague_calls(p.read_text())}


def test_calls_without_a_device_or_dtype_are_found() -> None:
    assert list(vague_calls("x = torch.zeros(2, device=d)\ntorch.tensor(1)\ny.new_zeros(2)")) == [
        "torch.zeros(2, device=d)",
        "torch.tensor(1)",
    ]
