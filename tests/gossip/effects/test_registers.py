"""Registers on demand are created at their first use; other names are refused."""

import pytest

from rumor.gossip.effects.registers import OnDemand, is_pattern


def make_registers() -> OnDemand[list[int]]:
    return OnDemand(["y", "from/*", "to/*"], list)


def test_a_register_that_matches_a_pattern_is_created_once() -> None:
    registers = make_registers()
    registers["from/ada"].append(1)
    registers["to/ada"].append(2)
    assert registers == {"from/ada": [1], "to/ada": [2]}
    del registers["from/ada"]
    assert registers["from/ada"] == []
    for name in ("y", "x", "fro", "of/ada"):
        with pytest.raises(KeyError, match=name):
            registers[name]
    with pytest.raises(KeyError, match="from/ada"):
        OnDemand(["y"], list)["from/ada"]
    assert all(map(is_pattern, ("from/*", "*"))) and not any(map(is_pattern, ("from/ada", "a*b")))
    assert [registers.is_on_demand(name) for name in ("from/ada", "y")] == [True, False]
