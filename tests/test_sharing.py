"""The parts of the test suite cover it completely, without overlap."""

import pytest

from .sharing import part_of

NAMES = [f"tests/test_some.py::test_number[{number}]" for number in range(200)]


def test_each_test_belongs_to_one_fixed_part() -> None:
    parts = [part_of(NAMES, f"{part}/8") for part in range(1, 9)]
    assert sorted(name for part in parts for name in part) == sorted(NAMES)
    assert all(parts)
    assert part_of(NAMES[::2], "3/8") == parts[2] & set(NAMES[::2])


@pytest.mark.parametrize("share", ["", "0/8", "9/8", "1/0", "1", "1/8/8", "-1/8"])
def test_an_invalid_part_is_refused(share: str) -> None:
    with pytest.raises(ValueError, match="it must be K/N, with K from 1 to N"):
        part_of(NAMES, share)
