"""`decisions` rewritten for one run, for Python: less to look up, and fewer calls.

In that text, a worker's weight is ``t.ints[t.weight + worker]``: two attributes and a sum. What
stays as it is in `Tables` becomes a number here, sums and branches of such numbers are carried out
once, and functions that return at their end, if at all, are written out where they are called.
Nothing else is touched: the same operations follow in the same order.

Source: Jones, Gomard and Sestoft, Partial Evaluation and Automatic Program Generation, 1993.
"""

import ast
import inspect
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any, Final, TypeGuard, cast

from .decisions import event_queue, exchanges, messages, operations, randoms
from .decisions.tables import COLUMNS, Tables

__all__ = ["Specialized"]

_SOURCES: Final = (event_queue, randoms, operations, messages, exchanges)

_TABLES: Final = "t"
"""What every function calls `Tables`, its first argument if it takes them."""

Number = int | float


class Specialized:
    """The functions of `exchanges`, rewritten for a run.

    Args:
        t: Its tables; later ones differ from them in columns alone.
    """

    is_full = staticmethod(event_queue.is_full)

    def __init__(self, t: Tables) -> None:
        self._names = {name: vars(event_queue)[name] for name in event_queue.OPERATIONS}
        self._tables: Tables | None = None
        exec(_program(tuple(t[len(COLUMNS) :])), self._names)

    def begin(self, t: Tables) -> None:
        """See `exchanges.begin`."""
        self._call("begin", t)

    def advance(self, t: Tables, until_s: float, steps_max: int) -> int:
        """See `exchanges.advance`."""
        return cast("int", self._call("advance", t, until_s, steps_max))

    def _call(self, name: str, t: Tables, *arguments: object) -> object:
        if t is not self._tables:
            self._tables = t
            self._names |= {_column(name): getattr(t, name) for name in COLUMNS}
        return self._names[name](*arguments)


def _column(name: str) -> str:
    return f"t_{name}"


@lru_cache(maxsize=8)
def _program(numbers: tuple[Number, ...]) -> CodeType:
    """All functions for tables with these numbers behind their columns."""
    fields = dict(zip(Tables._fields[len(COLUMNS) :], numbers, strict=True))
    functions, constants = _parse()
    simplify = _Simplifier(fields, constants, {function.name for function in functions})
    functions = [simplify.visit(function) for function in functions]
    _Inliner(functions).write_out()
    # What was handed over as a number decides more branches.
    body: list[ast.stmt] = [simplify.visit(function) for function in functions]
    return compile(ast.fix_missing_locations(ast.Module(body, [])), "<specialized>", "exec")


def _parse() -> tuple[list[ast.FunctionDef], Mapping[str, Number]]:
    """All functions, those that are called before those that call them, and named numbers."""
    functions: list[ast.FunctionDef] = []
    constants: dict[str, Number] = {}
    for module in _SOURCES:
        found = ast.parse(inspect.getsource(module)).body
        # From the last to the first: who is called stands below who calls.
        functions += [part for part in reversed(found) if isinstance(part, ast.FunctionDef)]
        for name, value in vars(module).items():
            if isinstance(value, Number):
                assert constants.setdefault(name, value) == value, f"two numbers are {name}"
    names = [function.name for function in functions]
    assert len(set(names)) == len(names), "two functions have one name"
    # No run makes queues by this text.
    made = {event_queue.made.__name__, event_queue.longer.__name__}
    return [function for function in functions if function.name not in made], constants


class _Simplifier(ast.NodeTransformer):
    """Writes numbers in place of names, and does with numbers alone what can be done.

    Args:
        fields: Numbers of `Tables`.
        constants: Numbers of the modules.
        functions: What takes tables.
    """

    def __init__(
        self, fields: Mapping[str, Number], constants: Mapping[str, Number], functions: set[str]
    ) -> None:
        self._fields = fields
        self._constants = constants
        self._functions = functions

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.args.args = [arg for arg in node.args.args if arg.arg != _TABLES]
        for arg in node.args.args:
            arg.annotation = None
        node.returns = None
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if not _is_named(node.value, _TABLES):
            return self.generic_visit(node)
        if node.attr in self._fields:
            return ast.Constant(self._fields[node.attr])
        return ast.Name(_column(node.attr), node.ctx)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self._constants and isinstance(node.ctx, ast.Load):
            return ast.Constant(self._constants[node.id])
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        called = node.func.id if isinstance(node.func, ast.Name) else ""
        # Elsewhere they are for type checkers: lists hold Python's own numbers. What is read from
        # the floats is a float, and has to become a whole number where it is read.
        is_whole = called == "int" and not _reads(node.args[0], _column("floats"))
        if is_whole or called == "bool":
            return node.args[0]
        if called in self._functions and node.args and _is_named(node.args[0], _TABLES):
            del node.args[0]
        is_plain = len(node.args) == 2 and all(map(_is_read, node.args))
        if called in ("min", "max") and is_plain:
            first, second = node.args
            better = ast.Compare(second, [ast.Lt() if called == "min" else ast.Gt()], [first])
            return ast.IfExp(better, _renamed(second, {}), _renamed(first, {}))
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        return _carried_out(node, node.left, node.right)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        return _carried_out(node, node.left, *node.comparators)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        decisive = isinstance(node.op, ast.Or)
        left: list[ast.expr] = []
        for value in node.values:
            if isinstance(value, ast.Constant) and bool(value.value) is not decisive:
                continue
            left.append(value)
            if isinstance(value, ast.Constant):
                break
        if len(left) < 2:
            return left[0] if left else ast.Constant(not decisive)
        node.values = left
        return node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if isinstance(node.test, ast.Constant):
            return node.body if node.test.value else node.orelse
        node.body = node.body or [ast.Pass()]
        return node

    def visit_For(self, node: ast.For | ast.While) -> ast.AST:
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    visit_While = visit_For

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.test, ast.Constant):
            return node.body if node.test.value else node.orelse
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        self.generic_visit(node)
        return None if isinstance(node.value, ast.Constant) else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        assert node.value is not None
        return cast("ast.AST", self.visit(ast.Assign([node.target], node.value)))


