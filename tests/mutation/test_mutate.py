"""The mutator: which faults it plants where, and that a draw can be repeated."""

import ast

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


def faults(operator: str) -> set[tuple[int, str]]:
    """Line and new text of all mutants of one kind."""
    found = [m for m in mutants_of("tank", SOURCE) if m.operator == operator]
    return {(m.line, m.mutated.strip()) for m in found}


def test_a_comparison_is_moved_by_one_or_negated() -> None:
    assert faults("comparison") == {
        (18, "if by <= 0 or not quick:"),
        (18, "if by >= 0 or not quick:"),
        (25, "if room is not None:"),
    }


def test_a_condition_is_negated_whole() -> None:
    assert faults("negation") == {
        (18, "if not (by < 0 or not quick):"),
        (18, "if by < 0 or (quick):"),
        (25, "if not (room is None):"),
    }


def test_and_stands_for_or() -> None:
    assert faults("and/or") == {(18, "if by < 0 and not quick:")}


def test_a_sign_is_turned() -> None:
    assert faults("sign") == {
        (20, "room = LIMIT + self.level"),
        (21, "self.level -= min("),
    }


def test_constants_are_off_by_one_but_not_those_in_texts() -> None:
    lines = {line for line, _ in faults("constant")}
    assert lines == {5, 11, 13, 18, 27}


def test_statements_go_but_not_the_only_assignment_of_a_name() -> None:
    assert faults("statement") == {(19, "pass"), (21, "pass"), (26, "pass"), (27, "pass")}


def test_the_body_of_a_guard_goes() -> None:
    assert faults("guard") == {(26, "pass")}


def test_every_mutant_parses_and_differs() -> None:
    for mutant in mutants_of("tank", SOURCE):
        mutated = apply(mutant, SOURCE)
        assert ast.dump(ast.parse(mutated)) != ast.dump(ast.parse(SOURCE)), mutant


def test_a_mutant_fits_only_the_source_that_it_was_made_from() -> None:
    mutant = mutants_of("tank", SOURCE)[0]
    with pytest.raises(ValueError, match="tank:"):
        apply(mutant, f"\n{SOURCE}")


def test_the_same_seed_draws_the_same_mutants_and_no_two_of_a_line() -> None:
    drawn = draw({"tank": SOURCE}, 5, seed=1)
    assert drawn == draw({"tank": SOURCE}, 5, seed=1) != draw({"tank": SOURCE}, 5, seed=2)
    assert len({mutant.line for mutant in drawn}) == 5


def test_a_long_module_gets_more_mutants_than_a_short_one() -> None:
    drawn = draw({"long": SOURCE * 3, "short": SOURCE}, 8, seed=1)
    assert [mutant.module for mutant in drawn] == ["long"] * 6 + ["short"] * 2


@pytest.mark.extended
def test_a_list_of_today_names_each_place_once_and_leaves_the_transport_out() -> None:
    mutants = draw_from("HEAD", count=120, seed=1)
    assert len(mutants) == len({(m.module, m.line) for m in mutants}) == 120
    assert {mutant.module.split("/")[0] for mutant in mutants} == set(PACKAGES)
    assert not any(mutant.module.startswith("gossip/transport") for mutant in mutants)
