"""Loggers by name, and the errors for unknown and missing loggers."""

from pathlib import Path
from typing import Any

import pytest

from rumor.gossip import ConfigError
from rumor.train import PeerConfig
from rumor.train.loggers import logger as registry
from rumor.train.loggers.logger import LOGGERS, make_loggers

from .fakes import Collected


@pytest.mark.parametrize("name", LOGGERS)
def test_each_logger_has_a_module_and_an_extra(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    source = Path(registry.__file__).with_name(f"{name}.py").read_text()
    assert f"class {LOGGERS[name]}:" in source
    pyproject = Path(__file__).parents[3] / "pyproject.toml"
    assert f"\n{name} = [" in pyproject.read_text()
    monkeypatch.setattr(registry, "find_spec", lambda module: None)
    with pytest.raises(ConfigError, match=rf"pip install -e '\.\[{name}\]'"):
        PeerConfig(loggers=(name,))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loggers": ("tensorbord",)}, "did you mean 'tensorboard'"),
        ({"loggers": ("csv",)}, "known are tensorboard, trackio, wandb, mlflow"),
        ({"loggers": ("tensorboard:",)}, "says no place behind its colon"),
        ({"loggers": (7,)}, "an object with the methods open, log and close"),
        ({"loggers": (Collected,)}, "an object with the methods open, log and close"),
        ({"loggers": "tensorboard"}, r'must be a tuple, as in \("tensorboard",\)'),
        ({"loggers": (Collected(),), "log_every": None}, "log_every is None"),
    ],
)
def test_an_invalid_logger_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PeerConfig(**settings)
    own = Collected()
    assert make_loggers([own]) == [("Collected", own)], "a logger object is named after its class"
