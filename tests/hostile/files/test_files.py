"""Every command that reads what somebody else left, on files that were made to harm it.

Each spoilt file must end in success, or in one line and status 1 or 2: never in a traceback, never
in memory beyond a bound, never with a name that commands the terminal.
"""

from pathlib import Path

import pytest

from rumor.train.storage import files
from rumor.train.storage.files import json_of, read_bytes

from .corpus import COMMANDS, Corpus, complaints, make_corpus, not_started

SEEDS = 40


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.mark.extended
@pytest.mark.live
@pytest.mark.parametrize("name", COMMANDS)
def test_a_spoilt_file_costs_one_line(name: str, corpus: Corpus, tmp_path: Path) -> None:
    with not_started():
        assert [*complaints(name, corpus, tmp_path, range(SEEDS))] == []


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "1e999", "NaN", "9" * 400, "9" * 5000, "", "\xff", '{"a": -Infinity}']
)
def test_json_that_would_harm_its_reader_is_no_json(text: str) -> None:
    with pytest.raises(ValueError):
        json_of(text)


def test_numbers_that_a_float_can_hold_are_read() -> None:
    assert json_of(b'{"a": [1, -2.5, 340282366920938463463374607431768211455]}') == {
        "a": [1, -2.5, 2**128 - 1]
    }


def test_what_is_no_file_or_too_long_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "options.json"
    link.symlink_to("/dev/zero")
    with pytest.raises(OSError, match="not a regular file"):
        read_bytes(link)
    monkeypatch.setattr(files, "FILE_BYTES_MAX", 10)
    whole = tmp_path / "whole"
    whole.write_bytes(b"0" * 10)
    assert read_bytes(whole) == b"0" * 10
    whole.write_bytes(b"0" * 11)
    with pytest.raises(OSError, match="longer than"):
        read_bytes(whole)
