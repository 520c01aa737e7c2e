"""``python -m rumor.sim.storm``: lists storms, draws one, and writes what commands read."""

from pathlib import Path

import pytest

from rumor.sim.models.network import read_network
from rumor.sim.storm import STORMS
from rumor.sim.storm.__main__ import main
from rumor.train.faults.schedule import check_faults, read_faults


def test_without_a_name_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    text = capsys.readouterr().out
    assert all(f"{name}  " in text for name in STORMS)
    assert all(len(line) <= 80 for line in text.splitlines())


def test_what_is_written_is_what_other_commands_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("home", "-n", "6", "--time-s", "120", "--scale", "720", "--out", str(tmp_path / "s"))
    main(words)
    text = capsys.readouterr().out
    faults = read_faults(tmp_path / "s/faults.json")
    check_faults(faults, [f"peer-{index}" for index in range(6)])
    assert {"slow", "crash"} <= {fault.kind for fault in faults}
    assert len(read_network(str(tmp_path / "s/network.json")).hosts) == 6
    assert "6 slow" in text and f"Faults: {tmp_path}" in text and "Network: " in text


def test_without_a_folder_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["torchft-60s", "--time-s", "600"])
    text = capsys.readouterr().out
    assert "30 peers in 600 s: " in text and "81.2 %" in text and not list(tmp_path.iterdir())


def test_a_storm_may_pass_by(capsys: pytest.CaptureFixture[str]) -> None:
    main(["spot", "-n", "1", "--time-s", "1"])
    assert "1 peer in 1 s: nothing" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("spto",), "unknown storm 'spto', did you mean 'spot'?"),
        (("spot", "--time-s", "0"), "duration_s is 0.0: it must be a number above 0"),
    ],
)
def test_what_is_wrong_is_said(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2 and said in capsys.readouterr().err
