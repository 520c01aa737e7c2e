"""One base to catch, and a sender to blame."""

from rumor.gossip import errors
from rumor.gossip.errors import ConfigError, DecodeError, RemoteProtocolError, RumorError


def test_every_error_is_a_rumor_error_and_one_of_a_peer_says_whose_it_is() -> None:
    named = [getattr(errors, name) for name in errors.__all__ if name[0].isupper()]
    assert all(issubclass(error, RumorError) for error in named)
    assert issubclass(ConfigError, ValueError), "a setting out of range is that, too"
    assert RemoteProtocolError("too long", "a").sender == "a"
    assert DecodeError("not ours").sender is None
