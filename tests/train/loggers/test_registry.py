"""Loggers by name: which there are, and what is said of one that cannot be had."""

from pathlib import Path

import pytest

from rumor.gossip import ConfigError
from rumor.train import PeerConfig
from rumor.train.loggers import logger as registry
from rumor.train.loggers.logger import LOGGERS, check_loggers, make_loggers

from .fakes import Collected


@pytest.mark.parametrize("name", LOGGERS)
def test_a_logger_has_a_module_and_an_extra_of_its_name(name: str) -> None:
    source = Path(registry.__file__).with_name(f"{name}.py").read_text()
    assert f"class {LOGGERS[name]}:" in source
    pyproject = Path(__file__).parents[3] / "pyproject.toml"
    assert f"\n{name} = [" in pyproject.read_text()


@pytest.mark.parametrize("name", LOGGERS)
def test_a_package_that_is_missing_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda module: None)
    with pytest.raises(ConfigError, match=rf"pip install -e '\.\[{name}\]'"):
        PeerConfig(loggers=(name,))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("tensorbord", "did you mean 'tensorboard'"),
        ("csv", "known are tensorboard, trackio, wandb, mlflow"),
        ("tensorboard:", "says no place behind its colon"),
        (7, "an object with the methods open, log and close"),
        (Collected, "an object with the methods open, log and close"),
    ],
)
def test_what_is_no_logger_is_refused(spec: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_loggers((spec,))  # type: ignore[arg-type]


def test_one_name_without_a_tuple_is_refused() -> None:
    with pytest.raises(ConfigError, match=r'must be a tuple, as in \("tensorboard",\)'):
        PeerConfig(loggers="tensorboard")  # type: ignore[arg-type]


def test_loggers_need_rows() -> None:
    with pytest.raises(ConfigError, match="log_every is None"):
        PeerConfig(loggers=(Collected(),), log_every=None)


def test_a_logger_of_ones_own_is_called_by_its_class() -> None:
    own = Collected()
    assert make_loggers([own]) == [("Collected", own)]
