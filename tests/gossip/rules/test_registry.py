"""Rules are made by name."""

import pytest

from rumor.gossip.errors import ConfigError
from rumor.gossip.rules.asynchronous.adpsgd import ADPSGD
from rumor.gossip.rules.asynchronous.gosgd import GoSGD
from rumor.gossip.rules.registry import RULES, make_rule, takers_of


def test_a_rule_takes_its_settings() -> None:
    rule = make_rule("gosgd", 0.25, "per-second")
    assert isinstance(rule, GoSGD) and (rule.p, rule.emission) == (0.25, "per-second")
    rule = make_rule("adpsgd", 0.25)
    assert isinstance(rule, ADPSGD) and rule.p == 0.25


def test_without_settings_a_rule_has_its_own() -> None:
    gosgd, adpsgd = make_rule("gosgd"), make_rule("adpsgd")
    assert isinstance(gosgd, GoSGD) and (gosgd.p, gosgd.emission) == (0.1, "per-step")
    assert isinstance(adpsgd, ADPSGD) and adpsgd.p == 1.0


@pytest.mark.parametrize("name", RULES)
def test_every_name_makes_the_rule_of_that_name(name: str) -> None:
    assert make_rule(name).name == name


def test_an_unknown_rule_is_refused_with_the_names_there_are() -> None:
    names = ", ".join(RULES)
    with pytest.raises(ConfigError, match=rf"unknown rule 'sum'\. Valid names: {names}, or module"):
        make_rule("sum")
    with pytest.raises(ConfigError, match=r"unknown rule 'goosgd', did you mean 'gosgd'\? Valid"):
        make_rule("goosgd")


@pytest.mark.parametrize("name", [name for name in RULES if name not in takers_of("p")])
def test_a_rule_that_always_exchanges_takes_no_p(name: str) -> None:
    expected = f"p is 0.5: rule '{name}' does not take it, only gosgd and adpsgd; leave it out"
    with pytest.raises(ConfigError, match=expected):
        make_rule(name, 0.5)


def test_only_gosgd_takes_an_emission() -> None:
    with pytest.raises(ConfigError, match="emission is per-second: rule 'adpsgd'"):
        make_rule("adpsgd", emission="per-second")
    with pytest.raises(ConfigError, match="it must be per-step, per-second or adaptive"):
        make_rule("gosgd", emission="per-minute")
