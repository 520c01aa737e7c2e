"""Conditions on trials: what `[[skip]]` says."""

from typing import Any

import pytest

from rumor.sim.study.study import Condition

SETTINGS = {
    "topology": "random-regular:d=4",
    "workers": 512,
    "p": 0.1,
    "lr": 1.0,
    "exact": True,
    "slow": ("3:10", "[5]:2"),
}


@pytest.mark.parametrize(
    ("wanted", "holds"),
    [
        ({"workers": 512}, True),
        ({"workers": 256}, False),
        ({"workers": ">=512"}, True),
        ({"workers": ">512"}, False),
        ({"workers": "< 1e3"}, True),
        ({"workers": "!=512"}, False),
        ({"workers": "!=511"}, True),
        ({"p": "<=0.1"}, True),
        ({"topology": "random-regular*"}, True),
        ({"topology": "random-regular"}, False),
        ({"topology": ["ring", "random-*"]}, True),
        ({"topology": []}, False),
        ({"exact": True}, True),
        ({"data": "skewed"}, True),
        ({"data": "iid"}, False),
        ({"data": "skewed", "workers": 512}, True),
        ({"data": "skewed", "workers": 1}, False),
        ({"rule": "gosgd"}, False),
        ({"topology": ">3"}, False),
        ({"topology": "!=ring"}, True),
        ({"topology": "!=random-*"}, False),
        ({"exact": "true"}, True),
        ({"exact": "false"}, False),
        ({"exact": 1}, False),
        ({"lr": "1"}, True),
        ({"lr": 1}, True),
        ({"lr": "1.5"}, False),
        ({"slow": "3:10"}, True),
        ({"slow": ["4:10", "3:*"]}, True),
        ({"slow": "4:10"}, False),
        ({"slow": "[5]:2"}, True),
        ({"slow": "5:2"}, False),
    ],
)
def test_a_condition_holds_if_all_that_it_wants_fits(wanted: dict[str, Any], holds: bool) -> None:
    assert Condition(wanted).holds(SETTINGS, {"data": "skewed"}) is holds


def test_a_name_of_an_axis_and_of_an_argument_means_either() -> None:
    settings, labels = {"topology": "hosts:sizes=8x8"}, {"topology": "two hosts"}
    assert Condition({"topology": "two*"}).holds(settings, labels)
    assert Condition({"topology": "hosts:*"}).holds(settings, labels)
    assert not Condition({"topology": "!=two hosts"}).holds(settings, labels)
    assert not Condition({"topology": "ring"}).holds(settings, labels)


def test_what_a_trial_leaves_to_its_default_fits_nothing() -> None:
    assert not Condition({"rule": "*"}).holds({}, {})
