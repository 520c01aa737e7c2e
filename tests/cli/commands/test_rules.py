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


def test_table_and_json_list_every_rule_with_its_properties() -> None:
    text = rumor()
    assert all(f"\n{name} " in text for name in RULES)
    assert "Blot, Picard, Cord and Thome 2016" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    data = {each["name"]: each for each in json.loads(rumor("--json"))}
    assert list(data) == list(RULES)
    assert all(each["summary"] and each["source"] for each in data.values())
    assert (data["gosgd"]["waits"], data["gosgd"]["fixed_members"]) == (False, False)
    assert (data["diloco"]["waits"], data["diloco"]["fixed_members"]) == (True, False)
    assert (data["dpsgd"]["waits"], data["dpsgd"]["fixed_members"]) == (True, True)


@pytest.mark.parametrize("name", RULES)
def test_all_parameters_of_one_rule_are_shown(name: str) -> None:
    text = " ".join(rumor(name).split())
    for parameter in parameters_of(RULES[name]):
        assert f"{parameter.name}= {parameter.about} {parameter.help}" in text
    data = json.loads(rumor(name, "--json"))
    assert [each["name"] for each in data["parameters"]] == [
        each.name for each in parameters_of(RULES[name])
    ]
    assert data["parameters"] or "It takes no parameters." in text


def test_a_user_defined_rule_is_shown() -> None:
    text = rumor(f"{__name__}:Mine")
    assert "Pushes on Sundays." in text and "waits" not in text
    assert "hour=" in text and "an integer in [0, 23]; must be given" in text
