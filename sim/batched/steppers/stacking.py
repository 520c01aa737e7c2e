"""From the operations of one worker to those of a stack of workers.

Where a form for all at once gives the bits of one after another, it is taken.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, fx
from torch.fx.node import map_arg

from ....gossip.errors import ConfigError
from ..compiled.row_passes import alike
from .operations import (
    ALIKE,
    BY_REGISTER,
    LOSSES,
    MOVES,
    PRODUCTS,
    REGISTER,
    RULES,
    aten,
    number_by_number,
)
from .tracing import Trace, writes, written

__all__ = ["batched", "beside", "in_place", "one_by_one", "pick", "stack"]

Function = Callable[..., Any]
Form = tuple[Any, tuple[Any, ...]]
"""What does it, and what it is given before the rest."""


def one_by_one(operation: Function, which: Sequence[Any], *given: Any, **settings: Any) -> Any:
    """An operation of each worker, one after another.

    Args:
        operation: Of one worker.
        which: Of each argument, whether each worker has its own; of lists, of each part.
        given: Arguments; what is each worker's own as a stack or as a list.
        settings: The same for all.

    Returns:
        What comes out for each, as a list.
    """
    return [operation(*row, **settings) for row in zip(*map(_columns, which, given), strict=False)]


def in_place(operation: Function, which: Sequence[Any], *given: Any, **settings: Any) -> Any:
    """An operation of each worker that writes into its first argument, and returns it."""
    first = given[0].unbind(0) if isinstance(given[0], Tensor) else given[0]
    one_by_one(operation, which, first, *given[1:], **settings)
    return given[0]


# Products of matrices round by where in a cache line they begin.
_LINE_BYTES: Final = 64

# Where they begin at a multiple of this they round as at the beginning of a line.
_ALIGNED_BYTES: Final = 16


def _columns(own: Any, given: Any) -> Iterator[Any]:
    """What each worker is given, without end where that is the same; as it lies in the loop."""
    if isinstance(own, tuple):
        return map(list, zip(*map(_columns, own, given), strict=False))
    if not own:
        return repeat(given)
    if not isinstance(given, Tensor):
        return iter(given)
    if given.stride(0) * given.element_size() % _LINE_BYTES == 0:
        return iter(given.unbind(0))
    return (part.clone() for part in given.unbind(0))


def pick(made: Sequence[Any], index: int) -> list[Any]:
    """One part of what came out for each."""
    return [parts[index] for parts in made]


def beside(made: Sequence[Any]) -> Any:
    """What came out for each as a stack, or a tuple of them."""
    if isinstance(made[0], Tensor):
        return torch.stack(tuple(made)) if len(made) > 1 else made[0].unsqueeze(0)
    parts = zip(*made, strict=True)
    return tuple(beside(part) if isinstance(part[0], Tensor) else None for part in parts)


def batched(operation: Function, which: Sequence[Any], *given: Any, **settings: Any) -> Any:
    """An operation of all at once, as torch batches it."""
    axes = tuple(
        [0 if of else None for of in own] if isinstance(own, tuple) else (0 if own else None)
        for own in which
    )
    return torch.vmap(lambda *args: operation(*args, **settings), in_dims=axes)(*given)


def stack(
    trace: Trace, given: Sequence[Tensor], *, exact: bool, apart: bool = False
) -> fx.GraphModule:
    """Make of the operations of one worker those of a stack of workers.

    Args:
        trace: What one worker does.
        given: What three workers have, axes ``(3, ...)``, then their inputs and targets; with these
            it is seen which forms give the bits of one by one.
        exact: Whether bits are to be those; if not, what takes the fewest calls is taken.
        apart: Whether all is done one by one.

    Returns:
        Takes stacks of what a worker has, what all have, inputs and targets; gives stacks of
        gradients, and losses.
    """
    return _Stacking(trace, given, exact, apart).graph_module()


class _Entered(NamedTuple):
    """An operation in the new graph, and what came of it."""

    node: fx.Node
    value: Any


class _Stacking:
    """One operation after another is carried out, and enters the new graph in the form it took."""

    def __init__(self, trace: Trace, given: Sequence[Tensor], exact: bool, apart: bool) -> None:
        self._trace = trace
        self._exact = exact
        self._apart = apart
        self._last = {n: node for node in trace.graph.nodes for n in node.all_input_nodes}
        self._graph = fx.Graph()
        self._entered: dict[fx.Node, _Entered] = {}
        self._stacked: dict[fx.Node, _Entered] = {}
        self._own: set[fx.Node] = set()
        self._in_rows: set[fx.Node] = set()
        """What lies in rows of parameters, each of which begins a line of memory."""
        *own, inputs, targets = given
        self._given = [*own, *trace.fixed, inputs, targets]
        self._n_own = len(own)

    def graph_module(self) -> fx.GraphModule:
        """What came of it."""
        places = iter(range(len(self._given)))
        for node in self._trace.graph.nodes:
            if node.op == "placeholder":
                at = next(places)
                new = self._graph.placeholder(node.name)
                self._entered[node] = _Entered(new, self._given[at].clone())
                if not self._n_own <= at < self._n_own + len(self._trace.fixed):
                    self._own.add(node)
                if at < self._n_own:
                    self._in_rows.add(node)
            elif node.op == "get_attr":
                new = self._graph.get_attr(node.target)
                self._entered[node] = _Entered(new, self._trace.constants[node.target])
            elif node.op == "call_function":
                self._call(node)
                self._let_go(node)
            else:
                self._graph.output(map_arg(node.args[0], lambda n: self._as_stack(n).node))
        for stacked in self._stacked.values():
            if not stacked.node.users:
                self._graph.erase_node(stacked.node)
        return fx.GraphModule(dict(self._trace.constants), self._graph)

    def _let_go(self, node: fx.Node) -> None:
        """Let go of numbers that nothing after an operation is given."""
        for n in node.all_input_nodes:
            if self._last[n] is node:
                for known in (self._entered, self._stacked):
                    if n in known:
                        known[n] = _Entered(known[n].node, None)

    def _as_stack(self, node: fx.Node) -> _Entered:
        """What is each worker's own, as one stack; what is not, as it is."""
        entered = self._entered[node]
        if node not in self._own or not isinstance(entered.value, list):
            return entered
        if node not in self._stacked:
            new = self._graph.call_function(beside, (entered.node,))
            self._stacked[node] = _Entered(new, beside(entered.value))
        return self._stacked[node]

    def _call(self, node: fx.Node) -> None:
        target: Any = node.target
        first: Any = node.args[0] if node.args else None
        which = tuple(map(self._which, node.args))
        if any(any(own) if isinstance(own, tuple) else own for own in which):
            self._own.add(node)
            into = (index for index in written(target) if index < len(which))
            if any(isinstance(node.args[at], fx.Node) and not which[at] for at in into):
                raise ConfigError("it writes what is a worker's own into what all have")
        if node not in self._own:
            self._entered[node] = self._carry_out(node, target, (), self._entered.__getitem__)
        elif target is operator.getitem:
            form = pick if isinstance(self._entered[first].value, list) else target
            self._entered[node] = self._carry_out(node, form, (), self._entered.__getitem__)
        else:
            self._entered[node] = self._take_form(node, which)
            if target in MOVES and first in self._in_rows:
                self._in_rows.add(node)

    def _take_form(self, node: fx.Node, which: tuple[Any, ...]) -> _Entered:
        """Carry an operation out in the best form that gives the bits of one by one."""
        *forms, (apart, before) = self._forms(node, which)
        known = None
        # What only moves numbers about has no bits of its own.
        if self._exact and forms and node.target not in MOVES:
            known = beside(self._expected(node, apart, before))
        for function, first in forms:
            try:
                made = self._carry_out(node, function, first, self._as_stack)
            except Exception:  # not of the kind that this form is for
                continue
            if known is None or self._agree(node, made.value, known):
                return made
            self._graph.erase_node(made.node)
        return self._carry_out(node, apart, before, self._entered.__getitem__)

    def _carry_out(
        self,
        node: fx.Node,
        function: Function,
        before: tuple[Any, ...],
        entered: Callable[[fx.Node], _Entered],
    ) -> _Entered:
        """Do it, and let it enter the graph."""
        args, kwargs = map_arg((node.args, node.kwargs), lambda n: entered(n).value)
        value = function(*before, *args, **kwargs)
        args, kwargs = map_arg((node.args, node.kwargs), lambda n: entered(n).node)
        return _Entered(self._graph.call_function(function, (*before, *args), kwargs), value)

    def _forms(self, node: fx.Node, which: tuple[Any, ...]) -> list[Form]:
        """How it can be done, the best first."""
        found: list[Form] = []
        target: Any = node.target
        first: Any = node.args[0] if node.args else None
        apart: Form = one_by_one, (target, which)
        if written(target)[:1] == (0,):
            apart = in_place, (target, which)
            if isinstance(self._entered[first].value, list):
                # Not into a stack of copies.
                self._stacked.pop(first, None)
                return [apart]
        if self._apart:
            return [apart]
        if target in ALIKE or (target in BY_REGISTER and self._has_whole_registers(node)):
            found.append(self._number_by_number(node, which))
        if target in RULES and self._own.issuperset(node.all_input_nodes):
            found += [(rule, ()) for rule in RULES[target]]
        if not (self._exact or writes(node)):
            # What is written would be lost with the copies that torch makes.
            found.append((batched, (target, which)))
        return [*found, apart]

    def _number_by_number(self, node: fx.Node, which: tuple[Any, ...]) -> Form:
        values = {n: self._as_stack(n).value for n in node.all_input_nodes}
        ranks = {n: value.ndim - (n in self._own) for n, value in values.items()}
        if all(ranks[n] == max(ranks.values()) for n in self._own.intersection(ranks)):
            return node.target, ()
        return number_by_number, (node.target, which)

    def _which(self, given: Any) -> Any:
        """Whether each worker has its own of an argument, or of its parts."""
        if isinstance(given, tuple | list):
            own = tuple(part in self._own for part in given)
            return own if any(own) else False
        return isinstance(given, fx.Node) and given in self._own

    def _has_whole_registers(self, node: fx.Node) -> bool:
        if not self._exact:
            return True
        sizes = [self._entered[n].value[0].numel() for n in node.all_input_nodes if n in self._own]
        return all(size % REGISTER == 0 for size in sizes)

    def _expected(self, node: fx.Node, function: Function, before: tuple[Any, ...]) -> Any:
        """What comes out for one after another; nothing that is given changes by it."""
        values = {n: self._as_stack(n).value for n in node.all_input_nodes}
        if writes(node):
            values = {n: value.clone() for n, value in values.items()}
        args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
        return function(*before, *args, **kwargs)

    def _agree(self, node: fx.Node, made: Any, known: Any) -> bool:
        """Whether it makes no difference to any model."""
        if node.target in PRODUCTS:
            own = self._own.intersection(node.all_input_nodes) - self._in_rows
            parts = [made[0], *(self._as_stack(n).value[0] for n in own)]
            if any(part.numel() * part.element_size() % _ALIGNED_BYTES for part in parts):
                return False
        if node.target in LOSSES and all(self._is_unseen(user) for user in node.users):
            made, known = (() if isinstance(m, Tensor) else [*m][1:] for m in (made, known))
        return _alike(made, known)

    def _is_unseen(self, user: fx.Node) -> bool:
        """Whether the number of a loss goes no further than out."""
        if user.target is operator.getitem and user.args[1] != 0:
            return True
        if user.op == "output" or user.target is aten.ones_like.default:
            return True
        return user.target is operator.getitem and all(map(self._is_unseen, user.users))


def _alike(ours: Any, theirs: Any) -> bool:
    """Whether all tensors are the same in every bit."""
    if isinstance(ours, Tensor):
        return alike(ours, theirs)
    return ours is theirs or all(map(_alike, ours, theirs))
