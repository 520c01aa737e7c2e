"""Addresses from users and from untrusted peers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.gossip.errors import ConfigError
from rumor.gossip.transport.addresses import (
    is_loopback,
    is_wildcard,
    join_address,
    parse_address,
    split_address,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node-a:7700", "tcp://node-a:7700"),
        ("tcp://10.0.0.5:7700", "tcp://10.0.0.5:7700"),
        (" tcp://10.0.0.5:7700\n", "tcp://10.0.0.5:7700"),
        ("[::1]:7700", "tcp://[::1]:7700"),
        ("[fe80::1%eth0]:1", "tcp://[fe80::1%eth0]:1"),
        ("my_host.example.org:65535", "tcp://my_host.example.org:65535"),
        ("node-a:007700", "tcp://node-a:7700"),
        ("node-a", "tcp://node-a:7700"),
        ("tcp://[::1]", "tcp://[::1]:7700"),
    ],
)
def test_an_address_has_one_canonical_form(text: str, expected: str) -> None:
    assert parse_address(text) == parse_address(expected) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:*", "tcp://127.0.0.1:*"),
        ("127.0.0.1:0", "tcp://127.0.0.1:*"),
        ("*:7700", "tcp://*:7700"),
        ("tcp://*:*", "tcp://*:*"),
    ],
)
def test_a_wildcard_is_only_for_binding(text: str, expected: str) -> None:
    assert parse_address(text, any_port=True) == expected
    with pytest.raises(ConfigError, match=r"needs a (port|host)"):
        parse_address(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "7700",
        "node-a:",
        ":7700",
        "node-a:x",
        "node-a:-1",
        "node a:1",
        "http://a:1",
        "ipc:///tmp/a:1",
        "inproc://a:1",
        "udp://a:1",
        "tcp://tcp://a:1",
        "tcp://a:1/path",
        "tcp:///a:1",
        "a:1:2",
        "::1:7700",
        "[::1:7700",
        "[node]:1",
        "[]:1",
        "a;b:1",
        "eth0;10.0.0.1:1",
        "a%b:1",
        "ä:1",
        "a:\u0661",
        "a:1" + "0" * 5000,
        "a\0:1",
        "**:1",
        "*a:1",
        "a:1,b:2",
        "[fe80::1%]:1",
    ],
)
def test_an_invalid_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="is malformed: write HOST or HOST:PORT, such as"):
        parse_address(text)


@pytest.mark.parametrize("port", [65_536, 70_000, 999_999_999])
def test_a_port_out_of_range_is_refused(port: int) -> None:
    with pytest.raises(ConfigError, match="the port must be from 1 to 65535"):
        parse_address(f"node-a:{port}", any_port=True)


@pytest.mark.extended
@given(text=st.text(max_size=40), any_port=st.booleans())
def test_any_text_is_a_canonical_address_or_refused(text: str, any_port: bool) -> None:
    for given_text in (text, f"{text}:1", f"tcp://{text}", f"a:{text}", f"[{text}]:1"):
        try:
            address = parse_address(given_text, any_port=any_port)
        except ConfigError:
            continue
        assert parse_address(address, any_port=any_port) == address
        assert address.isascii() and address.startswith("tcp://")


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("tcp://node-a:7700", "node-a", "7700"),
        ("tcp://[::1]:7700", "::1", "7700"),
        ("tcp://127.0.0.1:*", "127.0.0.1", "*"),
    ],
)
def test_an_address_is_split_and_joined_again(address: str, host: str, port: str) -> None:
    assert split_address(address) == (host, port) and join_address(host, port) == address


LOOPBACK = ("localhost", "127.0.0.1", "127.8.8.8", "[::1]")
WILDCARD = ("0.0.0.0", "*", "[::]")


@pytest.mark.parametrize("host", [*LOOPBACK, *WILDCARD, "node-a", "10.0.0.5", "[fe80::1]"])
def test_loopback_is_only_this_machine_and_a_wildcard_is_all_interfaces(host: str) -> None:
    address = f"tcp://{host}:7700"
    assert (is_loopback(address), is_wildcard(address)) == (host in LOOPBACK, host in WILDCARD)
