"""Networks: presets and files, and errors that name the setting."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from rumor.gossip.errors import ConfigError
from rumor.sim.models.network import PRESETS, Host, Link, NetworkConfig, read_network
from rumor.sim.models.tables import as_table

FULL = NetworkConfig(
    latency_s=0.02,
    jitter=0.3,
    bandwidth_mbit=100.5,
    downlink_mbit=math.inf,
    loss=0.01,
    duplicates=0.02,
    reorder=0.03,
    hosts=(
        Host(workers=("0", "1"), bandwidth_mbit=50.0, downlink_mbit=70.0),
        Host(workers=("peer-3",)),
    ),
    links=(
        Link(source=("0",), to=("2", "3"), latency_s=0.5, bandwidth_mbit=1.0, loss=0.5),
        Link(source=("0",), bandwidth_mbit=3.0, shared=True),
    ),
)


def write(path: Path, content: object) -> str:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def refusal(path: Path, content: object) -> str:
    with pytest.raises(ConfigError) as caught:
        read_network(write(path, content))
    text = str(caught.value)
    assert text.startswith(f"network {path}: ") and len(text.splitlines()) == 1
    return text.removeprefix(f"network {path}: ")


def test_presets_get_worse_from_first_to_last() -> None:
    assert list(PRESETS) == ["ideal", "datacenter", "lan", "wan", "lossy"]
    networks = list(PRESETS.values())
    assert networks == sorted(networks, key=lambda network: network.latency_s)
    rates = [network.bandwidth_mbit or math.inf for network in networks]
    assert rates == sorted(rates, reverse=True)
    assert [network.loss > 0 for network in networks] == [False, False, False, True, True]


@pytest.mark.parametrize("config", [FULL, *PRESETS.values()])
def test_a_file_can_describe_every_setting_of_a_network(
    config: NetworkConfig, tmp_path: Path
) -> None:
    assert read_network(write(tmp_path / "net.json", as_table(config))) == config


def test_changes_and_files_leave_other_settings_alone(tmp_path: Path) -> None:
    content = {"preset": "wan", "loss": 0.5, "bandwidth_mbit": None}
    found = read_network(write(tmp_path / "net.json", content))
    assert found == replace(PRESETS["wan"], loss=0.5, bandwidth_mbit=None)
    assert FULL.with_changes() == FULL
    changes = {"latency_s": 0.0, "loss": 0.0, "duplicates": 0.5, "bandwidth_mbit": 2.0}
    assert FULL.with_changes(**changes) == replace(FULL, **changes)  # type: ignore[arg-type]
    assert FULL.with_changes(bandwidth_mbit=math.inf).bandwidth_mbit is None


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
@pytest.mark.parametrize(
    "field", ["latency_s", "jitter", "bandwidth_mbit", "loss", "duplicates", "reorder"]
)
def test_a_number_out_of_range_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"^{field} is {value}: it must be "):
        NetworkConfig(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "words"),
    [("wann", "did you mean 'wan'?"), ("", "ideal, datacenter, lan, wan, lossy, or a .json file")],
)
def test_an_unknown_network_is_refused_with_the_known_names(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match="unknown network") as caught:
        read_network(name)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"latency": 1}, "it has an unknown key 'latency', did you mean 'latency_s'? Keys are pre"),
        ({"preset": "lann"}, "preset is 'lann': it must be one of ideal, datacenter, lan"),
        ({"preset": ["lan"]}, "preset is ['lan']: it must be one of"),
        ({"latency_s": None}, "latency_s is None: it must be a number"),
        ({"downlink_mbit": -5}, "downlink_mbit is -5: it must be above 0"),
        ({"hosts": {}}, "hosts is {}: it must be a list of tables"),
        ({"hosts": [["0", "1"]]}, 'hosts[0] is ["0", "1"]: it must be a table'),
        ({"hosts": [{"bandwidth_mbit": 5}]}, "hosts[0] needs workers"),
        ({"links": [{"shared": True}]}, "links[0]: shared needs bandwidth_mbit, that of all these"),
        ({"hosts": [{"workers": []}]}, "hosts[0]: workers names no worker"),
        ({"links": [{}, {"latency_s": -2}]}, "links[1]: latency_s is -2: it must be at least 0"),
        ({"links": [{"from": ["*", "1"]}]}, "links[0]: from names '*' among others"),
        ({"links": [{"to": [1.5]}]}, "links[0]: to is [1.5]: it must be an id, an index, a list"),
        ({"links": [{"source": "1"}]}, "links[0] has an unknown key 'source'. Keys are from, to,"),
        ("[]", "it is []: it must be a table"),
    ],
)
def test_an_invalid_network_file_is_refused_with_its_key(
    content: object, words: str, tmp_path: Path
) -> None:
    assert words in refusal(tmp_path / "net.json", content)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"loss": NaN}', "NaN is not a finite number"),
        (b'{"latency_s": 1' + b"0" * 400 + b"}", "is too large"),
    ],
)
def test_an_unreadable_network_file_is_refused_by_name(
    content: bytes, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "net.json"
    with pytest.raises(ConfigError, match=r"net.json cannot be read: No such file"):
        read_network(str(path))
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"net.json is not JSON: .*{words}"):
        read_network(str(path))
