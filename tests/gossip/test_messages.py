"""What peers may be called."""

import pytest

from rumor.gossip.messages import is_name


@pytest.mark.parametrize("name", ["a", "peer-07", "node.example.org", "Ada_1", "é", "x" * 64])
def test_letters_digits_dots_and_dashes_make_a_name(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize("name", ["", "x" * 65, "a b", "a/b", "a\n", "$x$"])
def test_anything_else_does_not(name: str) -> None:
    assert not is_name(name)
