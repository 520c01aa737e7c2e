"""From the operations of one worker to those of a stack of workers.

Where a form for all at once gives the bits of one after another, it is taken.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.node import map_arg

from ....gossip.errors import ConfigError
from .operations import ALIKE, BY_REGISTER, LOSSES, MOVES, REGISTER, RULES, aten, number_by_number
from .tracing import Trace, writes

__all__ = ["batched", "in_place", "one_by_one", "stack"]

Function = Callable[..., Any]
Form = tuple[Any, tuple[Any, ...]]
"""What does it, and what it is given before the rest."""


def one_by_one(operation: Function, which: Sequence[Any], *given: Any, **settings: Any) -> Any:
    """An operation of each worker, one after another.

    Args:
        operation: Of one worker.
        which: Of each argument, whether each worker has its own; of lists, of each part.
        given: Arguments.
        settings: The same for all.
    """
    made = [operation(*row, **settings) for row in zip(*map(_columns, which, given), strict=False)]
    first = made[0]
    if isinstance(first, Tensor):
        return torch.stack(made) if len(made) > 1 else first.unsqueeze(0)
    return tuple(
        torch.stack(column) if isinstance(column[0], Tensor) else None
        for column in zip(*made, strict=True)
    )


def in_place(operation: Function, which: Sequence[Any], *given: Any, **settings: Any) -> Any:
    """An operation of each worker that writes into its first argument, and returns it."""
    for row in zip(*map(_columns, which, given), strict=False):
        operation(*row, **settings)
    return given[0]


def _columns(own: Any, given: Any) -> Iterator[Any]:
    """What each worker is given, without end where that is the same."""
    if isinstance(own, tuple):
        return map(list, zip(*map(_columns, own, given), strict=False))
    return iter(given.unbind(0)) if own else repeat(given)


def batched(operation: Function, which: Sequence[Any], *given: Any, **settings: Any) -> Any:
    """An operation of all at once, as torch batches it."""
    axes = tuple(
        [0 if of else None for of in own] if isinstance(own, tuple) else (0 if own else None)
        for own in which
    )
    return torch.vmap(lambda *args: operation(*args, **settings), in_dims=axes)(*given)


def stack(trace: Trace, given: Sequence[Tensor], *, exact: bool) -> fx.GraphModule:
    """Make of the operations of one worker those of a stack of workers.

    Args:
        trace: What one worker does.
        given: What three workers have, axes ``(3, ...)``, then their inputs and targets; with these
            it is seen which forms give the bits of one by one.
        exact: Whether bits are to be those; if not, what takes the fewest calls is taken.

    Returns:
        Takes stacks of what a worker has, what all have, inputs and targets; gives stacks of
        gradients, and losses.
    """
    return _Stacking(trace, given, exact).graph_module()


class _Stacking:
    """One operation after another is carried out, and enters the new graph in the form it took."""

    def __init__(self, trace: Trace, given: Sequence[Tensor], exact: bool) -> None:
        self._trace = trace
        self._exact = exact
        self._graph = fx.Graph()
        self._new: dict[fx.Node, fx.Node] = {}
        self._values: dict[fx.Node, Any] = {}
        self._own: set[fx.Node] = set()
        *own, inputs, targets = given
        self._given = [*own, *trace.fixed, inputs, targets]
        self._n_own = len(own)

    def graph_module(self) -> fx.GraphModule:
        places = iter(range(len(self._given)))
        for node in self._trace.graph.nodes:
            if node.op == "placeholder":
                at = next(places)
                self._enter(node, self._graph.placeholder(node.name), self._given[at].clone())
                if not self._n_own <= at < self._n_own + len(self._trace.fixed):
                    self._own.add(node)
            elif node.op == "get_attr":
                constant = self._trace.constants[node.target]
                self._enter(node, self._graph.get_attr(node.target), constant)
            elif node.op == "call_function":
                self._call(node)
            else:
                self._graph.output(map_arg(node.args[0], self._new.__getitem__))
        return fx.GraphModule(dict(self._trace.constants), self._graph)

    def _enter(self, node: fx.Node, new: fx.Node, value: Any) -> None:
        self._new[node], self._values[node] = new, value

    def _call(self, node: fx.Node) -> None:
        which = tuple(map(self._which, node.args))
        if any(any(own) if isinstance(own, tuple) else own for own in which):
            self._own.add(node)
            if writes(node) and not which[0]:
                raise ConfigError("it writes what is a worker's own into what all have")
        if node not in self._own or node.target is operator.getitem:
            forms: list[Form] = [(node.target, ())]
        else:
            forms = self._forms(node, which)
        # What only moves numbers about has no bits of its own.
        is_checked = self._exact and len(forms) > 1 and node.target not in MOVES
        known = self._expected(node, *forms[-1]) if is_checked else None
        for function, before in forms:
            try:
                made = self._carry_out(node, function, before)
            except Exception:  # not of the kind that this form is for
                if (function, before) == forms[-1]:
                    raise
                continue
            if known is None or self._agree(node, made, known):
                break
        args = map_arg(node.args, self._new.__getitem__)
        new = self._graph.call_function(function, (*before, *args), dict(node.kwargs))
        self._enter(node, new, made)

    def _forms(self, node: fx.Node, which: tuple[Any, ...]) -> list[Form]:
        """How it can be done, the best first."""
        found: list[Form] = []
        target: Any = node.target
        if target in ALIKE or (target in BY_REGISTER and self._has_whole_registers(node)):
            found.append(self._number_by_number(node, which))
        if target in RULES and self._own.issuperset(node.all_input_nodes):
            found.append((RULES[target], ()))
        if not (self._exact or writes(node)):
            # What is written would be lost with the copies that torch makes.
            found.append((batched, (target, which)))
        is_in_place = writes(node) and target._schema.is_mutable
        return [*found, (in_place if is_in_place else one_by_one, (target, which))]

    def _number_by_number(self, node: fx.Node, which: tuple[Any, ...]) -> Form:
        ranks = {n: self._values[n].ndim - (n in self._own) for n in node.all_input_nodes}
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
        sizes = [self._values[n][0].numel() for n in node.all_input_nodes if n in self._own]
        return all(size % REGISTER == 0 for size in sizes) and not node.kwargs.get("alpha")

    def _expected(self, node: fx.Node, function: Function, before: tuple[Any, ...]) -> Any:
        """What comes out for one after another; nothing that is given changes by it."""
        copied = {n: self._values[n].clone() for n in node.all_input_nodes if writes(node)}
        args, kwargs = map_arg((node.args, node.kwargs), (self._values | copied).__getitem__)
        return function(*before, *args, **kwargs)

    def _agree(self, node: fx.Node, made: Any, known: Any) -> bool:
        """Whether it makes no difference to any model."""
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

    def _carry_out(self, node: fx.Node, function: Function, before: tuple[Any, ...]) -> Any:
        args, kwargs = map_arg((node.args, node.kwargs), self._values.__getitem__)
        return function(*before, *args, **kwargs)


def _alike(ours: Any, theirs: Any) -> bool:
    """Whether all tensors are the same in every bit."""
    if isinstance(ours, Tensor):
        same = ours.shape == theirs.shape and ours.dtype == theirs.dtype
        return same and torch.equal(_bits(ours), _bits(theirs))
    return ours is theirs or all(map(_alike, ours, theirs))


def _bits(x: Tensor) -> Tensor:
    return x.contiguous().view(-1).view(torch.uint8)
