"""The mutator plants faults in the right places, and draws can be repeated."""

import ast
from collections import defaultdict

import pytest

from .draw import PACKAGES, draw, draw_from
from .mutate import apply, mutants_of

SOURCE = '''"""One is 1."""

__all__ = ["Tank"]

LIMIT = 3


class Tank:
    """Holds at most 3."""

    level: int = 0

    def __init__(self, start: int = 1) -> None:
        self.level = start

    def fill(self, by: int, *, quick: bool) -> int:
        """Add 2 of them."""
        if by < 0 or not quick:
            raise ValueError(f"{by + 1} is too much")
        room = LIMIT - self.level
        self.level += min(
            by,
            room,
        )
        if room is None:
            print(room)
            return 7
        return self.level
'''


FAULTS = {
    "comparison": {
        (18, "if by <= 0 or not quick:"),
        (18, "if by >= 0 or not quick:"),
        (25, "if room is not None:"),
    },
    "negation": {
        (18, "if not (by < 0 or not quick):"),
        (18, "if by < 0 or (quick):"),
        (25, "if not (room is None):"),
    },
    "and/or": {(18, "if by < 0 and not quick:")},
    "sign": {(20, "room = LIMIT + self.level"), (21, "self.level -= min(")},
    # The only assignment of a name is not deleted.
    "statement": {(19, "pass"), (21, "pass"), (26, "pass"), (27, "pass")},
    "guard": {(26, "pass")},
}


def test_each_kind_of_fault_is_planted_wherever_possible() -> None:
    found: dict[str, set[tuple[int, str]]] = defaultdict(set)
    for mutant in mutants_of("tank", SOURCE):
        found[mutant.operator].add((mutant.line, mutant.mutated.strip()))
        mutated = apply(mutant, SOURCE)
        assert ast.dump(ast.parse(mutated)) != ast.dump(ast.parse(SOURCE)), mutant
    # Numbers in strings stay unchanged.
    assert {line for line, _ in found.pop("constant")} == {5, 11, 13, 18, 27}
    assert found == FAULTS


def test_a_mutant_applies_only_to_its_own_source() -> None:
    mutant = mutants_of("tank", SOURCE)[0]
    with pytest.raises(ValueError, match="tank:"):
        apply(mutant, f"\n{SOURCE}")


def test_a_seed_draws_the_same_mutants_on_different_lines() -> None:
    drawn = draw({"tank": SOURCE}, 5, seed=1)
    assert drawn == draw({"tank": SOURCE}, 5, seed=1) != draw({"tank": SOURCE}, 5, seed=2)
    assert len({mutant.line for mutant in drawn}) == 5


def test_a_long_module_gets_more_mutants_than_a_short_one() -> None:
    drawn = draw({"long": SOURCE * 3, "short": SOURCE}, 8, seed=1)
    assert [mutant.module for mutant in drawn] == ["long"] * 6 + ["short"] * 2


@pytest.mark.extended
def test_a_draw_from_head_has_distinct_lines_outside_the_transport() -> None:
    mutants = draw_from("HEAD", count=120, seed=1)
    assert len(mutants) == len({(m.module, m.line) for m in mutants}) == 120
    assert {mutant.module.split("/")[0] for mutant in mutants} == set(PACKAGES)
    assert not any(mutant.module.startswith("gossip/transport") for mutant in mutants)
