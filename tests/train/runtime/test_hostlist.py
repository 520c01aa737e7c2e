"""Lists of hosts: what Slurm writes is what is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.gossip import ConfigError
from rumor.train.runtime.script.cluster import expand, expand_counts


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("login", ["login"]),
        ("10.0.0.[1-3]", ["10.0.0.1", "10.0.0.2", "10.0.0.3"]),
        (
            "node[01-03,7],gpu-a[1-2]b",
            ["node01", "node02", "node03", "node7", "gpu-a1b", "gpu-a2b"],
        ),
        ("r[1-2]n[08-10]", ["r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("[1-2].rack", ["1.rack", "2.rack"]),
    ],
)
def test_a_list_is_written_out(text: str, hosts: list[str]) -> None:
    assert list(expand(text)) == hosts


@pytest.mark.parametrize(
    "text",
    [
        *("", ",", "a,,b", "a b", "node[1-2", "node1-2]", "node[]", "node[a-b]", "node[[1-2]]"),
        *("node[3-1]", "node[1-2,]", "n[٣]"),
    ],
)
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        expand(text)


@given(st.lists(st.tuples(st.integers(0, 128), st.integers(1, 5)), min_size=1, max_size=5))
def test_counts_are_written_out(runs: list[tuple[int, int]]) -> None:
    text = ",".join(str(count) if times == 1 else f"{count}(x{times})" for count, times in runs)
    assert list(expand_counts(text)) == [count for count, times in runs for _ in range(times)]


@pytest.mark.parametrize("text", ["", "2(3)", "x", "1,"])
def test_what_are_no_counts_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no list of counts"):
        expand_counts(text)
