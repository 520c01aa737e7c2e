"""Find a task by its spec: a built-in name, or ``module:function``."""

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from torch import nn

from ...gossip.errors import ConfigError
from ...gossip.rules.plugin import as_raised, function_of, module_of, name_of
from ...gossip.specs.spec import find
from ..config import OWN_TASK
from .code import code
from .digits import digits, mnist
from .gpt import SIZES
from .quadratic import quadratic
from .task import Evaluation, Task

__all__ = ["BUILT_IN", "Evaluation", "Task", "build_task", "load_task"]

BUILT_IN: Mapping[str, Callable[..., Task]] = MappingProxyType(
    {
        "code": code,
        **{f"code-{size}": partial(code, size) for size in SIZES},
        "digits": digits,
        "mnist": mnist,
        "quadratic": quadratic,
    }
)
"""The functions behind the built-in names."""


def load_task(spec: str | Callable[..., Task | nn.Module], *, seed: int) -> Task:
    """Find and build a task from a key of ``BUILT_IN``, a spec, or what the spec names.

    A spec is ``module:function`` or ``folder/file.py:function``. The function is called with
    ``seed=`` if it has such a parameter, otherwise without arguments. It returns a `Task`, or a
    model; then the module holds ``train`` and ``test``, and ``loss`` unless targets are class
    labels.

    Raises:
        ConfigError: The task does not exist, or the user's code raised (the message says where).
    """
    task: Task = build_task(spec, Task, seed=seed)
    return task


def build_task(spec: str | Callable[..., Any], *kinds: type, seed: int) -> Any:
    """Find and build an object of one of several *kinds*, as `load_task` does."""
    if isinstance(spec, str):
        if spec in BUILT_IN:
            function: Callable[..., Any] = BUILT_IN[spec]
            return function(**_arguments(function, seed))
        name, colon, attribute = spec.partition(":")
        if not (colon and attribute.isidentifier() and name):
            find("task", spec, BUILT_IN, f", or {OWN_TASK}".replace("``", ""))
        module: object = module_of(spec, "task")
        function, name = function_of(spec, "task"), spec
    else:
        module = sys.modules.get(getattr(spec, "__module__", ""))
        function, name = spec, name_of(spec)
    # bind() detects a wrong signature before the call, so that it is not mistaken for an error
    # inside.
    try:
        inspect.signature(function).bind(**(arguments := _arguments(function, seed)))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"task {name} cannot be called: it must take no argument, or only seed ({error})"
        ) from error
    try:
        task = function(**arguments)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"task {name} raised {as_raised(error)}") from error
    if isinstance(task, nn.Module):
        train, test, loss = (getattr(module, each, None) for each in ("train", "test", "loss"))
        if train is None or test is None:
            where = getattr(module, "__file__", name)
            raise ConfigError(
                f"task {name} returned a model: {where} must also have train and test, tensors or "
                "datasets of inputs and labels (and loss, unless labels are classes), or the "
                "function must return a Task"
            )
        make = partial(function, **arguments) if arguments else function
        return Task(model=make, train=train, test=test, loss=loss)
    if not isinstance(task, kinds):
        raise ConfigError(
            f"task {name} returned a {type(task).__name__}: it must return a model, with the data "
            "as train and test in the same file, or a Task (docs/how-to/simulate.md)"
        )
    return task


def _arguments(function: Callable[..., Any], seed: int) -> dict[str, int]:
    return {"seed": seed} if "seed" in inspect.signature(function).parameters else {}
