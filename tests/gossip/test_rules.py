"""Rules are made by name."""

import pytest

from rumor.gossip import ConfigError, GoSGD
from rumor.gossip.rules import RULES, make_rule


def test_a_rule_takes_its_settings() -> None:
    rule = make_rule("gosgd", 0.25, "per-second")
    assert isinstance(rule, GoSGD) and (rule.p, rule.emission) == (0.25, "per-second")


@pytest.mark.parametrize("name", RULES)
def test_every_name_makes_the_rule_of_that_name(name: str) -> None:
    assert make_rule(name).name == name


def test_an_unknown_rule_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ConfigError, match=r"unknown rule 'sgp'\. Valid names: gosgd"):
        make_rule("sgp")
