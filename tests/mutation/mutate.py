"""Mutants of a module: its source with one small fault, of the kinds that people make.

A comparison is moved or negated, a condition negated, a sign or a constant changed, `and` and `or`
exchanged, a statement or the body of a guard deleted. Annotations, docstrings, messages,
decorators and bodies of classes are left alone. An assignment without which a name would be unknown
stays, too: any test that reaches it would fail.

Source: DeMillo, Lipton and Sayward, Computer 1978 (mutation testing).
"""

import ast
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeGuard

__all__ = ["Mutant", "apply", "mutants_of"]

_COMPARISONS: dict[type[ast.cmpop], tuple[str, ...]] = {
    ast.Lt: ("<=", ">="),
    ast.LtE: ("<", ">"),
    ast.Gt: (">=", "<="),
    ast.GtE: (">", "<"),
    ast.Eq: ("!=",),
    ast.NotEq: ("==",),
    ast.Is: ("is not",),
    ast.IsNot: ("is",),
    ast.In: ("not in",),
    ast.NotIn: ("in",),
}
_COMPARISON = re.compile(r"<=|>=|==|!=|<|>|\bis\s+not\b|\bis\b|\bnot\s+in\b|\bin\b")
_SIGNS: dict[type[ast.operator], tuple[str, str]] = {ast.Add: ("+", "-"), ast.Sub: ("-", "+")}

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Jump = ast.Return | ast.Continue | ast.Break


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One fault in one place."""

    module: str
    """Path of the file in the repository, without its ending."""
    line: int
    """Number of the first line of *original*, from 1."""
    original: str
    mutated: str
    operator: str


def apply(mutant: Mutant, source: str) -> str:
    """Return *source* with the fault in it.

    Raises:
        ValueError: The lines are not those that the mutant was made from.
    """
    lines = source.splitlines()
    original = mutant.original.splitlines()
    start, stop = mutant.line - 1, mutant.line - 1 + len(original)
    if lines[start:stop] != original:
        raise ValueError(f"{mutant.module}:{mutant.line} is not {mutant.original!r}")
    return "\n".join([*lines[:start], *mutant.mutated.splitlines(), *lines[stop:], ""])


def mutants_of(module: str, source: str) -> list[Mutant]:
    """All mutants of a module, in the order of their lines."""
    tree = ast.parse(source)
    found = _Finder(module, source).mutants(tree)
    return sorted(set(found), key=lambda m: (m.line, m.operator, m.mutated))


class _Finder:
    """Walks a syntax tree and turns each place that can be changed into mutants."""

    def __init__(self, module: str, source: str) -> None:
        self._module = module
        self._source = source
        self._lines = source.splitlines()
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def mutants(
        self, node: ast.AST, function: str = "", bound: Counter[str] | None = None
    ) -> Iterator[Mutant]:
        """Yield the mutants of a node and of all nodes below it.

        Args:
            node: Where to look.
            function: Qualified name of the function or class that it is in.
            bound: Number of bindings of each name in that function; None outside of functions.
        """
        if isinstance(node, ast.JoinedStr | ast.arg):
            return
        if bound is not None:
            yield from self._deleted(node, function, bound)
        if isinstance(node, ast.Raise):
            return
        for start, stop, text, operator in self._edits(node):
            yield self._mutant(start, stop, text, operator)
        for child in self._children(node):
            if isinstance(child, _Function | ast.ClassDef):
                inside = _bindings(child) if isinstance(child, _Function) else None
                yield from self.mutants(child, f"{function}.{child.name}".lstrip("."), inside)
            else:
                yield from self.mutants(child, function, bound)

    @staticmethod
    def _children(node: ast.AST) -> Iterator[ast.AST]:
        skipped = {"annotation", "returns", "decorator_list", "bases", "type_params"}
        for name, value in ast.iter_fields(node):
            if name in skipped:
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield child

    def _edits(self, node: ast.AST) -> Iterator[tuple[int, int, str, str]]:
        """Yield start, stop, new text and operator of each change of one expression."""
        match node:
            case ast.Compare():
                for op, (left, right) in zip(
                    node.ops, pairwise([node.left, *node.comparators]), strict=True
                ):
                    for text in _COMPARISONS[type(op)]:
                        yield *self._between(left, right, _COMPARISON), text, "comparison"
            case ast.BoolOp():
                text = "or" if isinstance(node.op, ast.And) else "and"
                for left, right in pairwise(node.values):
                    yield *self._between(left, right, re.compile(r"\b(and|or)\b")), text, "and/or"
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                old, new = _SIGNS[type(node.op)]
                yield *self._between(node.left, node.right, re.compile(re.escape(old))), new, "sign"
            case ast.AugAssign(op=ast.Add() | ast.Sub()):
                old, new = _SIGNS[type(node.op)]
                yield (
                    *self._between(node.target, node.value, re.compile(re.escape(old))),
                    new,
                    "sign",
                )
            case ast.UnaryOp(op=ast.Not()):
                yield *self._span(node), f"({self._text(node.operand)})", "negation"
            case ast.Constant(value=bool()):
                yield *self._span(node), str(not node.value), "negation"
            case ast.Constant(value=int(number) | float(number)):
                for value in (number + 1, number - 1):
                    if value != number:
                        yield *self._span(node), repr(value), "constant"
            case ast.If() | ast.While() | ast.IfExp() if not _is_not(node.test):
                yield *self._span(node.test), f"not ({self._text(node.test)})", "negation"
            case ast.comprehension():
                for test in node.ifs:
                    yield *self._span(test), f"not ({self._text(test)})", "negation"

    def _deleted(self, node: ast.AST, function: str, bound: Counter[str]) -> Iterator[Mutant]:
        """Yield mutants in which a `pass` replaces a statement."""
        if isinstance(node, ast.If):
            if not node.orelse and not (len(node.body) == 1 and _is_deletable(node.body[0])):
                start, stop = self._span(node.body[0])[0], self._span(node.body[-1])[1]
                yield self._mutant(start, stop, "pass", "guard")
            if len(node.body) > 1 and isinstance(node.body[-1], _Jump):
                yield self._mutant(*self._span(node.body[-1]), "pass", "statement")
        elif _is_deletable(node) and not (
            isinstance(node, ast.Assign | ast.AnnAssign)
            and (function.endswith("__init__") or _binds_alone(node, bound))
        ):
            yield self._mutant(*self._span(node), "pass", "statement")

    def _mutant(self, start: int, stop: int, text: str, operator: str) -> Mutant:
        first = bisect_right(self._starts, start) - 1
        last = bisect_right(self._starts, max(start, stop - 1)) - 1
        whole_start, whole_stop = self._starts[first], self._starts[last + 1]
        mutated = self._source[whole_start:start] + text + self._source[stop:whole_stop]
        return Mutant(
            module=self._module,
            line=first + 1,
            original="\n".join(self._lines[first : last + 1]),
            mutated=mutated.rstrip("\n"),
            operator=operator,
        )

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._at(node.lineno, node.col_offset), self._at(
            node.end_lineno, node.end_col_offset
        )

    def _at(self, line: int, column_bytes: int) -> int:
        text = self._lines[line - 1].encode()[:column_bytes].decode()
        return self._starts[line - 1] + len(text)

    def _text(self, node: ast.expr) -> str:
        start, stop = self._span(node)
        return self._source[start:stop]

    def _between(self, left: ast.expr, right: ast.expr, token: re.Pattern[str]) -> tuple[int, int]:
        """Return the position of the operator between two operands."""
        start, stop = self._span(left)[1], self._span(right)[0]
        found = token.search(self._source, start, stop)
        assert found is not None, self._source[start:stop]
        return found.span()


def _is_deletable(node: ast.AST) -> TypeGuard[ast.stmt]:
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant)
    return isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete | ast.Raise)


def _is_not(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _binds_alone(node: ast.stmt, bound: Counter[str]) -> bool:
    """Return whether *node* assigns a name that its function assigns nowhere else."""
    names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and _is_stored(n)]
    return any(bound[name] == 1 for name in names)


def _is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _bindings(function: _Function) -> Counter[str]:
    """Count the bindings of each name in a function, as an argument or by assignment."""
    nodes = list(ast.walk(function))
    names = [node.id for node in nodes if isinstance(node, ast.Name) and _is_stored(node)]
    return Counter([*names, *(node.arg for node in nodes if isinstance(node, ast.arg))])
