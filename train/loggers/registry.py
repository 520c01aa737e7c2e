"""Loggers by name."""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Final

from ...gossip.errors import ConfigError, did_you_mean
from .logger import Logger, LoggerSpec

__all__ = ["LOGGERS", "check_loggers", "make_loggers"]

LOGGERS: Final = {
    "tensorboard": "TensorBoardLogger",
    "trackio": "TrackioLogger",
    "wandb": "WandbLogger",
    "mlflow": "MlflowLogger",
}
"""Classes, which take WHERE or None. A logger's name is also that of its module in this folder, of
its extra, and of the package that the extra installs."""


def check_loggers(specs: Sequence[LoggerSpec]) -> None:
    """Check that loggers can be made, without importing their packages.

    Raises:
        ConfigError: A logger is unknown, lacks WHERE after its colon, or needs a package that is
            not installed; the message says what to do.
    """
    if isinstance(specs, str):
        raise ConfigError(f'loggers is {specs!r}: it must be a tuple, as in ("{specs}",)')
    for spec in specs:
        if not isinstance(spec, str):
            if isinstance(spec, type) or not isinstance(spec, Logger):
                raise ConfigError(
                    f"a logger is {spec!r}: it must be a name, or an object with the methods open, "
                    "log and close"
                )
            continue
        name, colon, where = spec.partition(":")
        if name not in LOGGERS:
            hint = did_you_mean(name, LOGGERS, f": known are {', '.join(LOGGERS)}")
            raise ConfigError(f"there is no logger {name!r}{hint}")
        if colon and not where.strip():
            raise ConfigError(f"logger {spec!r} says no place behind its colon: leave it out")
        if find_spec(name) is None:
            raise ConfigError(
                f"logger {name} needs a package that is not installed: pip install 'rumor[{name}]'"
            )


def make_loggers(specs: Sequence[LoggerSpec]) -> list[tuple[str, Logger]]:
    """Make loggers, not yet opened, each with its name for warnings.

    Raises:
        ConfigError: See `check_loggers`.
    """
    check_loggers(specs)
    return [_made(spec) if isinstance(spec, str) else (type(spec).__name__, spec) for spec in specs]


def _made(spec: str) -> tuple[str, Logger]:
    name, _, where = spec.partition(":")
    module = import_module(f".{name}", __package__)
    return name, getattr(module, LOGGERS[name])(where.strip() or None)
