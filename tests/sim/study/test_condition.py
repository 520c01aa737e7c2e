"""Conditions on cells: what `[[skip]]` says."""

from typing import Any

import pytest

from rumor.sim.study.condition import Condition

SETTINGS = {"topology": "random-regular:d=4", "workers": 512, "p": 0.1, "exact": True}


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
    ],
)
def test_a_condition_holds_if_all_that_it_wants_fits(wanted: dict[str, Any], holds: bool) -> None:
    assert Condition(wanted).holds(SETTINGS, {"data": "skewed"}) is holds


def test_what_a_cell_leaves_to_its_default_fits_nothing() -> None:
    assert not Condition({"rule": "*"}).holds({}, {})
