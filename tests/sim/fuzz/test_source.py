"""Which commit is checked out, read without git."""

from pathlib import Path

from rumor.sim.fuzz.campaign import commit

HASH = "5d6ee064d378aa00000000000000000000000000"


def git(folder: Path, head: str) -> Path:
    (folder / ".git" / "refs" / "heads").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text(f"{head}\n", encoding="utf-8")
    return folder / ".git"


def test_a_branch_is_followed_to_its_commit(tmp_path: Path) -> None:
    inside = git(tmp_path, "ref: refs/heads/main")
    (inside / "refs" / "heads" / "main").write_text(f"{HASH}\n", encoding="utf-8")
    assert commit(tmp_path) == HASH


def test_a_branch_that_is_packed_away_is_found(tmp_path: Path) -> None:
    inside = git(tmp_path, "ref: refs/heads/main")
    lines = f"# pack-refs\n{'0' * 40} refs/heads/other\n{HASH} refs/heads/main\n"
    (inside / "packed-refs").write_text(lines, encoding="utf-8")
    assert commit(tmp_path) == HASH


def test_a_commit_may_be_checked_out_itself(tmp_path: Path) -> None:
    git(tmp_path, HASH)
    assert commit(tmp_path) == HASH


def test_elsewhere_there_is_none(tmp_path: Path) -> None:
    assert commit(tmp_path) is None
    git(tmp_path, "ref: refs/heads/unborn")
    assert commit(tmp_path) is None
