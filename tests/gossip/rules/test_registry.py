"""Rules are made by name."""

import pytest

from rumor.gossip.errors import ConfigError
from rumor.gossip.protocol.rule import Rule
from rumor.gossip.rules.asynchronous.adpsgd import ADPSGD
from rumor.gossip.rules.asynchronous.gosgd import GoSGD
from rumor.gossip.rules.registry import RULES, make_rule, spec_of, takers_of


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
    rule = make_rule(name)
    assert isinstance(rule, Rule) and rule.name == spec_of(rule) == name


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


@pytest.mark.parametrize(
    "spec",
    [
        *("adpsgd:p=-0.1", "adpsgd:p=1.5", "adpsgd:answers_max=0", "sgp:outstanding_max=0"),
        *("gosgd:emission=per-minute", "gosgd:p=-0.1", "gosgd:p=nan"),
        *("gosgd:outstanding_max=0", "gosgd:samples=-1", "gosgd:layers=0"),
        *("easgd:alpha=1.1", "easgd:alpha=-0.1", "easgd:every=0"),
        *("seasgd:alpha=1.1", "seasgd:alpha=-0.1", "seasgd:every=0", "seasgd:progress=average"),
        *("choco:gamma=-0.1", "choco:gamma=1.5", "choco:gamma=nan", "choco:gamma=much"),
        *("sparseloco:h=0", "sparseloco:lr=2.1", "sparseloco:decay=-0.1", "sparseloco:decay=1.1"),
        *("hybrid:between=1.1", "hybrid:between=-0.1", "hybrid:h=0", "local-sgd:h=0"),
        *("diloco:lr=2.5", "diloco:momentum=-0.1", "gasloc:alpha=1.5", "noloco:gamma=0"),
    ],
)
def test_an_argument_out_of_range_is_refused(spec: str) -> None:
    argument = spec.partition(":")[2]
    with pytest.raises(ConfigError, match=f"{argument}: it must be "):
        make_rule(spec)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("gosgd:p=1.1", "p is 1.1: "),
        ("gosgd:p=1.1,emission=adaptive", "p is 1.1: "),
        ("gosgd:robust=clip:tau=-1", "robust filter '"),
        ("gosgd:robust=krum", "robust filter '"),
        ("seasgd:progress=master", "they go together, as in seasgd:progress=master,master="),
        ("seasgd:master=p0", "they go together, as in seasgd:progress=master,master="),
    ],
)
def test_what_does_not_go_together_is_refused(spec: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_rule(spec)


def test_only_gosgd_takes_an_emission() -> None:
    with pytest.raises(ConfigError, match="emission is per-second: rule 'adpsgd'"):
        make_rule("adpsgd", emission="per-second")
    with pytest.raises(ConfigError, match="it must be per-step, per-second or adaptive"):
        make_rule("gosgd", emission="per-minute")
