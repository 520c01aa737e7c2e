"""Where a picture of a topology may be written."""

from pathlib import Path

import pytest

from rumor.cli.graph_picture import check_path
from rumor.gossip.errors import ConfigError


@pytest.mark.parametrize("name", ["graph", "graph.bmp", "graph.jpg", "no/graph.png", "graphs.png"])
def test_a_path_that_cannot_be_written_is_refused_beforehand(tmp_path: Path, name: str) -> None:
    (tmp_path / "graphs.png").mkdir()
    with pytest.raises(ConfigError, match=r"--draw .*graph"):
        check_path(tmp_path / name)


@pytest.mark.parametrize("name", ["graph.png", "graph.SVG", "graph.pdf"])
def test_three_formats_are_written(tmp_path: Path, name: str) -> None:
    check_path(tmp_path / name)


@pytest.mark.parametrize("name", ["", "/"])
def test_a_picture_needs_a_name(name: str) -> None:
    with pytest.raises(ConfigError, match=r"the name of a file that ends in \.png, \.svg or \.pdf"):
        check_path(Path(name))
