"""Python attributes of a task's model, kept for each simulated worker as for a live peer.

A model may count its calls, append to a list or draw from a generator of its own. Live peers have a
model each; workers share one, on which they take turns. Where a step changes attributes, each
worker therefore has its own: as bytes, from which they are made anew for its next step.
"""

import pickle
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from operator import is_
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ....gossip.errors import ConfigError
from ....train.tasks.task import Task

__all__ = ["Attributes", "fingerprint"]

Space = dict[str, Any]

# All but what users assign, and buffers, of which rows do not hold those that are not persistent.
_NOT_KEPT: Final = frozenset(vars(nn.Module())) - {"_buffers"}

# They are code, and the same for all.
_CODE: Final = (type, FunctionType, BuiltinFunctionType, ModuleType)


class Attributes:
    """The attributes of a task's model, loss, training step and optimizer, worker by worker.

    Args:
        module: The model.
        carried: Names of its buffers that rows hold; these and parameters are not copied.
        first: Those of another copy of the module, whose workers these are, too.
    """

    def __init__(
        self,
        module: nn.Module,
        task: Task,
        optimizer: Optimizer,
        carried: Iterable[str],
        first: "Attributes | None" = None,
    ) -> None:
        buffers = dict(module.named_buffers(remove_duplicate=False))
        self._task = task.name
        data = [part for side in (task.train, task.test) for part in (side, *_members(side))]
        tensors = *module.parameters(), *(buffers[name] for name in sorted(carried))
        self._shared: list[object] = [*module.modules(), *tensors, *data]
        self._spaces: list[Space] = [
            *_spaces((module, task.loss, task.training_step, task.augment)),
            *optimizer.param_groups,
        ]
        self._start = [_kept(space) for space in self._spaces]
        for value in [value for space in self._start for value in space.values()]:
            # Values that cannot be pickled are shared by all workers.
            if not _is_writable(value, self._shared):
                self._shared.append(value)
        self._start_bytes = self._as_bytes()
        self._own: dict[int, bytes] = {} if first is None else first._own
        self.changes = False
        """True if steps change attributes, so that each worker has its own from the start."""
        self._shows: bool | None = None
        """True if evaluations change attributes; None before the first one."""

    def is_changed(self, worker: int) -> bool:
        """Check whether a worker's attributes differ from those at the start."""
        return self._own.get(worker, self._start_bytes) != self._start_bytes

    def forget(self, worker: int) -> None:
        """Let a worker start again, as a process that starts again does."""
        self._own.pop(worker, None)

    def check(self) -> None:
        """Raise where a step has changed in place what the first step left alone.

        Raises:
            ConfigError: It has, so that workers have shared it.
        """
        if self._as_bytes() != self._start_bytes:
            raise ConfigError(
                f"a step of task {self._task} changes attributes of the model or of its loss in "
                "place, and the first step did not, so that workers have shared them: change them "
                "in every step, assign new values, or keep them in buffers"
            )

    @contextmanager
    def lent(self, worker: int) -> Iterator[None]:
        """Have a worker's in place for its step, and keep what the step makes of them."""
        if self.changes or worker in self._own:
            with self._placed(worker):
                yield
                self._own[worker] = self._as_bytes()
            return
        yield
        if not all(map(_is_same, self._spaces, self._start)):
            # From now on this worker has its own; the others' are as at the start.
            self._own[worker] = self._as_bytes()
            self._put(self._start)

    @contextmanager
    def shown(self, worker: int) -> Iterator[None]:
        """Have a worker's in place for an evaluation, which changes none of them."""
        if self._shows is False and not (self.changes or worker in self._own):
            yield
            self._put(self._start)
            return
        with self._placed(worker):
            before = self._as_bytes() if self._shows is None else b""
            yield
            if self._shows is None:
                self._shows = before != self._as_bytes()

    @contextmanager
    def _placed(self, worker: int) -> Iterator[None]:
        self._put(_Reader(self._own.get(worker, self._start_bytes), self._shared).load())
        try:
            yield
        finally:
            self._put(self._start)

    def _put(self, values: list[Space]) -> None:
        for space, value in zip(self._spaces, values, strict=True):
            for name in [name for name in space if name not in _NOT_KEPT and name not in value]:
                del space[name]
            buffers = space.get("_buffers")
            space.update(value)
            if buffers is not None:
                buffers.clear()
                buffers.update(value["_buffers"])
                space["_buffers"] = buffers

    def _as_bytes(self) -> bytes:
        try:
            return _written([_kept(space) for space in self._spaces], self._shared)
        except Exception as error:  # whatever an object of a user's has against it
            raise ConfigError(
                f"a step of task {self._task} sets an attribute of the model or of its loss that "
                f"cannot be copied for each worker ({error}): keep numbers, lists, tensors or "
                "random generators there"
            ) from None


