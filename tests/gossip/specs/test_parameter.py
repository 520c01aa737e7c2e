"""Parameters: what signatures declare, and what is then allowed."""

from typing import Annotated, Literal

import pytest

from rumor.gossip.errors import ConfigError
from rumor.gossip.specs.parameter import Parameter, checked, parameters_of


def ranged(
    at_most: Annotated[int, Parameter(high=3)] = 1,
    between: Annotated[float, Parameter(low=0, high=1)] = 0.5,
    text: str = "",
    only: Literal["only"] = "only",
    above: Annotated[float, Parameter(above=0)] = 1.0,
    below: Annotated[float, Parameter(below=1)] = 0.0,
    inside: Annotated[float, Parameter(above=0, below=1)] = 0.5,
    counted: Annotated[int, Parameter(low=1, high=9)] = 1,
    even: Annotated[int, Parameter(form="an even number", convert=lambda text: 2 * int(text))] = 2,
    left_out: tuple[int, ...] = (),
    *args: object,
    **others: object,
) -> None:
    """Has a parameter of each kind."""


def test_ranges_are_told_in_words() -> None:
    assert {each.name: each.allowed for each in parameters_of(ranged)} == {
        "at_most": "an integer of at most 3",
        "between": "in [0, 1]",
        "text": "a string",
        "only": "only",
        "above": "above 0",
        "below": "below 1",
        "inside": "in (0, 1)",
        "counted": "an integer in [1, 9]",
        "even": "an even number",
    }


def test_what_is_in_range_is_read() -> None:
    by_name = {each.name: each for each in parameters_of(ranged)}
    right = {"at_most": "3", "between": "1", "text": "a b", "only": "only", "above": "0.1"}
    assert {name: by_name[name].read(text) for name, text in right.items()} == {
        "at_most": 3,
        "between": 1.0,
        "text": "a b",
        "only": "only",
        "above": 0.1,
    }
    assert by_name["even"].read("4") == 8


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("at_most", "4"), ("at_most", "1.5"), ("between", "inf"), ("between", "-1")),
        *(("only", "other"), ("above", "0"), ("below", "1"), ("inside", "nan"), ("text", "")),
        *(("counted", "10"), ("even", "odd")),
    ],
)
def test_what_is_out_of_range_is_refused(name: str, text: str) -> None:
    (parameter,) = (each for each in parameters_of(ranged) if each.name == name)
    with pytest.raises(ConfigError) as caught:
        parameter.read(text)
    assert str(caught.value) == f"{name}={text}: it must be {parameter.allowed}"


def unreadable(value: "Nowhere" = 0) -> None:  # type: ignore[name-defined] # noqa: F821
    """Its annotation is of nothing that there is."""


def test_a_signature_that_cannot_be_read_is_said() -> None:
    with pytest.raises(ConfigError, match=r"signature of .* cannot be read: name 'Nowhere'"):
        parameters_of(unreadable)


def test_a_default_is_told_where_there_is_one() -> None:
    told = Parameter(low=0, default=0.5), Parameter(otherwise="all"), Parameter(high=1)
    assert [each.about for each in told] == [
        "at least 0; default: 0.5",
        "a number; default: all",
        "at most 1; must be given",
    ]


def test_a_constructor_whose_annotations_are_strings_is_checked_too() -> None:
    @checked
    def build(every: "Annotated[int, Parameter(low=1)]") -> None:
        """As in a module that imports annotations from `__future__`."""

    build(1)
    with pytest.raises(ConfigError, match="every"):
        build(0)
