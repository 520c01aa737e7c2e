"""What users give by its name: ``module:function``."""

from pathlib import Path

import pytest

from rumor.gossip.errors import ConfigError
from rumor.gossip.rules.plugin import function_of, name_of


@pytest.fixture(autouse=True)
def in_a_folder_with_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "halves.py").write_text("def first(): return 1\nSECOND = 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)


def test_a_function_is_found_and_called_as_it_would_be_typed() -> None:
    first = function_of("halves:first", "partition")
    assert first() == 1
    assert name_of(first) == "halves:first"


def test_an_object_that_can_be_called_is_named_by_its_class() -> None:
    class Half:
        def __call__(self) -> int:
            return 1

    assert name_of(Half()).endswith(":Half")


@pytest.mark.parametrize("name", ["SECOND", "third"])
def test_what_is_no_function_is_refused_with_those_that_there_are(name: str) -> None:
    with pytest.raises(ConfigError, match=f"has no function or class '{name}'; it has first"):
        function_of(f"halves:{name}", "partition")
