"""Rules are made by name."""

import pytest

from rumor.gossip.errors import ConfigError
from rumor.gossip.protocol.rule import Rule, requirements_of
from rumor.gossip.rules.registry import RULES, make_rule, spec_of


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


@pytest.mark.parametrize(
    ("rule", "wire", "anchor", "sent"),
    [
        ("gosgd", "float32", False, False),
        ("gosgd", "int8", True, False),
        ("gosgd", "topk:0.1", False, True),
        ("choco", "int8", False, False),
        ("choco", "topk:0.1", False, False),
    ],
)
def test_a_vector_keeps_what_is_needed(rule: str, wire: str, anchor: bool, sent: bool) -> None:
    requirements = requirements_of(make_rule(rule))
    assert requirements.needs_anchor(wire) is anchor
    assert requirements.notes_sent(wire) is sent


def test_a_rule_that_always_exchanges_takes_no_p() -> None:
    expected = "p is 0.5: rule 'sgp' does not take it, only gosgd and adpsgd; leave it out"
    with pytest.raises(ConfigError, match=expected):
        make_rule("sgp", 0.5)


@pytest.mark.parametrize(
    ("spec", "emission", "words"),
    [
        ("gosgd:p=1.1", "per-step", "p is 1.1: "),
        ("gosgd:robust=clip:tau=-1", "per-step", "robust filter '"),
        ("gosgd:robust=krum", "per-step", "robust filter '"),
        ("seasgd:progress=master", "per-step", "they go together, as in seasgd:progress=master,m"),
        ("seasgd:master=p0", "per-step", "they go together, as in seasgd:progress=master,master="),
        ("adpsgd", "per-second", "emission is per-second: rule 'adpsgd'"),
        ("gosgd", "per-minute", "it must be per-step, per-second or adaptive"),
    ],
)
def test_what_does_not_go_together_is_refused(spec: str, emission: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_rule(spec, emission=emission)
