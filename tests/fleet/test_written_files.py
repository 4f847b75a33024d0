"""Files that others can see coming: what lies where they are written is neither followed nor taken over."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from penstock.errors import ActionFailed
from penstock.fleet.files import write_whole


@pytest.mark.parametrize("trap", ["symbolic", "hard", "open"])
def test_a_trap_beside_a_file_catches_nothing(tmp_path: Path, trap: str):
    """The unfinished file once had the process's number for a name, which everybody can see."""
    precious, path = tmp_path / "precious", tmp_path / "shared" / "batch.jsonl"
    precious.write_text("precious")
    path.parent.mkdir()
    guessed = path.with_name(f".{path.name}.{os.getpid()}")
    if trap == "symbolic":
        guessed.symlink_to(precious)
    elif trap == "hard":
        guessed.hardlink_to(precious)
    else:
        guessed.write_text("theirs")
    before = guessed.stat().st_ino
    write_whole(path, b"ours")
    assert path.read_bytes() == b"ours" and precious.read_text() == "precious"
    assert path.stat().st_ino != before, "whoever made a file may still have it open"


def test_nothing_unfinished_is_left_behind(tmp_path: Path):
    (tmp_path / "directory").mkdir()
    with pytest.raises(ActionFailed, match="cannot be written"):
        write_whole(tmp_path / "directory", b"x")
    write_whole(tmp_path / "file", b"x")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["directory", "file"]


def test_a_link_in_the_files_own_place_is_replaced_and_not_followed(tmp_path: Path):
    (tmp_path / "target").write_text("precious")
    (tmp_path / "file").symlink_to(tmp_path / "target")
    write_whole(tmp_path / "file", b"x")
    assert (tmp_path / "target").read_text() == "precious" and not (tmp_path / "file").is_symlink()


def test_others_may_read_a_fleets_file_and_not_write_it(tmp_path: Path):
    before = os.umask(0)
    try:
        write_whole(tmp_path / "file", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644
