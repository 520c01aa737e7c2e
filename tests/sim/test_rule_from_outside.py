"""A rule that the package knows nothing of is named by a spec, with parameters, and simulated."""

from typing import Annotated, Any, Literal

import numpy as np
import pytest

from rumor.gossip import ConfigError, Parameter, Turn, checked
from rumor.gossip.effects import Wait
from rumor.gossip.rule import Demands
from rumor.gossip.rules import make_rule, parts_of_spec, spec_of
from rumor.sim import Swarm, simulate


class EveryNth:
    """Push half of the weight after every so many steps."""

    name = "every-nth"
    summary = "gossip by the clock"
    registers: tuple[str, ...] = ()
    outstanding_max = 2
    demands = Demands(whole=False)

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

    def step(self, turn: Turn) -> Wait | None:
        """Push where it is time, and mix all that came."""
        self._steps += turn.trained
        if turn.merging or (turn.trained and self._steps % self.every == 0 and not self.silent):
            turn.push_half()
        for share in turn.shares():
            turn.mix(share)
        return None


class Demanding(EveryNth):
    """Does without a default."""

    name = "demanding"

    def __init__(self, p: float) -> None:
        super().__init__(max(1, round(1 / p)))
        self.p = p


MINE = f"{__name__}:EveryNth"


def ran(rule: str, **settings: Any) -> Any:
    return simulate(
        **{"task": "consensus", "workers": 6, "topology": "ring", "steps": 40, **settings},
        rule=rule,
    )


def test_a_rule_from_outside_runs_in_the_simulator_by_its_spec() -> None:
    often, seldom = ran(MINE), ran(f"{MINE}:every=8")
    assert often.summary["rule"] == "every-nth"
    assert seldom.summary["rule_spec"] == f"{MINE}:every=8"
    assert often.summary["pushes"] > 3 * seldom.summary["pushes"] > 0
    assert often.summary["weight_units_total"] == often.summary["weight_units_expected"]
    assert "every-nth with every = 8" in repr(seldom)


def test_all_kinds_of_parameters_are_read() -> None:
    rule = make_rule(f"{MINE}:silent=true,order=mix-first,every=3")
    assert isinstance(rule, EveryNth)
    assert (rule.every, rule.order, rule.silent) == (3, "mix-first", True)
    assert spec_of(rule) == f"{MINE}:every=3,order=mix-first,silent=true"
    assert ran(f"{MINE}:silent=true").summary["pushes"] == 0


def test_a_swarm_takes_the_spec_as_well() -> None:
    swarm = Swarm("quadratic", peers=3, rule=f"{MINE}:every=1")
    swarm.run(2.0)
    assert swarm.finish() and swarm.audit().balanced


def test_the_short_form_gives_a_parameter_of_ones_own_rule() -> None:
    spec = f"{__name__}:Demanding"
    assert make_rule(spec, np.float64(0.25)).every == 4  # type: ignore[attr-defined]
    summary = ran(spec, p=0.5).summary
    assert (summary["p"], summary["rule_spec"]) == (0.5, f"{spec}:p=0.5")
    with pytest.raises(ConfigError, match="it needs p=, a number"):
        make_rule(spec)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (f"{MINE}:every=0", "every is 0: it must be at least 1"),
        (f"{MINE}:every=x", "every=x: it must be an integer"),
        (f"{MINE}:order=none", "order is none: it must be push-first or mix-first"),
        (f"{MINE}:silent=1", "silent=1: it must be true or false"),
        (f"{MINE}:q=1", r"every= \(at least 1; 2 unless given\) and order=.*, not 'q'"),
        (f"{__name__}:Nothing", "has no class 'Nothing'"),
        (f"{__name__}:ran", "needs"),
        ("no.such.module:Rule", "there is no module 'no'"),
        ("rules.py:Rule", "'rules.py' is not a module's name"),
        (f"{__name__}:not_a_rule", "a rule has name, registers, outstanding_max and step"),
        (f"{__name__}:failing", r"raised ZeroDivisionError: .*\nat .*test_rule_from_outside.py"),
    ],
)
def test_what_is_wrong_with_a_spec_is_said(spec: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_rule(spec)


def not_a_rule() -> object:
    """What a user may name by mistake."""
    return object()


def failing(parts: int = 0) -> object:
    """A user's mistake."""
    return 1 / parts


def test_constructors_check_without_a_spec_too() -> None:
    with pytest.raises(ConfigError, match="every is 0: it must be at least 1"):
        EveryNth(0)
    with pytest.raises(ConfigError, match="every is True: it must be an integer"):
        EveryNth(True)
    with pytest.raises(ConfigError, match="silent is 1: it must be true or false"):
        EveryNth(silent=1)  # type: ignore[arg-type]


def test_a_rule_without_a_name_to_import_has_no_spec() -> None:
    class Local(EveryNth):
        """Lives in a function."""

    with pytest.raises(ConfigError):
        spec_of(Local())


def test_a_rule_that_forgets_a_parameter_has_no_spec() -> None:
    rule = EveryNth()
    del rule.every
    with pytest.raises(ConfigError, match="has no attribute every"):
        spec_of(rule)


def test_a_spec_is_split_without_importing_anything() -> None:
    assert parts_of_spec("gosgd") == ("gosgd", [])
    assert parts_of_spec("gosgd:p=1") == ("gosgd", ["p=1"])
    assert parts_of_spec("no.such:Rule") == ("no.such:Rule", [])
    assert parts_of_spec("no.such:Rule:a=1,b=2") == ("no.such:Rule", ["a=1", "b=2"])
