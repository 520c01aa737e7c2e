"""``rumor rules``: a table of all rules, and one with its parameters."""

import json
from typing import Annotated

import pytest

from rumor.gossip.rules.registry import RULES
from rumor.gossip.specs.parameter import Parameter, parameters_of

from ..called import called


class Mine:
    """Pushes on Sundays."""

    def __init__(self, hour: Annotated[int, Parameter("when it does.", low=0, high=23)]) -> None:
        self.hour = hour


def rumor(*arguments: str) -> str:
    return called("rules", *arguments, status=0, columns=80).stdout


def test_the_table_names_every_rule_with_its_paper_and_whether_it_waits() -> None:
    text = rumor()
    assert all(f"\n{name} " in text for name in RULES)
    assert "Blot, Picard, Cord and Thome 2016" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    told = {each["name"]: each for each in json.loads(rumor("--json"))}
    assert list(told) == list(RULES)
    assert all(each["summary"] and each["source"] for each in told.values())
    assert (told["gosgd"]["waits"], told["gosgd"]["fixed_members"]) == (False, False)
    assert (told["diloco"]["waits"], told["diloco"]["fixed_members"]) == (True, False)
    assert (told["dpsgd"]["waits"], told["dpsgd"]["fixed_members"]) == (True, True)


@pytest.mark.parametrize("name", RULES)
def test_all_parameters_of_one_rule_are_shown(name: str) -> None:
    text = " ".join(rumor(name).split())
    for parameter in parameters_of(RULES[name]):
        assert f"{parameter.name}= {parameter.about} {parameter.help}" in text
    told = json.loads(rumor(name, "--json"))
    assert [each["name"] for each in told["parameters"]] == [
        each.name for each in parameters_of(RULES[name])
    ]
    assert told["parameters"] or "It takes no parameters." in text


def test_a_rule_of_the_user_is_shown_too() -> None:
    text = rumor(f"{__name__}:Mine")
    assert "Pushes on Sundays." in text and "waits" not in text
    assert "hour=" in text and "an integer in [0, 23]; must be given" in text
