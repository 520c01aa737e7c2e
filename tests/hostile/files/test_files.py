"""Commands that read files of other users, on corrupted files.

Each command must succeed or print one error line with status 1 or 2. It must never show a
traceback, exceed its memory bound, or print control sequences from a file.
"""

from pathlib import Path

import pytest

from rumor.train.storage import files
from rumor.train.storage.files import json_of, read_bytes

from .corpus import COMMANDS, Corpus, failures, make_corpus, not_started

SEEDS = 40


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.mark.extended
@pytest.mark.live
@pytest.mark.parametrize("name", COMMANDS)
def test_a_corrupted_file_causes_at_most_one_error_line(
    name: str, corpus: Corpus, tmp_path: Path
) -> None:
    with not_started():
        assert [*failures(name, corpus, tmp_path, range(SEEDS))] == []


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "1e999", "NaN", "9" * 400, "9" * 5000, "", "\xff", '{"a": -Infinity}']
)
def test_harmful_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        json_of(text)


def test_numbers_within_the_range_of_a_float_are_read() -> None:
    assert json_of(b'{"a": [1, -2.5, 340282366920938463463374607431768211455]}') == {
        "a": [1, -2.5, 2**128 - 1]
    }


def test_a_special_or_oversized_file_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "options.json"
    link.symlink_to("/dev/zero")
    with pytest.raises(OSError, match="not a regular file"):
        read_bytes(link)
    monkeypatch.setattr(files, "FILE_BYTES_MAX", 10)
    regular = tmp_path / "whole"
    regular.write_bytes(b"0" * 10)
    assert read_bytes(regular) == b"0" * 10
    regular.write_bytes(b"0" * 11)
    with pytest.raises(OSError, match="longer than"):
        read_bytes(regular)
