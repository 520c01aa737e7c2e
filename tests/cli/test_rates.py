"""Rates, as people type them."""

import pytest

from rumor.cli.rates import parse_rate
from rumor.gossip.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "bytes_s"),
    [
        ("200mbit", 25e6),
        ("200Mbit/s", 25e6),
        ("200 Mbit/s", 25e6),
        (" 200mbit ", 25e6),
        ("1gbit", 125e6),
        ("1.5Gbit", 187.5e6),
        (".5gbit", 62.5e6),
        ("64kbit", 8000.0),
        ("8bit", 1.0),
        ("100mbitps", 12.5e6),
        ("25MB/s", 25e6),
        ("25MB", 25e6),
        ("25mB/s", 25e6),
        ("1GB/s", 1e9),
        ("500kB/s", 5e5),
        ("1MiB/s", 1024.0**2),
        ("1GiB", 1024.0**3),
        ("800B/s", 800.0),
        ("12KiB", 12288.0),
    ],
)
def test_a_rate_is_a_number_and_a_unit(text: str, bytes_s: float) -> None:
    assert parse_rate(text) == pytest.approx(bytes_s, rel=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "200",
        "mbit",
        "fast",
        "25mb",
        "25mb/s",
        "200mbps",
        "-5mbit",
        "0mbit",
        "0.0MB/s",
        "nanmbit",
        "infmbit",
        "1e3mbit",
        "1,5gbit",
        "1tbit",
        "200mbit/h",
        "200 m bit",
        "\u0662mbit",
        "9" * 400 + "gbit",
    ],
)
def test_what_could_mean_two_things_or_none_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ConfigError, match="as in 200mbit, 1gbit or 25MB/s"):
        parse_rate(text)
