"""Specs: a name with parameters."""

from collections.abc import Callable
from typing import Annotated

import pytest

from rumor.gossip.errors import ConfigError
from rumor.gossip.specs.parameter import Parameter
from rumor.gossip.specs.spec import described, make


def plain() -> str:
    """Takes nothing."""
    return "plain"


def part(fraction: Annotated[float, Parameter(above=0, high=1, is_bare=True)]) -> float:
    """Takes one number, without its name."""
    return fraction


def traced(
    times: int = 1, path: Annotated[str, Parameter(takes_rest=True)] = ""
) -> tuple[int, str]:
    """Takes a path, commas included."""
    return times, path


KNOWN: dict[str, Callable[..., object]] = {"plain": plain, "part": part, "traced": traced}


def test_a_spec_calls_the_named_function_with_its_parameters() -> None:
    assert make("thing", "plain", KNOWN) == "plain"
    assert make("thing", "part:0.5", KNOWN) == 0.5
    assert make("thing", "traced:times=2,path=a,b=c", KNOWN) == (2, "a,b=c")
    assert make("thing", "traced", KNOWN) == (1, "")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "prat:1",
            "unknown thing 'prat', did you mean 'part'? Valid names: plain, part:FRACTION, traced",
        ),
        ("", "unknown thing ''. Valid names: plain, part:FRACTION, traced"),
        ("plain:", "thing 'plain:': it takes no parameters: write 'plain'"),
        ("part", "thing 'part': it needs FRACTION, in (0, 1]"),
        ("part:2", "thing 'part:2': fraction=2: it must be in (0, 1]"),
        (
            "traced:a=1",
            "thing 'traced:a=1': it takes times= (an integer; default: 1) and path= (a string; "
            "default: empty), not 'a'",
        ),
        ("traced:times=1,times=2", "thing 'traced:times=1,times=2': times is given twice"),
    ],
)
def test_errors_in_a_spec_are_described(spec: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make("thing", spec, KNOWN)
    assert str(caught.value) == message


def test_all_valid_specs_are_described_in_one_line() -> None:
    assert described(KNOWN) == (
        "plain (takes nothing), part:FRACTION (takes one number, without its name), "
        "traced (takes a path, commas included; times=, path=)"
    )
