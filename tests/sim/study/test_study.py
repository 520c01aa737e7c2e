"""Conditions on trials, as in `[[skip]]`."""

from typing import Any

import pytest

from rumor.sim.study.study import holds

SETTINGS = {"topology": "random-regular:d=4", "workers": 512, "p": 0.1, "lr": 1.0}


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"workers": 512}, True),
        ({"workers": 256}, False),
        ({"topology": "random-regular"}, False),
        ({"topology": ["ring", "random-regular:d=4"]}, True),
        ({"topology": []}, False),
        ({"data": "skewed"}, True),
        ({"data": "iid"}, False),
        ({"data": "skewed", "workers": 512}, True),
        ({"data": "skewed", "workers": 1}, False),
        ({"rule": "gosgd"}, False),
        ({"lr": 1}, True),
        ({"lr": 1.5}, False),
    ],
)
def test_a_condition_holds_if_all_its_keys_match(wanted: dict[str, Any], found: bool) -> None:
    assert holds(wanted, SETTINGS, {"data": "skewed"}) is found


def test_a_name_matches_an_axis_label_or_a_setting() -> None:
    settings, labels = {"topology": "hosts:sizes=8x8"}, {"topology": "two hosts"}
    assert holds({"topology": "two hosts"}, settings, labels)
    assert holds({"topology": "hosts:sizes=8x8"}, settings, labels)
    assert not holds({"topology": "ring"}, settings, labels)
