"""One base to catch, and a sender to blame."""

import pytest

from rumor.gossip import errors
from rumor.gossip.errors import ConfigError, DecodeError, RemoteProtocolError, RumorError


@pytest.mark.parametrize("name", [name for name in errors.__all__ if name[0].isupper()])
def test_every_error_is_a_rumor_error(name: str) -> None:
    assert issubclass(getattr(errors, name), RumorError)


def test_a_setting_out_of_range_is_a_value_error_too() -> None:
    assert issubclass(ConfigError, ValueError)


def test_an_error_of_a_peer_says_whose_it_is() -> None:
    assert RemoteProtocolError("too long", "a").sender == "a"
    assert DecodeError("not ours").sender is None
