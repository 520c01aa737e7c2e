"""What the rewritten text of `decisions` looks like."""

import ast
from types import SimpleNamespace
from typing import Any

import pytest

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


def rewritten(text: str) -> str:
    """What becomes of functions."""
    functions = [part for part in ast.parse(text).body if isinstance(part, ast.FunctionDef)]
    simplify = specializer._Simplifier({}, {"N": 2}, {function.name for function in functions})
    found = [simplify.visit(function) for function in reversed(functions)]
    specializer._Inliner(found).write_out()
    body: list[ast.stmt] = [simplify.visit(function) for function in found]
    return ast.unparse(ast.fix_missing_locations(ast.Module(body, [])))


RAISE = """
def raised(t, at):
    t.ints[at] += 1
    return t.ints[at]
"""


@pytest.mark.parametrize("body", ["b + a", "a", "b if a > 0 else 0", "b + b"])
def test_what_changes_something_is_called_once_before_it_is_used(body: str) -> None:
    """Though the argument is read twice, not at all, or in one of two cases."""
    text = f"""
def main(t, w):
    x = 1 + pair(t, w, raised(t, w))
    return pair(t, x, raised(t, w))


def pair(t, a, b):
    return {body}
"""
    names: dict[str, Any] = {"t_ints": [0] * 9}
    exec(rewritten(text + RAISE), names)
    plain: dict[str, Any] = {}
    exec(text + RAISE, plain)
    t = SimpleNamespace(ints=[0] * 9)
    assert [names["main"](3), names["t_ints"]] == [plain["main"](t, 3), t.ints]


def test_locals_of_a_function_get_names_of_their_own() -> None:
    text = """
def main(t, at):
    n = at + 1
    add(t, n)
    add(t, n + n)
    return n


def add(t, at):
    n = t.ints[at]
    for at in range(n):
        pass
    t.ints[0] = n
"""
    found = ast.parse(rewritten(text)).body[-1]
    assert isinstance(found, ast.FunctionDef) and found.name == "main"
    stored = [
        node.id
        for node in ast.walk(found)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    assert stored.count("n") == 1 and len(set(stored)) == 5
    assert "add" not in ast.unparse(found)


def test_a_loop_of_which_nothing_is_left_still_loops() -> None:
    text = """
def main(t, w):
    for at in range(w):
        if N == 3:
            w += at
"""
    found = rewritten(text)
    assert "pass" in found
    compile(found, "<test>", "exec")
