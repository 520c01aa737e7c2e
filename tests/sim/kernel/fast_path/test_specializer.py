"""What the rewritten text of `decisions` looks like."""

import ast
from typing import Any

from rumor.sim.kernel.fast_path import specializer
from rumor.sim.kernel.fast_path.compiler import INTERPRETED
from rumor.sim.kernel.fast_path.decisions.tables import COLUMNS, Tables
from rumor.sim.kernel.fast_path.fleet import FastFleet

from .plans import plan_of


def tables_of(**settings: Any) -> Tables:
    return FastFleet(plan_of(8, **settings), INTERPRETED)._tables


def names_read(t: Tables, function: str) -> set[str]:
    """Global names that a function of the rewritten text looks up, and so calls."""
    names: set[str] = set()
    for code in specializer._program(tuple(t[len(COLUMNS) :])).co_consts:
        if getattr(code, "co_name", "") == function:
            names |= set(code.co_names)
    return names


def test_columns_come_first_and_all_else_are_numbers() -> None:
    t = tables_of()
    assert Tables._fields[: len(COLUMNS)] == COLUMNS
    assert all(isinstance(number, int | float) for number in t[len(COLUMNS) :])


def test_nothing_is_looked_up_in_tables_any_more() -> None:
    t = tables_of()
    columns = {specializer._column(name) for name in COLUMNS}
    found = names_read(t, "advance")
    assert "t" not in found
    assert found & columns >= {"t_ints", "t_floats", "t_count"}
    assert not found & set(Tables._fields)


def test_short_functions_are_written_out_where_they_are_called() -> None:
    found = names_read(tables_of(), "advance")
    assert {"heappop", "drop"} & found  # what Python's library does is still called
    assert not {"_take_step", "note_step", "let_go", "_send_ack", "expect", "is_full"} & found


def test_what_no_number_leads_to_is_left_out() -> None:
    """Without a limit nobody waits at a downlink."""
    limited = names_read(tables_of(bandwidth_mbit=10.0), "advance")
    free = names_read(tables_of(bandwidth_mbit=None), "advance")
    assert "waits" in limited and "waits" not in free


def test_a_run_of_the_same_numbers_is_rewritten_once() -> None:
    specializer._program.cache_clear()
    for _ in range(2):
        specializer.Specialized(tables_of())
    assert specializer._program.cache_info().misses == 1


def test_numbers_alone_are_carried_out() -> None:
    simplify = specializer._Simplifier({"a": 3, "b": 0.0}, {"C": 2}, {"f"})

    def shown(text: str) -> str:
        tree = ast.parse(text)
        return ast.unparse(ast.fix_missing_locations(simplify.visit(tree)))

    assert shown("x = t.ints[t.a + C + y]") == "x = t_ints[5 + y]"
    assert shown("x = max(y[1], z)") == "x = z if z > y[1] else y[1]"
    assert shown("x = max(f(t), z)") == "x = max(f(), z)"
    assert shown("if t.b > 0.0:\n    g()\nelse:\n    h()") == "h()"
    assert shown("x = y if t.a == 3 else z") == "x = y"
    assert shown("x = t.b > 0.0 and f(t, 1)") == "x = False"
    assert shown("x = t.a > 0 and f(t, 1)") == "x = f(1)"
    assert shown("x = int(y)") == "x = y"
