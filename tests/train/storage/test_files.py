"""What is drafted takes the place of a file when it is whole, or not at all."""

from pathlib import Path

import pytest

from rumor.train.storage.files import drafted


def test_what_is_written_takes_the_place_of_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    with drafted(path) as draft:
        draft.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


def test_where_writing_fails_nothing_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    with pytest.raises(OSError, match="full"), drafted(path) as draft:
        draft.write_text("ne")
        raise OSError("full")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