def fingerprint(roots: Iterable[object]) -> list[object]:
    """Attributes of objects, comparable; a value that cannot be pickled equals itself only."""
    values = [value for space in _spaces(roots) for value in _kept(space).values()]
    return [_written(value, ()) if _is_writable(value, ()) else id(value) for value in values]


def _spaces(roots: Iterable[object]) -> Iterator[Space]:
    """The attributes of objects, and of the modules in them."""
    for root in roots:
        if isinstance(root, partial):
            yield from _spaces((root.func, *root.args, *root.keywords.values()))
            continue
        root = getattr(root, "__self__", root)
        for part in root.modules() if isinstance(root, nn.Module) else [root]:
            # What `torch.compile` wraps a module in keeps compiled code, which is the same for all.
            is_wrapper = type(part).__module__.startswith("torch._dynamo")
            is_code = is_wrapper or isinstance(part, (*_CODE, Tensor))
            if not is_code and hasattr(part, "__dict__"):
                yield part.__dict__


def _members(side: object) -> Iterable[object]:
    return side if isinstance(side, tuple | list) else ()


def _kept(space: Space) -> Space:
    kept = {name: value for name, value in sorted(space.items()) if name not in _NOT_KEPT}
    if "_buffers" in kept:
        # A step may put another tensor there.
        kept["_buffers"] = dict(kept["_buffers"])
    return kept


def _is_same(space: Space, start: Space) -> bool:
    """Check whether the attributes are the very same objects."""
    now = _kept(space)
    if now.keys() != start.keys():
        return False
    for name, value in start.items():
        if name == "_buffers":
            mine = now[name]
            if mine.keys() != value.keys() or not all(map(is_, mine.values(), value.values())):
                return False
        elif now[name] is not value and not (isinstance(value, float | int) and now[name] == value):
            return False
    return True


def _is_writable(value: object, shared: Sequence[object]) -> bool:
    try:
        _written(value, shared)
    except Exception:  # whatever an object of a user's has against it
        return False
    return True


def _written(value: object, shared: Sequence[object]) -> bytes:
    buffer = BytesIO()
    _Writer(buffer, shared).dump(value)
    return buffer.getvalue()


class _Writer(pickle.Pickler):
    """Writes down a value, but for objects that stay as they are."""

    def __init__(self, file: BytesIO, shared: Sequence[object]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._places = {id(each): place for place, each in enumerate(shared)}

    def persistent_id(self, value: Any) -> object:
        """Where that object is found; None of one that is written."""
        if (place := self._places.get(id(value))) is not None:
            return place
        if isinstance(value, _CODE):
            _code[id(value)] = value
            return "code", id(value)
        return None

    def reducer_override(self, value: Any) -> Any:
        """How a tensor is made again: torch writes down where it lay, too."""
        if type(value) is not Tensor or value.layout is not torch.strided or value.is_quantized:
            return NotImplemented
        numbers = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        told = value.dtype, value.shape, value.device, value.requires_grad
        return _tensor, (bytearray(numbers), *told)


class _Reader(pickle.Unpickler):
    """Makes a value anew from what a `_Writer` has written in this process."""

    def __init__(self, written: bytes, shared: Sequence[object]) -> None:
        super().__init__(BytesIO(written))
        self._shared = shared

    def persistent_load(self, place: Any) -> object:
        """The object that is found there."""
        return self._shared[place] if isinstance(place, int) else _code[place[1]]


def _tensor(
    numbers: bytearray, dtype: torch.dtype, shape: torch.Size, device: torch.device, grad: bool
) -> Tensor:
    made = (
        torch.frombuffer(numbers, dtype=dtype)
        if numbers
        else torch.empty(0, dtype=dtype, device="cpu")
    )
    return made.view(shape).to(device).requires_grad_(grad)


_code: Final[dict[int, object]] = {}