class _Inliner:
    """Writes functions out where they are called.

    One that is a single expression goes into expressions; one that returns at its end, if at all,
    takes the place of a statement that is nothing but its call.

    Args:
        functions: Those that are called before those that call them.
    """

    def __init__(self, functions: Iterable[ast.FunctionDef]) -> None:
        self._functions = {function.name: function for function in functions}
        self._count = 0

    def write_out(self) -> None:
        """Do so in all functions."""
        for function in self._functions.values():
            function.body = self._block(function.body)

    def _block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for statement in statements:
            for part in ("body", "orelse"):
                if inner := getattr(statement, part, None):
                    setattr(statement, part, self._block(inner))
            found += self._statement(_Expressions(self._functions).visit(statement))
        return found

    def _statement(self, statement: ast.stmt) -> Sequence[ast.stmt]:
        if not isinstance(statement, ast.Expr | ast.Assign | ast.Return):
            return [statement]
        call = statement.value
        function = _called(call, self._functions)
        if function is None or not _returns_at_its_end(function):
            return [statement]
        assert isinstance(call, ast.Call)
        body, returned = self._written_out(function, call)
        if isinstance(statement, ast.Expr):
            return body
        statement.value = returned
        return [*body, statement]

    def _written_out(
        self, function: ast.FunctionDef, call: ast.Call
    ) -> tuple[list[ast.stmt], ast.expr | None]:
        """A function's statements under names of their own, and what it returns."""
        self._count += 1
        given = {arg.arg: value for arg, value in zip(function.args.args, call.args, strict=True)}
        own = {node.id for node in ast.walk(function) if _is_stored(node)}
        own |= {name for name, value in given.items() if not _is_short(value)}
        names: dict[str, ast.expr] = given | {
            name: ast.Name(f"{name}_{self._count}", ast.Load()) for name in own
        }
        body: list[ast.stmt] = [
            ast.Assign([ast.Name(f"{name}_{self._count}", ast.Store())], value)
            for name, value in given.items()
            if name in own
        ]
        body += [_renamed(statement, names) for statement in function.body]
        if body and isinstance(body[-1], ast.Return):
            return body[:-1], body[-1].value
        return body, None


class _Expressions(ast.NodeTransformer):
    """Writes functions that are one expression into those of a statement, not into its blocks."""

    def __init__(self, functions: Mapping[str, ast.FunctionDef]) -> None:
        self._functions = functions

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                setattr(node, name, self.visit(value))
            elif isinstance(value, list) and value and isinstance(value[0], ast.expr):
                value[:] = map(self.visit, value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function = _called(node, self._functions)
        if function is None or not isinstance(function.body[0], ast.Return):
            return node
        found = function.body[0].value
        assert found is not None
        given = {arg.arg: value for arg, value in zip(function.args.args, node.args, strict=True)}
        read = [name.id for name in ast.walk(found) if isinstance(name, ast.Name)]
        # What only looks up may be done later, or not at all.
        if not all(map(_is_read, node.args)) or any(
            read.count(name) > 1 and not _is_short(value) for name, value in given.items()
        ):
            return node
        written: ast.expr = _renamed(found, given)
        return written


def _renamed(node: Any, names: Mapping[str, ast.expr]) -> Any:
    """A copy, with other expressions in place of names."""
    if isinstance(node, list):
        return [_renamed(part, names) for part in node]
    if not isinstance(node, ast.AST):
        return node
    if isinstance(node, ast.Name) and (other := names.get(node.id)) is not None:
        return ast.Name(other.id, node.ctx) if isinstance(other, ast.Name) else _renamed(other, {})
    return type(node)(**{name: _renamed(part, names) for name, part in ast.iter_fields(node)})


def _called(node: object, functions: Mapping[str, ast.FunctionDef]) -> ast.FunctionDef | None:
    """Which of the functions an expression calls, if it is such a call."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return functions.get(node.func.id)
    return None


def _returns_at_its_end(function: ast.FunctionDef) -> bool:
    """Whether it returns nowhere else."""
    returns = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
    return returns in ([], [function.body[-1]])


def _carried_out(node: ast.expr, *parts: ast.expr) -> ast.expr:
    """What an expression comes to if all its parts are numbers, else itself."""
    if not all(isinstance(part, ast.Constant) for part in parts):
        return node
    whole = ast.fix_missing_locations(ast.Expression(node))
    return ast.Constant(eval(compile(whole, "<specialized>", "eval"), {}))


def _is_read(node: ast.expr) -> bool:
    """Whether it only looks up what is there, so that doing so twice costs less than a call."""
    parts = ast.Name, ast.Constant, ast.Subscript, ast.BinOp, ast.operator, ast.expr_context
    return all(isinstance(part, parts) for part in ast.walk(node))


def _is_short(node: ast.expr) -> bool:
    return isinstance(node, ast.Name | ast.Constant)


def _is_named(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _reads(node: ast.AST, name: str) -> bool:
    return any(_is_named(part, name) for part in ast.walk(node))


def _is_stored(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
