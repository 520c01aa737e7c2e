"""Parameters are declared in signatures and restrict their values."""

from dataclasses import MISSING, dataclass
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from rumor.gossip.errors import ConfigError
from rumor.gossip.specs.parameter import (
    Parameter,
    check_settings,
    checked,
    parameters_of,
    setting,
    settings_of,
)


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


RANGES = [
    ("at_most", "an integer of at most 3", "3", 3, ("4", "1.5")),
    ("between", "in [0, 1]", "1", 1.0, ("inf", "-1")),
    ("text", "a string", "a b", "a b", ("",)),
    ("only", "only", "only", "only", ("other",)),
    ("above", "above 0", "0.1", 0.1, ("0",)),
    ("below", "below 1", "0", 0.0, ("1",)),
    ("inside", "in (0, 1)", "0.5", 0.5, ("nan",)),
    ("counted", "an integer in [1, 9]", "9", 9, ("10",)),
    ("even", "an even number", "4", 8, ("odd",)),
]
"""For each parameter: allowed values, a valid text and its value, and invalid texts."""


@pytest.mark.parametrize(("name", "allowed", "valid", "value", "invalid"), RANGES)
def test_a_range_is_described_in_words_and_checked(
    name: str, allowed: str, valid: str, value: object, invalid: tuple[str, ...]
) -> None:
    by_name = {each.name: each for each in parameters_of(ranged)}
    assert [*by_name] == [row[0] for row in RANGES]
    assert by_name[name].allowed == allowed and by_name[name].read(valid) == value
    for text in invalid:
        with pytest.raises(ConfigError) as caught:
            by_name[name].read(text)
        assert str(caught.value) == f"{name}={text}: it must be {allowed}"


def unreadable(value: "Nowhere" = 0) -> None:  # type: ignore[name-defined] # noqa: F821
    """A function whose annotation names an undefined type."""


def test_an_unreadable_signature_is_reported() -> None:
    with pytest.raises(ConfigError, match=r"signature of .* cannot be read: name 'Nowhere'"):
        parameters_of(unreadable)


def test_a_parameter_describes_its_range_and_default() -> None:
    parameters = Parameter(low=0, default=0.5), Parameter(otherwise="all"), Parameter(high=1)
    assert [each.about for each in parameters] == [
        "at least 0; default: 0.5",
        "a number; default: all",
        "at most 1; must be given",
    ]


def test_a_constructor_with_string_annotations_is_checked() -> None:
    @checked
    def build(every: "Annotated[int, Parameter(low=1)]") -> None:
        """A constructor of a module that imports annotations from `__future__`."""

    build(1)
    with pytest.raises(ConfigError, match="every"):
        build(0)


@dataclass(frozen=True, kw_only=True)
class Kiln:
    """A config whose fields declare their ranges."""

    name: str = setting(MISSING, "Name of the kiln.")
    heat_s: float | None = setting(1.0, "Duration of heating.", above=0)
    reach_m: float = setting(inf, "Reach of its heat.")
    doors: int = setting(1, "Number of doors.", low=1)
    glaze: bool = setting(False, "Glaze the pots.")
    rate: Literal["slow", "fast"] = setting("slow", "Rate of heating.")
    pots: tuple[str, ...] = setting((), "Pots in the kiln.")
    guests: tuple[str | Parameter, ...] = setting((), "Invited guests.")
    owner: "str | Fraction" = setting("me", "Owner of the kiln.")  # type: ignore[name-defined] # noqa: F821
    plan: Path | None = setting(None, "Drawing of the kiln.")
    inner: dict[str, int] = setting(dict, "A value without a text form.")

    def __post_init__(self) -> None:
        check_settings(self)


def test_fields_with_a_text_form_are_settings() -> None:
    declared = settings_of(Kiln)
    assert " ".join(declared) == "name heat_s reach_m doors glaze rate pots guests owner plan"
    assert declared["doors"].about == "an integer of at least 1; default: 1"
    assert declared["pots"].is_several and declared["plan"].kind is Path
    assert (declared["owner"].kind, declared["owner"].is_mixed) == (str, True)
    assert str(declared["plan"].read("a.svg")) == "a.svg"
    assert declared["doors"].as_json()["allowed"] == "an integer of at least 1"


def test_settings_in_range_are_accepted_and_numpy_numbers_become_python_numbers() -> None:
    required: Any = {"name": "a", "pots": ("b",), "guests": "zoe", "owner": object()}
    assert Kiln(**required, heat_s=None).heat_s is None
    numbers: Any = {"doors": np.int64(3), "reach_m": np.float32(2), "glaze": np.bool_(True)}
    made = Kiln(**required, **numbers)
    numbers_kept = made.doors, made.reach_m, made.glaze
    assert numbers_kept == (3, 2.0, True) and [*map(type, numbers_kept)] == [int, float, bool]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heat_s": 0}, "heat_s is 0: it must be above 0"),
        ({"heat_s": inf}, "heat_s is inf: it must be above 0"),
        ({"heat_s": 10**400}, "it must be above 0"),
        ({"heat_s": "1"}, "heat_s is '1': it must be a number"),
        ({"doors": True}, "doors is True: it must be an integer"),
        ({"doors": 0}, "doors is 0: it must be an integer of at least 1"),
        ({"glaze": 1}, "glaze is 1: it must be true or false"),
        ({"rate": 3}, "rate is 3: it must be slow or fast"),
        ({"rate": "warm"}, "rate is 'warm': it must be slow or fast"),
        ({"pots": "a"}, "pots is 'a': it must be a tuple"),
        ({"pots": (1,)}, "pots is 1: it must be a string"),
        ({"name": "a\0b"}, "it must have no NUL character"),
        ({"plan": 3}, "plan is 3: it must be a path"),
    ],
)
def test_settings_of_the_wrong_type_or_range_are_named(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Kiln(**{"name": "a"} | changes)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("glaze", "1", True),
        ("glaze", "0", False),
        ("glaze", "true", True),
        ("doors", "2", 2),
        ("pots", "a, b,", ("a", "b")),
        ("pots", "a", ("a",)),
        ("plan", "/a", Path("/a")),
    ],
)
def test_an_environment_variable_may_hold_several_values_or_a_switch(
    name: str, text: str, value: Any
) -> None:
    assert settings_of(Kiln)[name].read_all(text) == value
