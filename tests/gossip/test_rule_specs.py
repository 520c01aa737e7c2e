"""Specs name built-in and user-defined rules and set their parameters."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pytest

from rumor.gossip.effects.effects import Wait
from rumor.gossip.errors import ConfigError
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.rule import Requirements, Rule, requirements_of
from rumor.gossip.rules.plugin import name_of
from rumor.gossip.rules.registry import (
    RULES,
    make_rule,
    parts_of_spec,
    read_rule,
    rules_help,
    spec_of,
)
from rumor.gossip.specs.parameter import Parameter, checked


class EveryNth:
    """Push half of the weight after every *every* steps."""

    name = "every-nth"
    summary = "gossip by the clock"
    registers: tuple[str, ...] = ()
    outstanding_max = 2
    requirements = Requirements(whole=False)

    @checked
    def __init__(
        self,
        every: Annotated[int, Parameter("steps from push to push.", low=1)] = 2,
        *,
        order: Literal["push-first", "mix-first"] = "push-first",
        silent: bool = False,
    ) -> None:
        self.every = every
        self.order = order
        self.silent = silent
        self._steps = 0

    def step(self, context: RuleContext) -> Wait | None:
        self._steps += context.trained
        if context.merging or (
            context.trained and self._steps % self.every == 0 and not self.silent
        ):
            context.push_half()
        for share in context.shares():
            context.mix(share)
        return None


class RequiresP(EveryNth):
    name = "requires-p"

    def __init__(self, p: float) -> None:
        super().__init__(max(1, round(1 / p)))
        self.p = p


class ChecksSum(EveryNth):
    def __init__(self, p: float = 0.5, q: float = 0.5) -> None:
        super().__init__()
        if p + q > 1:
            raise ConfigError(f"p and q are {p + q} together: it must be 1 at most")


EVERY_NTH = f"{__name__}:EveryNth"


def test_all_kinds_of_parameters_are_parsed() -> None:
    rule = make_rule(f"{EVERY_NTH}:silent=true,order=mix-first,every=3")
    assert isinstance(rule, EveryNth)
    assert (rule.every, rule.order, rule.silent) == (3, "mix-first", True)
    assert spec_of(rule) == f"{EVERY_NTH}:every=3,order=mix-first,silent=true"


def test_the_short_form_works_for_a_user_defined_rule() -> None:
    spec = f"{__name__}:RequiresP"
    assert str(read_rule(spec, np.float64(0.25))) == f"{spec}:p=0.25"
    assert make_rule(spec, 0.25).every == 4  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="it needs p=, a number"):
        make_rule(spec)


def test_a_parameter_may_be_given_only_once() -> None:
    with pytest.raises(ConfigError, match=r"p is 0\.5, and rule 'gosgd:p=0\.1' gives it, too"):
        make_rule("gosgd:p=0.1", 0.5)
    with pytest.raises(ConfigError, match="'fast' is not key=value; it takes p= "):
        make_rule("gosgd:fast")


def test_short_forms_are_kept_separate() -> None:
    spec = read_rule("gosgd:outstanding_max=3", 0.5)
    assert spec.short_forms() == {"rule": "gosgd:outstanding_max=3", "p": 0.5}
    assert str(spec) == "gosgd:p=0.5,outstanding_max=3"


def test_help_names_common_rules_and_parameters() -> None:
    named = rules_help().partition(" or one of ")[0].split(", ")
    assert set(named) < set(RULES) and f" {len(RULES) - len(named)} more" in rules_help()
    assert "`rumor rules`" in rules_help()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (f"{EVERY_NTH}:order=none", "order=none: it must be push-first or mix-first"),
        (f"{EVERY_NTH}:silent=1", "silent=1: it must be true or false"),
        (
            f"{EVERY_NTH}:q=1",
            r"every= \(an integer of at least 1; default: 2\) and order=.*, not 'q'",
        ),
        (f"{__name__}:unnameable", "needs given, which is not an int, float, bool, str or Literal"),
        (f"{__name__}:ChecksSum:p=1", r"p and q are 1\.5 together"),
        ("no.such.module:Rule", "there is no module 'no'"),
        ("rules.py:Rule", "there is no module 'rules'"),
        ("nowhere/json.py:Rule", "json.py cannot be imported: the file does not exist"),
        ("my-rules:Rule", "'my-rules' is not a module's name"),
        (f"{__name__}:failing", r"raised ZeroDivisionError: .*\nat .*test_rule_specs.py"),
        (f"{__name__}:Nothing", "has no function or class 'Nothing'; it has .*EveryNth"),
        (f"{__name__}:EVERY_NTH", "has no function or class 'EVERY_NTH'"),
        (f"{__name__}:not_a_rule", "a rule has name, registers, outstanding_max and step"),
    ],
)
def test_errors_in_a_spec_are_described(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_rule(spec)


def not_a_rule() -> object:
    return object()


def failing(parts: int = 0) -> object:
    return 1 / parts


def test_functions_keep_their_names_and_other_objects_have_class_names() -> None:
    assert name_of(failing) == f"{__name__}:failing"
    assert name_of(partial(failing)).endswith(":partial")


def test_a_rule_that_cannot_be_imported_or_lacks_attributes_has_no_spec(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Local(EveryNth):
        """A rule class inside a function."""

    with pytest.raises(ConfigError):
        spec_of(Local())
    rule, incomplete = EveryNth(), EveryNth()
    del incomplete.every
    with pytest.raises(ConfigError, match="has no attribute every"):
        spec_of(incomplete)
    monkeypatch.setattr(sys.modules[__name__], "EveryNth", ChecksSum)
    with pytest.raises(ConfigError, match="is another class when it is imported by that name"):
        spec_of(rule)


def test_a_spec_is_split_without_imports() -> None:
    assert parts_of_spec("gosgd") == ("gosgd", None)
    assert parts_of_spec("gosgd:p=1") == ("gosgd", "p=1")
    assert parts_of_spec("no.such:Rule") == ("no.such:Rule", None)
    assert parts_of_spec("no.such:Rule:a=1,b=2") == ("no.such:Rule", "a=1,b=2")


def unnameable(given: object) -> object:
    return given


def test_a_module_that_raises_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_rule.py").write_text("x = 1\n1 / 0\n")
    (tmp_path / "misspelt_rule.py").write_text("def f(:\n")
    (tmp_path / "quitting_rule.py").write_text("raise SystemExit\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, message in {
        "broken_rule": r"raised ZeroDivisionError: division by zero\nat .*broken_rule.py:2",
        "misspelt_rule": r"raised SyntaxError: .*\nat .*misspelt_rule.py:1",
        "quitting_rule": r"raised SystemExit\nat .*quitting_rule.py:1",
    }.items():
        with pytest.raises(ConfigError, match=message):
            make_rule(f"{name}:Rule")


@pytest.mark.parametrize("name", RULES)
def test_every_name_creates_the_rule_of_that_name(name: str) -> None:
    rule = make_rule(name)
    assert isinstance(rule, Rule) and rule.name == spec_of(rule) == name


def test_an_unknown_rule_is_refused_with_the_known_names() -> None:
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
def test_a_vector_keeps_the_anchor_and_sent_values_only_if_needed(
    rule: str, wire: str, anchor: bool, sent: bool
) -> None:
    requirements = requirements_of(make_rule(rule))
    assert requirements.needs_anchor(wire) is anchor
    assert requirements.notes_sent(wire) is sent


def test_a_rule_without_a_p_parameter_refuses_p() -> None:
    expected = "p is 0.5: rule 'sgp' does not take it, only gosgd and adpsgd; leave it out"
    with pytest.raises(ConfigError, match=expected):
        make_rule("sgp", 0.5)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("gosgd:p=1.1", "p is 1.1: "),
        ("gosgd:p=1.1,emission=adaptive", "p is 1.1: "),
        ("gosgd:robust=clip:tau=-1", "robust filter '"),
        ("gosgd:robust=krum", "robust filter '"),
        ("seasgd:progress=master", "they go together, as in seasgd:progress=master,m"),
        ("seasgd:master=p0", "they go together, as in seasgd:progress=master,master="),
        ("gosgd:emission=per-minute", "it must be per-step, per-second or adaptive"),
    ],
)
def test_incompatible_settings_are_refused(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_rule(spec)
